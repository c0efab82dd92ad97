package keystore

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Tx is what a View sees, or an Update sees and changes. It is good until the function that
// it was given to returns, in that function's goroutine; after that its methods panic.
type Tx struct {
	state    *state
	opening  [16]byte
	writable bool

	// What an Update has changed so far.
	changed   map[ref][]byte // nil: deleted
	forgotten map[string]bool
	seen      map[string][]seenID
}

func (tx *Tx) now() *state {
	if tx.state == nil {
		panic("keystore: a Tx was used after its function had returned")
	}
	return tx.state
}

// Opening is a random number that Create or Open drew: what was saved with another one was
// saved before the store was opened, maybe in a file that this one is an old copy of.
func (tx *Tx) Opening() [16]byte { return tx.opening }

func (tx *Tx) get(r ref) ([]byte, bool) {
	if value, ok := tx.changed[r]; ok {
		return value, value != nil
	}
	value, ok := tx.now().values[r.bucket][r.key]
	return value, ok
}

// Get returns a copy of a value, which may be empty, and nil where there is none.
func (tx *Tx) Get(bucket Bucket, key string) []byte {
	value, ok := tx.get(ref{bucket.public(), key})
	if !ok {
		return nil
	}
	return append([]byte{}, value...)
}

// Put sets a value. It returns ErrSize for a key that is empty or longer than MaxKey and for a
// value longer than MaxValue, and ErrReadOnly in a View. Whether there is room is found out at
// the end of the Update.
func (tx *Tx) Put(bucket Bucket, key string, value []byte) error {
	return tx.put(ref{bucket.public(), key}, value)
}

func (tx *Tx) put(r ref, value []byte) error {
	if err := tx.mayChange(r.key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("a value of %d bytes: %w", len(value), ErrSize)
	}
	tx.changed[r] = append([]byte{}, value...)
	return nil
}

// Delete removes a value, if there is one.
func (tx *Tx) Delete(bucket Bucket, key string) error {
	r := ref{bucket.public(), key}
	if err := tx.mayChange(key); err != nil {
		return err
	}
	tx.changed[r] = nil
	return nil
}

func (tx *Tx) mayChange(key string) error {
	tx.now()
	switch {
	case !tx.writable:
		return ErrReadOnly
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("a key of %d bytes: %w", len(key), ErrSize)
	}
	return nil
}

// All are the keys that begin with prefix, in rising order, and copies of their values, as
// they are when the loop begins.
func (tx *Tx) All(bucket Bucket, prefix string) iter.Seq2[string, []byte] {
	bucket = bucket.public()
	return func(yield func(string, []byte) bool) {
		for _, key := range tx.keys(bucket, prefix) {
			if value := tx.Get(bucket, key); value != nil && !yield(key, value) {
				return
			}
		}
	}
}

// Keys are the keys that begin with prefix, in rising order.
func (tx *Tx) Keys(bucket Bucket, prefix string) []string { return tx.keys(bucket.public(), prefix) }

// Len is how many keys a bucket has.
func (tx *Tx) Len(bucket Bucket) int { return len(tx.keys(bucket.public(), "")) }

func (tx *Tx) keys(bucket Bucket, prefix string) []string {
	found := map[string]bool{}
	for key := range tx.now().values[bucket] {
		if strings.HasPrefix(key, prefix) {
			found[key] = true
		}
	}
	for r, value := range tx.changed {
		switch {
		case r.bucket != bucket || !strings.HasPrefix(r.key, prefix):
		case value == nil:
			delete(found, r.key)
		default:
			found[r.key] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// public panics for a bucket that there is none of: that is a mistake in the program.
func (b Bucket) public() Bucket {
	if b == 0 || b >= generations {
		panic(fmt.Sprintf("keystore: there is no bucket %d", b))
	}
	return b
}

// Seen reports whether an id was marked in this room, and is not forgotten yet (MaxSeen).
func (tx *Tx) Seen(room, id string) bool {
	hash := newSeenID(id)
	if slices.Contains(tx.seen[room], hash) {
		return true
	}
	set := tx.now().seen[room]
	return set != nil && !tx.forgotten[room] && set.has(hash)
}

// MarkSeen remembers an id of a room, and reports whether it was not known before. It returns
// ErrSize for a room or an id that is empty or longer than MaxKey, ErrReadOnly in a View.
func (tx *Tx) MarkSeen(room, id string) (fresh bool, err error) {
	for _, key := range []string{room, id} {
		if err := tx.mayChange(key); err != nil {
			return false, err
		}
	}
	if tx.Seen(room, id) {
		return false, nil
	}
	tx.seen[room] = append(tx.seen[room], newSeenID(id))
	return true, nil
}

// ForgetSeen forgets the ids of a room that the device has left for good.
func (tx *Tx) ForgetSeen(room string) error {
	if err := tx.mayChange(room); err != nil {
		return err
	}
	delete(tx.seen, room)
	tx.forgotten[room] = true
	return nil
}

// body is what is written of an Update; nil when it changed nothing. It returns ErrFull when
// there is no room for it.
func (tx *Tx) body() ([]byte, error) {
	if err := tx.fits(); err != nil {
		return nil, err
	}
	start := beginBody(bodyUpdate, tx.state.epoch+1)
	b := start
	for _, r := range slices.SortedFunc(maps.Keys(tx.changed), ref.compare) {
		value := tx.changed[r]
		old, ok := tx.state.values[r.bucket][r.key]
		switch {
		case value == nil && ok:
			b = appendDelete(b, r)
		case value != nil && (!ok || !bytes.Equal(old, value)):
			b = appendPut(b, r, value)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(tx.forgotten)) {
		b = appendKey(append(b, opForget), room)
	}
	for _, room := range slices.Sorted(maps.Keys(tx.seen)) {
		b = appendSeen(b, room, tx.seen[room])
	}
	if len(b) == len(start) {
		return nil, nil
	}
	return append(b, opEnd), nil
}

func (r ref) compare(other ref) int {
	if r.bucket != other.bucket {
		return int(r.bucket) - int(other.bucket)
	}
	return strings.Compare(r.key, other.key)
}

// fits compares what there would be with the bounds. What does not grow always fits.
func (tx *Tx) fits() error {
	var more [buckets]int
	var content int
	for r, value := range tx.changed {
		if old, ok := tx.state.values[r.bucket][r.key]; ok {
			more[r.bucket]--
			content -= len(r.key) + len(old)
		}
		if value != nil {
			more[r.bucket]++
			content += len(r.key) + len(value)
		}
	}
	for b, n := range more {
		if n > 0 && len(tx.state.values[b])+n > capacity[b] {
			return fmt.Errorf("more than %d keys in bucket %d: %w", capacity[b], b, ErrFull)
		}
	}
	if content > 0 && tx.state.content+content > tx.state.limits.bytes {
		return fmt.Errorf("more than %d bytes: %w", tx.state.limits.bytes, ErrFull)
	}
	rooms := 0
	for room := range tx.seen {
		if tx.state.seen[room] == nil {
			rooms++
		}
	}
	if rooms > 0 && len(tx.state.seen)+rooms > tx.state.limits.rooms {
		return fmt.Errorf("ids of more than %d rooms: %w", tx.state.limits.rooms, ErrFull)
	}
	return nil
}
