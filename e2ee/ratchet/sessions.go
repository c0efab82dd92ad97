package ratchet

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Bounds of a conversation.
const (
	MaxSessions = 5  // the newest one, and those before it, for messages that come late
	MaxRetired  = 64 // ids of sessions that are over
)

// Sessions are the sessions of one direct room, of the same two devices. Messages are sealed
// with the newest one, the one with the latest Started on both sides, however the first
// messages of several arrive; messages of the ones before still open. They are not safe for
// concurrent use.
type Sessions struct {
	room    string
	isOwner bool
	own     identity.Keys
	peer    identity.Keys
	list    []*Session  // the newest first
	retired []SessionID // the oldest first
	last    uint64      // an owner's: Started of the newest session ever begun

	random io.Reader // nil: the system's
}

// Opened is a message that was opened.
type Opened struct {
	Plaintext []byte
	Session   SessionID
	Newest    bool   // the session is the newest one
	Began     bool   // the message began the session here
	Used      uint32 // id of the one-time prekey whose private key is to be deleted now; 0: none
}

// ForOwner is a conversation without a session, of the device that begins them. peer are the
// agent's keys, whose fingerprint was compared. Errors: ErrRoom, ErrDevice, ErrWrongPeer.
func ForOwner(room string, own, peer *identity.Keys) (*Sessions, error) {
	return newSessions(room, true, own, peer)
}

// ForAgent is ForOwner for the device that the owner begins sessions with.
func ForAgent(room string, own, peer *identity.Keys) (*Sessions, error) {
	return newSessions(room, false, own, peer)
}

func newSessions(room string, isOwner bool, own, peer *identity.Keys) (*Sessions, error) {
	switch {
	case !wire.ValidID([]byte(room)):
		return nil, ErrRoom
	case own.Check() != nil:
		return nil, ErrDevice
	case peer.Check() != nil || peer.Identity == own.Identity || peer.Agreement == own.Agreement:
		return nil, ErrWrongPeer
	}
	return &Sessions{room: room, isOwner: isOwner, own: *own, peer: *peer}, nil
}

// Format keeps keys out of texts.
func (*Sessions) Format(f fmt.State, _ rune) { hide(f, "sessions") }

// Clone are sessions of their own with the same state.
func (s *Sessions) Clone() *Sessions {
	c := *s
	c.list = make([]*Session, len(s.list))
	for i := range s.list {
		c.list[i] = s.list[i].Clone()
	}
	c.retired = slices.Clone(s.retired)
	return &c
}

// Activated reports whether Seal has a session.
func (s *Sessions) Activated() bool { return len(s.list) > 0 }

// Newest is a copy of the session that Seal uses, or nil.
func (s *Sessions) Newest() *Session {
	if len(s.list) == 0 {
		return nil
	}
	return s.list[0].Clone()
}

// Len is the number of sessions.
func (s *Sessions) Len() int { return len(s.list) }

// Begin begins the owner's next session, which is the newest one from now on, even if the
// clock was set back. Errors: ErrNotOwner, ErrDevice, ErrBundle, and ErrWrongPeer for a
// bundle of any other keys than the agent's.
func (s *Sessions) Begin(own *Device, bundle *Bundle, now time.Time) error {
	switch {
	case !s.isOwner:
		return ErrNotOwner
	case own.Keys != s.own:
		return ErrDevice
	case bundle.Keys != s.peer:
		return ErrWrongPeer
	}
	started := max(uint64(max(0, now.UnixMilli())), s.last+1)
	session, err := begin(own, bundle, s.room, started, s.random)
	if err != nil {
		return err
	}
	s.last = started
	s.add(session)
	return nil
}

// Seal encrypts with the newest session. Without one it is ErrNotActivated for an agent and
// ErrNoSession for an owner. Errors otherwise: ErrTooLong, ErrExhausted.
func (s *Sessions) Seal(plaintext []byte) (*Message, error) {
	switch {
	case len(s.list) > 0:
		return s.list[0].Seal(plaintext)
	case s.isOwner:
		return nil, ErrNoSession
	default:
		return nil, ErrNotActivated
	}
}

// Open decrypts a message of any session that is kept, or, for an agent, accepts the one it
// begins (Accept). For an owner, prekeys may be nil. The state changes only if the error is
// nil. Errors: those of Session.Open and Accept; ErrRetiredSession; ErrNotOwner for an agent's
// X3DH part.
func (s *Sessions) Open(own *Device, prekeys Prekeys, m *Message) (*Opened, error) {
	h, err := ParseHeader(m.Header)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(s.list, func(o *Session) bool { return o.id == h.Session }); i >= 0 {
		plaintext, err := s.list[i].open(&h, m)
		if err != nil {
			return nil, err
		}
		return &Opened{Plaintext: plaintext, Session: h.Session, Newest: i == 0}, nil
	}
	switch {
	case slices.Contains(s.retired, h.Session):
		return nil, ErrRetiredSession
	case h.Start == nil:
		return nil, ErrUnknownSession
	case s.isOwner:
		return nil, ErrNotOwner
	case own.Keys != s.own:
		return nil, ErrDevice
	}
	session, plaintext, used, err := accept(own, &s.peer, s.room, prekeys, &h, m, s.random)
	if err != nil {
		return nil, err
	}
	s.add(session)
	return &Opened{Plaintext: plaintext, Session: h.Session, Newest: len(s.list) > 0 && s.list[0] == session, Began: true, Used: used}, nil
}

// Clear ends all sessions and deletes their keys (STATE, "Ratchet Desync"): the owner has to
// begin one. What comes of them after that is ErrRetiredSession.
func (s *Sessions) Clear() {
	for _, session := range slices.Backward(s.list) {
		s.retire(session.id)
	}
	s.list = nil
}

// add puts a session into the order, and retires the oldest one above the bound.
func (s *Sessions) add(session *Session) {
	at, _ := slices.BinarySearchFunc(s.list, session, newer)
	s.list = slices.Insert(s.list, at, session)
	if len(s.list) > MaxSessions {
		s.retire(s.list[MaxSessions].id)
		s.list = slices.Delete(s.list, MaxSessions, len(s.list))
	}
}

func (s *Sessions) retire(id SessionID) {
	s.retired = append(s.retired, id)
	if len(s.retired) > MaxRetired {
		s.retired = slices.Delete(s.retired, 0, len(s.retired)-MaxRetired)
	}
}

// newer orders sessions, the newest first. Two that began in the same millisecond, which
// takes two devices with the same keys, have the same order on both sides by their ids.
func newer(a, b *Session) int {
	if a.start.Started != b.start.Started {
		return cmp.Compare(b.start.Started, a.start.Started)
	}
	return bytes.Compare(b.id[:], a.id[:])
}
