package front

import (
	"sync"
	"sync/atomic"
	"time"
)

// flusher writes what waits on connections, all of one connection's frames in one
// write. A lone frame leaves at once. When there are very many, socket writes are
// most of the server's work, so it gathers for a moment before it writes: the
// answer to an envelope and what others sent meanwhile then share one.
type flusher struct {
	gathering atomic.Bool

	mu    sync.Mutex
	dirty []*conn // each at most once; from head on
	head  int
	count int       // connections added since
	since time.Time // when the last gatherSample began

	wake    chan struct{}
	gather  chan struct{}
	stopped chan struct{}
	running sync.WaitGroup
}

const (
	gatherFor     = time.Millisecond
	gatherSample  = 256                   // added within gatherWithin: gather
	gatherWithin  = 10 * time.Millisecond // 25,600 writes a second
	gatherAtLeast = 8                     // fewer gathered: stop
)

func startFlusher(goroutines int) *flusher {
	f := &flusher{
		wake: make(chan struct{}, goroutines), gather: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	for range goroutines {
		f.running.Go(f.run)
	}
	f.running.Go(f.runGather)
	return f
}

// add notes that frames wait on c. The caller holds c's lock.
func (f *flusher) add(c *conn) {
	if c.dirty {
		return
	}
	c.dirty = true
	f.mu.Lock()
	f.dirty = append(f.dirty, c)
	f.sample()
	f.mu.Unlock()
	if !f.gathering.Load() {
		f.signal()
		return
	}
	select {
	case f.gather <- struct{}{}:
	default:
	}
}

// sample looks how fast connections are added. The caller holds the lock.
func (f *flusher) sample() {
	if f.count++; f.count < gatherSample {
		return
	}
	now := time.Now()
	if now.Sub(f.since) < gatherWithin {
		f.gathering.Store(true)
	}
	f.count, f.since = 0, now
}

// runGather wakes the writers some time after the first connection was added.
func (f *flusher) runGather() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-f.gather:
		case <-f.stopped:
			return
		}
		timer.Reset(gatherFor)
		select {
		case <-timer.C:
		case <-f.stopped:
			return
		}
		f.mu.Lock()
		gathered := len(f.dirty) - f.head
		f.mu.Unlock()
		if gathered < gatherAtLeast {
			f.gathering.Store(false)
		}
		for range cap(f.wake) {
			f.signal()
		}
	}
}

func (f *flusher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flusher) run() {
	for range f.wake {
		for c := f.take(); c != nil; c = f.take() {
			c.mu.Lock()
			c.dirty = false
			c.io.flush(c)
			c.mu.Unlock()
		}
	}
}

func (f *flusher) take() *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head == len(f.dirty) {
		f.dirty, f.head = f.dirty[:0], 0
		return nil
	}
	c := f.dirty[f.head]
	f.dirty[f.head] = nil
	f.head++
	if f.head > 1024 && f.head > len(f.dirty)/2 {
		n := copy(f.dirty, f.dirty[f.head:])
		clear(f.dirty[n:])
		f.dirty, f.head = f.dirty[:n], 0
	}
	return c
}

// stop ends the goroutines and waits for them. add may not be called any more.
func (f *flusher) stop() {
	close(f.stopped)
	close(f.wake)
	f.running.Wait()
}
