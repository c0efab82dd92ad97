package senderkey

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// Bounds of Receivers.
const (
	MaxSkip        = 1000 // missing messages before one that is opened
	MaxSkipped     = 2000 // message keys that one generation keeps for them; the oldest are dropped
	MaxGenerations = 8    // of one sender; those of the lowest gen are dropped
	MaxSenders     = 4096
)

// Receivers is the keys that the other members of one room gave, each bound to the one who
// gave it: nobody's key opens a message of anybody else. The zero value has none.
type Receivers struct {
	peers map[string]*peer
}

// peer is one sender's.
type peer struct {
	floor  uint64   // generations below are gone, and not taken again
	chains []*chain // in the order they were accepted
}

// chain is one generation.
type chain struct {
	kid     KID // zero: found by gen only
	gen     uint64
	start   uint32 // the first iteration that was given
	next    uint32 // the first that no message was opened of; MaxIterations: none is left
	ck      chainKey
	skipped []skippedKey // of iterations from start to next, rising
	newest  Written      // the latest of the messages that were opened
	again   *again       // nil: no iteration is used twice
}

type skippedKey struct {
	iteration uint32
	key       [seal.KeySize]byte
}

// Message is what Receivers need of an envelope.
type Message struct {
	From     string // the participant whose signature was verified
	KID      KID    // zero: the envelope has none
	Gen      uint64
	Nonce    [seal.NonceSize]byte
	CT       []byte
	AAD      []byte // the canonical envelope without ct and sig
	Written  Written
	Verified bool // the envelope's signature is that of From
}

// Accept takes the key that a member gave, whose pairwise envelope was opened: from is its
// sender. A known key changes nothing, but may be of an earlier iteration, which opens earlier
// messages, or of one that is more than MaxSkip later, which is where the chain goes on then.
//
// ErrKeyConflict for another key under a known kid, or under a known gen without a kid: the
// first one counts. ErrForeignKID for the kid of a key that another member gave; where the
// relay's list says that it is the sender's own, see AcceptPublished. ErrRetired for a gen below
// those that are kept; ErrFull; ErrArgument for what no distribution has.
func (r *Receivers) Accept(from string, d Distribution) (Key, error) {
	if d.KID != (KID{}) {
		for other, p := range r.peers {
			if other != from && p.byKID(d.KID) != nil {
				return Key{}, ErrForeignKID
			}
		}
	}
	return r.AcceptPublished(from, d)
}

// AcceptPublished is Accept for a kid that the relay's list of participants has as one of from.
// It is taken even if another member was the first to give a key with it: both have one then,
// each for its own messages.
func (r *Receivers) AcceptPublished(from string, d Distribution) (Key, error) {
	if !validParticipant(from) || d.Gen > wire.MaxInteger || d.Iteration >= MaxIterations {
		return Key{}, fmt.Errorf("distribution: %w", ErrArgument)
	}
	key := d.key(from)
	p := r.peers[from]
	if p == nil {
		if len(r.peers) >= MaxSenders {
			return Key{}, ErrFull
		}
		p = &peer{}
	}
	if err := p.accept(d); err != nil {
		return Key{}, err
	}
	if r.peers == nil {
		r.peers = make(map[string]*peer)
	}
	r.peers[from] = p
	return key, nil
}

// AcceptAgain is Accept for a key that was asked for: of used iterations that its sender goes on at
// (Spent), the keys are taken too.
func (r *Receivers) AcceptAgain(from string, d Distribution) (Key, error) {
	key, err := r.Accept(from, d)
	if err == nil {
		r.peers[from].known(d).giveAgain(d)
	}
	return key, err
}

func (d Distribution) key(from string) Key { return Key{Sender: from, KID: d.KID, Gen: d.Gen} }

// known is the chain that a distribution is of, if there is one.
func (p *peer) known(d Distribution) *chain {
	if d.KID == (KID{}) {
		return p.byGen(d.Gen)
	}
	return p.byKID(d.KID)
}

func (p *peer) accept(d Distribution) error {
	known := p.known(d)
	switch {
	case known != nil && known.gen != d.Gen:
		return ErrKeyConflict
	case known != nil:
		return known.merge(d)
	case d.Gen < p.floor:
		return ErrRetired
	case len(p.chains) == MaxGenerations && d.Gen <= p.lowest():
		return ErrRetired
	}
	if len(p.chains) == MaxGenerations {
		p.floor = p.lowest() + 1
		p.chains = slices.DeleteFunc(p.chains, func(c *chain) bool { return c.gen < p.floor })
	}
	p.chains = append(p.chains, &chain{kid: d.KID, gen: d.Gen, start: d.Iteration, next: d.Iteration, ck: d.CK})
	return nil
}

// lowest is the lowest gen it has.
func (p *peer) lowest() uint64 {
	gen := p.chains[0].gen
	for _, c := range p.chains {
		gen = min(gen, c.gen)
	}
	return gen
}

func (p *peer) byKID(kid KID) *chain {
	for _, c := range p.chains {
		if kid != (KID{}) && c.kid == kid {
			return c
		}
	}
	return nil
}

// byGen finds the chain without a kid.
func (p *peer) byGen(gen uint64) *chain {
	for _, c := range p.chains {
		if c.kid == (KID{}) && c.gen == gen {
			return c
		}
	}
	return nil
}

// find: by kid, then by gen, what was given without a kid first (RELAY, "older recipients
// ignore it and use gen"). A message with a kid is not opened with the key of another kid.
func (p *peer) find(kid KID, gen uint64) *chain {
	if c := p.byKID(kid); c != nil {
		return c
	}
	if c := p.byGen(gen); c != nil || kid != (KID{}) {
		return c
	}
	for _, c := range slices.Backward(p.chains) {
		if c.gen == gen {
			return c
		}
	}
	return nil
}

// merge takes another distribution of the same generation, if it is of the same chain.
func (c *chain) merge(d Distribution) error {
	given := chainKey(d.CK)
	if d.Iteration >= c.next {
		ours := c.ck.after(d.Iteration - c.next)
		if !ours.equal(&given) {
			return ErrKeyConflict
		}
		if gap := d.Iteration - c.next; gap > MaxSkip {
			c.ck = c.ck.after(gap - MaxSkip)
			c.next = d.Iteration - MaxSkip
			c.keep(c.advance(d.Iteration))
		}
		return nil
	}
	if end := given.after(c.next - d.Iteration); !end.equal(&c.ck) {
		return ErrKeyConflict
	}
	if d.Iteration < c.start {
		earlier := chain{next: d.Iteration, ck: given}
		keys := earlier.advance(c.start)
		c.skipped = trim(slices.Concat(keys, c.skipped))
		c.start = d.Iteration
	}
	return nil
}

// advance returns the message keys before iteration, and is at iteration then.
func (c *chain) advance(iteration uint32) []skippedKey {
	keys := make([]skippedKey, 0, iteration-c.next)
	for c.next < iteration {
		keys = append(keys, skippedKey{iteration: c.next, key: c.ck.message()})
		c.ck = c.ck.next()
		c.next++
	}
	return keys
}

// keep adds keys that are later than all it has.
func (c *chain) keep(keys []skippedKey) { c.skipped = trim(append(c.skipped, keys...)) }

// trim drops the oldest of too many.
func trim(keys []skippedKey) []skippedKey {
	if extra := len(keys) - MaxSkipped; extra > 0 {
		return slices.Delete(keys, 0, extra)
	}
	return keys
}

// Open decrypts a message, whose key is gone then. After any error everything is as before.
//
// ErrUnverified, ErrMessage, ErrRetired, ErrGeneration (the kid has another gen), ErrBeforeKey and
// ErrDuplicate are for good. ErrStaleSenderKey is for Repair: the key is unknown (ErrUnknownKey), does
// not open the message (seal.ErrOpen), opened another one (ErrSpent), or more than MaxSkip messages are
// missing (ErrTooFar).
//
// A message counts once here as long as its generation is kept. Beyond that, and for which messages
// were shown, the client remembers ids.
func (r *Receivers) Open(m *Message) ([]byte, error) {
	switch {
	case !m.Verified:
		return nil, ErrUnverified
	case !validParticipant(m.From), m.Gen > wire.MaxInteger, len(m.CT) < Overhead:
		return nil, ErrMessage
	}
	iteration := binary.BigEndian.Uint32(m.CT)
	if iteration >= MaxIterations {
		return nil, ErrMessage
	}
	stale := func(cause error) error {
		return &StaleError{key: Key{Sender: m.From, KID: m.KID, Gen: m.Gen}, cause: cause}
	}
	p := r.peers[m.From]
	if p == nil {
		return nil, stale(ErrUnknownKey)
	}
	c := p.find(m.KID, m.Gen)
	switch {
	case c == nil && m.Gen < p.floor:
		return nil, ErrRetired
	case c == nil:
		return nil, stale(ErrUnknownKey)
	case c.gen != m.Gen:
		return nil, ErrGeneration
	case iteration < c.start:
		return nil, ErrBeforeKey
	case iteration < c.next:
		return c.openSkipped(iteration, m, stale)
	case iteration-c.next > MaxSkip:
		return nil, stale(ErrTooFar)
	}
	ahead := chain{next: c.next, ck: c.ck}
	keys := ahead.advance(iteration)
	plaintext, err := openWith(ahead.ck.message(), iteration, m)
	if err != nil {
		return nil, stale(err)
	}
	c.ck, c.next = ahead.ck.next(), iteration+1
	c.keep(keys)
	c.opened(m)
	return plaintext, nil
}

// openSkipped opens a message of before next.
func (c *chain) openSkipped(iteration uint32, m *Message, stale func(error) error) ([]byte, error) {
	at, ok := find(c.skipped, iteration)
	if !ok {
		return c.openSpent(iteration, m, stale)
	}
	plaintext, err := openWith(c.skipped[at].key, iteration, m)
	if err != nil {
		return nil, stale(err)
	}
	c.skipped = slices.Delete(c.skipped, at, at+1)
	c.opened(m)
	return plaintext, nil
}

func find(keys []skippedKey, iteration uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(keys, iteration, func(k skippedKey, i uint32) int { return int(k.iteration) - int(i) })
}

func openWith(key [seal.KeySize]byte, iteration uint32, m *Message) ([]byte, error) {
	return seal.Open(key, m.Nonce, m.CT[prefixSize:], bind(iteration, m.AAD))
}

// Holder is who gave the key of a kid, "" where nobody did.
func (r *Receivers) Holder(kid KID) string {
	for id, p := range r.peers {
		if p.byKID(kid) != nil {
			return id
		}
	}
	return ""
}

// Forget drops all keys of a participant that left for good: participant ids do not come
// back. Of one that stays, messages would be opened a second time.
func (r *Receivers) Forget(participant string) { delete(r.peers, participant) }

// Format prints no key.
func (r *Receivers) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "sender keys of %d members", len(r.peers))
}

// MarshalBinary returns the state to save.
func (r *Receivers) MarshalBinary() ([]byte, error) {
	b := binary.BigEndian.AppendUint16([]byte{stateReceivers, receiversVersion}, uint16(len(r.peers)))
	for _, id := range slices.Sorted(maps.Keys(r.peers)) {
		p := r.peers[id]
		b = appendName(b, id)
		b = binary.BigEndian.AppendUint64(b, p.floor)
		b = append(b, byte(len(p.chains)))
		for _, c := range p.chains {
			b = c.appendTo(b)
		}
	}
	return b, nil
}

func (c *chain) appendTo(b []byte) []byte {
	b = append(b, c.kid[:]...)
	b = binary.BigEndian.AppendUint64(b, c.gen)
	b = binary.BigEndian.AppendUint32(b, c.start)
	b = binary.BigEndian.AppendUint32(b, c.next)
	b = append(b, c.ck[:]...)
	return c.again.appendTo(appendKeys(c.newest.appendTo(b), c.skipped))
}

func appendKeys(b []byte, keys []skippedKey) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(keys)))
	for _, k := range keys {
		b = binary.BigEndian.AppendUint32(b, k.iteration)
		b = append(b, k.key[:]...)
	}
	return b
}

// UnmarshalBinary loads what MarshalBinary returned, or what version 1 did. ErrState for anything
// else; the state is then as before.
func (r *Receivers) UnmarshalBinary(data []byte) error {
	in := reader{data: data}
	what, version := in.byte(), in.byte()
	in.must(what == stateReceivers && (version == stateVersion || version == receiversVersion))
	peers := make(map[string]*peer)
	id := ""
	for range in.count(MaxSenders) {
		if id = in.name(id); in.failed {
			break
		}
		peers[id] = readPeer(&in, version)
	}
	if err := in.end(); err != nil {
		return err
	}
	r.peers = peers
	return nil
}

func readPeer(r *reader, version byte) *peer {
	p := &peer{floor: r.integer()}
	n := int(r.byte())
	r.must(n > 0 && n <= MaxGenerations)
	for i := 0; i < n && !r.failed; i++ {
		c := readChain(r, version)
		r.must(c.gen >= p.floor && p.byKID(c.kid) == nil && (c.kid != KID{} || p.byGen(c.gen) == nil))
		p.chains = append(p.chains, c)
	}
	return p
}

func readChain(r *reader, version byte) *chain {
	c := &chain{kid: r.kid(), gen: r.integer(), start: r.uint32(MaxIterations - 1), next: r.uint32(MaxIterations), ck: r.key()}
	r.must(c.start <= c.next)
	if version == receiversVersion {
		c.newest = r.written()
	} else {
		c.newest = neverAgain
	}
	c.skipped = r.keys(MaxSkipped, c.start, c.next)
	if version == receiversVersion {
		c.again = readAgain(r, c)
	}
	return c
}

// keys reads keys of iterations from first on and before next.
func (r *reader) keys(limit int, first, next uint32) []skippedKey {
	n := r.count(limit)
	r.must(len(r.data) >= n*36)
	if r.failed {
		return nil
	}
	keys := make([]skippedKey, 0, n)
	for i := range n {
		k := skippedKey{iteration: r.uint32(MaxIterations), key: r.key()}
		r.must(k.iteration >= first && k.iteration < next && (i == 0 || k.iteration > keys[i-1].iteration))
		keys = append(keys, k)
		if r.failed {
			break
		}
	}
	return keys
}
