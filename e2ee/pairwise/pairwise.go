// Package pairwise is private envelopes between two participants of a room: messages with enc
// "pairwise", and the kinds senderkey, control and key_request (RELAY, "Client 0.2.9").
//
// There is one key for each direction:
//
//	HKDF-SHA256(ikm  = X25519(own agreement key, the other one's),
//	            salt = session_id(16),
//	            info = "peerrelay/pairwise/v1" 0 from(16) to(16),
//	            32 bytes)
//
// with ids as the 16 bytes that their text stands for (RFC 5869, RFC 7748). What A sealed for B
// is under another key than what B seals for A, so that it cannot be sent back (FAULTS J05),
// and a room's keys open nothing of another room. Envelopes are sealed and signed as package
// signed says.
//
// The keys last as long as the devices' agreement keys: there is no forward secrecy. Direct
// rooms have it.
package pairwise

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Enc is the marker of private messages.
const Enc = "pairwise"

const labelPairwise = "peerrelay/pairwise/v1\x00"

// ErrPairwise says that an envelope, or what one is asked to be made of, is not private
// between two participants.
var ErrPairwise = errors.New("not a private envelope")

// Own is the participant that a Channel works for, with the private keys of its device.
type Own struct {
	ID        string
	Identity  ed25519.PrivateKey
	Agreement *ecdh.PrivateKey // X25519
}

// Channel is both directions between Own and another participant of one room. It has no
// state that changes, so that any number of goroutines may use it, and prints no keys.
type Channel struct {
	session string
	own     string
	peer    signed.Member
	secret  *secrets // behind a pointer, which fmt does not follow
}

type secrets struct {
	identity ed25519.PrivateKey
	send     [seal.KeySize]byte
	receive  [seal.KeySize]byte
}

// Header is what the sender of a private envelope chooses; the rest follows from the Channel.
// The members are those of signed.Envelope, and have its rules.
type Header struct {
	ID   string
	Kind wire.Kind // KindMessage, KindSenderKey, KindControl or KindKeyRequest
	Gen  uint64
	Seq  uint64
	TS   uint64
	File *signed.File // messages only, and readable for the relay
}

// Message is a private envelope that was signed by the other participant for this one in
// this room, and opened.
type Message struct {
	Header

	Payload []byte
}

// DirectionKey returns the key of what from seals for to in the room session; own is the
// agreement key of one of them, and peer that of the other. The error is identity.ErrKeys
// for a key that is not canonical or gives an all-zero secret (FAULTS H10), and
// ErrPairwise for ids that are no UUIDs or of which two are the same.
func DirectionKey(own *ecdh.PrivateKey, peer [32]byte, session, from, to string) ([seal.KeySize]byte, error) {
	var key [seal.KeySize]byte
	salt, ok1 := wire.ParseUUID([]byte(session))
	sender, ok2 := wire.ParseUUID([]byte(from))
	recipient, ok3 := wire.ParseUUID([]byte(to))
	if !ok1 || !ok2 || !ok3 || sender == recipient || salt == sender || salt == recipient {
		return key, fmt.Errorf("%w: session, from and to are not three UUIDs", ErrPairwise)
	}
	secret, err := agree(own, peer)
	if err != nil {
		return key, err
	}
	info := labelPairwise + string(sender[:]) + string(recipient[:])
	derived, err := hkdf.Key(sha256.New, secret, salt[:], info, seal.KeySize)
	if err != nil {
		return key, fmt.Errorf("derive a direction key: %w", err)
	}
	copy(key[:], derived)
	return key, nil
}

// agree returns the shared secret, which is never all zeros.
func agree(own *ecdh.PrivateKey, peer [32]byte) ([]byte, error) {
	if own == nil || own.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("own agreement key: %w", identity.ErrKeys)
	}
	if err := identity.CheckAgreement(peer); err != nil {
		return nil, err
	}
	public, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, fmt.Errorf("agreement key: %w", identity.ErrKeys)
	}
	secret, err := own.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("agreement key: %w", identity.ErrKeys)
	}
	return secret, nil
}

// New returns the channel of own and peer in a room. The error is that of DirectionKey, or
// ErrPairwise for an identity key that does not have 64 bytes.
func New(session string, own *Own, peer signed.Member) (*Channel, error) {
	if len(own.Identity) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: the identity key does not have 64 bytes", ErrPairwise)
	}
	send, err := DirectionKey(own.Agreement, peer.Agreement(), session, own.ID, peer.ID())
	if err != nil {
		return nil, err
	}
	receive, err := DirectionKey(own.Agreement, peer.Agreement(), session, peer.ID(), own.ID)
	if err != nil {
		return nil, err
	}
	return &Channel{session, own.ID, peer, &secrets{own.Identity, send, receive}}, nil
}

// Format writes no keys, whatever the verb.
func (c *Channel) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "pairwise.Channel("+c.own+" "+c.peer.ID()+")")
}

// Seal returns the envelope to send, with a payload of up to signed.MaxPlaintext bytes. The
// error is ErrPairwise for a notice, signed.ErrEnvelope for another fault of the header, or
// signed.ErrTooLarge.
func (c *Channel) Seal(h *Header, payload []byte) ([]byte, error) {
	if h.Kind == wire.KindNotice {
		return nil, fmt.Errorf("%w: a notice is for the session", ErrPairwise)
	}
	e := c.envelope(h)
	return e.Seal(c.secret.identity, c.secret.send, payload)
}

func (c *Channel) envelope(h *Header) *signed.Envelope {
	e := &signed.Envelope{
		ID: h.ID, SessionID: c.session, From: c.own, To: c.peer.ID(), Kind: h.Kind,
		Gen: h.Gen, Seq: h.Seq, TS: h.TS, File: h.File,
	}
	if h.Kind == wire.KindMessage {
		e.Enc = Enc
	}
	return e
}

// Open verifies and decrypts an envelope of the other participant. The error is one of
// signed.Read; ErrPairwise for what it signed and did not send privately: to the session, with a
// kid or hdr, or a message without enc "pairwise"; or seal.ErrOpen.
func (c *Channel) Open(raw []byte) (*Message, error) {
	m, err := signed.Read(raw, &signed.Expected{SessionID: c.session, From: c.peer, Self: c.own})
	if err != nil {
		return nil, err
	}
	switch {
	case m.To != c.own:
		return nil, fmt.Errorf("%w: it is for the session", ErrPairwise)
	case (m.Kind == wire.KindMessage) != (m.Enc == Enc):
		return nil, fmt.Errorf("%w: enc does not say so", ErrPairwise)
	case m.KID != "" || m.Hdr != nil:
		return nil, fmt.Errorf("%w: it has a kid or a hdr", ErrPairwise)
	}
	payload, err := m.Open(c.secret.receive)
	if err != nil {
		return nil, err
	}
	return &Message{Header{ID: m.ID, Kind: m.Kind, Gen: m.Gen, Seq: m.Seq, TS: m.TS, File: m.File}, payload}, nil
}
