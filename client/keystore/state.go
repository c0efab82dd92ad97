package keystore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// Bucket is one of the parts of a store, each with keys of its own.
type Bucket byte

// Buckets, and how many keys each may have.
const (
	Device     Bucket = 1 // the device's own keys and settings; 256
	Rooms      Bucket = 2 // what is known of rooms; 5 for each of MaxRooms
	Peers      Bucket = 3 // keys and fingerprints of others; 65,536
	Sessions   Bucket = 4 // pairwise sessions and ratchets; 16,384
	SenderKeys Bucket = 5 // own and received sender keys; 65,536
	Prekeys    Bucket = 6 // private halves of prekeys; 4,096
	Cursors    Bucket = 7 // how far inboxes and boards have been read, and who the device was in rooms that it left; 16,384
	Outbox     Bucket = 8 // what is being sent; 4,096
	Messages   Bucket = 9 // what was received and not yet taken; 16,384

	generations Bucket = 10 // of the rooms; see SetGeneration
	internal    Bucket = 11
	buckets            = 12
)

var capacity = [buckets]int{
	Device: 256, Rooms: 5 * MaxRooms, Peers: 65536, Sessions: 16384, SenderKeys: 65536, Prekeys: 4096,
	Cursors: 16384, Outbox: 4096, Messages: 16384, generations: MaxRooms, internal: 16,
}

// Bounds of what is stored.
const (
	MaxKey   = 256     // bytes of a key, a room or an id
	MaxValue = 1 << 20 // bytes of a value
	// MaxBytes bounds keys and values together; they are in memory while a store is open.
	MaxBytes = 128 << 20
	// MaxRooms is in how many rooms a device can be. Ids are remembered under up to three names for
	// each: those of messages, of other rows, and of the Board.
	MaxRooms = 4096
	// MaxSeen is how many ids are remembered of each room, the newest ones. A relay can give a
	// message again while it is in the inbox (the newest 500, for 24 hours) or in the room's
	// history (the newest 10,000, for 30 days); this is nearly twice both together. What a hostile relay
	// has kept longer than that cannot be opened again: the key of a message is deleted when
	// it was used, and a chain does not go back.
	MaxSeen = 20_000
	// MaxSeenTotal bounds the ids of all rooms together, 16 bytes each. Beyond it, the room that
	// has the most forgets its oldest one: that is below MaxSeen only for a device in more than
	// 50 rooms with that much in each, and below 10,500 only in more than 95.
	MaxSeenTotal = 1_000_000
)

// limits are the bounds that tests make smaller.
type limits struct {
	bytes, rooms, seen, seenTotal int
	// slack is how much a log may grow beside its size, and up to which size a file is written
	// anew at each Close.
	slack int64
}

var standardLimits = limits{bytes: MaxBytes, rooms: 3 * MaxRooms, seen: MaxSeen, seenTotal: MaxSeenTotal, slack: 1 << 20}

// ref names a value.
type ref struct {
	bucket Bucket
	key    string
}

// seenID is the beginning of the SHA-256 of an id.
type seenID [16]byte

func newSeenID(id string) seenID {
	sum := sha256.Sum256([]byte(id))
	return seenID(sum[:])
}

// seenSet are the ids of a room, oldest first, none twice. They are looked up in an index, which is made
// for the first who asks: a store has a million ids, and a program that begins asks for those
// of one room.
type seenSet struct {
	order []seenID
	ask   sync.Once
	index map[seenID]struct{} // nil: nobody asked
}

func (s *seenSet) has(id seenID) bool {
	s.ask.Do(func() {
		s.index = make(map[seenID]struct{}, len(s.order))
		for _, id := range s.order {
			s.index[id] = struct{}{}
		}
	})
	_, ok := s.index[id]
	return ok
}

func (s *seenSet) add(id seenID) {
	s.order = append(s.order, id)
	if s.index != nil {
		s.index[id] = struct{}{}
	}
}

func (s *seenSet) forgetOldest() {
	delete(s.index, s.order[0])
	s.order = s.order[1:] // append copies what is left now and then
}

// state is everything a store holds, in memory. Values are never changed in place.
type state struct {
	limits  limits
	epoch   uint64
	values  [buckets]map[string][]byte
	seen    map[string]*seenSet
	ids     int // in seen
	content int // bytes of keys and values
}

func newState(l limits) *state {
	s := &state{limits: l, seen: map[string]*seenSet{}}
	for b := range s.values {
		s.values[b] = map[string][]byte{}
	}
	return s
}

func (s *state) put(r ref, value []byte) {
	s.remove(r)
	s.values[r.bucket][r.key] = value
	s.content += len(r.key) + len(value)
}

func (s *state) remove(r ref) {
	if old, ok := s.values[r.bucket][r.key]; ok {
		s.content -= len(r.key) + len(old)
		delete(s.values[r.bucket], r.key)
	}
}

// markSeen adds ids that the room does not have (Tx.MarkSeen looks), 16 bytes each.
func (s *state) markSeen(room string, ids []byte) {
	set := s.seen[room]
	if set == nil {
		set = &seenSet{}
		s.seen[room] = set
	}
	set.order = slices.Grow(set.order, len(ids)/len(seenID{}))
	for id := range slices.Chunk(ids, len(seenID{})) {
		set.add(seenID(id))
		s.ids++
		if len(set.order) > s.limits.seen {
			set.forgetOldest()
			s.ids--
		}
		if s.ids > s.limits.seenTotal {
			s.largest().forgetOldest()
			s.ids--
		}
	}
}

// largest is the room with the most ids; of several, the first by name, so that a log that
// is read again comes to the same.
func (s *state) largest() *seenSet {
	var found string
	most := -1
	for room, set := range s.seen {
		if n := len(set.order); n > most || n == most && room < found {
			found, most = room, n
		}
	}
	return s.seen[found]
}

func (s *state) forgetSeen(room string) {
	if set := s.seen[room]; set != nil {
		s.ids -= len(set.order)
		delete(s.seen, room)
	}
}

// Kinds of bodies.
const (
	bodySnapshot byte = 1 // part of what was live when the file was made
	bodyLast     byte = 2 // the last one of these
	bodyUpdate   byte = 3
)

// Operations of a body: a byte, then a bucket(1) and length(2) and key, or length(2) and room;
// then what is said here.
const (
	opEnd    byte = 0 // and nothing but zeros
	opPut    byte = 1 // length(4) and value
	opDelete byte = 2
	opSeen   byte = 3 // count(4) and 16 bytes for each id, oldest first
	opForget byte = 4
)

func beginBody(kind byte, epoch uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, epoch)
}

func appendKey(b []byte, key string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(key))), key...)
}

func appendPut(b []byte, r ref, value []byte) []byte {
	b = appendKey(append(b, opPut, byte(r.bucket)), r.key)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

func appendDelete(b []byte, r ref) []byte {
	return appendKey(append(b, opDelete, byte(r.bucket)), r.key)
}

func appendSeen(b []byte, room string, ids []seenID) []byte {
	b = binary.BigEndian.AppendUint32(appendKey(append(b, opSeen), room), uint32(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// snapshotPart is when a body of a snapshot is long enough.
const snapshotPart = 1 << 20

// snapshot are the bodies that a new file begins with, in an order of their own.
func (s *state) snapshot() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		body := beginBody(bodySnapshot, s.epoch)
		full := func() bool {
			if len(body) < snapshotPart {
				return true
			}
			done := yield(append(body, opEnd))
			body = beginBody(bodySnapshot, s.epoch)
			return done
		}
		for b, values := range s.values {
			for _, key := range slices.Sorted(maps.Keys(values)) {
				body = appendPut(body, ref{Bucket(b), key}, values[key])
				if !full() {
					return
				}
			}
		}
		for _, room := range slices.Sorted(maps.Keys(s.seen)) {
			for ids := range slices.Chunk(s.seen[room].order, snapshotPart/len(seenID{})) {
				body = appendSeen(body, room, ids)
				if !full() {
					return
				}
			}
		}
		body[0] = bodyLast
		yield(append(body, opEnd))
	}
}

// apply does what a body says. What it does before an error does not matter: the state is
// of a file that cannot be used.
func (s *state) apply(body []byte) error {
	d := &decoder{left: body}
	d.take(1)
	s.epoch = binary.BigEndian.Uint64(d.take(8))
	for {
		op := d.take(1)[0]
		switch op {
		case opEnd:
			return d.end()
		case opPut:
			r := d.ref()
			s.put(r, slices.Clone(d.take(int(binary.BigEndian.Uint32(d.take(4))))))
		case opDelete:
			s.remove(d.ref())
		case opSeen:
			room := d.key()
			size := uint64(binary.BigEndian.Uint32(d.take(4))) * uint64(len(seenID{}))
			ids := d.take(int(min(size, uint64(len(d.left))+1)))
			if d.err != nil {
				return d.err
			}
			s.markSeen(room, ids)
		case opForget:
			s.forgetSeen(d.key())
		default:
			return fmt.Errorf("operation %d: %w", op, ErrVersion)
		}
		if d.err != nil {
			return d.err
		}
	}
}

// decoder reads operations. After an error it hands out zeros.
type decoder struct {
	left []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if n > len(d.left) {
		if d.err == nil {
			d.err = fmt.Errorf("body: %w", ErrDamaged)
		}
		d.left = nil
		return make([]byte, min(n, MaxKey))
	}
	taken := d.left[:n:n]
	d.left = d.left[n:]
	return taken
}

func (d *decoder) key() string {
	n := int(binary.BigEndian.Uint16(d.take(2)))
	if n == 0 || n > MaxKey {
		n = len(d.left) + 1
	}
	return string(d.take(n))
}

func (d *decoder) ref() ref {
	b := Bucket(d.take(1)[0])
	if b == 0 || b >= buckets {
		if d.err == nil {
			d.err = fmt.Errorf("bucket %d: %w", b, ErrVersion)
		}
		b = internal
	}
	return ref{b, d.key()}
}

// end demands nothing but zeros.
func (d *decoder) end() error {
	for _, b := range d.left {
		if b != 0 {
			return fmt.Errorf("body: %w", ErrDamaged)
		}
	}
	return d.err
}
