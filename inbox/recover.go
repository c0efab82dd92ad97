package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	maxLostBytes = 32 << 20
	lostFor      = time.Minute
	// readBackRows bounds how much of an unexpected difference is read into memory
	// when no verdict depends on it.
	readBackRows = 20_000
	// codeStreamMismatch answers a barrier: the stream did not store it.
	codeStreamMismatch = 10060
)

// linkLost handles a lost or new connection: whatever is in flight must be read
// back, and the stream on the other side may be another one.
func (c *committer) linkLost() {
	cause := errors.New("the connection to NATS was lost")
	if len(c.groups) > 0 {
		c.settle(cause)
		return
	}
	c.fail(cause)
}

// settle finds out what became of the groups in flight and gives every message the
// verdict that is true: stored when all its rows are in the stream. Rows of a
// message that is refused are removed again, for nobody was or will be told of them.
func (c *committer) settle(cause error) {
	c.metrics.recoveries.Inc()
	c.logger.Warn("inbox group not acknowledged as expected, reading the stream", "cause", cause)
	ctx, cancel := context.WithTimeout(c.stopped, c.config.WriteTimeout)
	defer cancel()
	last := c.firstInFlight() - 1
	var inFlight []*pending
	for _, g := range c.groups {
		inFlight = append(inFlight, g.pending...)
	}
	c.groups = nil
	c.last = last
	expected := c.expect(inFlight)
	err := c.relearn(ctx, expected)
	for err != nil && ctx.Err() == nil {
		c.pause(ctx, 50*time.Millisecond)
		err = c.relearn(ctx, expected)
	}
	if err != nil {
		cause = errors.Join(cause, err)
	}
	var refused []*pending
	for _, p := range inFlight {
		if expected.complete(p) {
			c.finishStored(p)
			continue
		}
		refused = append(refused, p)
		c.disown(p)
	}
	if len(refused) > 0 {
		c.fail(cause) // before the verdicts: nobody may see a refusal and be ready
	}
	for _, p := range refused {
		c.finishUnavailable(p, cause)
	}
}

// expectation is what a committer hopes to find in its stream: copies by subject
// and payload, in the order in which they were published.
type expectation struct {
	copies map[string][]expectedCopy
	found  map[*pending]int
}

type expectedCopy struct {
	pending *pending
	copy    int
}

func rowKey(subject string, payload []byte) string { return subject + "\n" + string(payload) }

func (c *committer) expect(inFlight []*pending) *expectation {
	e := &expectation{copies: make(map[string][]expectedCopy), found: make(map[*pending]int)}
	for _, p := range inFlight {
		for i := range p.message.To {
			if p.writes(i) {
				key := c.rowKeyOf(p, i)
				e.copies[key] = append(e.copies[key], expectedCopy{p, i})
			}
		}
	}
	return e
}

func (c *committer) rowKeyOf(p *pending, i int) string {
	subject := appendSubject(nil, c.token, p.message.Room, p.message.To[i])
	return rowKey(string(subject), p.message.Payload)
}

func (e *expectation) match(key string, id wire.StreamID) bool {
	waiting := e.copies[key]
	if len(waiting) == 0 {
		return false
	}
	e.copies[key] = waiting[1:]
	waiting[0].pending.ids[waiting[0].copy] = id
	e.found[waiting[0].pending]++
	return true
}

func (e *expectation) complete(p *pending) bool { return e.found[p] == p.missing }

// disown notes the rows of a refused message: those that were stored are orphans,
// those that were not may still turn up (FAULTS E03).
func (c *committer) disown(p *pending) {
	c.lostAt = c.config.Now()
	for i := range p.message.To {
		switch {
		case !p.writes(i):
		case p.ids[i].Sequence != 0:
			c.orphans = append(c.orphans, p.ids[i].Sequence)
		case c.lostBytes < maxLostBytes:
			key := c.rowKeyOf(p, i)
			c.lost[key]++
			c.lostBytes += len(key)
		}
	}
}

// removeOrphans deletes stored rows of refused messages. The shard does not count as
// able to store before it has.
func (c *committer) removeOrphans(ctx context.Context) error {
	for len(c.orphans) > 0 {
		if err := c.remove(ctx, c.orphans[0]); err != nil {
			return err
		}
		if c.recent != nil {
			c.recent.remove(c.orphans[0])
		}
		c.metrics.orphansRemoved.Inc()
		c.orphans = c.orphans[1:]
	}
	return nil
}

// fail marks the shard as unable to store until a probe succeeds.
func (c *committer) fail(cause error) {
	err := fmt.Errorf("%s: %w", c.stream, cause)
	c.failures.Add(1)
	if c.failure.Swap(&err) == nil {
		c.metrics.unwritable.Inc()
		c.logger.Error("inbox shard cannot store", "error", err)
	}
}

// repair tries until the shard can store again; false when the inboxes close.
func (c *committer) repair() bool {
	for {
		c.failQueued(*c.failure.Load())
		err := c.attemptRepair()
		if err == nil {
			c.failure.Store(nil)
			c.metrics.unwritable.Dec()
			c.logger.Info("inbox shard can store again")
			return true
		}
		cause := fmt.Errorf("%s: %w", c.stream, err)
		c.failure.Store(&cause)
		if !c.pauseFailing(c.config.ProbeEvery) {
			return false
		}
	}
}

func (c *committer) attemptRepair() error {
	select {
	case <-c.linkChanged: // this attempt finds out
	default:
	}
	if !c.conn.IsConnected() {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(c.stopped, c.config.WriteTimeout)
	defer cancel()
	if c.config.Now().Sub(c.lostAt) > lostFor {
		c.lost, c.lostBytes = make(map[string]int), 0
	}
	if err := c.relearn(ctx, nil); err != nil {
		return err
	}
	if err := c.probe(ctx); err != nil {
		return err
	}
	if err := c.removeOrphans(ctx); err != nil {
		return err
	}
	return c.announceMissed(ctx)
}

// announceMissed tells every node of the rooms whose last announcements may have
// been lost with the connection, so that it reads the inboxes instead.
func (c *committer) announceMissed(ctx context.Context) error {
	if len(c.announced) == 0 {
		return nil
	}
	told := make(map[uuid.UUID]bool, len(c.announced))
	for _, a := range c.announced {
		if told[a.room] {
			continue
		}
		told[a.room] = true
		if err := c.conn.Publish(liveSubject(a.room), []byte(liveMissed)); err != nil {
			return fmt.Errorf("announce: %w", err)
		}
	}
	if err := flush(ctx, c.conn, c.config.WriteTimeout); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	c.announced = c.announced[:0]
	return nil
}

// pauseFailing waits while it refuses what still comes.
func (c *committer) pauseFailing(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case p := <-c.queue:
			c.metrics.queued.Dec()
			if p.take() {
				c.finishUnavailable(p, *c.failure.Load())
			}
		case <-c.linkChanged:
			if c.conn.IsConnected() {
				return true
			}
		case <-c.acks: // late ones, of groups that are settled
		case <-timer.C:
			return true
		case <-c.closing:
			return false
		}
	}
}

func (c *committer) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// probeBytes is the size of the largest envelope: a shard that stores one can store
// any.
const probeBytes = wire.MaxMessage

// probe stores a row that belongs to no inbox, and removes it again: only a write
// shows that writes work.
func (c *committer) probe(ctx context.Context) error {
	reply, err := c.conn.RequestWithContext(ctx, probeSubject(c.shard), make([]byte, probeBytes))
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	sequence, err := parseAck(reply)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if sequence != c.last+1 && c.recent != nil {
		c.recent.reset(sequence + 1)
	}
	c.last = sequence
	c.committed.Store(sequence)
	if err := c.remove(ctx, sequence); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

// barrier returns once the stream has handled everything that this connection
// published before: it answers in order, and refuses the barrier itself.
func (c *committer) barrier(ctx context.Context) error {
	msg := nats.NewMsg(probeSubject(c.shard))
	msg.Header.Set(jetstream.ExpectedStreamHeader, "none")
	reply, err := c.conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return err
	}
	_, err = parseAck(reply)
	var refusal *jetstream.APIError
	if errors.As(err, &refusal) && refusal.ErrorCode == codeStreamMismatch {
		return nil
	}
	if err == nil {
		err = errors.New("was stored")
	}
	return err
}

// relearn reads from the stream what this committer has to know: its incarnation,
// its last sequence, and what lies between the last known one and that.
func (c *committer) relearn(ctx context.Context, expected *expectation) error {
	if err := c.barrier(ctx); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("barrier: %w", err)
	}
	info, err := c.streamInfo(ctx)
	if err != nil {
		return err
	}
	lastKnown := c.last
	if incarnationOf(info) != c.incarnation.Load() {
		lastKnown = 0
	}
	if info, err = c.config.renewIfShort(ctx, c.js, info, lastKnown); err != nil {
		return err
	}
	if incarnation := incarnationOf(info); incarnation != c.incarnation.Load() {
		c.logger.Error("inbox stream is another one than before: clients will resync",
			"incarnation", incarnation, "before", c.incarnation.Load())
		c.metrics.streamsRemade.Inc()
		c.incarnation.Store(incarnation)
		c.orphans = nil
		if expected != nil {
			clear(expected.found)
			clear(expected.copies)
		}
		c.restart(0, 1)
	}
	switch last := info.State.LastSeq; {
	case last > c.last && expected == nil && len(c.lost) == 0 && (c.recent == nil || last-c.last > readBackRows):
		c.restart(last, last+1)
	case last > c.last:
		return c.readBack(ctx, last, expected)
	}
	c.committed.Store(c.last)
	return nil
}

func (c *committer) restart(last, next uint64) {
	c.last = last
	c.committed.Store(last)
	if c.recent != nil {
		c.recent.reset(next)
	}
}

// streamInfo asks for the stream, and declares it again when it has vanished.
func (c *committer) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := c.js.Stream(ctx, c.stream)
	if err == nil {
		return stream.CachedInfo(), nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream info: %w", err)
	}
	c.logger.Error("inbox stream has vanished and is made anew: clients will resync")
	return c.config.declareStream(ctx, c.js, c.shard, nil, nil)
}

// readBack reads the rows after the last known one up to last: rows of this
// committer, leftovers of refused messages, and what others wrote.
func (c *committer) readBack(ctx context.Context, last uint64, expected *expectation) error {
	rest := streamRange{js: c.js, stream: c.stream, next: c.last + 1, last: last}
	for !rest.done() {
		rows, err := rest.read(ctx, warmRows, warmBytes)
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		for _, row := range rows {
			c.readBackRow(row, expected)
			c.last = row.Sequence
		}
	}
	c.last = last
	c.committed.Store(last)
	return nil
}

func (c *committer) readBackRow(row *jetstream.RawStreamMsg, expected *expectation) {
	room, participant, ours := parseSubject(row.Subject)
	if !ours {
		return
	}
	key := rowKey(row.Subject, row.Data)
	switch {
	case expected != nil && expected.match(key, wire.StreamID{Incarnation: c.incarnation.Load(), Sequence: row.Sequence}):
	case c.lost[key] > 0:
		c.lost[key]--
		c.orphans = append(c.orphans, row.Sequence)
	}
	if c.recent != nil {
		kind, _ := kindOf(kindHeader(row))
		c.recent.addRow(row.Sequence, keyOf(room, participant), kind, row.Data, row.Time)
	}
}

// remove deletes a row; one that is gone already is fine.
func (c *committer) remove(ctx context.Context, sequence uint64) error {
	stream, err := c.js.Stream(ctx, c.stream)
	if err == nil {
		err = stream.DeleteMsg(ctx, sequence)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("remove row %d: %w", sequence, err)
	}
	return nil
}
