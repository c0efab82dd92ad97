package front

import (
	"sync"
	"sync/atomic"
	"time"
)

// flusher decides when what waits on connections is written. A lone frame leaves at
// once, by whoever sends it: waking another goroutine for it would cost more than the
// write. When there are very many, socket writes are most of the server's work, so
// frames are gathered for a moment and written by goroutines of the flusher: the
// answer to an envelope and what others sent meanwhile then share one write.
type flusher struct {
	gathering atomic.Bool
	writes    atomic.Int64 // since the front began
	sampled   atomic.Int64 // when the last gatherSample writes were counted, in Unix nanoseconds

	mu    sync.Mutex
	dirty []*conn // each at most once; from head on
	head  int

	wake    chan struct{}
	gather  chan struct{}
	stopped chan struct{}
	running sync.WaitGroup
}

const (
	gatherFor     = time.Millisecond
	gatherSample  = 256                   // written within gatherWithin: gather
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

// sample counts a write, and looks how fast they come.
func (f *flusher) sample() {
	if f.writes.Add(1)%gatherSample != 0 {
		return
	}
	now := time.Now().UnixNano()
	if now-f.sampled.Swap(now) < int64(gatherWithin) {
		f.gathering.Store(true)
	}
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
	for {
		select {
		case <-f.wake:
		case <-f.stopped:
			return
		}
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
	f.running.Wait()
}
