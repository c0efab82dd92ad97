package front

import "sync"

// flusher writes what waits on connections, all of one connection's frames in one
// write, so that frames coalesce under load while a lone one leaves at once.
type flusher struct {
	mu    sync.Mutex
	dirty []*conn // each at most once; from head on
	head  int

	wake    chan struct{}
	running sync.WaitGroup
}

func startFlusher(goroutines int) *flusher {
	f := &flusher{wake: make(chan struct{}, goroutines)}
	for range goroutines {
		f.running.Go(f.run)
	}
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
	f.signal()
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
	close(f.wake)
	f.running.Wait()
}
