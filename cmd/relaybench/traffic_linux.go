package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Traffic gives up after this many refusals: something is set up wrongly.
const maxNacks = 10_000

// traffic is a set of connected participants, some of whom send. In a closed loop
// each sender has one envelope without a verdict; with a rate, senders take turns
// and latency counts from when an envelope was due.
type traffic struct {
	loop       *loop
	tag        string
	senders    []*sender
	recipients int // receipts and deliveries of one envelope, where all have as many
	began      time.Time

	interval time.Duration // between envelopes of all senders; 0: closed loop
	due      time.Duration // when the next one is, since began
	turn     int
	stopped  bool
	waiting  []*sender // begin, in a closed loop, when another has sent its last; the end of senders

	resumed  int
	inFlight int
	counts   counts
	hints    atomic.Int64 // of the Board, since the beginning

	roomEvents atomic.Int64            // since the beginning
	ack        *hdrhistogram.Histogram // sent (or due) to last receipt
	deliver    *hdrhistogram.Histogram // sent (or due) to each delivery
	failure    error
}

// counts of what has happened so far.
type counts struct {
	verdicts   int // envelopes queued for every recipient
	deliveries int
	nacks      int
	late       int // envelopes that were due when every sender was busy
	reasons    map[string]int
}

// sender is one participant who sends.
type sender struct {
	traffic    *traffic
	conn       *conn
	party      *party
	template   *template
	index      int
	recipients int // of each of its envelopes
	next       uint64
	last       uint64    // the seq after which it stops; 0 for never
	sent       [64]int64 // when, by seq: deliveries may come after later sends
	receipts   int
	busy       bool
	onQueued   func(seq uint64, m *message) // for whoever keeps a record
}

// party is the handler of one participant's connection.
type party struct {
	traffic *traffic
	sender  *sender // nil for one who only receives
	// row sees every deliver before it is counted; nil for nobody.
	row    func(m *message)
	cursor string
}

func newTraffic(l *loop, tag string, recipients int) *traffic {
	t := &traffic{loop: l, tag: tag, recipients: recipients, began: time.Now()}
	t.reset()
	return t
}

// reset begins a new measurement.
func (t *traffic) reset() {
	t.ack, t.deliver = newHistogram(), newHistogram()
	t.counts = counts{reasons: make(map[string]int)}
}

func (t *traffic) now() int64 { return int64(time.Since(t.began)) }

// join connects m. It sends to "to" when that is not empty.
func (t *traffic) join(m member, to, kind string, size int) error {
	p := &party{traffic: t, cursor: "$"}
	if to != "" {
		s := &sender{traffic: t, party: p, index: len(t.senders), next: firstSeq, recipients: t.recipients}
		h := heading{tag: t.tag, sender: s.index, session: m.room, from: m.id, to: to, kind: kind}
		if kind == noticeKind {
			h.sent = time.Now()
			h.expires = h.sent.Add(noticeLifetime)
		}
		var err error
		if s.template, err = newTemplate(h, size); err != nil {
			return err
		}
		t.senders = append(t.senders, s)
		p.sender = s
	}
	c, err := t.loop.dial(m.token, p)
	if p.sender != nil {
		p.sender.conn = c
	}
	return err
}

func (p *party) ready(c *conn) { c.resume(p.cursor) }

func (p *party) closed(_ *conn, code int, cause error) {
	if p.traffic.stopped {
		return // after a kill
	}
	p.traffic.fail(fmt.Errorf("a connection ended with %d: %w", code, cause))
}

func (t *traffic) fail(err error) {
	if t.failure == nil {
		t.failure = err
	}
}

func (p *party) message(_ *conn, m *message) {
	switch string(m.kind) {
	case "deliver":
		if p.row != nil {
			p.row(m)
		}
		p.traffic.delivered(m)
	case "queued":
		if p.sender != nil {
			p.sender.queued(m)
		}
	case "nack":
		p.traffic.nacked(p.sender, m)
	case "resume_complete":
		p.traffic.resumed++
	case "board.update":
		p.traffic.hints.Add(1)
	case "room.event":
		p.traffic.roomEvents.Add(1)
	case "error":
		p.traffic.fail(fmt.Errorf("the relay reports %s", m.reason))
	}
}

func (t *traffic) delivered(m *message) {
	index, seq, ok := parseID(envelopeID(m.envelope), t.tag)
	if !ok || index >= len(t.senders) || m.replay {
		return
	}
	t.counts.deliveries++
	s := t.senders[index]
	record(t.deliver, t.now()-s.sent[seq%uint64(len(s.sent))])
}

func (s *sender) queued(m *message) {
	_, seq, ok := parseID(m.id, s.traffic.tag)
	if !ok {
		return
	}
	if s.onQueued != nil {
		s.onQueued(seq, m)
	}
	if !s.busy || seq != s.next {
		return
	}
	s.receipts++
	if s.receipts < s.recipients {
		return
	}
	record(s.traffic.ack, s.traffic.now()-s.sent[seq%uint64(len(s.sent))])
	s.traffic.counts.verdicts++
	s.done()
}

func (t *traffic) nacked(s *sender, m *message) {
	t.counts.nacks++
	t.counts.reasons[string(m.reason)]++
	if t.counts.nacks > maxNacks {
		t.fail(fmt.Errorf("more than %d envelopes were refused: %v", maxNacks, t.counts.reasons))
		return
	}
	if s != nil && s.busy {
		s.done()
	}
}

// done makes the sender free and, in a closed loop, busy again.
func (s *sender) done() {
	s.busy = false
	t := s.traffic
	t.inFlight--
	if t.interval != 0 || t.stopped || t.failure != nil {
		return
	}
	switch {
	case s.last == 0 || s.next < s.last:
		s.send(t.now())
	case len(t.waiting) > 0:
		following := t.waiting[0]
		t.waiting = t.waiting[1:]
		following.send(t.now())
	}
}

// inTurns lets so many senders send at once in a closed loop, each so many envelopes;
// then the next ones take their places.
func (t *traffic) inTurns(atOnce, each int) {
	for _, s := range t.senders {
		s.last = firstSeq + uint64(each)
	}
	t.waiting = t.senders[min(atOnce, len(t.senders)):]
}

func (s *sender) send(at int64) {
	s.next++
	s.busy, s.receipts = true, 0
	s.sent[s.next%uint64(len(s.sent))] = at
	s.traffic.inFlight++
	s.conn.send(s.template.at(s.next))
}

// start lets every sender send (closed loop), or begins the schedule.
func (t *traffic) start(rate float64) {
	t.stopped = false
	if rate > 0 {
		t.interval = time.Duration(float64(time.Second) / rate)
		t.due = time.Duration(t.now())
		return
	}
	t.interval = 0
	for _, s := range t.senders[:len(t.senders)-len(t.waiting)] {
		s.send(t.now())
	}
}

// tick sends what is due.
func (t *traffic) tick() {
	if t.interval == 0 || t.stopped {
		return
	}
	for now := time.Duration(t.now()); t.due <= now; t.due += t.interval {
		if s := t.idle(); s != nil {
			s.send(int64(t.due))
		} else {
			t.counts.late++
		}
	}
}

// idle returns the next sender without an envelope under way.
func (t *traffic) idle() *sender {
	for range t.senders {
		s := t.senders[t.turn%len(t.senders)]
		t.turn++
		if !s.busy && s.conn.state == open {
			return s
		}
	}
	return nil
}

// run drives the connections for d, or until done.
func (t *traffic) run(ctx context.Context, d time.Duration, done func() bool) error {
	deadline := time.Now().Add(d)
	for !done() {
		left := time.Until(deadline)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := min(left, 20*time.Millisecond)
		if t.interval > 0 && !t.stopped {
			t.loop.alarm(t.due - time.Duration(t.now()))
		}
		if err := t.loop.poll(wait); err != nil {
			return err
		}
		t.tick()
		if t.failure != nil {
			return t.failure
		}
	}
	return nil
}

// drive is run for the whole of d.
func (t *traffic) drive(ctx context.Context, d time.Duration) error {
	err := t.run(ctx, d, func() bool { return false })
	if err == context.DeadlineExceeded { //nolint:errorlint // run's own
		return nil
	}
	return err
}

// meanwhile keeps the connections alive (they must answer pings) while work runs.
func (t *traffic) meanwhile(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		if err := t.drive(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(err, <-done)
		}
	}
}

// settle stops sending and waits until everything sent has its verdict and all its
// deliveries, counted since the given number of verdicts and deliveries.
func (t *traffic) settle(ctx context.Context) (undelivered int, err error) {
	t.stopped = true
	const patience = 15 * time.Second
	missing := func() int { return t.counts.verdicts*t.recipients - t.counts.deliveries }
	err = t.run(ctx, patience, func() bool { return t.inFlight == 0 && missing() <= 0 })
	if err == context.DeadlineExceeded { //nolint:errorlint // run's own
		if t.inFlight > 0 {
			return missing(), fmt.Errorf("%d envelopes have no verdict after %s", t.inFlight, patience)
		}
		return missing(), nil
	}
	return missing(), err
}

// awaitResumed waits until so many connections have completed their resume.
func (t *traffic) awaitResumed(ctx context.Context, want int) error {
	err := t.run(ctx, time.Minute, func() bool { return t.resumed >= want })
	if err != nil {
		return fmt.Errorf("%d of %d connections are ready: %w", t.resumed, want, err)
	}
	return nil
}
