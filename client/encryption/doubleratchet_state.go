package encryption

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Where a conversation is, in the bucket Sessions. What could not be opened is counted apart
// from the sessions, whose bytes no message changes that did not verify (FAULTS J01).
func conversationKey(room string) string { return "ratchet/" + room }
func repairKey(room string) string       { return "ratchet-repair/" + room }

// conversation is the stored state of a direct room:
//
//	version(1) = 1   restores(8)   since(8)   the peer's keys: identity(32) agreement(32) signature(64)
//	ratchet.Sessions
type conversation struct {
	room  *Room
	owner bool          // this device begins the sessions
	peer  identity.Keys // of the other device

	// since is the room's version that its sessions began at or after: each change of the room
	// that ends sessions has a version, and whoever begins one knows of those before. It is the
	// gen of messages, by which both sides know which come first, whatever the order in which
	// messages and events arrive.
	since    uint64
	restores uint64 // Tx.Restores that the sessions were saved under

	sessions *ratchet.Sessions

	// What could not be opened, stored as broken(8) newest(16) ratchet.Repair.
	repair ratchet.Repair
	broken uint64  // the highest gen of those messages: only a change after it mends them
	newest written // the latest of the messages that were opened
}

// written is when a message was written, as its sender signed it: by ts, and where that is the same,
// by seq.
type written struct{ ts, seq uint64 }

func (w written) after(other written) bool {
	return w.ts > other.ts || w.ts == other.ts && w.seq > other.seq
}

const (
	conversationVersion = 1
	keysSize            = 32 + 32 + ed25519.SignatureSize
	conversationHead    = 1 + 8 + 8 + keysSize
)

// begins reports whether a role is that of who begins the sessions of a direct room.
func begins(role string) bool { return role == "owner" || role == "controller" }

// peerOf is the other one of a direct room: a human of an agent, and the other way round.
func peerOf(room *Room) (*Member, bool) {
	if len(room.Members) != 1 || !pairs(room.Role, room.Members[0].Role) {
		return nil, false
	}
	return &room.Members[0], true
}

func pairs(role, other string) bool {
	return begins(role) && other == roleAgent || role == roleAgent && begins(other)
}

const roleAgent = "agent"

// storedPeer are the keys of the device that the stored conversation is with.
func storedPeer(tx *keystore.Tx, room string) (keys identity.Keys, ok bool) {
	stored := tx.Get(keystore.Sessions, conversationKey(room))
	if len(stored) < conversationHead || stored[0] != conversationVersion {
		return keys, false
	}
	return readKeys(stored[17:conversationHead]), true
}

// loadConversation reads the conversation with a device, or begins one without sessions where
// the stored one is with another. A state that cannot be read, and one of an old copy of the
// store, is lost: it is not to be sent with, and a reset is wanted (STATE, "Ratchet Desync").
func loadConversation(tx *keystore.Tx, room *Room, peer *identity.Keys) (*conversation, error) {
	c := &conversation{room: room, owner: begins(room.Role), peer: *peer, restores: tx.Restores(), sessions: &ratchet.Sessions{}}
	known, readable := storedPeer(tx, room.ID)
	if readable && known == *peer {
		c.readRepair(tx)
		stored := tx.Get(keystore.Sessions, conversationKey(room.ID))
		c.since = binary.BigEndian.Uint64(stored[9:])
		if c.sessions.UnmarshalFor(room.ID, &room.Self.Keys, peer, stored[conversationHead:]) == nil {
			c.savedUnder(binary.BigEndian.Uint64(stored[1:]))
			return c, nil
		}
		readable = false
	}
	if !readable && tx.Get(keystore.Sessions, conversationKey(room.ID)) != nil {
		c.repair.Lost()
	}
	none := ratchet.ForAgent
	if c.owner {
		none = ratchet.ForOwner
	}
	var err error
	if c.sessions, err = none(room.ID, &room.Self.Keys, peer); err != nil {
		return nil, fmt.Errorf("the other device of the room: %w", err)
	}
	return c, nil
}

// savedUnder says under which number of restores the sessions were saved. Without a session
// there is nothing that was sent with.
func (c *conversation) savedUnder(restores uint64) {
	if c.sessions.Activated() && restores != c.restores {
		c.repair.Lost()
	}
	c.restores = restores
}

// readRepair reads what could not be opened; without it, nothing was.
func (c *conversation) readRepair(tx *keystore.Tx) {
	stored := tx.Get(keystore.Sessions, repairKey(c.room.ID))
	if len(stored) < 24 {
		return
	}
	switch {
	case c.repair.UnmarshalBinary(stored[24:]) == nil:
		c.newest = written{ts: binary.BigEndian.Uint64(stored[8:]), seq: binary.BigEndian.Uint64(stored[16:])}
	case c.repair.UnmarshalBinary(stored[8:]) == nil: // of before it was noted what was opened: no message counts as later
		c.newest = written{ts: wire.MaxInteger, seq: wire.MaxInteger}
	default:
		return
	}
	c.broken = binary.BigEndian.Uint64(stored)
}

func (c *conversation) save(tx *keystore.Tx) error {
	sessions, err := c.sessions.MarshalBinary()
	if err != nil {
		return err
	}
	b := make([]byte, 0, conversationHead+len(sessions))
	b = append(b, conversationVersion)
	b = binary.BigEndian.AppendUint64(b, c.restores)
	b = binary.BigEndian.AppendUint64(b, c.since)
	b = append(append(append(b, c.peer.Identity[:]...), c.peer.Agreement[:]...), c.peer.AgreementSignature[:]...)
	b = append(b, sessions...)
	if err := tx.Put(keystore.Sessions, conversationKey(c.room.ID), b); err != nil {
		return err
	}
	repair, err := c.repair.MarshalBinary()
	if err != nil {
		return err
	}
	b = binary.BigEndian.AppendUint64(nil, c.broken)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, c.newest.ts), c.newest.seq)
	return tx.Put(keystore.Sessions, repairKey(c.room.ID), append(b, repair...))
}

func readKeys(b []byte) (k identity.Keys) {
	copy(k.Identity[:], b)
	copy(k.Agreement[:], b[32:])
	copy(k.AgreementSignature[:], b[64:])
	return k
}

// endBefore ends the sessions that began before a version of the room, with their keys (STATE,
// "Ratchet Desync").
func (c *conversation) endBefore(tx *keystore.Tx, version uint64) error {
	if version <= c.since {
		return nil
	}
	c.sessions.Clear()
	c.newest = written{}
	if version > c.broken {
		c.repair.Done()
	}
	c.since, c.restores = version, tx.Restores()
	return c.save(tx)
}

// failed counts a message that was not opened. What is of a session that is over does not get
// here, so that one which is not known is a reason to begin anew each time: that it was one
// before may have been forgotten, as a late message of another session opened since.
//
// A number that was used is none, as what was opened comes again; but another message under it, which
// was written later than all that were opened, is one of a device that went back to an old copy.
func (c *conversation) failed(m *ratchet.Message, gen uint64, at written, why error) {
	c.repair.Failed(m, why)
	reused := errors.Is(why, ratchet.ErrDuplicate) && at.after(c.newest)
	if reused {
		c.repair.Reused(m)
	}
	unknown := errors.Is(why, ratchet.ErrUnknownSession) || errors.Is(why, ratchet.ErrUnknownPrekey)
	if unknown {
		c.repair.Lost()
	}
	diverged := errors.Is(why, ratchet.ErrNotAuthentic) || errors.Is(why, ratchet.ErrTooFarAhead)
	if c.repair.Wanted() && (unknown || diverged || reused) {
		c.broken = max(c.broken, gen)
	}
}

// begin begins a session of the owner with the bundle.
func (c *conversation) begin(tx *keystore.Tx, bundle *ratchet.Bundle, now time.Time) error {
	own := c.room.Self.device()
	if err := c.sessions.Begin(&own, bundle, now); err != nil {
		return err
	}
	c.since, c.restores = max(c.since, c.room.Version), tx.Restores()
	return nil
}

// Why a message of the other side is not opened, beside the errors of package ratchet.
var (
	errOver     = errors.New("it is of a conversation that began anew since")
	errFormer   = errors.New("it is of a device that the conversation is not with")
	errNoHeader = errors.New("it has no ratchet header or no nonce")
)

// open decrypts a message under a gen, and deletes the one-time prekey that it used up. Nothing
// changes but what is counted when the error is not nil.
func (c *conversation) open(tx *keystore.Tx, m *ratchet.Message, gen uint64, at written) ([]byte, error) {
	if gen < c.since {
		return nil, errOver
	}
	own, sessions := c.room.Self.device(), c.sessions.Clone()
	header, err := ratchet.ParseHeader(m.Header)
	anew := err == nil && header.Start != nil && !c.owner && gen > c.since
	if anew { // the owner knows of a change whose event is still to come
		sessions.Clear()
	}
	opened, err := sessions.Open(&own, storedPrekeys{tx}, m)
	if err != nil {
		c.failed(m, gen, at, err)
		return nil, err
	}
	if opened.Used != 0 {
		if err := deleteOneTimePrekey(tx, opened.Used); err != nil {
			return nil, err
		}
	}
	c.sessions = sessions
	if anew {
		c.since, c.newest = gen, written{}
	}
	if at.after(c.newest) {
		c.newest = at
	}
	if opened.Began && opened.Newest {
		c.restores = tx.Restores() // it began after the store was found to be an old copy
	}
	if gen >= c.broken { // else one that began later is broken
		c.repair.Opened(opened)
	}
	return append([]byte{}, opened.Plaintext...), nil // never nil
}

// device is what package ratchet wants to know.
func (s *Self) device() ratchet.Device {
	d := ratchet.Device{Keys: s.Keys}
	copy(d.Agreement[:], s.Agreement.Bytes())
	return d
}
