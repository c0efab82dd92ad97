package ratchet

import (
	"encoding/binary"
	"fmt"

	"github.com/peerrelay/peerrelay/wire"
)

// A stored session:
//
//	version(1) = 1   flags(1): 1 initiator, 2 an answer was opened
//	initiator: identity(32) agreement(32)   responder: the same
//	ephemeral(32) signed(4) one-time(4) started(8)   length of the room's id(2) room's id
//	root(32) own private ratchet key(32) sending chain(32) sent(4) sent in the one before(4)
//	receiving chain(32, zero before an answer)
//	present chain, number of past chains(2), past chains
//
// and a chain: key(32) next(4) lost(4) number of keys(2), keys: number(4) key(32).
const (
	stateVersion   = 1
	flagInitiator  = 1
	flagReceiving  = 2
	maxChains      = MaxSkipped + maxPastChains
	maxSessionSize = 512 + wire.MaxIDLength + (maxChains+1)*42 + MaxSkipped*36
)

// MarshalBinary is the state, for UnmarshalBinary. It holds private keys. The same state
// has the same bytes.
func (s *Session) MarshalBinary() ([]byte, error) {
	if !s.sending {
		return nil, ErrState // of a responder that opened nothing there is nothing to store
	}
	flags := byte(0)
	if s.isInitiator {
		flags |= flagInitiator
	}
	if s.receiving {
		flags |= flagReceiving
	}
	b := make([]byte, 0, 512+len(s.room)+(len(s.past)+1)*42+s.Skipped()*36)
	b = append(b, stateVersion, flags)
	for _, p := range [...]public{s.initiator, s.responder} {
		b = append(append(b, p.identity[:]...), p.agreement[:]...)
	}
	b = s.start.append(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.room)))
	b = append(b, s.room...)
	for _, key := range [...][32]byte{s.root, s.own.private, s.sendChain} {
		b = append(b, key[:]...)
	}
	b = binary.BigEndian.AppendUint32(b, s.sent)
	b = binary.BigEndian.AppendUint32(b, s.sentPrev)
	b = append(b, s.recvChain[:]...)
	b = s.recv.append(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.past)))
	for i := range s.past {
		b = s.past[i].append(b)
	}
	return b, nil
}

func (c *chain) append(b []byte) []byte {
	b = append(b, c.key[:]...)
	b = binary.BigEndian.AppendUint32(b, c.next)
	b = binary.BigEndian.AppendUint32(b, c.lost)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.keys)))
	for _, k := range c.keys {
		b = binary.BigEndian.AppendUint32(b, k.n)
		b = append(b, k.key[:]...)
	}
	return b
}

// UnmarshalBinary replaces the session by a stored one, or returns an error that is ErrState
// and leaves it.
func (s *Session) UnmarshalBinary(b []byte) error {
	if len(b) > maxSessionSize {
		return fmt.Errorf("%d bytes: %w", len(b), ErrState)
	}
	r := reader{left: b}
	version, flags := r.byte(), r.byte()
	if version != stateVersion || flags&^(flagInitiator|flagReceiving) != 0 {
		return fmt.Errorf("version %d, flags %d: %w", version, flags, ErrState)
	}
	t := Session{isInitiator: flags&flagInitiator != 0, receiving: flags&flagReceiving != 0, sending: true, random: s.random}
	t.readAgreed(&r)
	r.take(t.root[:])
	r.take(t.own.private[:])
	r.take(t.sendChain[:])
	t.sent, t.sentPrev = r.uint32(), r.uint32()
	r.take(t.recvChain[:])
	chains := chainReader{reader: &r, seen: map[[32]byte]bool{}}
	t.recv = chains.chain()
	past := int(r.uint16())
	if past > maxChains {
		return fmt.Errorf("number of chains: %w", ErrState)
	}
	for range past {
		if r.failed {
			break
		}
		t.past = append(t.past, chains.chain())
	}
	if chains.bad || !r.done() {
		return fmt.Errorf("chains, or length: %w", ErrState)
	}
	if err := t.check(chains.empty); err != nil {
		return err
	}
	*s = t
	return nil
}

func (s *Session) readAgreed(r *reader) {
	for _, p := range [...]*public{&s.initiator, &s.responder} {
		r.take(p.identity[:])
		r.take(p.agreement[:])
	}
	s.start.Identity = s.initiator.identity
	s.start.read(r)
	s.room = string(r.next(int(r.uint16())))
}

// check looks at what was read, and computes what is not stored.
func (s *Session) check(emptyChains int) error {
	if !wire.ValidID([]byte(s.room)) || !s.start.valid() {
		return fmt.Errorf("room or prekey ids: %w", ErrState)
	}
	if !s.receiving {
		zero := s.recvChain == [32]byte{} && s.recv.next == 0 && s.recv.lost == 0 && len(s.recv.keys) == 0
		if !s.isInitiator || !zero || len(s.past) > 0 || s.sentPrev != 0 {
			return fmt.Errorf("a chain before the first answer: %w", ErrState)
		}
	}
	// The present chain is no past one, and the numbers are ones that Seal and Open reach.
	empty := emptyChains
	if len(s.recv.keys) == 0 {
		empty--
	}
	if s.receiving && s.recv.next == 0 || empty > maxPastChains || s.Skipped() > MaxSkipped || s.sent > maxNumber || s.sentPrev > maxNumber {
		return fmt.Errorf("numbers: %w", ErrState)
	}
	// The peer's key and the ephemeral key have done their DH; no other will be done with them.
	public, err := publicKey(s.own.private)
	if err != nil {
		return fmt.Errorf("keys: %w", ErrState)
	}
	s.own.public = public
	s.complete()
	return nil
}

// chainReader reads chains whose keys have to be distinct.
type chainReader struct {
	*reader

	seen  map[[32]byte]bool
	keys  int // of messages, in all
	empty int // chains without any
	bad   bool
}

func (r *chainReader) chain() (c chain) {
	r.take(c.key[:])
	c.next, c.lost = r.uint32(), r.uint32()
	count := int(r.uint16())
	r.keys += count
	if r.failed || r.seen[c.key] || c.lost > c.next || r.keys > MaxSkipped {
		r.bad = true
		return c
	}
	r.seen[c.key] = true
	if count == 0 {
		r.empty++
		return c
	}
	c.keys = make([]kept, count)
	for i := range c.keys {
		k := &c.keys[i]
		k.n = r.uint32()
		r.take(k.key[:])
		if k.n >= c.next || i > 0 && k.n <= c.keys[i-1].n {
			r.bad = true
		}
	}
	return c
}
