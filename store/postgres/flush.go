package postgres

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// flusher writes the messages of its queue, as many at a time as wait. A caller who
// finds it idle does that himself, since waking another goroutine and being woken by
// it costs a lone message a good part of its time; what has come meanwhile is for the
// flusher's own goroutine.
type flusher struct {
	writer *historyWriter
	queue  chan *pending
	kick   chan struct{} // there is something in the queue and nobody at it

	mu    sync.Mutex // held by whoever flushes; guards the following, which is reused
	batch []*pending // what one flush writes
	round []*pending // of these, one per id
	seen  map[messageKey]struct{}
}

type messageKey struct {
	room uuid.UUID
	id   string
}

func newFlusher(w *historyWriter, queue chan *pending) *flusher {
	return &flusher{
		writer: w, queue: queue, kick: make(chan struct{}, 1), seen: make(map[messageKey]struct{}),
	}
}

func (f *flusher) run() {
	for {
		select {
		case <-f.kick:
			f.drain()
		case <-f.writer.closing:
			f.drain() // what was queued before
			return
		}
	}
}

// drain writes until nothing waits.
func (f *flusher) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next() {
	}
}

// lead flushes once, unless somebody is at it who will look at the queue again.
func (f *flusher) lead() {
	if !f.mu.TryLock() {
		return
	}
	f.next()
	f.mu.Unlock()
	if len(f.queue) > 0 {
		select {
		case f.kick <- struct{}{}:
		default:
		}
	}
}

// next writes what waits, as far as one commit takes it; false when nothing does.
func (f *flusher) next() bool {
	select {
	case p := <-f.queue:
		f.gather(p)
		f.flush()
		return true
	default:
		return false
	}
}

// gather takes first and whatever else waits, up to the bounds of one commit.
func (f *flusher) gather(first *pending) {
	cfg := f.writer.store.cfg.History
	f.batch = f.batch[:0]
	for p, bytes := first, 0; ; {
		if p.take() {
			f.batch = append(f.batch, p)
			bytes += len(p.message.Bytes)
		} else {
			f.writer.recycle(p)
		}
		if len(f.batch) >= cfg.BatchRows || bytes >= cfg.BatchBytes {
			return
		}
		select {
		case p = <-f.queue:
		default:
			return
		}
	}
}

// flush gives every message of the batch its verdict.
func (f *flusher) flush() {
	if len(f.batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(f.writer.ctx, f.writer.store.cfg.Timeout)
	defer cancel()
	for todo := f.batch; len(todo) > 0; {
		todo = f.split(todo)
		f.writer.store.storeMessages(ctx, f.round)
	}
}

// split moves the first message of every id into the round and returns the others:
// resends or conflicts, whose verdict is by what is stored after the round.
func (f *flusher) split(todo []*pending) (later []*pending) {
	clear(f.seen)
	f.round = f.round[:0]
	for _, p := range todo {
		key := messageKey{p.message.Room, p.message.ID}
		if _, ok := f.seen[key]; ok {
			later = append(later, p)
			continue
		}
		f.seen[key] = struct{}{}
		f.round = append(f.round, p)
	}
	return later
}
