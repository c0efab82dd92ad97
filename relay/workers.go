package relay

import "sync"

// workers runs jobs on at most limit goroutines, which exist only while there is
// work. The queue is bounded by its callers: a connection has at most one job.
type workers struct {
	limit int

	mu      sync.Mutex
	queue   []func()
	running int
	closed  bool
	idle    sync.WaitGroup
}

func newWorkers(limit int) *workers { return &workers{limit: limit} }

// run calls job soon, on another goroutine. After close it does nothing.
func (w *workers) run(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.queue = append(w.queue, job)
	if w.running < w.limit {
		w.running++
		w.idle.Add(1)
		go w.loop()
	}
}

func (w *workers) loop() {
	defer w.idle.Done()
	for {
		w.mu.Lock()
		if len(w.queue) == 0 || w.closed {
			w.running--
			w.mu.Unlock()
			return
		}
		job := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		if len(w.queue) == 0 {
			w.queue = nil
		}
		w.mu.Unlock()
		job()
	}
}

// close drops what waits and returns when no job runs any more.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.queue = nil
	w.mu.Unlock()
	w.idle.Wait()
}
