package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	maxGroupRows  = 4096
	maxGroupBytes = 8 << 20
	// groupsInFlight is how many groups of all shards together should be waiting for
	// their acknowledgements: enough to keep the server busy meanwhile. Where there are
	// more shards, larger groups save more than a second one in flight.
	groupsInFlight = 16
	// singlesInFlight is the same for groups of one row where others are batches. A
	// batch is staged in a directory of its own, so there is one at a time, as large
	// as it gets.
	singlesInFlight = 256
)

// committer writes the messages of one shard, in the order in which they came. It
// takes what waits, publishes all copies and asks for one acknowledgement with the
// last one (DESIGN section 5). In Embedded mode it is the stream's only writer and
// counts: the group is stored if and only if the acknowledged sequence is the last
// known one plus the number of rows. With atomic batches the acknowledgement itself
// says so. Whenever it does not know, it reads the stream (see recover.go).
//
//	queue -> gather -> publish -> acknowledged -> announce -> verdicts
//	                         \-> settle (read what was stored) -/
//	                                 \-> repair (probe until it can write again)
type committer struct {
	config  Config
	shard   int
	stream  string
	token   string
	conn    *nats.Conn
	feed    *feed // of this process
	js      jetstream.JetStream
	metrics *metrics
	logger  *slog.Logger
	recent  *recent // nil when nothing is kept
	finder  finder
	depth   int

	queue       chan *pending
	acks        chan *nats.Msg
	ackPrefix   string
	linkChanged chan struct{} // the connection was lost or is back
	rowsRemoved chan struct{} // somebody purged or deleted rows
	closing     chan struct{}
	exited      chan struct{}

	incarnation atomic.Uint64
	streamFirst atomic.Uint64         // first sequence of the stream when it was last looked at, or lower
	committed   atomic.Uint64         // last sequence whose row readers may ask for
	failure     atomic.Pointer[error] // why the shard cannot store, nil when it can
	failures    atomic.Uint64         // how often it has become unable to store

	// Owned by the goroutine.
	last      uint64 // last sequence once all groups in flight are stored
	groups    []*group
	held      *pending // taken from the queue, not yet in a group
	number    uint64
	timer     *time.Timer
	subjects  []byte
	live      []byte
	orphans   []uint64       // stored rows of refused messages, to be removed
	announced []announcement // not known to have reached the server yet
	lost      map[string]int // rows of refused messages that may still turn up, by subject and payload
	lostBytes int
	lostAt    time.Time
	stopped   context.Context // ends when closing may wait no longer
}

// nudge makes the committer look at its stream again.
func (c *committer) nudge() { signal(c.linkChanged) }

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // one that waits says it all
	}
}

// finder looks for a payload in one inbox among rows after a sequence.
type finder interface {
	find(ctx context.Context, m *Message, recipient int, after, upto uint64) (wire.StreamID, bool, error)
}

func (c *committer) run() {
	defer close(c.exited)
	for {
		switch {
		case c.failure.Load() != nil:
			if !c.repair() {
				c.failQueued(ErrClosed)
				return
			}
		case c.held != nil && c.mayPublish(c.held):
			c.commit(c.held)
		case !c.step():
			return
		}
	}
}

// step waits for the next thing to do; false when the committer has finished.
func (c *committer) step() bool {
	var queue chan *pending
	if c.held == nil {
		queue = c.queue
	}
	var timeout <-chan time.Time
	closing := c.closing
	if len(c.groups) > 0 {
		timeout = c.timer.C
		closing = nil // first the verdicts
	}
	select {
	case p := <-queue:
		c.take(p)
	case ack := <-c.acks:
		c.acknowledged(ack)
	case <-timeout:
		c.settle(errors.New("no acknowledgement in time"))
	case <-c.linkChanged:
		c.linkLost()
	case <-c.rowsRemoved:
		if c.recent != nil {
			c.recent.reset(c.firstInFlight())
		}
	case <-closing:
		select {
		case p := <-c.queue:
			c.take(p)
		default:
			return false
		}
	}
	return true
}

func (c *committer) take(p *pending) {
	c.metrics.queued.Dec()
	if p.take() {
		c.held = p
	}
}

// mayPublish reports whether a group that begins with p may go out now.
func (c *committer) mayPublish(p *pending) bool {
	switch {
	case len(c.groups) == 0:
		return true
	case p.complete:
		return false
	case !c.config.atomic():
		return len(c.groups) < c.depth
	}
	return c.single(p) && c.groups[0].rows == 1 && len(c.groups) < singlesInFlight
}

// single reports whether p is better written without a batch: one row is stored
// whole or not at all anyway, and shares no flush with others.
func (c *committer) single(p *pending) bool {
	return c.config.atomic() && !c.config.SyncAlways && p.missing == 1
}

// commit forms a group that begins with p and publishes it.
func (c *committer) commit(p *pending) {
	c.held = nil
	if p.complete && !c.findMissing(p) {
		return
	}
	g := c.gather(p)
	if err := c.publish(g); err != nil {
		c.settle(fmt.Errorf("publish: %w", err))
	}
}

// gather adds to p what waits, as far as it fits. A message that does not fit, or
// must first look for its rows, is held for the next group.
func (c *committer) gather(p *pending) *group {
	limit := maxGroupRows
	if c.config.atomic() {
		limit = MaxRecipients
	}
	c.number++
	g := &group{number: c.number, pending: []*pending{p}, rows: p.missing, sent: c.config.Now()}
	if c.single(p) {
		return g
	}
	for size := p.bytes(); c.held == nil; {
		select {
		case next := <-c.queue:
			c.take(next)
			if c.held == nil {
				continue
			}
			size += next.bytes()
			if next.complete || g.rows+next.missing > limit || size > maxGroupBytes {
				return g
			}
			c.held = nil
			g.pending = append(g.pending, next)
			g.rows += next.missing
		default:
			return g
		}
	}
	return g
}

// publish sends the group's rows. The group counts as in flight even when it fails
// half-way: only the stream knows how far it came.
func (c *committer) publish(g *group) error {
	c.metrics.groupRows.Observe(float64(g.rows))
	c.groups = append(c.groups, g)
	c.last += uint64(g.rows)
	if len(c.groups) == 1 {
		c.timer.Reset(c.config.WriteTimeout)
	}
	subjects := c.groupSubjects(g)
	each := len(subjects) / g.rows
	reply := c.ackPrefix + strconv.FormatUint(g.number, 10)
	row := 0
	for _, p := range g.pending {
		for i := range p.message.To {
			if !p.writes(i) {
				continue
			}
			subject := subjects[row*each : (row+1)*each]
			row++
			var replyTo string
			if row == g.rows {
				replyTo = reply
			}
			if err := c.publishRow(subject, replyTo, &p.message, g, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupSubjects writes all subjects of a group into one string: they are equally
// long, and one allocation serves them all.
func (c *committer) groupSubjects(g *group) string {
	c.subjects = c.subjects[:0]
	for _, p := range g.pending {
		for i, participant := range p.message.To {
			if p.writes(i) {
				c.subjects = appendSubject(c.subjects, c.token, p.message.Room, participant)
			}
		}
	}
	return string(c.subjects)
}

func (c *committer) publishRow(subject, reply string, m *Message, g *group, row int) error {
	batched := c.config.atomic() && g.rows > 1
	if m.Kind == RowEnvelope && !batched {
		if reply == "" {
			return c.conn.Publish(subject, m.Payload)
		}
		return c.conn.PublishRequest(subject, reply, m.Payload)
	}
	msg := &nats.Msg{Subject: subject, Reply: reply, Data: m.Payload, Header: nats.Header{}}
	if m.Kind != RowEnvelope {
		msg.Header[headerKind] = []string{m.Kind.String()}
	}
	if batched {
		msg.Header[jetstreamext.BatchIDHeader] = []string{c.batchID(g)}
		msg.Header[jetstreamext.BatchSeqHeader] = []string{strconv.Itoa(row)}
		if reply != "" {
			msg.Header[jetstreamext.BatchCommitHeader] = []string{"1"}
		}
	}
	return c.conn.PublishMsg(msg)
}

// batchID is unique per process and group: the acknowledgement's inbox is.
func (c *committer) batchID(g *group) string {
	unique := c.ackPrefix[len(nats.InboxPrefix) : len(c.ackPrefix)-1]
	return unique + "-" + strconv.FormatUint(g.number, 10)
}

// acknowledged decides the oldest group in flight.
func (c *committer) acknowledged(ack *nats.Msg) {
	number, err := strconv.ParseUint(ack.Subject[len(c.ackPrefix):], 10, 64)
	if err != nil || len(c.groups) == 0 || number < c.groups[0].number {
		return // of a group that is settled
	}
	if number != c.groups[0].number {
		c.settle(errors.New("an acknowledgement was lost"))
		return
	}
	g := c.groups[0]
	sequence, err := parseAck(ack)
	if err != nil {
		c.settle(fmt.Errorf("acknowledgement: %w", err))
		return
	}
	if expected := c.firstInFlight() + uint64(g.rows) - 1; sequence != expected {
		if !c.config.atomic() || sequence < expected {
			c.settle(fmt.Errorf("acknowledged sequence %d, expected %d: somebody else wrote, or rows were refused", sequence, expected))
			return
		}
		c.last += sequence - expected // others wrote before the batch
		if c.recent != nil {
			c.recent.reset(sequence - uint64(g.rows) + 1)
		}
	}
	c.confirmAnnouncements(g.number)
	c.stored(g, sequence-uint64(g.rows)+1)
	c.groups = c.groups[1:]
	if len(c.groups) > 0 {
		c.timer.Reset(c.config.WriteTimeout)
	}
}

// firstInFlight is the sequence the oldest row in flight should get.
func (c *committer) firstInFlight() uint64 {
	first := c.last + 1
	for _, g := range c.groups {
		first -= uint64(g.rows)
	}
	return first
}

// stored gives the rows of a group their sequences, in order from first.
func (c *committer) stored(g *group, first uint64) {
	incarnation := c.incarnation.Load()
	for _, p := range g.pending {
		at := first
		for i := range p.ids {
			if p.writes(i) {
				p.ids[i] = wire.StreamID{Incarnation: incarnation, Sequence: first}
				first++
			}
		}
		if c.recent != nil {
			c.remember(p, at, g.sent)
		}
	}
	c.committed.Store(first - 1)
	for _, p := range g.pending {
		c.finishStored(p)
	}
}

func (c *committer) remember(p *pending, first uint64, at time.Time) {
	to := p.message.To
	if p.fresh != nil {
		to = nil
		for i, participant := range p.message.To {
			if p.fresh[i] {
				to = append(to, participant)
			}
		}
	}
	c.recent.add(first, p.message.Room, to, p.message.Kind, p.message.Payload, at)
}

// finishStored announces a message, once, and gives its verdict. That an announcement
// cannot be sent changes nothing: it is noted, like all, until it surely was.
func (c *committer) finishStored(p *pending) {
	if p.missing > 0 {
		c.feed.handOver(&p.message, p.ids, p.fresh)
		c.live = appendLive(c.live[:0], &p.message, p.ids, p.fresh)
		c.announced = append(c.announced, announcement{room: p.message.Room, after: c.number})
		if err := c.conn.Publish(liveSubject(p.message.Room), c.live); err != nil {
			c.logger.Warn("live announcement not sent", "error", err)
		}
	}
	c.metrics.stored.Inc()
	c.finish(p, nil)
}

// announcement is one whose arrival is not confirmed yet. The server handles what a
// connection sends in order, so the acknowledgement of a group confirms everything
// that was published before the group.
type announcement struct {
	room  uuid.UUID
	after uint64 // number of the last group published before it
}

func (c *committer) confirmAnnouncements(number uint64) {
	confirmed := 0
	for confirmed < len(c.announced) && c.announced[confirmed].after < number {
		confirmed++
	}
	c.announced = append(c.announced[:0], c.announced[confirmed:]...)
}

func (c *committer) finishUnavailable(p *pending, cause error) {
	c.metrics.unavailable.Inc()
	c.finish(p, fmt.Errorf("%w: %w", ErrUnavailable, cause))
}

func (c *committer) finish(p *pending, err error) {
	c.metrics.writeSeconds.Observe(c.config.Now().Sub(p.accepted).Seconds())
	p.done <- err
}

// failQueued gives everything that waits the same verdict.
func (c *committer) failQueued(cause error) {
	if c.held != nil {
		c.finishUnavailable(c.held, cause)
		c.held = nil
	}
	for {
		select {
		case p := <-c.queue:
			c.metrics.queued.Dec()
			if p.take() {
				c.finishUnavailable(p, cause)
			}
		default:
			return
		}
	}
}

// findMissing looks for the rows of a Complete that were written since its caller
// searched; nothing is in flight now. It returns false when that decided it.
func (c *committer) findMissing(p *pending) bool {
	if p.failures != c.failures.Load() {
		p.forget() // rows that were found may have been removed again
	}
	ctx, cancel := context.WithTimeout(c.stopped, c.config.ReadTimeout)
	defer cancel()
	for i := range p.message.To {
		if !p.writes(i) {
			continue
		}
		id, found, err := c.finder.find(ctx, &p.message, i, p.scanned, c.committed.Load())
		if err != nil {
			c.finishUnavailable(p, err)
			return false
		}
		if found {
			p.found(i, id)
		}
	}
	if p.missing == 0 {
		c.finishStored(p)
		return false
	}
	return true
}

// errNoStream says that nothing listens on the stream's subjects: it was deleted,
// or its store is offline.
var errNoStream = errors.New("no stream answers")

// parseAck reads a publish acknowledgement: the sequence of the last row.
func parseAck(msg *nats.Msg) (uint64, error) {
	if status := msg.Header.Get("Status"); status == "503" {
		return 0, errNoStream
	}
	var ack struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("unreadable: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Sequence == 0 {
		return 0, errors.New("without a sequence")
	}
	return ack.Sequence, nil
}
