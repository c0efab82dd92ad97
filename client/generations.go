package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"
)

// Generation is what the relay allocated to a sender key.
type Generation struct {
	Gen         uint64    `json:"gen"` // rises per participant and room, from 1
	KID         string    `json:"kid"` // in base64url
	AllocatedAt time.Time `json:"allocated_at"`
}

// AllocateGeneration publishes the session key of a sender key under kid, which is random, and
// returns the gen that its envelopes carry (RELAY, "Sender-key identity compatibility"). relay is
// the relay's address, as for EnrollDevice or Dial; credential is the participant's, and
// session its room. sessionKey has 1 to 1,024 bytes, which everybody in the room may read. It may
// be repeated: the same kid and key are the same gen. A refusal is an *APIError, as for a viewer
// (forbidden) or in an archived room (room_archived).
func AllocateGeneration(ctx context.Context, relay, credential, session string, kid [16]byte, sessionKey []byte) (Generation, error) {
	var made Generation
	if err := checkIDs(session); err != nil {
		return made, fmt.Errorf("session %q: %w", session, err)
	}
	caller, err := newCaller(relay, DeviceOptions{})
	if err != nil {
		return made, err
	}
	defer caller.http.CloseIdleConnections()
	r := newGeneration(kid, sessionKey, &made)
	r.path = "/v1/sessions/" + session + r.path
	return made, allocated(&made, caller.call(ctx, credential, r))
}

// allocateGeneration is AllocateGeneration for the participant that this device is in a room.
func (d *Device) allocateGeneration(ctx context.Context, room string, kid [16]byte, sessionKey []byte) (Generation, error) {
	var made Generation
	r := newGeneration(kid, sessionKey, &made)
	return made, allocated(&made, d.inSession(ctx, room, r.path, r))
}

// newGeneration is the request below a room's address.
func newGeneration(kid [16]byte, sessionKey []byte, made *Generation) request {
	return request{method: http.MethodPost, path: "/sender-generations", answer: made, body: map[string]string{
		"kid":         base64.RawURLEncoding.EncodeToString(kid[:]),
		"session_key": base64.StdEncoding.EncodeToString(sessionKey),
	}}
}

func allocated(made *Generation, err error) error {
	if err == nil && made.Gen == 0 {
		err = errAnswer
	}
	return step("allocate a generation", err)
}
