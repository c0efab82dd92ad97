package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

// DeviceInfo is a device as the relay describes it.
type DeviceInfo struct {
	DeviceID    string      `json:"device_id"`
	Kind        DeviceKind  `json:"kind"`
	Label       string      `json:"label"` // what it called itself when it enrolled
	State       DeviceState `json:"state"`
	Admin       bool        `json:"admin"`
	Fingerprint string      `json:"fingerprint"` // the relay's word; empty for a device without keys
	CreatedAt   time.Time   `json:"created_at"`
	ApprovedAt  *time.Time  `json:"approved_at,omitzero"`
	RevokedAt   *time.Time  `json:"revoked_at,omitzero"`
}

// NewInvite says for whom an invite is.
type NewInvite struct {
	Kind  DeviceKind    // empty: an agent, or with Admin a human
	Admin bool          // the device is an admin and needs no approval
	TTL   time.Duration // whole seconds, at most 10 minutes; 0: 10 minutes
}

// Invite lets one device enroll.
type Invite struct {
	InviteID  string     `json:"invite_id"`
	Token     string     `json:"token"` // shown once, here
	Kind      DeviceKind `json:"kind"`
	Admin     bool       `json:"admin"`
	ExpiresAt time.Time  `json:"expires_at"` // by the relay's clock
}

// Info returns how the relay describes this device.
func (d *Device) Info(ctx context.Context) (DeviceInfo, error) {
	info, err := d.DeviceInfo(ctx, d.ID())
	if err != nil {
		return DeviceInfo{}, err
	}
	return info, d.noteState(info.State)
}

// DeviceInfo returns how the relay describes a device; another one than itself only to an
// admin.
func (d *Device) DeviceInfo(ctx context.Context, device string) (DeviceInfo, error) {
	var info DeviceInfo
	if err := checkIDs(device); err != nil {
		return info, fmt.Errorf("device %q: %w", device, err)
	}
	err := d.call(ctx, request{method: http.MethodGet, path: "/v1/devices/" + device, answer: &info})
	return info, step("look at the device", err)
}

// CreateInvite makes an invite, as an admin.
func (d *Device) CreateInvite(ctx context.Context, invite NewInvite) (Invite, error) {
	body := struct {
		Kind  DeviceKind `json:"kind,omitzero"`
		Admin bool       `json:"admin,omitzero"`
		TTL   int64      `json:"ttl_seconds,omitzero"`
	}{invite.Kind, invite.Admin, int64(invite.TTL / time.Second)}
	var made Invite
	err := d.call(ctx, request{method: http.MethodPost, path: "/v1/invites", body: body, answer: &made})
	return made, step("make the invite", err)
}

// RevokeInvite takes an invite back, as an admin. It may be repeated.
func (d *Device) RevokeInvite(ctx context.Context, invite string) error {
	if err := checkIDs(invite); err != nil {
		return fmt.Errorf("invite %q: %w", invite, err)
	}
	return step("revoke the invite", d.call(ctx, request{method: http.MethodDelete, path: "/v1/invites/" + invite}))
}

// Devices lists the devices of the relay in the order of their enrollment, as an admin;
// with a state only those in it. After an error it ends.
func (d *Device) Devices(ctx context.Context, state DeviceState) iter.Seq2[DeviceInfo, error] {
	return pages(func(cursor string) ([]DeviceInfo, string, error) {
		query := pageQuery(cursor)
		if state != "" {
			query.Set("state", string(state))
		}
		var page struct {
			Devices    []DeviceInfo `json:"devices"`
			NextCursor string       `json:"next_cursor"`
		}
		err := d.call(ctx, request{method: http.MethodGet, path: "/v1/devices", query: query, answer: &page})
		return page.Devices, page.NextCursor, step("list the devices", err)
	})
}

// ApproveDevice approves a device, as an admin. The fingerprint is the one that the device
// itself shows, read there by a person, and never the one of DeviceInfo. It returns
// ErrFingerprint for a text that is none, and for one that is not what the relay has; and
// ErrKeysChanged where this device knows other keys of it. From then on that fingerprint is
// remembered as compared (Peer), whatever becomes of the approval.
func (d *Device) ApproveDevice(ctx context.Context, device, fingerprint string) (DeviceInfo, error) {
	if _, err := identity.ParseFingerprint(fingerprint); err != nil {
		return DeviceInfo{}, fmt.Errorf("%w: %w", ErrFingerprint, err)
	}
	known, err := d.DeviceInfo(ctx, device)
	if err != nil {
		return DeviceInfo{}, err
	}
	if !identity.EqualFingerprints(known.Fingerprint, fingerprint) {
		return DeviceInfo{}, fmt.Errorf("%w of this device: the relay has %q. Somebody else may have enrolled it", ErrFingerprint, known.Fingerprint)
	}
	err = d.store.Update(func(tx *keystore.Tx) error { return verifyFingerprint(tx, device, fingerprint) })
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("remember the fingerprint: %w", err)
	}
	return d.moveDevice(ctx, device, "approve", map[string]string{"fingerprint": fingerprint})
}

// SuspendDevice suspends an ACTIVE device, as an admin: its connections are closed before
// it returns, and nothing of it is valid until ReinstateDevice. It may be repeated.
func (d *Device) SuspendDevice(ctx context.Context, device string) (DeviceInfo, error) {
	return d.moveDevice(ctx, device, "suspend", nil)
}

// ReinstateDevice ends a suspension, as an admin. It may be repeated.
func (d *Device) ReinstateDevice(ctx context.Context, device string) (DeviceInfo, error) {
	return d.moveDevice(ctx, device, "reinstate", nil)
}

// RevokeDevice revokes an ACTIVE device for ever, as an admin: it is in no room any more,
// and its connections are closed before this returns. It may be repeated.
func (d *Device) RevokeDevice(ctx context.Context, device string) (DeviceInfo, error) {
	return d.moveDevice(ctx, device, "revoke", nil)
}

func (d *Device) moveDevice(ctx context.Context, device, move string, body any) (DeviceInfo, error) {
	var info DeviceInfo
	if err := checkIDs(device); err != nil {
		return info, fmt.Errorf("device %q: %w", device, err)
	}
	err := d.call(ctx, request{method: http.MethodPost, path: "/v1/devices/" + device + "/" + move, body: body, answer: &info})
	return info, step(move+" the device", err)
}

// step names what was being done.
func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func pageQuery(cursor string) url.Values {
	query := url.Values{"limit": {strconv.Itoa(maxPage)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}

// pages is a list that comes in pages. A relay whose cursor does not move on ends it.
func pages[T any](fetch func(cursor string) (rows []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			rows, next, err := fetch(cursor)
			if err == nil && next != "" && (next == cursor || len(rows) == 0) {
				err = errAnswer
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}
