package postgres

import (
	"context"
	"sync"
)

// flusher writes the rows of its queue, as many at a time as wait. A caller who finds it
// idle does that himself, since waking another goroutine and being woken by it costs a
// lone row a good part of its time; what has come meanwhile is for the flusher's own
// goroutine.
type flusher[R any] struct {
	commit *groupCommit[R]
	queue  chan *pending[R]
	kick   chan struct{} // there is something in the queue and nobody at it

	mu    sync.Mutex    // held by whoever flushes; guards the following, which is reused
	batch []*pending[R] // what one flush writes
	round []*pending[R] // of these, one per key
	seen  map[rowKey]struct{}
}

func newFlusher[R any](c *groupCommit[R], queue chan *pending[R]) *flusher[R] {
	return &flusher[R]{
		commit: c, queue: queue, kick: make(chan struct{}, 1), seen: make(map[rowKey]struct{}),
	}
}

func (f *flusher[R]) run() {
	for {
		select {
		case <-f.kick:
			f.drain()
		case <-f.commit.closing:
			f.drain() // what was queued before
			return
		}
	}
}

// drain writes until nothing waits.
func (f *flusher[R]) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next() {
	}
}

// lead flushes once, unless somebody is at it who will look at the queue again.
func (f *flusher[R]) lead() {
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
func (f *flusher[R]) next() bool {
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
func (f *flusher[R]) gather(first *pending[R]) {
	cfg := f.commit.store.cfg.History
	f.batch = f.batch[:0]
	for p, bytes := first, 0; ; {
		if p.take() {
			f.batch = append(f.batch, p)
			bytes += f.commit.table.size(&p.row)
		} else {
			f.commit.recycle(p)
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

// flush gives every row of the batch its verdict.
func (f *flusher[R]) flush() {
	if len(f.batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(f.commit.ctx, f.commit.store.cfg.Timeout)
	defer cancel()
	for todo := f.batch; len(todo) > 0; {
		todo = f.split(todo)
		f.commit.write(ctx, f.round)
	}
}

// split moves the first row of every key into the round and returns the others: resends
// or conflicts, whose verdict is by what is stored after the round.
func (f *flusher[R]) split(todo []*pending[R]) (later []*pending[R]) {
	clear(f.seen)
	f.round = f.round[:0]
	for _, p := range todo {
		key := f.commit.table.key(&p.row)
		if _, ok := f.seen[key]; ok {
			later = append(later, p)
			continue
		}
		f.seen[key] = struct{}{}
		f.round = append(f.round, p)
	}
	return later
}
