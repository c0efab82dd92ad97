package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/peerrelay/peerrelay/identity"
)

// Enrollment is what a device enrolls with.
type Enrollment struct {
	RelayURL string     // the relay's address; that of its WebSocket means the same relay
	Invite   string     // the token of an invite; never logged, never in an error
	Kind     DeviceKind // the invite's
	Label    string     // for people, at most 128 code points
}

// EnrollDevice makes the keys of a new device, enrolls it and keeps it in a folder, which
// is made (mode 0700) or has to be the caller's alone. The device is PENDING until an admin
// has compared its Fingerprint and approved it; with an admin's invite it is APPROVED.
//
// The keys are on disk before the relay is asked. Where no answer comes it is not known
// whether the device enrolled: it is then no device of this folder, and another invite is
// needed for another attempt, which makes new keys. It returns ErrEnrolled where a device
// has enrolled in the folder, and ErrInvite for a text that is no token.
func EnrollDevice(ctx context.Context, dir string, e Enrollment, options DeviceOptions) (*Device, error) {
	token, ok := decodeToken(e.Invite)
	if !ok {
		return nil, ErrInvite
	}
	base, err := relayURL(e.RelayURL)
	if err != nil {
		return nil, err
	}
	home := folder(dir)
	if err := home.vacant(); err != nil {
		return nil, err
	}
	self := record{Version: recordVersion, Relay: base.String(), Kind: e.Kind, Label: e.Label}
	if err := self.newKeys(); err != nil {
		return nil, err
	}
	d, err := newDevice(home, self, options)
	if err != nil {
		return nil, err
	}
	if err := home.write(deviceFile, self); err != nil {
		return nil, err
	}
	if err := d.enroll(ctx, e.Invite, token); err != nil {
		_ = d.Close()
		if _, refused := errors.AsType[*APIError](err); refused {
			_ = os.Remove(home.path(deviceFile)) // keys of nobody
		}
		return nil, err
	}
	return d, nil
}

// vacant makes the folder, and refuses one that has a device.
func (f folder) vacant() error {
	if err := f.make(); err != nil {
		return err
	}
	_, err := f.device()
	switch {
	case err == nil:
		return fmt.Errorf("%s: %w", string(f), ErrEnrolled)
	case errors.Is(err, ErrNoDevice):
		return nil
	}
	return err
}

func (d *Device) enroll(ctx context.Context, invite string, token [32]byte) error {
	keys := d.keys.public
	proof := identity.SignEnrollment(d.keys.identity, token, &keys)
	var enrolled struct {
		DeviceID    string      `json:"device_id"`
		State       DeviceState `json:"state"`
		Fingerprint string      `json:"fingerprint"`
	}
	err := d.api.call(ctx, "", request{
		method: http.MethodPost, path: "/v1/enroll", answer: &enrolled,
		body: map[string]string{
			"token": invite, "kind": string(d.self.Kind), "label": d.self.Label,
			"identity_key":        base64.StdEncoding.EncodeToString(keys.Identity[:]),
			"agreement_key":       base64.StdEncoding.EncodeToString(keys.Agreement[:]),
			"agreement_signature": base64.StdEncoding.EncodeToString(keys.AgreementSignature[:]),
			"proof":               base64.StdEncoding.EncodeToString(proof[:]),
		},
	})
	if err != nil {
		return fmt.Errorf("enroll: %w", err)
	}
	if checkIDs(enrolled.DeviceID) != nil {
		return fmt.Errorf("enroll: %w", errAnswer)
	}
	if !identity.EqualFingerprints(enrolled.Fingerprint, keys.Fingerprint()) {
		return fmt.Errorf("enroll: %w", ErrFingerprint) // it has other keys for this device than we have
	}
	d.self.DeviceID, d.self.State, d.state = enrolled.DeviceID, enrolled.State, enrolled.State
	return d.home.write(deviceFile, d.self)
}

// PublishKeys starts the device's key exchange: APPROVED becomes ACTIVE. It may be repeated.
func (d *Device) PublishKeys(ctx context.Context) (DeviceInfo, error) {
	keys := d.keys.public
	var active DeviceInfo
	err := d.call(ctx, request{
		method: http.MethodPut, path: "/v1/devices/me/keys", answer: &active,
		body: map[string]string{
			"agreement_key":       base64.StdEncoding.EncodeToString(keys.Agreement[:]),
			"agreement_signature": base64.StdEncoding.EncodeToString(keys.AgreementSignature[:]),
		},
	})
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("publish the keys: %w", err)
	}
	return active, d.noteState(active.State)
}

// noteState remembers a state for those who ask without the relay.
func (d *Device) noteState(state DeviceState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == state {
		return nil
	}
	d.state = state
	self := d.self
	self.State = state
	return d.home.write(deviceFile, self)
}
