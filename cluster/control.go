package cluster

import (
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	maxApplying = 16   // changes of different rooms that are applied at once
	maxWaiting  = 4096 // changes that wait; more are dropped, and come again
)

func (n *Node) subscribe() error {
	sub, err := n.cfg.Conn.Subscribe("control.>", n.receive)
	if err != nil {
		return err
	}
	n.control = sub
	if n.ends, err = n.cfg.Conn.Subscribe(leaseSubjects+"*", n.watchLeases); err != nil {
		return err
	}
	return n.cfg.Conn.Flush()
}

// watchLeases notices leases that some node ended because their holders stopped renewing
// them: those are deleted at a revision, while a holder that closes deletes its own
// whatever it is.
func (n *Node) watchLeases(msg *nats.Msg) {
	if msg.Header.Get("KV-Operation") != "DEL" || msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "" {
		return
	}
	select {
	case n.lost <- struct{}{}:
	default:
	}
}

// receive runs on the subscription's own goroutine and never blocks.
func (n *Node) receive(msg *nats.Msg) {
	m, err := decodeControl(msg.Subject, msg.Data)
	if err != nil {
		n.metrics.malformed.Inc()
		n.log.Warn("ignored a malformed control message", "subject", msg.Subject, "bytes", len(msg.Data), "error", err)
		return
	}
	if m.Origin == n.instance {
		return
	}
	n.work.submit(m.Change.scope(), m.Announcement, func() { n.applyRemote(m, msg.Reply) })
}

func (n *Node) applyRemote(m *control, reply string) {
	if n.ctx.Err() != nil {
		return
	}
	// The lease is read first: an acknowledgement speaks for the lease the change was
	// applied under, not for one acquired meanwhile.
	lease := n.leaseKey.Load()
	if err := n.cfg.Applier.Apply(n.ctx, m.Change); err != nil {
		n.metrics.applyFailed.Inc()
		n.log.Warn("apply change", "subject", controlSubject(&m.Change), "error", err)
		return
	}
	n.metrics.applied.Inc()
	if reply == "" || lease == nil {
		return
	}
	data, err := json.Marshal(ack{Announcement: m.Announcement, Node: n.cfg.NodeID, Lease: *lease})
	if err == nil {
		err = n.cfg.Conn.Publish(reply, data)
	}
	if err != nil {
		n.log.Debug("acknowledge change", "error", err)
	}
}

// dispatcher runs jobs in order for each key, and of several keys at once.
type dispatcher struct {
	slots chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex // guards the following
	queues  map[uuid.UUID][]job
	pending map[uuid.UUID]struct{} // announcements that wait or run
	closed  bool
}

type job struct {
	id  uuid.UUID
	run func()
}

func newDispatcher() *dispatcher {
	return &dispatcher{
		slots:   make(chan struct{}, maxApplying),
		queues:  make(map[uuid.UUID][]job),
		pending: make(map[uuid.UUID]struct{}),
	}
}

// submit queues a job, and reports whether it will run: not when the same id is
// still pending, too many wait, or the dispatcher is closed.
func (d *dispatcher) submit(key, id uuid.UUID, run func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, repeated := d.pending[id]; repeated || d.closed || len(d.pending) >= maxWaiting {
		return false
	}
	d.pending[id] = struct{}{}
	queue, running := d.queues[key]
	d.queues[key] = append(queue, job{id, run})
	if !running {
		d.wg.Go(func() { d.drain(key) })
	}
	return true
}

func (d *dispatcher) drain(key uuid.UUID) {
	for {
		next, ok := d.next(key)
		if !ok {
			return
		}
		d.slots <- struct{}{}
		next.run()
		<-d.slots
		d.mu.Lock()
		delete(d.pending, next.id)
		d.mu.Unlock()
	}
}

func (d *dispatcher) next(key uuid.UUID) (job, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := d.queues[key]
	if len(queue) == 0 {
		delete(d.queues, key)
		return job{}, false
	}
	d.queues[key] = queue[1:]
	return queue[0], true
}

// close refuses new jobs and waits for the queued ones.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}
