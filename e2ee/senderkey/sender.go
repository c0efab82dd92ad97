package senderkey

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// RepairWindow is how many of its last messages a Sender can give away again.
const RepairWindow = 256

// Sender is one generation of one's own keys in a room. Use Outgoing, which has all of them.
type Sender struct {
	kid       KID
	gen       uint64
	next      uint32   // iteration of the next message; MaxIterations: there is none
	ck        chainKey // of next
	base      uint32   // the oldest that can be given away: at most RepairWindow before next
	baseCK    chainKey
	confirmed bool
	members   *Membership
}

// NewSender draws the key of a generation. gen is what the relay allocated for kid, and has to
// be above those of all earlier generations. ErrArgument for a gen of 0 or above 2^53-1, the
// zero kid, and as NewMembership.
func NewSender(random io.Reader, gen uint64, kid KID, roster Roster) (*Sender, error) {
	if gen == 0 || gen > wire.MaxInteger || kid == (KID{}) {
		return nil, fmt.Errorf("gen or kid: %w", ErrArgument)
	}
	members, err := NewMembership(roster)
	if err != nil {
		return nil, err
	}
	s := &Sender{kid: kid, gen: gen, members: members, confirmed: true}
	if _, err := io.ReadFull(random, s.ck[:]); err != nil {
		return nil, fmt.Errorf("new sender key: %w", err)
	}
	s.baseCK = s.ck
	return s, nil
}

// KID is that of the generation.
func (s *Sender) KID() KID { return s.kid }

// Gen is that of the generation.
func (s *Sender) Gen() uint64 { return s.gen }

// Iteration is that of the next message.
func (s *Sender) Iteration() uint32 { return s.next }

// Membership is who has the key and who lacks it.
func (s *Sender) Membership() *Membership { return s.members }

// NeedsRotation reports whether Seal refuses until another generation begins.
func (s *Sender) NeedsRotation() bool {
	return s.next >= MaxIterations || s.members.NeedsRotation()
}

// Confirm says that a loaded state is the newest. newest is the highest gen that the relay has
// allocated to this participant in the room: any other than this generation's means that the
// state is an old copy, or that the relay is; the generation is over then, and the next one
// needs a gen above both.
//
// An old copy of the same generation cannot be seen from here. A client that finds out (its
// store was restored from a backup; or see Seen) calls Abandon instead.
func (s *Sender) Confirm(newest uint64) {
	if newest != s.gen {
		s.Abandon()
	}
	s.confirmed = true
}

// Seen takes one's own verified message from the room's history. One that the state does not
// know it sent means that it is an old copy.
func (s *Sender) Seen(gen uint64, ct []byte) {
	if len(ct) >= prefixSize && gen == s.gen && binary.BigEndian.Uint32(ct) >= s.next {
		s.Abandon()
	}
}

// Abandon ends the generation.
func (s *Sender) Abandon() { s.members.over = true }

// Settle forgets how to give away messages of before. Members that lack the key, or lose it,
// read from the next message on.
func (s *Sender) Settle() { s.base, s.baseCK = s.next, s.ck }

// Seal encrypts a message to the room. aad is the canonical envelope without ct and sig; it
// names nonce (seal.NewNonce), KID and Gen. The state has to be saved before ct is sent.
//
// ErrUnconfirmed after loading; ErrRotationNeeded once somebody who has the key left, the
// relay retired it, or it was used MaxIterations times. It does not look whether everybody
// has the key: see Membership.Missing.
func (s *Sender) Seal(nonce [seal.NonceSize]byte, plaintext, aad []byte) (iteration uint32, ct []byte, err error) {
	switch {
	case !s.confirmed:
		return 0, nil, ErrUnconfirmed
	case s.NeedsRotation():
		return 0, nil, ErrRotationNeeded
	}
	iteration = s.next
	bound := bind(iteration, aad)
	sealed := seal.WithNonce(s.ck.message(), nonce, plaintext, bound)
	ct = make([]byte, 0, prefixSize+len(sealed))
	ct = append(ct, bound[:prefixSize]...)
	s.ck = s.ck.next()
	s.next++
	if s.next-s.base > RepairWindow {
		s.base, s.baseCK = s.base+1, s.baseCK.next()
	}
	return iteration, append(ct, sealed...), nil
}

// Distribute gives the key to a member, from the first iteration on that it may read and that
// can be given away. It counts as given from now on, so the state is to be saved before.
// ErrNotMember for others.
func (s *Sender) Distribute(to string) (Distribution, error) {
	since, err := s.members.Give(to)
	if err != nil {
		return Distribution{}, err
	}
	from := max(since, s.base)
	if from >= MaxIterations {
		return Distribution{}, ErrRotationNeeded // there will be no message
	}
	return Distribution{KID: s.kid, Gen: s.gen, Iteration: from, CK: s.baseCK.after(from - s.base)}, nil
}

// Format prints no key.
func (s *Sender) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "own sender key %v, gen %d, iteration %d", s.kid, s.gen, s.next)
}

// MarshalBinary returns the state to save.
func (s *Sender) MarshalBinary() ([]byte, error) { return s.appendTo(header(stateSender)), nil }

// UnmarshalBinary loads what MarshalBinary returned. It seals nothing before Confirm. ErrState
// for anything else; the state is then as before.
func (s *Sender) UnmarshalBinary(data []byte) error {
	r := reader{data: data}
	r.header(stateSender)
	loaded := readSender(&r)
	if err := r.end(); err != nil {
		return err
	}
	*s = *loaded
	return nil
}

func (s *Sender) appendTo(b []byte) []byte {
	b = append(b, s.kid[:]...)
	b = binary.BigEndian.AppendUint64(b, s.gen)
	b = binary.BigEndian.AppendUint32(b, s.next)
	b = append(b, s.ck[:]...)
	b = binary.BigEndian.AppendUint32(b, s.base)
	b = append(b, s.baseCK[:]...)
	return s.members.appendTo(b)
}

func readSender(r *reader) *Sender {
	s := &Sender{
		kid: r.kid(), gen: r.integer(), next: r.uint32(MaxIterations), ck: r.key(),
		base: r.uint32(MaxIterations), baseCK: r.key(), members: readMembership(r),
	}
	r.must(s.kid != KID{} && s.gen > 0 && s.base <= s.next && s.next-s.base <= RepairWindow)
	if !r.failed {
		end := s.baseCK.after(s.next - s.base)
		r.must(end.equal(&s.ck))
	}
	return s
}
