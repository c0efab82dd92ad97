package senderkey

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/wire"
)

// maxPayload is more than any payload here has, in bytes.
const maxPayload = 256

const payloadVersion = 1

// Types of payloads.
const (
	typeSenderKey   = "sender_key"
	typeKeyRequest  = "key_request"
	typeUnavailable = "key_unavailable"
)

// payload has the members of all payloads in the order of RFC 8785, so that encoding it is
// canonical: they are ASCII strings that need no escapes, and integers.
type payload struct {
	CK        string  `json:"ck,omitempty"`
	Gen       uint64  `json:"gen"`
	ID        string  `json:"id,omitempty"`
	Iteration *uint32 `json:"iteration,omitempty"`
	KID       string  `json:"kid,omitempty"`
	Type      string  `json:"type"`
	V         int     `json:"v"`
}

func (p *payload) encode() []byte {
	p.V = payloadVersion
	data, err := json.Marshal(p)
	if err != nil {
		panic("senderkey: " + err.Error()) // strings and integers only
	}
	return data
}

// parsePayload reads one of that type. Whatever does not encode to the same bytes again is
// refused: other members, repeated ones, another order, spaces, other numbers.
func parsePayload(data []byte, kind string) (*payload, error) {
	if len(data) > maxPayload {
		return nil, ErrPayload
	}
	var p payload
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, ErrPayload // its text could show a key
	}
	switch {
	case p.Type != kind, p.V != payloadVersion, p.Gen > wire.MaxInteger:
		return nil, ErrPayload
	case (p.CK != "") != (kind == typeSenderKey), (p.Iteration != nil) != (kind == typeSenderKey):
		return nil, ErrPayload
	case (p.ID != "") != (kind == typeKeyRequest), !bytes.Equal(p.encode(), data):
		return nil, ErrPayload
	}
	return &p, nil
}

// kid is the zero one where there is none.
func (p *payload) kid() (KID, error) {
	if p.KID == "" {
		return KID{}, nil
	}
	return ParseKID(p.KID)
}

func kidText(kid KID) string {
	if kid == (KID{}) {
		return ""
	}
	return kid.String()
}

// Distribution gives a key to another member, from an iteration on. Anybody who sees one can
// read the messages, so it is sent in pairwise envelopes only, and prints without the key.
type Distribution struct {
	KID       KID // zero: of a peer that has none
	Gen       uint64
	Iteration uint32
	CK        [32]byte
}

// Encode returns the payload of a senderkey envelope.
func (d Distribution) Encode() []byte {
	return (&payload{
		CK: encoding.EncodeToString(d.CK[:]), Gen: d.Gen, Iteration: &d.Iteration, KID: kidText(d.KID), Type: typeSenderKey,
	}).encode()
}

// Format prints no key.
func (d Distribution) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "sender key %v, gen %d, from iteration %d", d.KID, d.Gen, d.Iteration)
}

// ParseDistribution reads the payload of a senderkey envelope. ErrPayload for anything else.
func ParseDistribution(data []byte) (Distribution, error) {
	p, err := parsePayload(data, typeSenderKey)
	if err != nil {
		return Distribution{}, err
	}
	d := Distribution{Gen: p.Gen, Iteration: *p.Iteration}
	if d.KID, err = p.kid(); err != nil {
		return Distribution{}, err
	}
	if d.Iteration >= MaxIterations || !parseBytes(d.CK[:], p.CK) {
		return Distribution{}, ErrPayload
	}
	return d, nil
}

// RequestID is random and tells requests apart.
type RequestID [16]byte

// KeyRequest asks the sender of a key for it, in a pairwise key_request envelope.
type KeyRequest struct {
	ID  RequestID
	KID KID // zero: by Gen
	Gen uint64
}

func newRequestID(random io.Reader) (id RequestID, err error) {
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return RequestID{}, fmt.Errorf("new request: %w", err)
	}
	return id, nil
}

// Encode returns the payload.
func (r KeyRequest) Encode() []byte {
	return (&payload{Gen: r.Gen, ID: encoding.EncodeToString(r.ID[:]), KID: kidText(r.KID), Type: typeKeyRequest}).encode()
}

// ParseKeyRequest reads the payload. ErrPayload for anything else.
func ParseKeyRequest(data []byte) (KeyRequest, error) {
	p, err := parsePayload(data, typeKeyRequest)
	if err != nil {
		return KeyRequest{}, err
	}
	r := KeyRequest{Gen: p.Gen}
	if r.KID, err = p.kid(); err != nil {
		return KeyRequest{}, err
	}
	if !parseBytes(r.ID[:], p.ID) {
		return KeyRequest{}, ErrPayload
	}
	return r, nil
}

// KeyUnavailable says that the sender of a key does not have it, in a pairwise key_request
// envelope.
type KeyUnavailable struct {
	KID KID // zero: by Gen
	Gen uint64
}

// Encode returns the payload.
func (u KeyUnavailable) Encode() []byte {
	return (&payload{Gen: u.Gen, KID: kidText(u.KID), Type: typeUnavailable}).encode()
}

// ParseKeyUnavailable reads the payload. ErrPayload for anything else.
func ParseKeyUnavailable(data []byte) (KeyUnavailable, error) {
	p, err := parsePayload(data, typeUnavailable)
	if err != nil {
		return KeyUnavailable{}, err
	}
	u := KeyUnavailable{Gen: p.Gen}
	if u.KID, err = p.kid(); err != nil {
		return KeyUnavailable{}, err
	}
	return u, nil
}
