package ratchet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Bundle is what a device published for others to begin sessions with.
type Bundle struct {
	Keys    identity.Keys
	Signed  SignedPrekey
	OneTime *OneTimePrekey // nil: none was left
}

// SignedPrekey is a device's medium-term X25519 key.
type SignedPrekey struct {
	ID        uint32
	Key       [32]byte
	Signature [64]byte // by the identity key (identity.SignPrekey)
}

// OneTimePrekey is an X25519 key that is handed out once.
type OneTimePrekey struct {
	ID  uint32
	Key [32]byte
}

// Prekeys are the private keys of a device's prekeys, by their ids.
type Prekeys interface {
	// SignedPrekey is the present one, or one of before that is still kept.
	SignedPrekey(id uint32) (private [32]byte, ok bool)
	// OneTimePrekey is one that no session was begun with.
	OneTimePrekey(id uint32) (private [32]byte, ok bool)
}

// Check returns an error that is ErrBundle unless all keys are accepted (identity.Keys.Check,
// identity.CheckAgreement), the signed prekey is signed, and the ids are 1 to 2^31-1.
func (b *Bundle) Check() error {
	if err := b.Keys.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if b.Signed.ID < 1 || b.Signed.ID > maxPrekeyID ||
		!identity.VerifyPrekey(b.Keys.Identity, b.Signed.ID, b.Signed.Key, b.Signed.Signature) {
		return fmt.Errorf("signed prekey: %w", ErrBundle)
	}
	if b.OneTime == nil {
		return nil
	}
	if b.OneTime.ID < 1 || b.OneTime.ID > maxPrekeyID {
		return fmt.Errorf("id of the one-time prekey: %w", ErrBundle)
	}
	if err := identity.CheckAgreement(b.OneTime.Key); err != nil {
		return fmt.Errorf("%w: one-time prekey: %w", ErrBundle, err)
	}
	return nil
}

// agreed is what both sides of X3DH have, and what never changes in a session.
type agreed struct {
	initiator, responder public
	start                Start
	room                 string

	// These follow from the ones before.
	id SessionID
	ad []byte
}

// public are a device's keys without the signature.
type public struct{ identity, agreement [32]byte }

func publicOf(k *identity.Keys) public { return public{k.Identity, k.Agreement} }

// complete computes what follows.
func (a *agreed) complete() {
	ad := bytes.NewBuffer(make([]byte, 0, 256))
	ad.WriteString(labelAD)
	for _, p := range [...]public{a.initiator, a.responder} {
		ad.Write(p.identity[:])
		ad.Write(p.agreement[:])
	}
	ad.Write(a.start.append(nil))
	ad.Write(binary.BigEndian.AppendUint16(nil, uint16(len(a.room))))
	ad.WriteString(a.room)
	a.ad = ad.Bytes()
	sum := sha256.Sum256(append([]byte(labelSession), a.ad...))
	a.id = SessionID(sum[:16])
}

// x3dhSecret is the secret of the shared values, in their order.
func x3dhSecret(shared ...[32]byte) [32]byte {
	input := bytes.Repeat([]byte{0xff}, 32)
	for _, s := range shared {
		input = append(input, s[:]...)
	}
	return [32]byte(derive(input, make([]byte, 32), labelX3DH, 32))
}

// exchange is one DH of X3DH.
type exchange struct{ private, public [32]byte }

func x3dh(exchanges ...exchange) ([32]byte, error) {
	shared := make([][32]byte, 0, len(exchanges))
	for _, e := range exchanges {
		s, err := dh(e.private, e.public)
		if err != nil {
			return [32]byte{}, err
		}
		shared = append(shared, s)
	}
	return x3dhSecret(shared...), nil
}

// Begin begins the session of an owner with the device whose bundle it is, in a room. Its
// messages have the X3DH part in their headers until an answer was opened. The bundle is
// checked first (ErrBundle); whether its device is the one that is meant is the caller's to
// know, by its fingerprint. now has to be later than that of the session before.
func Begin(own *Device, bundle *Bundle, room string, now time.Time) (*Session, error) {
	return begin(own, bundle, room, uint64(max(0, now.UnixMilli())), nil)
}

func begin(own *Device, bundle *Bundle, room string, started uint64, source io.Reader) (*Session, error) {
	if !wire.ValidID([]byte(room)) {
		return nil, ErrRoom
	}
	if err := checkDevice(own); err != nil {
		return nil, err
	}
	if err := bundle.Check(); err != nil {
		return nil, err
	}
	if bundle.Keys.Identity == own.Keys.Identity || bundle.Keys.Agreement == own.Keys.Agreement {
		return nil, fmt.Errorf("the device's own bundle: %w", ErrBundle)
	}
	ephemeral, err := newPair(source)
	if err != nil {
		return nil, err
	}
	start := Start{
		Identity: own.Keys.Identity, Ephemeral: ephemeral.public,
		Signed: bundle.Signed.ID, Started: min(started, maxStarted),
	}
	exchanges := []exchange{
		{own.Agreement, bundle.Signed.Key},
		{ephemeral.private, bundle.Keys.Agreement},
		{ephemeral.private, bundle.Signed.Key},
	}
	if bundle.OneTime != nil {
		start.OneTime = bundle.OneTime.ID
		exchanges = append(exchanges, exchange{ephemeral.private, bundle.OneTime.Key})
	}
	secret, err := x3dh(exchanges...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	common := agreed{initiator: publicOf(&own.Keys), responder: publicOf(&bundle.Keys), start: start, room: room}
	return newInitiator(common, secret, bundle.Signed.Key, source)
}

// Accept opens the first message of an owner that this device gets of a session, which need
// not be the first one that was sent, and returns the session, which can answer. peer are
// the keys of the owner's device as they are known, by fingerprint: a message that names
// another identity is ErrWrongPeer. A prekey that is not there is ErrUnknownPrekey. For
// whatever is not authentic there is no session and nothing changes: only when the error is
// nil, the caller deletes the private key of the one-time prekey whose id is used (0: there
// was none), in the transaction that stores the session and the text.
func Accept(own *Device, peer *identity.Keys, room string, prekeys Prekeys, m *Message) (s *Session, plaintext []byte, used uint32, err error) {
	h, err := ParseHeader(m.Header)
	if err != nil {
		return nil, nil, 0, err
	}
	return accept(own, peer, room, prekeys, &h, m, nil)
}

func accept(own *Device, peer *identity.Keys, room string, prekeys Prekeys, h *Header, m *Message, source io.Reader) (*Session, []byte, uint32, error) {
	if h.Start == nil {
		return nil, nil, 0, ErrUnknownSession
	}
	if !wire.ValidID([]byte(room)) {
		return nil, nil, 0, ErrRoom
	}
	if err := checkDevice(own); err != nil {
		return nil, nil, 0, err
	}
	if h.Start.Identity != peer.Identity || peer.Check() != nil {
		return nil, nil, 0, ErrWrongPeer
	}
	common := agreed{initiator: publicOf(peer), responder: publicOf(&own.Keys), start: *h.Start, room: room}
	common.complete()
	if common.id != h.Session {
		return nil, nil, 0, fmt.Errorf("session: %w", ErrHeader)
	}
	signed, secret, err := respond(own, peer, prekeys, h.Start)
	if err != nil {
		return nil, nil, 0, err
	}
	s, err := newResponder(common, secret, signed, source)
	if err != nil {
		return nil, nil, 0, err
	}
	plaintext, err := s.open(h, m)
	if err != nil {
		return nil, nil, 0, err
	}
	return s, plaintext, h.Start.OneTime, nil
}

// respond is the responder's side of X3DH, with the signed prekey's private key.
func respond(own *Device, peer *identity.Keys, prekeys Prekeys, start *Start) (signed, secret [32]byte, err error) {
	if err := identity.CheckAgreement(start.Ephemeral); err != nil {
		return signed, secret, fmt.Errorf("%w: ephemeral key: %w", ErrHeader, err)
	}
	signed, ok := prekeys.SignedPrekey(start.Signed)
	if !ok {
		return signed, secret, fmt.Errorf("signed prekey %d: %w", start.Signed, ErrUnknownPrekey)
	}
	exchanges := []exchange{
		{signed, peer.Agreement},
		{own.Agreement, start.Ephemeral},
		{signed, start.Ephemeral},
	}
	if start.OneTime != 0 {
		oneTime, ok := prekeys.OneTimePrekey(start.OneTime)
		if !ok {
			return signed, secret, fmt.Errorf("one-time prekey %d: %w", start.OneTime, ErrUnknownPrekey)
		}
		exchanges = append(exchanges, exchange{oneTime, start.Ephemeral})
	}
	secret, err = x3dh(exchanges...)
	if err != nil {
		return signed, secret, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	return signed, secret, nil
}
