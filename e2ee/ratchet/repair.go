package ratchet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of repairs.
const (
	ResetInterval    = time.Minute // between two resets that are asked for; doubles while none helps
	MaxResetInterval = time.Hour   // and does not grow beyond this
	ResetAfter       = 3           // messages in a row of a session that are not authentic

	maxGivenUp = 16
	maxAsks    = 6 // doublings: a minute becomes an hour
)

// Repair decides when the two devices of a direct room begin anew (STATE, "Ratchet Desync").
// It counts what could not be opened, apart from Sessions, whose state no message changes that
// did not verify.
//
// A session is given up at once when a message is ErrUnknownSession or ErrUnknownPrekey, and
// when ResetAfter messages in a row are ErrNotAuthentic or ErrTooFarAhead; one that was
// damaged on its way, or forged, is reported and no more. No other error gives a session up; but
// Reused does, of a message that did not come before and has a number that did.
// Each one is given up once: what still comes of it is no reason for another reset.
//
// Then Ask says when to ask the relay for a reset, once and then ever more rarely, until
// device_linked tells both sides of one (Done and Sessions.Clear) or the newest session opens a
// message (Opened). The owner alone begins the new session, and writes first. Without messages
// that fail nothing is ever asked for.
//
// The zero value is a room in which nothing failed.
type Repair struct {
	givenUp  []SessionID // the oldest first
	suspect  SessionID
	failures uint8
	wanted   bool
	asks     uint8 // since the newest session last opened a message
	asked    int64 // Unix milliseconds
}

// Failed counts a message that Sessions.Open refused with err.
func (r *Repair) Failed(m *Message, err error) {
	h, headerErr := ParseHeader(m.Header)
	if headerErr != nil || slices.Contains(r.givenUp, h.Session) {
		return
	}
	switch {
	case errors.Is(err, ErrUnknownSession), errors.Is(err, ErrUnknownPrekey):
	case errors.Is(err, ErrNotAuthentic), errors.Is(err, ErrTooFarAhead):
		if r.suspect != h.Session {
			r.suspect, r.failures = h.Session, 0
		}
		r.failures++
		if r.failures < ResetAfter {
			return
		}
	default:
		return
	}
	r.giveUp(h.Session)
}

// Reused says that the other side sealed a message under a number that it had used for another one,
// which was ErrDuplicate: its state is an old copy.
func (r *Repair) Reused(m *Message) {
	if h, err := ParseHeader(m.Header); err == nil && !slices.Contains(r.givenUp, h.Session) {
		r.giveUp(h.Session)
	}
}

func (r *Repair) giveUp(session SessionID) {
	r.suspect, r.failures = SessionID{}, 0
	r.wanted = true
	r.givenUp = append(r.givenUp, session)
	if len(r.givenUp) > maxGivenUp {
		r.givenUp = slices.Delete(r.givenUp, 0, len(r.givenUp)-maxGivenUp)
	}
}

// Lost says that the state of the room's sessions is gone or cannot be read.
func (r *Repair) Lost() { r.wanted = true }

// Opened says that Sessions.Open opened a message. Its session works.
func (r *Repair) Opened(o *Opened) {
	if r.suspect == o.Session {
		r.suspect, r.failures = SessionID{}, 0
	}
	r.givenUp = slices.DeleteFunc(r.givenUp, func(id SessionID) bool { return id == o.Session })
	if o.Newest {
		r.wanted, r.asks = false, 0
	}
}

// Done says that the room was reset (device_linked), whoever asked for it.
func (r *Repair) Done() {
	r.wanted = false
	r.suspect, r.failures = SessionID{}, 0
}

// Wanted reports whether a reset is to be asked for, now or later.
func (r *Repair) Wanted() bool { return r.wanted }

// Ask reports whether to ask for a reset now, and counts it as asked. The caller stores the
// state before it asks; should that fail, a later Ask says so again.
func (r *Repair) Ask(now time.Time) bool {
	if !r.wanted || now.Before(r.Next(now)) {
		return false
	}
	r.asked = now.UnixMilli()
	r.asks = min(r.asks+1, maxAsks+1)
	return true
}

// Next is when Ask will be true if a reset is wanted: now, or later. A clock that was set back
// behind the last reset holds nothing up.
func (r *Repair) Next(now time.Time) time.Time {
	last := time.UnixMilli(r.asked)
	if r.asked == 0 || now.Before(last) {
		return now
	}
	interval := ResetInterval
	if r.asks > 1 {
		interval = min(ResetInterval<<(r.asks-1), MaxResetInterval)
	}
	if next := last.Add(interval); next.After(now) {
		return next
	}
	return now
}

// MarshalBinary is the state, for UnmarshalBinary: version(1) = 1, wanted(1), failures(1),
// asks(1), asked(8), suspect(16), number given up(1), their ids(16).
func (r *Repair) MarshalBinary() ([]byte, error) {
	wanted := byte(0)
	if r.wanted {
		wanted = 1
	}
	b := []byte{stateVersion, wanted, r.failures, r.asks}
	b = binary.BigEndian.AppendUint64(b, uint64(r.asked))
	b = append(b, r.suspect[:]...)
	b = append(b, byte(len(r.givenUp)))
	for _, id := range r.givenUp {
		b = append(b, id[:]...)
	}
	return b, nil
}

// UnmarshalBinary replaces the state by a stored one, or returns an error that is ErrState and
// leaves it.
func (r *Repair) UnmarshalBinary(b []byte) error {
	in := reader{left: b}
	version, wanted := in.byte(), in.byte()
	t := Repair{wanted: wanted == 1, failures: in.byte(), asks: in.byte(), asked: int64(in.uint64())}
	in.take(t.suspect[:])
	count := in.byte()
	for range min(count, maxGivenUp) {
		var id SessionID
		in.take(id[:])
		if slices.Contains(t.givenUp, id) {
			return fmt.Errorf("session that is given up twice: %w", ErrState)
		}
		t.givenUp = append(t.givenUp, id)
	}
	switch {
	case version != stateVersion, wanted > 1, count > maxGivenUp, !in.done():
		return fmt.Errorf("version, flags or length: %w", ErrState)
	case t.failures >= ResetAfter, t.asks > maxAsks+1, t.asked < 0, t.failures == 0 && t.suspect != SessionID{}:
		return fmt.Errorf("counts: %w", ErrState)
	}
	*r = t
	return nil
}
