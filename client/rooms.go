package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Role is what a participant may do in a room.
type Role string

// Roles.
const (
	RoleOwner      Role = "owner"
	RoleController Role = "controller"
	RoleAgent      Role = "agent"
	RoleViewer     Role = "viewer" // reads, and sends nothing
)

// RoomState is the state of a room (STATE, "Room State Machine").
type RoomState string

// States of a room.
const (
	RoomCreated  RoomState = "CREATED"
	RoomActive   RoomState = "ACTIVE"
	RoomRekeying RoomState = "REKEYING" // somebody left who knows the keys
	RoomArchived RoomState = "ARCHIVED"
)

// NewRoom says what room to make; empty members are the relay's defaults.
type NewRoom struct {
	Kind            string `json:"kind,omitzero"`             // group (default) or direct
	Scheme          string `json:"scheme,omitzero"`           // sender_keys (default), mls or none; in a direct room double_ratchet
	PrivateMessages string `json:"private_messages,omitzero"` // allowed (default) or refused
}

// Room is a room as the relay describes it.
type Room struct {
	RoomID          string    `json:"room_id"`
	Kind            string    `json:"kind"`
	Scheme          string    `json:"scheme"`
	PrivateMessages string    `json:"private_messages"`
	State           RoomState `json:"state"`
	Version         int64     `json:"version"`            // rises with every change
	Activated       *bool     `json:"activated,omitzero"` // direct rooms that are encrypted: the owner has written first
	CreatedAt       time.Time `json:"created_at"`

	ParticipantID string        `json:"participant_id,omitzero"` // who this device is there; empty in lists, and for an admin who is not in the room
	Participants  []Participant `json:"participants,omitzero"`   // of Device.Room only
}

// Participant is a device's membership of a room.
type Participant struct {
	ParticipantID string    `json:"participant_id"`
	RoomID        string    `json:"room_id,omitzero"`
	DeviceID      string    `json:"device_id"`
	Role          Role      `json:"role"`
	JoinedAt      time.Time `json:"joined_at"`
	LeftAt        time.Time `json:"left_at,omitzero"` // zero: is in the room

	// The device's public keys in base64, as the relay has them; see Keys.
	IdentityKey        string `json:"identity_key,omitzero"`
	AgreementKey       string `json:"agreement_key,omitzero"`
	AgreementSignature string `json:"agreement_signature,omitzero"`

	// Warning of AddMember: done, but not known to every node of the relay yet.
	Warning string `json:"warning,omitzero"`
}

// Keys returns the public keys of the participant's device, if they are ones that a device
// may have (FAULTS H10), else identity.ErrKeys; so it does for a device without keys. Whose
// they are is the relay's word until somebody compared their Fingerprint.
func (p *Participant) Keys() (identity.Keys, error) {
	var keys identity.Keys
	for _, part := range []struct {
		text string
		into []byte
	}{
		{p.IdentityKey, keys.Identity[:]},
		{p.AgreementKey, keys.Agreement[:]},
		{p.AgreementSignature, keys.AgreementSignature[:]},
	} {
		data, err := base64.StdEncoding.Strict().DecodeString(part.text)
		if err != nil || len(data) != len(part.into) {
			return identity.Keys{}, fmt.Errorf("participant %s: %w", p.ParticipantID, identity.ErrKeys)
		}
		copy(part.into, data)
	}
	if err := keys.Check(); err != nil {
		return identity.Keys{}, fmt.Errorf("participant %s: %w", p.ParticipantID, err)
	}
	return keys, nil
}

// Credential opens WebSockets as a participant, until it expires or the membership ends.
type Credential struct {
	Token         string    `json:"credential"` // shown once, here
	CredentialID  string    `json:"credential_id"`
	ParticipantID string    `json:"participant_id"`
	RoomID        string    `json:"room_id"`
	ExpiresAt     time.Time `json:"expires_at"` // by the relay's clock
}

// CreateRoom makes a room that this device owns, which has to be a human's.
func (d *Device) CreateRoom(ctx context.Context, room NewRoom) (Room, error) {
	var made Room
	err := d.call(ctx, request{method: http.MethodPost, path: "/v1/rooms", body: room, answer: &made})
	return made, step("make the room", err)
}

// Rooms lists the rooms the device is in. After an error it ends. What is stored of a room that was in
// none of the lists of a day is forgotten, but for what nobody has taken yet.
func (d *Device) Rooms(ctx context.Context) iter.Seq2[Room, error] {
	return func(yield func(Room, error) bool) {
		known, listed := d.knownRooms(), make(map[string]bool)
		for room, err := range d.roomPages(ctx) {
			listed[room.RoomID] = true
			if !yield(room, err) || err != nil {
				return
			}
		}
		d.noteListed(known, listed)
	}
}

func (d *Device) roomPages(ctx context.Context) iter.Seq2[Room, error] {
	return pages(func(cursor string) ([]Room, string, error) {
		var page struct {
			Rooms      []Room `json:"rooms"`
			NextCursor string `json:"next_cursor"`
		}
		err := d.call(ctx, request{method: http.MethodGet, path: "/v1/rooms", query: pageQuery(cursor), answer: &page})
		return page.Rooms, page.NextCursor, step("list the rooms", err)
	})
}

// Room returns a room with its participants. A room that the device may not see is
// wire.NotFound, as one that does not exist.
func (d *Device) Room(ctx context.Context, room string) (Room, error) {
	var found Room
	err := d.inRoom(ctx, room, "", request{method: http.MethodGet, answer: &found})
	return found, step("look at the room", err)
}

// ownRoom returns a room that this device is in. Others, which an admin sees, are ErrNotMember.
func (d *Device) ownRoom(ctx context.Context, room string) (Room, error) {
	found, err := d.Room(ctx, room)
	if err == nil && found.ParticipantID == "" {
		err = fmt.Errorf("%w: this device is not in it", ErrNotMember)
	}
	return found, err
}

// AddMember adds an ACTIVE device to a room, as its owner or an admin.
func (d *Device) AddMember(ctx context.Context, room, device string, role Role) (Participant, error) {
	var added Participant
	if err := checkIDs(device); err != nil {
		return added, fmt.Errorf("device %q: %w", device, err)
	}
	body := map[string]string{"device_id": device, "role": string(role)}
	err := d.inRoom(ctx, room, "/members", request{method: http.MethodPost, body: body, answer: &added})
	return added, step("add the member", err)
}

// RemoveMember ends a membership, as the room's owner or an admin, or the device's own. The
// one who left can do nothing in the room any more when it returns. It may be repeated.
func (d *Device) RemoveMember(ctx context.Context, room, participant string) error {
	if err := checkIDs(participant); err != nil {
		return fmt.Errorf("participant %q: %w", participant, err)
	}
	return step("remove the member", d.inRoom(ctx, room, "/members/"+participant, request{method: http.MethodDelete}))
}

// LeaveRoom ends this device's own membership, and forgets all that is stored of it, the keys too, but
// what came and nobody has taken yet: a session of the room hands that over and then says that the device is not in it.
func (d *Device) LeaveRoom(ctx context.Context, room string) error {
	found, err := d.Room(ctx, room)
	if err != nil {
		return err
	}
	if found.ParticipantID == "" { // an admin, who sees rooms it is not in
		return fmt.Errorf("leave the room: %w", &wire.Error{Code: wire.NotFound, Detail: "this device is not in it"})
	}
	if err := d.RemoveMember(ctx, room, found.ParticipantID); err != nil {
		return err
	}
	return step("forget the room", d.left(room, found.ParticipantID))
}

// ArchiveRoom closes a room for good, as its owner or an admin: nothing is stored in it any
// more, and members may read on. It may be repeated.
func (d *Device) ArchiveRoom(ctx context.Context, room string) (Room, error) {
	return d.changeRoom(ctx, room, "archive")
}

// ResetRoom begins all encryption state of a room anew (STATE, "Corrupt State"), as its owner
// or an admin; in a room of scheme double_ratchet as any member.
func (d *Device) ResetRoom(ctx context.Context, room string) (Room, error) {
	return d.changeRoom(ctx, room, "reset")
}

func (d *Device) changeRoom(ctx context.Context, room, change string) (Room, error) {
	var changed Room
	err := d.inRoom(ctx, room, "/"+change, request{method: http.MethodPost, answer: &changed})
	return changed, step(change+" the room", err)
}

// MintCredential makes a credential of the participant that this device is in the room. life
// is in whole seconds; 0 leaves it to the relay, which takes a day.
func (d *Device) MintCredential(ctx context.Context, room string, life time.Duration) (Credential, error) {
	body := struct {
		TTL int64 `json:"ttl_seconds,omitzero"`
	}{int64(life / time.Second)}
	var made Credential
	err := d.inRoom(ctx, room, "/credentials", request{method: http.MethodPost, body: body, answer: &made})
	if _, ok := decodeToken(made.Token); err == nil && !ok {
		err = errAnswer
	}
	return made, step("mint a credential", err)
}

// inRoom makes a request below a room's address.
func (d *Device) inRoom(ctx context.Context, room, path string, r request) error {
	if err := checkIDs(room); err != nil {
		return fmt.Errorf("room %q: %w", room, err)
	}
	r.path = "/v1/rooms/" + room + path
	return d.call(ctx, r)
}
