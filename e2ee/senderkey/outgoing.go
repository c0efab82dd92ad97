package senderkey

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/peerrelay/peerrelay/e2ee/seal"
)

// Bounds of Outgoing.
const (
	FormerGenerations = 3                // of one's own are kept, to answer requests
	AnswersPerHour    = 12               // to one member
	AnswerGap         = 30 * time.Second // between two answers to one member for one key

	answerMemory = time.Hour
)

// Outgoing is all of a participant's own keys in one room: the present generation, a few former
// ones, and who was answered. The zero value has none, and is ready for Begin.
type Outgoing struct {
	senders []*Sender // in order of gen, at most 1+FormerGenerations; the last is the present one
	answers map[string][]answer
}

// answer is one that was given.
type answer struct {
	request RequestID
	key     Key // without sender
	at      time.Time
}

// Answer is what to send to who asked: one of them.
type Answer struct {
	Key         *Distribution
	Unavailable *KeyUnavailable
}

// Begin starts a new generation, which the relay allocated gen for; no member has it yet. Those
// of before serve for answers only. The same gen and kid again changes nothing, so that a call
// may be repeated. ErrGeneration for a gen that is not above all earlier ones; otherwise as
// NewSender.
func (o *Outgoing) Begin(random io.Reader, gen uint64, kid KID, roster Roster) error {
	if present := o.Present(); present != nil {
		switch {
		case gen == present.gen && kid == present.kid:
			return nil
		case gen <= present.gen:
			return ErrGeneration
		}
	}
	s, err := NewSender(random, gen, kid, roster)
	if err != nil {
		return err
	}
	for _, former := range o.senders {
		former.Abandon()
	}
	o.senders = append(o.senders, s)
	if extra := len(o.senders) - 1 - FormerGenerations; extra > 0 {
		o.senders = slices.Delete(o.senders, 0, extra)
	}
	return nil
}

// Present is the present generation, nil before the first.
func (o *Outgoing) Present() *Sender {
	if len(o.senders) == 0 {
		return nil
	}
	return o.senders[len(o.senders)-1]
}

// NeedsRotation reports whether a generation has to begin before the next message.
func (o *Outgoing) NeedsRotation() bool {
	present := o.Present()
	return present == nil || present.NeedsRotation()
}

// Missing lists the members that lack the present key, sorted.
func (o *Outgoing) Missing() []string {
	if present := o.Present(); present != nil {
		return present.members.Missing()
	}
	return nil
}

// Update is Membership.Update of the present generation.
func (o *Outgoing) Update(roster Roster) error {
	if present := o.Present(); present != nil {
		return present.members.Update(roster, present.next)
	}
	return roster.check()
}

// Left is Membership.Left of the present generation.
func (o *Outgoing) Left(version uint64, participant string) {
	if present := o.Present(); present != nil {
		present.members.Left(version, participant)
	}
}

// Retire is Membership.Retire of the present generation: for rekey_required and room_reset.
func (o *Outgoing) Retire(version uint64) {
	if present := o.Present(); present != nil {
		present.members.Retire(version)
	}
}

// Refused takes the relay's word that a generation is retired or unknown, as it says of a message. Of
// generations other than the present one it is no news.
func (o *Outgoing) Refused(gen uint64) {
	if present := o.Present(); present != nil && present.gen == gen {
		present.Abandon()
	}
}

// Confirm is Sender.Confirm of the present generation; newest is 0 where the relay has
// allocated none.
func (o *Outgoing) Confirm(newest uint64) {
	if present := o.Present(); present != nil {
		present.Confirm(newest)
	}
}

// Seal is Sender.Seal of the present generation. ErrRotationNeeded where there is none.
func (o *Outgoing) Seal(nonce [seal.NonceSize]byte, plaintext, aad []byte) (iteration uint32, ct []byte, err error) {
	present := o.Present()
	if present == nil {
		return 0, nil, ErrRotationNeeded
	}
	return present.Seal(nonce, plaintext, aad)
}

// Distribute is Sender.Distribute of the present generation. ErrRotationNeeded where there is
// none, or it is over: its key helps nobody.
func (o *Outgoing) Distribute(to string) (Distribution, error) {
	if o.NeedsRotation() {
		return Distribution{}, ErrRotationNeeded
	}
	return o.Present().Distribute(to)
}

// Answer answers a key request of a member, whose pairwise envelope was opened. The member gets
// the key from the first iteration on that it may read and that can be given away, and counts as
// one who was given it; where there is no such key, or the member was not in the room in its
// time, the answer is KeyUnavailable. The state is to be saved before the answer is sent.
//
// No answer at all: ErrNotMember, as the relay would take none; ErrAnswered for a request that
// was answered; ErrTooOften less than AnswerGap after an answer for the same key, or after
// AnswersPerHour; ErrArgument for a time that cannot be.
func (o *Outgoing) Answer(requester string, request KeyRequest, now time.Time) (Answer, error) {
	present := o.Present()
	if present == nil || !present.members.Has(requester) {
		return Answer{}, ErrNotMember
	}
	if !validTime(now) {
		return Answer{}, fmt.Errorf("time: %w", ErrArgument)
	}
	now = now.Truncate(time.Millisecond)
	key := Key{KID: request.KID, Gen: request.Gen}.id()
	if err := o.mayAnswer(requester, request.ID, key, now); err != nil {
		return Answer{}, err
	}
	o.answers[requester] = append(o.answers[requester], answer{request: request.ID, key: key, at: now})
	if s := o.find(request); s != nil {
		if d, err := s.Distribute(requester); err == nil {
			return Answer{Key: &d}, nil
		}
	}
	return Answer{Unavailable: &KeyUnavailable{KID: request.KID, Gen: request.Gen}}, nil
}

// find returns the generation that is meant, nil when it is gone. A request without a kid is an
// older peer's.
func (o *Outgoing) find(request KeyRequest) *Sender {
	for _, s := range o.senders {
		if request.KID == s.kid || request.KID == (KID{}) && request.Gen == s.gen {
			return s
		}
	}
	return nil
}

// mayAnswer drops what is long past, and answers of those who left.
func (o *Outgoing) mayAnswer(requester string, id RequestID, key Key, now time.Time) error {
	if o.answers == nil {
		o.answers = make(map[string][]answer)
	}
	members := o.Present().members
	for who, given := range o.answers {
		for i := range given {
			if given[i].at.After(now) {
				given[i].at = now // the clock was set back: wait from now on
			}
		}
		given = slices.DeleteFunc(given, func(a answer) bool { return now.Sub(a.at) >= answerMemory })
		o.answers[who] = given
		if len(given) == 0 || !members.Has(who) {
			delete(o.answers, who)
		}
	}
	given := o.answers[requester]
	for _, a := range given {
		switch {
		case a.request == id:
			return ErrAnswered
		case a.key == key && now.Sub(a.at) < AnswerGap:
			return ErrTooOften
		}
	}
	if len(given) >= AnswersPerHour {
		return ErrTooOften
	}
	return nil
}

// Format prints no key.
func (o *Outgoing) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "own sender keys of %d generations", len(o.senders))
}

// MarshalBinary returns the state to save.
func (o *Outgoing) MarshalBinary() ([]byte, error) {
	b := append(header(stateOutgoing), byte(len(o.senders)))
	for _, s := range o.senders {
		b = s.appendTo(b)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.answers)))
	for _, who := range slices.Sorted(maps.Keys(o.answers)) {
		b = appendName(b, who)
		b = binary.BigEndian.AppendUint16(b, uint16(len(o.answers[who])))
		for _, a := range o.answers[who] {
			b = append(b, a.request[:]...)
			b = append(b, a.key.KID[:]...)
			b = binary.BigEndian.AppendUint64(b, a.key.Gen)
			b = appendTime(b, a.at)
		}
	}
	return b, nil
}

// UnmarshalBinary loads what MarshalBinary returned. It seals nothing before Confirm. ErrState
// for anything else; the state is then as before.
func (o *Outgoing) UnmarshalBinary(data []byte) error {
	r := reader{data: data}
	r.header(stateOutgoing)
	loaded := Outgoing{answers: make(map[string][]answer)}
	n := int(r.byte())
	r.must(n <= 1+FormerGenerations)
	for i := 0; i < n && !r.failed; i++ {
		s := readSender(&r)
		r.must(i == 0 || s.gen > loaded.senders[i-1].gen)
		r.must(i == n-1 || s.members.over)
		loaded.senders = append(loaded.senders, s)
	}
	readAnswers(&r, loaded.answers)
	if err := r.end(); err != nil {
		return err
	}
	*o = loaded
	return nil
}

func readAnswers(r *reader, answers map[string][]answer) {
	who := ""
	for range r.count(MaxMembers) {
		who = r.name(who)
		n := r.count(AnswersPerHour)
		r.must(n > 0)
		for i := 0; i < n && !r.failed; i++ {
			a := answer{request: RequestID(r.take(16)), key: Key{KID: r.kid(), Gen: r.integer()}, at: r.time()}
			r.must(a.key == a.key.id() && !a.at.IsZero())
			answers[who] = append(answers[who], a)
		}
		if r.failed {
			return
		}
	}
}
