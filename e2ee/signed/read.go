package signed

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// Message is an envelope that was read and whose signature was verified.
type Message struct {
	Envelope

	Nonce []byte // seal.NonceSize bytes, or none
	CT    []byte
	aad   []byte
}

// AAD returns the canonical form of what was received, without ct and sig.
func (m *Message) AAD() []byte { return bytes.Clone(m.aad) }

// Open decrypts CT with key. The error is seal.ErrOpen.
func (m *Message) Open(key [seal.KeySize]byte) ([]byte, error) {
	if len(m.Nonce) != seal.NonceSize {
		return nil, seal.ErrOpen
	}
	return seal.Open(key, [seal.NonceSize]byte(m.Nonce), m.CT, m.aad)
}

// Expected is what a reader demands of an envelope (FAULTS J05).
type Expected struct {
	SessionID string // the room whose inbox or history it came from
	From      Member // the participant that Claimed names, as the roster has it
	Self      string // the reader's participant id; an envelope may be for it or for the session
}

// Claims is what an envelope says of itself, unverified: good for finding the keys to Read
// it with, and the line of a log, and nothing else.
type Claims struct {
	ID        string
	SessionID string
	From      string
	To        string
	Kind      wire.Kind
}

// Claimed returns what an envelope says of itself. The error is ErrEnvelope or ErrTooLarge;
// an envelope without error may still be one that Read refuses.
func Claimed(raw []byte) (Claims, error) {
	if len(raw) > wire.MaxMessage {
		return Claims{}, ErrTooLarge
	}
	var frame wire.ClientFrame
	if err := wire.ParseClient(raw, &frame); err != nil || frame.Type != wire.FrameEnvelope {
		return Claims{}, fmt.Errorf("%w: it is no envelope", ErrEnvelope)
	}
	e := &frame.Envelope
	if err := e.Check(); err != nil {
		return Claims{}, fmt.Errorf("%w: %s", ErrEnvelope, err.Detail)
	}
	return Claims{ID: string(e.ID), SessionID: string(e.SessionID), From: string(e.From), To: string(e.To), Kind: e.Kind}, nil
}

// Read verifies the signature of an envelope, then reads it, and compares it with what is
// expected. The error is, in this order,
//
//   - ErrTooLarge: it has more than wire.MaxMessage bytes,
//   - ErrCanonical: it has no canonical form,
//   - ErrSignature: it has no signature, or none by expected.From,
//   - ErrEnvelope: it has a member that envelopes do not have, lacks one, or breaks a rule
//     of Envelope, or a value has another spelling than Sign would write, and
//   - ErrContext: from, session_id or to are not the expected ones.
//
// The values of other members than sig are not looked at before the signature is verified.
func Read(raw []byte, expected *Expected) (*Message, error) {
	if len(raw) > wire.MaxMessage {
		return nil, ErrTooLarge
	}
	form, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	members, err := split(form)
	if err != nil {
		return nil, err
	}
	sig, err := verify(members, expected.From.Identity())
	if err != nil {
		return nil, err
	}
	m, err := decode(form, sig)
	if err != nil {
		return nil, err
	}
	switch {
	case m.From != expected.From.ID():
		return nil, fmt.Errorf("%w: another participant sent it", ErrContext)
	case m.SessionID != expected.SessionID:
		return nil, fmt.Errorf("%w: it is of another room", ErrContext)
	case m.To != expected.SessionID && m.To != expected.Self:
		return nil, fmt.Errorf("%w: it is for another participant", ErrContext)
	}
	m.aad = members.without("ct", "sig")
	return m, nil
}

// verify returns the signature when the key made it.
func verify(members object, key [32]byte) ([]byte, error) {
	sig, ok := decodeBytes(members.get("sig"))
	if !ok || len(sig) != ed25519.SignatureSize || key == [32]byte{} {
		return nil, ErrSignature
	}
	signed := append([]byte(labelEnvelope), members.without("sig")...)
	if !ed25519.Verify(key[:], signed, sig) {
		return nil, ErrSignature
	}
	return sig, nil
}

// decodeBytes reads a canonical JSON string of base64.
func decodeBytes(value jsontext.Value) ([]byte, bool) {
	if value.Kind() != jsontext.KindString {
		return nil, false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	return b, err == nil
}

// members are those of an envelope, decoded.
type members struct {
	CT        []byte  `json:"ct"`
	Enc       string  `json:"enc"`
	ExpiresAt uint64  `json:"expires_at"`
	File      *header `json:"file"`
	From      string  `json:"from"`
	Gen       uint64  `json:"gen"`
	Hdr       []byte  `json:"hdr"`
	ID        string  `json:"id"`
	KID       string  `json:"kid"`
	Kind      string  `json:"kind"`
	Nonce     []byte  `json:"nonce"`
	Seq       uint64  `json:"seq"`
	SessionID string  `json:"session_id"`
	Sig       []byte  `json:"sig"`
	To        string  `json:"to"`
	TS        uint64  `json:"ts"`
	V         uint64  `json:"v"`
}

type header struct {
	MIMEType  string `json:"mimeType"`
	Name      string `json:"name"`
	SizeBytes uint64 `json:"sizeBytes"`
}

// decode reads a canonical envelope. What is missing, what is spelled in another way, null
// and empty optional members make another form when they are written again, so that one
// comparison finds all of them.
func decode(form, sig []byte) (*Message, error) {
	var read members
	if err := json.Unmarshal(form, &read, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: a member is unknown or of another type", ErrEnvelope)
	}
	m := &Message{
		Envelope: Envelope{
			ID: read.ID, SessionID: read.SessionID, From: read.From, To: read.To, Kind: kindOf(read.Kind),
			Gen: read.Gen, Seq: read.Seq, TS: read.TS, KID: read.KID, Enc: read.Enc, ExpiresAt: read.ExpiresAt,
		},
		Nonce: read.Nonce,
		CT:    read.CT,
	}
	if read.File != nil {
		m.File = &File{Name: read.File.Name, MIMEType: read.File.MIMEType, SizeBytes: read.File.SizeBytes}
	}
	if len(read.Hdr) != 0 {
		m.Hdr = read.Hdr
	}
	if err := m.check(m.Nonce); err != nil {
		return nil, err
	}
	if m.CT == nil || !bytes.Equal(form, m.append(nil, m.Nonce, m.CT, sig)) {
		return nil, fmt.Errorf("%w: a member is missing, empty or spelled in another way", ErrEnvelope)
	}
	return m, nil
}

func kindOf(text string) wire.Kind {
	for kind := wire.KindMessage; kind <= wire.KindKeyRequest; kind++ {
		if kind.String() == text {
			return kind
		}
	}
	return 0
}
