package senderkey

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Bounds of Repair (RELAY: "three attempts, 60-second cooldown").
const (
	RepairAttempts      = 3
	RepairCooldown      = time.Minute
	MaxRepairs          = 256 // keys that are remembered
	MaxRepairsPerSender = 8   // of one sender, so that nobody uses up the others' share
	repairKept          = 24 * time.Hour
)

// Repair asks senders for keys that are missing or wrong, and no more often than it may. The
// zero value has asked for none.
//
// Only the *StaleError of a verified message starts a repair; what else fails, control messages and
// distributions among them, is none. A key stays counted when it has come or is unavailable, so
// that what is wrong with it is not asked again and again; it is forgotten a day after its last
// request, or a minute after it where it has come, and only where there is no room for another.
type Repair struct {
	// Random makes the ids of requests; nil is crypto/rand.
	Random io.Reader

	keys []*repair // in the order they were first asked for
}

type repair struct {
	key      Key
	attempts byte
	verdict  verdict
	last     time.Time
}

// verdict is how a repair stands.
type verdict byte

const (
	asking verdict = iota
	resolved
	unavailable
)

// Request is a key request and whom to send it to.
type Request struct {
	To string
	KeyRequest
}

// Ask returns the request that a failed message permits now. The state is to be saved before it is
// sent; one that is then lost counts.
//
// No request: ErrNotRepairable, ErrCooldown, ErrGivenUp, ErrUnavailable, ErrFull, or ErrArgument for
// a time that cannot be.
func (r *Repair) Ask(failed error, now time.Time) (Request, error) {
	var stale *StaleError
	switch {
	case !errors.As(failed, &stale):
		return Request{}, ErrNotRepairable
	case !validTime(now):
		return Request{}, fmt.Errorf("time: %w", ErrArgument)
	}
	now = now.Truncate(time.Millisecond)
	known := r.find(stale.key)
	if known == nil {
		if !r.makeRoom(stale.key.Sender, now) {
			return Request{}, ErrFull
		}
		known = &repair{key: stale.key}
	}
	request, err := r.attempt(known, now)
	if err != nil {
		return Request{}, err
	}
	if known.attempts == 1 {
		r.keys = append(r.keys, known)
	}
	return request, nil
}

// Due returns further requests for keys that have not come, without another message. Next says
// when to call it.
func (r *Repair) Due(now time.Time) ([]Request, error) {
	if !validTime(now) {
		return nil, fmt.Errorf("time: %w", ErrArgument)
	}
	now = now.Truncate(time.Millisecond)
	var requests []Request
	for _, known := range r.keys {
		if known.verdict != asking {
			continue
		}
		request, err := r.attempt(known, now)
		switch {
		case errors.Is(err, ErrCooldown), errors.Is(err, ErrGivenUp):
		case err != nil:
			return requests, err
		default:
			requests = append(requests, request)
		}
	}
	return requests, nil
}

// Asked reports whether a verified message named the key and it was asked for.
func (r *Repair) Asked(key Key) bool { return r.find(key) != nil }

// Waits reports whether the key of a failed message was asked for less than RepairCooldown ago,
// and no answer has come: the message may open yet, also after the last attempt.
func (r *Repair) Waits(failed error, now time.Time) bool {
	var stale *StaleError
	if !errors.As(failed, &stale) {
		return false
	}
	known := r.find(stale.key)
	return known != nil && known.verdict == asking && now.Sub(known.last) < RepairCooldown
}

// Next is when something is due; false where nothing will be.
func (r *Repair) Next() (at time.Time, ok bool) {
	for _, known := range r.keys {
		if known.verdict != asking || known.attempts >= RepairAttempts {
			continue
		}
		if due := known.last.Add(RepairCooldown); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	return at, ok
}

// attempt counts a request, if one may be made.
func (r *Repair) attempt(known *repair, now time.Time) (Request, error) {
	if known.last.After(now) {
		known.last = now // the clock was set back: wait from now on
	}
	switch {
	case known.verdict == unavailable:
		return Request{}, ErrUnavailable
	case known.attempts >= RepairAttempts:
		return Request{}, ErrGivenUp
	case known.attempts > 0 && now.Sub(known.last) < RepairCooldown:
		return Request{}, ErrCooldown
	}
	random := r.Random
	if random == nil {
		random = rand.Reader
	}
	id, err := newRequestID(random)
	if err != nil {
		return Request{}, err
	}
	known.attempts++
	known.last = now
	known.verdict = asking
	return Request{To: known.key.Sender, KeyRequest: KeyRequest{ID: id, KID: known.key.KID, Gen: known.key.Gen}}, nil
}

// Resolved takes the key that Receivers.Accept returned: nothing is due for it any more. A message that
// it does not open either is asked for with the attempts that are left.
func (r *Repair) Resolved(key Key) {
	if known := r.find(key); known != nil && known.verdict == asking {
		known.verdict = resolved
	}
}

// Unavailable takes the answer of a pairwise envelope that was opened: from is its sender, and
// only the sender of a key can say so. It ends the repair.
func (r *Repair) Unavailable(from string, answer KeyUnavailable) {
	if known := r.find(Key{Sender: from, KID: answer.KID, Gen: answer.Gen}); known != nil {
		known.verdict = unavailable
	}
}

// Forget drops the keys of a participant that left for good.
func (r *Repair) Forget(participant string) {
	r.keys = slices.DeleteFunc(r.keys, func(known *repair) bool { return known.key.Sender == participant })
}

func (r *Repair) find(key Key) *repair {
	for _, known := range r.keys {
		if known.key.id() == key.id() {
			return known
		}
	}
	return nil
}

// makeRoom for one more key of the sender drops, at most, what was asked longest ago.
func (r *Repair) makeRoom(sender string, now time.Time) bool {
	ofSender := func(known *repair) bool { return known.key.Sender == sender }
	count := 0
	for _, known := range r.keys {
		if ofSender(known) {
			count++
		}
	}
	if count >= MaxRepairsPerSender {
		return r.drop(ofSender, now)
	}
	if len(r.keys) >= MaxRepairs {
		return r.drop(func(*repair) bool { return true }, now)
	}
	return true
}

func (r *Repair) drop(which func(*repair) bool, now time.Time) bool {
	var old []*repair
	for _, known := range r.keys {
		age := now.Sub(known.last)
		if which(known) && (age >= repairKept || known.verdict == resolved && age >= RepairCooldown) {
			old = append(old, known)
		}
	}
	if len(old) == 0 {
		return false
	}
	oldest := slices.MinFunc(old, func(a, b *repair) int { return cmp.Compare(a.last.UnixMilli(), b.last.UnixMilli()) })
	r.keys = slices.DeleteFunc(r.keys, func(known *repair) bool { return known == oldest })
	return true
}

// MarshalBinary returns the state to save.
func (r *Repair) MarshalBinary() ([]byte, error) {
	b := binary.BigEndian.AppendUint16(header(stateRepair), uint16(len(r.keys)))
	for _, known := range r.keys {
		b = appendName(b, known.key.Sender)
		b = append(b, known.key.KID[:]...)
		b = binary.BigEndian.AppendUint64(b, known.key.Gen)
		b = append(b, known.attempts, byte(known.verdict))
		b = appendTime(b, known.last)
	}
	return b, nil
}

// UnmarshalBinary loads what MarshalBinary returned. ErrState for anything else; the state is
// then as before.
func (r *Repair) UnmarshalBinary(data []byte) error {
	in := reader{data: data}
	in.header(stateRepair)
	loaded := Repair{Random: r.Random}
	perSender := make(map[string]int)
	for range in.count(MaxRepairs) {
		known := &repair{
			key:      Key{Sender: in.name(""), KID: in.kid(), Gen: in.integer()},
			attempts: in.byte(), verdict: verdict(in.byte()), last: in.time(),
		}
		perSender[known.key.Sender]++
		in.must(known.attempts > 0 && known.attempts <= RepairAttempts && known.verdict <= unavailable && !known.last.IsZero())
		in.must(loaded.find(known.key) == nil && perSender[known.key.Sender] <= MaxRepairsPerSender)
		if in.failed {
			return ErrState
		}
		loaded.keys = append(loaded.keys, known)
	}
	if err := in.end(); err != nil {
		return err
	}
	*r = loaded
	return nil
}
