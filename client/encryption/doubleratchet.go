package encryption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// ErrNoPeer says that a direct room does not have the two that it is for: a human and an agent.
var ErrNoPeer = errors.New("there is nobody to talk to in this direct room")

// doubleRatchet encrypts direct rooms of a human, who owns the conversation, and an agent
// (STATE, "1:1 Messaging"; package ratchet has the cryptography).
//
// A message is signed, and goes to the room: hdr, nonce and ct are those of the ratchet, which
// binds them to the two devices, the room and the session; the signature binds them to the
// rest of the envelope. Its gen is the version of the room that the session began at. So a
// change that ends sessions (device_linked, room_reset, member_removed) ends those that began
// before it and no other, also where its event comes late or twice, and what still comes
// of a session that is over is ErrLost and sets nothing off.
//
// The owner begins a session in Prepare, with one bundle for each, and writes first. What
// counts as a reason to begin anew, and how often the relay is asked for that, ratchet.Repair
// says (FAULTS J09). While a reset is wanted, nothing is sealed: the other side could not open
// it. The same holds for a state of an old copy of the key store.
type doubleRatchet struct{}

// Prepare asks for a reset where one is due, and begins the owner's session where there is
// none. Both are saved before anything follows from them.
func (doubleRatchet) Prepare(ctx context.Context, relay Relay, store *keystore.Store, room *Room, now time.Time) error {
	peer, ok := peerOf(room)
	if !ok {
		return nil
	}
	if err := resetWhereDue(ctx, relay, store, room, peer, now); err != nil {
		return fmt.Errorf("begin the conversation anew: %w", err)
	}
	if err := beginSession(ctx, relay, store, room, peer, now); err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	return nil
}

// resetWhereDue asks for a reset, once it is saved that it does. The event of it will say no
// more than the answer; without the answer, it does.
func resetWhereDue(ctx context.Context, relay Relay, store *keystore.Store, room *Room, peer *Member, now time.Time) error {
	var due bool
	err := store.Update(func(tx *keystore.Tx) error {
		c, err := loadConversation(tx, room, &peer.Keys)
		if err != nil {
			return err
		}
		if due = c.repair.Ask(now); !due {
			return nil
		}
		return c.save(tx)
	})
	if err != nil || !due {
		return err
	}
	version, err := relay.ResetRoom(ctx)
	if err != nil {
		return err
	}
	return store.Update(func(tx *keystore.Tx) error {
		c, err := loadConversation(tx, room, &peer.Keys)
		if err != nil {
			return err
		}
		return c.endBefore(tx, version)
	})
}

// beginSession takes a bundle, which uses up one of the other side's prekeys, for a session that
// the owner has to begin.
func beginSession(ctx context.Context, relay Relay, store *keystore.Store, room *Room, peer *Member, now time.Time) error {
	var missing bool
	err := store.Update(func(tx *keystore.Tx) error {
		c, err := loadConversation(tx, room, &peer.Keys)
		if err == nil && c.owner && room.Unwritten { // the event of a reset may still be to come
			err = c.endBefore(tx, room.Version)
		}
		missing = err == nil && c.mayBegin()
		return err
	})
	if err != nil || !missing {
		return err
	}
	bundle, err := relay.PrekeyBundle(ctx, peer.Device)
	if err != nil {
		return fmt.Errorf("take the other device's prekeys: %w", err)
	}
	return store.Update(func(tx *keystore.Tx) error {
		c, err := loadConversation(tx, room, &peer.Keys)
		if err != nil || !c.mayBegin() { // another Prepare did
			return err
		}
		if err := c.begin(tx, &bundle, now); err != nil {
			return err
		}
		return c.save(tx)
	})
}

// mayBegin reports whether the owner has to begin a session, and nothing is to be done before.
func (c *conversation) mayBegin() bool {
	return c.owner && !c.sessions.Activated() && !c.repair.Wanted()
}

// Seal encrypts a message to the room. Other kinds, and those to the participant, are ErrKind: a
// direct room has no others (the relay: e2ee_scheme_mismatch). Without the other one it is
// ErrNoPeer.
func (doubleRatchet) Seal(tx *keystore.Tx, room *Room, draft *Draft) ([]Sealed, error) {
	switch {
	case draft.Kind != wire.KindMessage || draft.To != room.ID || draft.ExpiresAt != 0:
		return nil, ErrKind
	case len(draft.Payload) > signed.MaxPlaintext:
		return nil, signed.ErrTooLarge
	}
	peer, ok := peerOf(room)
	if !ok {
		return nil, ErrNoPeer
	}
	c, err := loadConversation(tx, room, &peer.Keys)
	switch {
	case err != nil:
		return nil, err
	case !c.owner && !c.sessions.Activated():
		return nil, ErrNotActivated
	case !c.sessions.Activated(), c.repair.Wanted():
		return nil, ErrPrepare
	}
	sealed, err := c.seal(tx, draft)
	if err != nil {
		return nil, err
	}
	return []Sealed{sealed}, c.save(tx)
}

func (c *conversation) seal(tx *keystore.Tx, draft *Draft) (Sealed, error) {
	message, err := c.sessions.Seal(draft.Payload)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal the message: %w", err)
	}
	seq, err := nextSequence(tx, c.room.ID)
	if err != nil {
		return Sealed{}, err
	}
	envelope := signed.Envelope{
		ID: draft.ID, SessionID: c.room.ID, From: c.room.Self.Participant, To: c.room.ID,
		Kind: draft.Kind, Gen: c.since, Seq: seq, TS: draft.TS, File: draft.File, Hdr: message.Header,
	}
	raw, err := envelope.Sign(c.room.Self.Identity, message.Nonce[:], message.Ciphertext)
	if err != nil {
		return Sealed{}, err
	}
	return Sealed{ID: draft.ID, To: c.room.ID, Kind: draft.Kind, Gen: c.since, Seq: seq, Recipients: 1, Raw: raw}, nil
}

// Open verifies and decrypts a message of the other one. An error that is ErrLost may have
// counted a reason to begin anew: the Update is to be finished all the same. Nothing changes
// with any other error.
func (doubleRatchet) Open(tx *keystore.Tx, room *Room, from *Member, raw []byte, _ time.Time) (*Opened, error) {
	m, err := signed.Read(raw, &signed.Expected{SessionID: room.ID, From: from.Member, Self: room.Self.Participant})
	if err != nil {
		return nil, err
	}
	switch {
	case m.Kind != wire.KindMessage || m.To != room.ID:
		return nil, lost(ErrKind)
	case m.Hdr == nil || len(m.Nonce) != seal.NonceSize:
		return nil, lost(errNoHeader)
	case !with(tx, room, from):
		return nil, lost(errFormer)
	}
	c, err := loadConversation(tx, room, &from.Keys)
	if err != nil {
		return nil, lost(err)
	}
	message := &ratchet.Message{Header: m.Hdr, Nonce: [seal.NonceSize]byte(m.Nonce), Ciphertext: m.CT}
	plaintext, openErr := c.open(tx, message, m.Gen, written{ts: m.TS, seq: m.Seq})
	if err := c.save(tx); err != nil {
		return nil, err
	}
	if openErr != nil {
		return nil, lost(openErr)
	}
	return &Opened{Kind: m.Kind, Payload: plaintext, Gen: m.Gen, TS: m.TS, File: m.File}, nil
}

// with reports whether the conversation is with this member: the stored one, or the one that
// begins with whoever is in the room now.
func with(tx *keystore.Tx, room *Room, from *Member) bool {
	if !pairs(room.Role, from.Role) {
		return false
	}
	if stored, ok := storedPeer(tx, room.ID); ok && stored == from.Keys {
		return true
	}
	peer, ok := peerOf(room)
	return ok && peer.Keys == from.Keys && peer.ID() == from.ID()
}

// Event ends the sessions that began before a reset (device_linked, room_reset), or before one
// of the two left. The owner has to begin one then, in Prepare, and writes first.
func (doubleRatchet) Event(tx *keystore.Tx, room *Room, event *wire.RoomEvent) error {
	switch event.Event {
	case wire.DeviceLinked, wire.RoomReset, wire.MemberRemoved:
	default:
		return nil
	}
	c, err := presentConversation(tx, room)
	if err != nil || c == nil {
		return err
	}
	return c.endBefore(tx, uint64(max(0, event.Version)))
}

// Missed ends the owner's sessions where it has to write first, as the event of a reset would have. Where
// the owner has written since, the sessions here are not those that it wrote with, and a reset is
// wanted: the other side could open nothing of this device for ever, and says so to nobody. The
// version of the room shows it: above since there is only that of the owner's first message.
func (doubleRatchet) Missed(tx *keystore.Tx, room *Room) error {
	c, err := presentConversation(tx, room)
	if err != nil || c == nil || !c.sessions.Activated() {
		return err
	}
	switch {
	case room.Unwritten && c.owner:
		return c.endBefore(tx, room.Version)
	case room.Unwritten, room.Version <= c.since+1: // what the owner writes next begins a session here, if it has to
		return nil
	default:
		c.repair.Lost()
		return c.save(tx)
	}
}

// presentConversation is the one with who is in the room now, else the stored one; nil where
// there is neither.
func presentConversation(tx *keystore.Tx, room *Room) (*conversation, error) {
	if peer, ok := peerOf(room); ok {
		return loadConversation(tx, room, &peer.Keys)
	}
	stored, ok := storedPeer(tx, room.ID)
	if !ok {
		return nil, nil
	}
	return loadConversation(tx, room, &stored)
}

// Refused takes the relay's refusal, which changes nothing: the number that the message has
// taken is one that does not come. After not_activated the owner has to write first; the same
// draft sealed anew before that would be refused again.
func (doubleRatchet) Refused(*keystore.Tx, *Room, *Sealed, wire.Code) (bool, error) {
	return false, nil
}

// Due says when a reset that is wanted is to be asked for.
func (doubleRatchet) Due(tx *keystore.Tx, room *Room, now time.Time) (*Due, error) {
	peer, ok := peerOf(room)
	if !ok {
		return &Due{}, nil
	}
	c, err := loadConversation(tx, room, &peer.Keys)
	if err != nil || !c.repair.Wanted() {
		return &Due{}, err
	}
	if next := c.repair.Next(now); next.After(now) {
		return &Due{Next: next}, nil
	}
	return &Due{Prepare: true}, nil
}
