package inbox

import (
	"bytes"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// recent holds the newest rows of one stream in memory: every row from the
// low-water sequence on, exactly as the stream retains them.
//
// A shard writes many small rows, so what is held is built of few objects: chunks
// of entries without pointers beside one slice of payload bytes. A payload is kept
// once for all its copies. Entries of an inbox are linked backwards, newest first.
// Chunks leave from the old end, whole; payload bytes are never reused, so a row
// handed out stays valid.
type recent struct {
	maxBytes int64
	maxRows  int
	maxAge   time.Duration

	mu      sync.RWMutex // guards the following fields
	low     uint64       // every row with a sequence >= low is here
	next    uint64       // the sequence after the last one known
	chunks  []*chunk
	bytes   int64
	index   map[inboxKey]uint32
	inboxes []inboxState // by number; 0 is not used
	free    []uint32
}

type inboxKey [32]byte

func keyOf(room, participant uuid.UUID) inboxKey {
	var key inboxKey
	copy(key[:16], room[:])
	copy(key[16:], participant[:])
	return key
}

type inboxState struct {
	key    inboxKey
	newest uint64
	rows   uint32 // entries of this inbox in memory
}

// entry is one row; its payload lies in its chunk.
type entry struct {
	previous uint64 // the inbox's row before this one, 0 when it is not in memory
	at       int64  // Unix milliseconds, not later than the stream's own time
	inbox    uint32 // 0: no row of an inbox has this sequence
	offset   uint32
	length   uint32
	kind     RowKind
}

type chunk struct {
	first   uint64
	entries []entry
	payload []byte
}

const (
	entryBytes      = 40
	maxChunkEntries = 2048
	maxChunkBytes   = 256 << 10
	inboxStateBytes = 112 // with its place in the index
)

func newRecent(maxBytes int64, maxRows int, maxAge time.Duration) *recent {
	return &recent{
		maxBytes: maxBytes, maxRows: maxRows, maxAge: maxAge,
		index: make(map[inboxKey]uint32), inboxes: make([]inboxState, 1),
	}
}

// reset forgets everything: the next row has the sequence next.
func (r *recent) reset(next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.low, r.next, r.chunks, r.bytes = next, next, nil, 0
	r.index, r.inboxes, r.free = make(map[inboxKey]uint32), make([]inboxState, 1), nil
}

// add appends the copies of one message, whose sequences follow one another. A
// sequence beyond the next one leaves a hole: rows that are gone or of no inbox.
func (r *recent) add(first uint64, room uuid.UUID, to []uuid.UUID, kind RowKind, payload []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipTo(first)
	c := r.writable()
	offset := r.store(c, payload)
	for _, participant := range to {
		if len(c.entries) >= r.chunkEntries() {
			c = r.startChunk(r.next)
			offset = r.store(c, payload)
		}
		r.appendEntry(c, entry{
			at: at.UnixMilli(), inbox: r.inboxNumber(keyOf(room, participant)),
			offset: offset, length: uint32(len(payload)), kind: kind,
		})
	}
	r.evict(at)
}

// addRow appends one row that was read from the stream. Copies of one message lie
// side by side there and share their payload here again.
func (r *recent) addRow(sequence uint64, key inboxKey, kind RowKind, payload []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipTo(sequence)
	c := r.writable()
	e := entry{at: at.UnixMilli(), inbox: r.inboxNumber(key), length: uint32(len(payload)), kind: kind}
	if n := len(c.entries); n > 0 && bytes.Equal(c.bytes(&c.entries[n-1]), payload) {
		e.offset = c.entries[n-1].offset
	} else {
		e.offset = r.store(c, payload)
	}
	r.appendEntry(c, e)
	r.evict(at)
}

// skipTo notes that no row between the last known one and next is in any inbox.
func (r *recent) skipTo(next uint64) {
	switch {
	case next <= r.next:
	case len(r.chunks) == 0:
		r.next = next
	case next-r.next > uint64(r.chunkEntries()):
		r.startChunk(next)
	default:
		for r.next < next {
			r.appendEntry(r.writable(), entry{})
		}
	}
}

// startChunk begins a chunk whose first row will be first. A busy shard fills it
// soon, so its memory is taken at once.
func (r *recent) startChunk(first uint64) *chunk {
	c := &chunk{first: first}
	if n := len(r.chunks); n > 1 {
		c.entries = make([]entry, 0, len(r.chunks[n-1].entries)+1)
		c.payload = make([]byte, 0, min(r.chunkBytes(), len(r.chunks[n-1].payload)))
		r.bytes += c.size()
	}
	r.chunks = append(r.chunks, c)
	r.next = first
	return c
}

func (c *chunk) size() int64 {
	return int64(cap(c.payload)) + int64(cap(c.entries))*entryBytes
}

func (c *chunk) bytes(e *entry) []byte {
	end := e.offset + e.length
	return c.payload[e.offset:end:end]
}

// writable returns the last chunk while it is not full, else a new one.
func (r *recent) writable() *chunk {
	if n := len(r.chunks); n > 0 {
		if c := r.chunks[n-1]; len(c.entries) < r.chunkEntries() && len(c.payload) < r.chunkBytes() {
			return c
		}
	}
	return r.startChunk(r.next)
}

// chunkBytes and chunkEntries keep a chunk a small part of the whole.
func (r *recent) chunkBytes() int {
	return int(min(maxChunkBytes, max(r.maxBytes/16, 1<<10)))
}

func (r *recent) chunkEntries() int {
	return int(min(maxChunkEntries, max(r.maxBytes/16/entryBytes, 16)))
}

// store appends a payload to a chunk and returns where.
func (r *recent) store(c *chunk, payload []byte) (offset uint32) {
	offset = uint32(len(c.payload))
	before := cap(c.payload)
	c.payload = append(c.payload, payload...)
	r.bytes += int64(cap(c.payload) - before)
	return offset
}

func (r *recent) appendEntry(c *chunk, e entry) {
	if e.inbox != 0 {
		state := &r.inboxes[e.inbox]
		e.previous, state.newest = state.newest, r.next
		state.rows++
	}
	before := cap(c.entries)
	c.entries = append(c.entries, e)
	r.bytes += int64(cap(c.entries)-before) * entryBytes
	r.next++
}

func (r *recent) inboxNumber(key inboxKey) uint32 {
	if number, known := r.index[key]; known {
		return number
	}
	var number uint32
	if n := len(r.free); n > 0 {
		number, r.free = r.free[n-1], r.free[:n-1]
		r.inboxes[number] = inboxState{key: key}
	} else {
		number = uint32(len(r.inboxes))
		r.inboxes = append(r.inboxes, inboxState{key: key})
	}
	r.index[key] = number
	r.bytes += inboxStateBytes
	return number
}

// evict drops chunks from the old end while there is too much, or all of them is
// older than a row may get. The newest chunk stays unless it alone is too much.
func (r *recent) evict(now time.Time) {
	expired := now.Add(-r.maxAge).UnixMilli()
	for len(r.chunks) > 0 {
		oldest := r.chunks[0]
		tooMuch := r.bytes > r.maxBytes
		tooOld := len(r.chunks) > 1 && len(oldest.entries) > 0 && oldest.entries[len(oldest.entries)-1].at < expired &&
			oldest.entries[len(oldest.entries)-1].inbox != 0
		if !tooMuch && !tooOld {
			return
		}
		r.drop(oldest)
	}
}

func (r *recent) drop(c *chunk) {
	for i := range c.entries {
		number := c.entries[i].inbox
		if number == 0 {
			continue
		}
		state := &r.inboxes[number]
		if state.rows--; state.rows == 0 {
			delete(r.index, state.key)
			*state = inboxState{}
			r.free = append(r.free, number)
			r.bytes -= inboxStateBytes
		}
	}
	r.bytes -= c.size()
	r.chunks[0] = nil
	r.chunks = r.chunks[1:]
	r.low = r.next
	if len(r.chunks) > 0 {
		r.low = r.chunks[0].first
	}
}

// at returns the entry of a sequence and its chunk, nil when there is none.
func (r *recent) at(sequence uint64) (*entry, *chunk) {
	i := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].first > sequence }) - 1
	if i < 0 {
		return nil, nil
	}
	c := r.chunks[i]
	if at := sequence - c.first; at < uint64(len(c.entries)) && c.entries[at].inbox != 0 {
		return &c.entries[at], c
	}
	return nil, nil
}

// retained calls visit for the inbox's rows that the stream still has, newest
// first, until it returns false. It reports how many rows it saw.
func (r *recent) retained(key inboxKey, now time.Time, visit func(sequence uint64, e *entry, c *chunk) bool) (seen int) {
	number, known := r.index[key]
	if !known {
		return 0
	}
	expired := now.Add(-r.maxAge).UnixMilli()
	for sequence := r.inboxes[number].newest; sequence >= r.low && sequence > 0 && seen < r.maxRows; seen++ {
		e, c := r.at(sequence)
		for e != nil && e.kind == rowRemoved {
			sequence = e.previous
			e, c = r.at(sequence)
		}
		if e == nil || e.at < expired || !visit(sequence, e, c) {
			return seen
		}
		sequence = e.previous
	}
	return seen
}

// rowRemoved marks an entry whose row was deleted from the stream.
const rowRemoved RowKind = 255

// remove forgets one row.
func (r *recent) remove(sequence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, _ := r.at(sequence); e != nil {
		e.kind = rowRemoved
	}
}

// read returns rows of one inbox like Reader.Read. When rows below the low-water
// sequence could be missing it returns low > 0 instead: read the stream up to
// low-1 first.
func (r *recent) read(key inboxKey, incarnation, after, upto uint64, limit, maxBytes int, now time.Time) (rows []Row, more bool, low uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if after+1 < r.low {
		return nil, false, r.low
	}
	var room [512]uint64
	wanted := room[:0]
	r.retained(key, now, func(sequence uint64, _ *entry, _ *chunk) bool {
		if sequence <= after {
			return false
		}
		if sequence <= upto {
			wanted = append(wanted, sequence)
		}
		return true
	})
	rows = make([]Row, 0, min(len(wanted), limit))
	size := 0
	for _, sequence := range slices.Backward(wanted) {
		e, c := r.at(sequence)
		if len(rows) == limit || len(rows) > 0 && size+int(e.length) > maxBytes {
			return rows, true, 0
		}
		size += int(e.length)
		rows = append(rows, Row{
			ID:      wire.StreamID{Incarnation: incarnation, Sequence: sequence},
			Kind:    e.kind,
			Payload: c.bytes(e),
		})
	}
	return rows, false, 0
}

// recentBounds is what memory knows of one inbox.
type recentBounds struct {
	low            uint64
	oldest, newest uint64 // of the rows in memory, 0 when there are none
	rows           int
}

func (r *recent) bounds(key inboxKey, now time.Time) recentBounds {
	r.mu.RLock()
	defer r.mu.RUnlock()
	b := recentBounds{low: r.low}
	b.rows = r.retained(key, now, func(sequence uint64, _ *entry, _ *chunk) bool {
		if b.newest == 0 {
			b.newest = sequence
		}
		b.oldest = sequence
		return true
	})
	return b
}

// end notes that no row before next follows.
func (r *recent) end(next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipTo(next)
}

// prepend puts rows that were read back from the stream before the rows of r: both
// hold consecutive parts, older ends where r began. It takes older apart.
func (r *recent) prepend(older *recent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if older.next != r.low {
		return // the rows between are not known; what r has stays right
	}
	for _, c := range r.chunks {
		older.adopt(c, r)
	}
	older.skipTo(r.next)
	r.low, r.next, r.chunks, r.bytes = older.low, older.next, older.chunks, older.bytes
	r.index, r.inboxes, r.free = older.index, older.inboxes, older.free
	r.evict(time.UnixMilli(0))
}

// adopt moves a chunk of another recent to the end of r.
func (r *recent) adopt(c *chunk, from *recent) {
	r.chunks = append(r.chunks, c)
	r.next = c.first
	r.bytes += c.size()
	for i := range c.entries {
		if c.entries[i].inbox != 0 {
			number := r.inboxNumber(from.inboxes[c.entries[i].inbox].key)
			state := &r.inboxes[number]
			c.entries[i].inbox, c.entries[i].previous = number, state.newest
			state.newest = r.next
			state.rows++
		}
		r.next++
	}
}
