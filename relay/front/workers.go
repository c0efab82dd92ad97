package front

import "sync"

type taskKind uint8

const (
	taskTurn    taskKind = iota // read and handle
	taskDrained                 // call what WhenDrained held
)

// task is something to do for a connection. A connection has at most one task of
// each kind waiting, so the queue is bounded by the connections.
type task struct {
	conn *conn
	kind taskKind
}

func (t task) run() {
	if t.kind == taskDrained {
		t.conn.callDrained()
		return
	}
	t.conn.io.turn(t.conn)
}

// worker is a goroutine that runs tasks; an idle one waits on its channel.
type worker struct {
	next  chan task // capacity 1; a task without a connection ends the worker
	since tick      // idle since
}

// workers runs tasks on goroutines that start on demand up to a limit and end when
// they were idle for a while. When all are busy tasks wait.
type workers struct {
	limit int
	now   func() tick

	mu      sync.Mutex
	idle    []*worker // the last one was used last
	waiting []task    // from head on
	head    int
	total   int
	stopped bool

	running sync.WaitGroup
}

func (p *workers) submit(t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		w.next <- t
		return
	}
	if p.total < p.limit {
		p.total++
		p.running.Add(1)
		w := &worker{next: make(chan task, 1)}
		w.next <- t
		go p.work(w)
		return
	}
	p.waiting = append(p.waiting, t)
}

func (p *workers) work(w *worker) {
	defer p.running.Done()
	for t := range w.next {
		if t.conn == nil {
			return
		}
		for ok := true; ok; t, ok = p.after(w) {
			t.run()
		}
	}
}

// after returns the next waiting task, or notes the worker idle.
func (p *workers) after(w *worker) (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head == len(p.waiting) {
		if p.stopped {
			p.total--
			w.next <- task{}
			return task{}, false
		}
		w.since = p.now()
		p.idle = append(p.idle, w)
		return task{}, false
	}
	t := p.waiting[p.head]
	p.waiting[p.head] = task{}
	p.head++
	if p.head == len(p.waiting) {
		p.waiting, p.head = p.waiting[:0], 0
	} else if p.head > 1024 && p.head > len(p.waiting)/2 {
		n := copy(p.waiting, p.waiting[p.head:])
		clear(p.waiting[n:])
		p.waiting, p.head = p.waiting[:n], 0
	}
	return t, true
}

// trim ends the workers that were idle since before the tick.
func (p *workers) trim(before tick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && p.idle[n].since < before {
		p.idle[n].next <- task{}
		n++
	}
	if n == 0 {
		return
	}
	p.total -= n
	left := copy(p.idle, p.idle[n:])
	clear(p.idle[left:])
	p.idle = p.idle[:left]
}

// stop ends all workers once they have run what waits, and waits for them. What is
// submitted later is not run.
func (p *workers) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.trim(maxTick)
	p.running.Wait()
}

// counts reports how many workers run a task, and how many tasks wait for one.
func (p *workers) counts() (busy, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total - len(p.idle), len(p.waiting) - p.head
}
