package ratchet

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Stored sessions:
//
//	version(1) = 1   flags(1): 1 an owner's   last(8)   length of the room's id(2) room's id
//	own keys: identity(32) agreement(32) signature(64)   the peer's: the same
//	number of retired ids(1) ids(16)   number of sessions(1), each: length(4) state
const flagOwner = 1

const maxSessionsSize = 512 + wire.MaxIDLength + MaxRetired*16 + MaxSessions*(4+maxSessionSize)

// MarshalBinary is the state, for UnmarshalBinary. It holds private keys of the sessions, but
// none of the device. The same state has the same bytes.
func (s *Sessions) MarshalBinary() ([]byte, error) {
	flags := byte(0)
	if s.isOwner {
		flags = flagOwner
	}
	b := binary.BigEndian.AppendUint64([]byte{stateVersion, flags}, s.last)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.room)))
	b = append(b, s.room...)
	for _, k := range [...]*identity.Keys{&s.own, &s.peer} {
		b = append(append(append(b, k.Identity[:]...), k.Agreement[:]...), k.AgreementSignature[:]...)
	}
	b = append(b, byte(len(s.retired)))
	for _, id := range s.retired {
		b = append(b, id[:]...)
	}
	b = append(b, byte(len(s.list)))
	for _, session := range s.list {
		state, err := session.MarshalBinary()
		if err != nil {
			return nil, err
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(state)))
		b = append(b, state...)
	}
	return b, nil
}

// UnmarshalBinary replaces the sessions by stored ones, or returns an error that is ErrState
// and leaves them. A state that cannot be read is lost: see Repair.Lost.
func (s *Sessions) UnmarshalBinary(b []byte) error {
	return s.unmarshal(b, func(t *Sessions) bool {
		_, err := newSessions(t.room, t.isOwner, &t.own, &t.peer)
		return err == nil
	})
}

// UnmarshalFor is UnmarshalBinary for the sessions of these two devices in a room, where the
// caller has checked the keys before: checking them for each message would take most of its
// time. A state of others is ErrState.
func (s *Sessions) UnmarshalFor(room string, own, peer *identity.Keys, b []byte) error {
	return s.unmarshal(b, func(t *Sessions) bool { return t.room == room && t.own == *own && t.peer == *peer })
}

func (s *Sessions) unmarshal(b []byte, accepted func(t *Sessions) bool) error {
	if len(b) > maxSessionsSize {
		return fmt.Errorf("%d bytes: %w", len(b), ErrState)
	}
	r := reader{left: b}
	version, flags := r.byte(), r.byte()
	if version != stateVersion || flags&^flagOwner != 0 {
		return fmt.Errorf("version %d, flags %d: %w", version, flags, ErrState)
	}
	t := Sessions{isOwner: flags == flagOwner, last: r.uint64(), random: s.random}
	t.room = string(r.next(int(r.uint16())))
	for _, k := range [...]*identity.Keys{&t.own, &t.peer} {
		r.take(k.Identity[:])
		r.take(k.Agreement[:])
		r.take(k.AgreementSignature[:])
	}
	if r.failed || !accepted(&t) || t.last > maxStarted || !t.isOwner && t.last != 0 {
		return fmt.Errorf("room, keys or time: %w", ErrState)
	}
	if !t.readRetired(&r) {
		return fmt.Errorf("retired sessions: %w", ErrState)
	}
	if err := t.readList(&r); err != nil {
		return err
	}
	if !r.done() {
		return fmt.Errorf("length: %w", ErrState)
	}
	*s = t
	return nil
}

func (s *Sessions) readRetired(r *reader) bool {
	count := int(r.byte())
	if count > MaxRetired {
		return false
	}
	for range count {
		var id SessionID
		r.take(id[:])
		if r.failed || slices.Contains(s.retired, id) {
			return false
		}
		s.retired = append(s.retired, id)
	}
	return !r.failed
}

func (s *Sessions) readList(r *reader) error {
	count := int(r.byte())
	if count > MaxSessions {
		return fmt.Errorf("%d sessions: %w", count, ErrState)
	}
	for i := range count {
		session := &Session{random: s.random}
		if err := session.UnmarshalBinary(r.next(int(min(r.uint32(), maxSessionSize+1)))); err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if !s.mine(session) || i > 0 && newer(s.list[i-1], session) >= 0 {
			return fmt.Errorf("a session of others, or out of order: %w", ErrState)
		}
		s.list = append(s.list, session)
	}
	return nil
}

// mine reports whether a session is one of this room and these devices, and not over.
func (s *Sessions) mine(session *Session) bool {
	initiator, responder := publicOf(&s.own), publicOf(&s.peer)
	if !s.isOwner {
		initiator, responder = responder, initiator
	}
	return session.isInitiator == s.isOwner && session.room == s.room &&
		session.initiator == initiator && session.responder == responder &&
		!slices.Contains(s.retired, session.id) &&
		(!s.isOwner || session.start.Started <= s.last)
}
