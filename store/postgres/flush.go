package postgres

import (
	"context"

	"github.com/google/uuid"
)

// flusher writes the messages of its queue, as many at a time as wait. Its fields are
// its goroutine's own and are reused from flush to flush.
type flusher struct {
	writer *historyWriter
	queue  chan *pending

	batch []*pending // what one flush writes
	round []*pending // of these, one per id
	seen  map[messageKey]struct{}
}

type messageKey struct {
	room uuid.UUID
	id   string
}

func newFlusher(w *historyWriter, queue chan *pending) *flusher {
	return &flusher{writer: w, queue: queue, seen: make(map[messageKey]struct{})}
}

func (f *flusher) run() {
	for {
		select {
		case p := <-f.queue:
			f.gather(p)
			f.flush()
		case <-f.writer.closing:
			f.drain()
			return
		}
	}
}

// drain writes what was queued before the writer began to close.
func (f *flusher) drain() {
	for {
		select {
		case p := <-f.queue:
			f.gather(p)
			f.flush()
		default:
			return
		}
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
