package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/peerrelay/peerrelay/wire"
)

// JetStream implements Inboxes. Open makes one; Close ends it.
type JetStream struct {
	config     Config
	metrics    *metrics
	committers []*committer
	feed       *feed

	conn    *nats.Conn // publishes
	readers []jetstream.JetStream
	turn    atomic.Uint32 // whose turn it is among the readers

	closing     chan struct{}
	once        sync.Once
	stop        context.CancelFunc // ends what still waits
	stopWarming context.CancelFunc
	warmed      chan struct{}
	tails       *tails // nil for none
	wait        sync.WaitGroup
}

var _ Inboxes = (*JetStream)(nil)

// Open connects, declares the streams and starts one committer per shard. The
// newest rows are read back into memory behind it.
func Open(ctx context.Context, config Config) (*JetStream, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("open inboxes: %w", err)
	}
	stopped, stop := context.WithCancel(context.Background())
	j := &JetStream{config: config, closing: make(chan struct{}), warmed: make(chan struct{}), stop: stop}
	if err := j.open(ctx, stopped); err != nil {
		stop()
		j.disconnect()
		return nil, fmt.Errorf("open inboxes: %w", err)
	}
	return j, nil
}

func (j *JetStream) open(ctx, stopped context.Context) error {
	var err error
	if j.metrics, err = newMetrics(j.config.Registerer, j.recentBytes); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if err := j.connect(); err != nil {
		return err
	}
	js, err := jetstream.New(j.conn, jetstream.WithDefaultTimeout(j.config.WriteTimeout))
	if err != nil {
		return err
	}
	if j.config.TailsFile != "" {
		if j.tails, err = readTails(j.config.TailsFile); err != nil {
			return err
		}
	}
	infos, err := j.config.declareStreams(ctx, js, j.tails)
	if err != nil {
		return err
	}
	for shard, info := range infos {
		c, err := j.newCommitter(stopped, js, shard, info)
		if err != nil {
			return err
		}
		j.committers = append(j.committers, c)
	}
	if j.config.keepsRecent() {
		if err := j.watchAudit(); err != nil {
			return fmt.Errorf("subscribe to audit: %w", err)
		}
	}
	if err := flush(ctx, j.conn, j.config.WriteTimeout); err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	if j.tails != nil { // on disk before the first row is
		if err := j.tails.write(j.lastSequences(), false, true); err != nil {
			return err
		}
		j.wait.Go(j.noteTails)
	}
	for _, c := range j.committers {
		j.wait.Go(c.run)
	}
	if j.config.keepsRecent() {
		warming, stopWarming := context.WithCancel(stopped)
		j.stopWarming = stopWarming
		j.warm(warming, infos)
	} else {
		close(j.warmed)
	}
	return nil
}

// publisherName is how the connection of the committers shows in NATS.
const publisherName = "relay inbox publish"

// connect opens all connections. What could not be sent while a connection is down
// must fail at once instead of being sent when it is back (FAULTS E03).
func (j *JetStream) connect() error {
	common := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(conn *nats.Conn, _ *nats.Subscription, err error) {
			j.config.Logger.Warn("connection to NATS", "connection", conn.Opts.Name, "error", err)
		}),
	}
	dial := func(name string, options ...nats.Option) (*nats.Conn, error) {
		conn, err := j.config.Dial(name, append(slices.Clip(common), options...)...)
		if err != nil {
			return nil, fmt.Errorf("connect %s: %w", name, err)
		}
		return conn, nil
	}
	nudge := func(*nats.Conn) { j.nudge() }
	conn, err := dial(publisherName, nats.ReconnectHandler(nudge),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { j.nudge() }))
	if err != nil {
		return err
	}
	j.conn = conn
	for range j.config.Readers {
		conn, err := dial("relay inbox read", nats.SyncQueueLen(1024))
		if err != nil {
			return err
		}
		js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(j.config.ReadTimeout))
		if err != nil {
			conn.Close()
			return err
		}
		j.readers = append(j.readers, js)
	}
	feed := newFeed(j.config, j.metrics)
	if conn, err = dial("relay inbox live", feed.options()...); err != nil {
		return err
	}
	feed.start(conn)
	j.feed = feed
	return nil
}

// flush returns once the server has processed everything sent before.
func flush(ctx context.Context, conn *nats.Conn, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return conn.FlushWithContext(ctx)
}

func (j *JetStream) newCommitter(stopped context.Context, js jetstream.JetStream, shard int, info *jetstream.StreamInfo) (*committer, error) {
	c := &committer{
		config: j.config, shard: shard, stream: streamName(shard), token: shardToken(shard),
		conn: j.conn, feed: j.feed, js: js, metrics: j.metrics, finder: j, depth: max(1, groupsInFlight/j.config.Shards),
		logger: j.config.Logger.With("stream", streamName(shard)),
		queue:  make(chan *pending, j.config.QueueLength), acks: make(chan *nats.Msg, 2*singlesInFlight),
		ackPrefix: nats.NewInbox() + ".", linkChanged: make(chan struct{}, 1), rowsRemoved: make(chan struct{}, 1),
		closing: j.closing, exited: make(chan struct{}), stopped: stopped,
		timer: time.NewTimer(time.Hour), lost: make(map[string]int),
		last: info.State.LastSeq,
	}
	c.incarnation.Store(incarnationOf(info))
	c.committed.Store(info.State.LastSeq)
	c.streamFirst.Store(info.State.FirstSeq)
	if info.State.Msgs == 0 {
		c.streamFirst.Store(info.State.LastSeq + 1)
	}
	if j.config.keepsRecent() {
		c.recent = newRecent(j.config.RecentBytes/int64(j.config.Shards), j.config.MaxRows, j.config.MaxAge)
		c.recent.reset(info.State.LastSeq + 1)
	}
	if _, err := j.conn.ChanSubscribe(c.ackPrefix+"*", c.acks); err != nil {
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	return c, nil
}

func (j *JetStream) nudge() {
	for _, c := range j.committers {
		c.nudge()
	}
}

func (j *JetStream) committerOf(room uuid.UUID) *committer {
	return j.committers[shardOf(room, len(j.committers))]
}

// reader returns one of the read connections, in turn, and one that is connected as
// long as there is one.
func (j *JetStream) reader() jetstream.JetStream {
	turn := j.turn.Add(1)
	for i := range len(j.readers) {
		if js := j.readers[(int(turn)+i)%len(j.readers)]; js.Conn().IsConnected() {
			return js
		}
	}
	return j.readers[int(turn)%len(j.readers)]
}

func (j *JetStream) recentBytes() float64 {
	sum := int64(0)
	for _, c := range j.committers {
		if c.recent != nil {
			c.recent.mu.RLock()
			sum += c.recent.bytes
			c.recent.mu.RUnlock()
		}
	}
	return float64(sum)
}

// Close lets what is under way finish, until ctx ends, and closes the connections.
// Whatever is written afterwards gets ErrClosed.
func (j *JetStream) Close(ctx context.Context) error {
	var err error
	linked := false // to a server that has it all
	j.once.Do(func() {
		close(j.closing)
		if j.stopWarming != nil {
			j.stopWarming()
		}
		done := make(chan struct{})
		go func() {
			j.wait.Wait()
			close(done)
		}()
		select {
		case <-done:
			if linked = j.conn.IsConnected(); linked {
				err = flush(ctx, j.conn, j.config.WriteTimeout) // the last announcements
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		j.stop()
		<-done
		if j.tails != nil {
			err = errors.Join(err, j.tails.write(j.lastSequences(), err == nil && linked, false))
		}
		j.disconnect()
	})
	if err != nil {
		return fmt.Errorf("close inboxes: %w", err)
	}
	return nil
}

func (j *JetStream) disconnect() {
	if j.feed != nil {
		j.feed.close()
		j.feed.conn.Close()
	}
	for _, js := range j.readers {
		js.Conn().Close()
	}
	if j.conn != nil {
		j.conn.Close()
	}
}

var errNotConnected = errors.New("not connected to NATS")

// AwaitRecent returns when the newest rows are back in memory, or nothing more can be
// read back, or ctx ends. Until then replays read the streams, which is much slower: a
// node waits a little before it lets all its clients resume at once.
func (j *JetStream) AwaitRecent(ctx context.Context) error {
	select {
	case <-j.warmed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready implements Inboxes.
func (j *JetStream) Ready() error {
	select {
	case <-j.closing:
		return ErrClosed
	default:
	}
	if !j.conn.IsConnected() || !j.feed.conn.IsConnected() {
		return errNotConnected
	}
	for _, js := range j.readers {
		if !js.Conn().IsConnected() {
			return errNotConnected
		}
	}
	for _, c := range j.committers {
		if failure := c.failure.Load(); failure != nil {
			return *failure
		}
	}
	return nil
}

// Join implements Feed.
func (j *JetStream) Join(ctx context.Context, room uuid.UUID) error { return j.feed.join(ctx, room) }

// Leave implements Feed.
func (j *JetStream) Leave(room uuid.UUID) { j.feed.leave(room) }

// Write implements Writer.
func (j *JetStream) Write(ctx context.Context, m Message) ([]wire.StreamID, error) {
	if err := j.check(&m); err != nil {
		return nil, err
	}
	return j.submit(ctx, newPending(m, j.config.Now()))
}

// Complete implements Writer. The inboxes are searched here as far as everything
// is decided; the committer, in its turn, looks at what was written since.
func (j *JetStream) Complete(ctx context.Context, m Message) ([]wire.StreamID, error) {
	if err := j.check(&m); err != nil {
		return nil, err
	}
	p := newPending(m, j.config.Now())
	p.complete = true
	c := j.committerOf(m.Room)
	p.failures = c.failures.Load()
	p.scanned = c.committed.Load()
	if c.recent == nil { // others write too: only the stream knows
		bounds, err := j.Bounds(ctx, m.Room, m.To[0])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		p.scanned = bounds.StreamLast
	}
	for i := range m.To {
		id, found, err := j.find(ctx, &m, i, 0, p.scanned)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if found {
			p.found(i, id)
		}
	}
	return j.submit(ctx, p)
}

func (j *JetStream) check(m *Message) error {
	switch {
	case len(m.To) == 0:
		return errors.New("message without recipients")
	case len(m.To) > MaxRecipients:
		return fmt.Errorf("%d recipients, at most %d", len(m.To), MaxRecipients)
	case int(m.Kind) >= len(kindNames):
		return fmt.Errorf("row kind %d is unknown", m.Kind)
	}
	return j.checkSize(m)
}

const (
	// rowOverhead is more than the headers of a row in a batch.
	rowOverhead = 512
	// maxMessageBytes bounds the copies of one message together: what they take may be
	// written in one batch, and has to be within the time of one write. The largest envelope
	// to MaxRecipients fits.
	maxMessageBytes = 64 << 20
)

// checkSize refuses what the server would not take, before any of it is sent: the server
// ends a connection that sends more than its maximum payload. The largest piece is the row
// with its headers or the live announcement, which names every recipient.
func (j *JetStream) checkSize(m *Message) error {
	piece := len(m.Payload) + max(rowOverhead, liveOverhead(len(m.To)))
	if limit := j.conn.MaxPayload(); int64(piece) > limit {
		return fmt.Errorf("%w: %d bytes for %d recipients need %d in one piece, NATS takes %d",
			ErrTooLarge, len(m.Payload), len(m.To), piece, limit)
	}
	if all := len(m.Payload) * len(m.To); all > maxMessageBytes {
		return fmt.Errorf("%w: its copies have %d bytes together, at most %d", ErrTooLarge, all, maxMessageBytes)
	}
	return nil
}

// submit hands a message to its shard and waits for the verdict.
func (j *JetStream) submit(ctx context.Context, p *pending) ([]wire.StreamID, error) {
	c := j.committerOf(p.message.Room)
	if failure := c.failure.Load(); failure != nil {
		j.metrics.unavailable.Inc()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, *failure)
	}
	select {
	case <-j.closing:
		return nil, ErrClosed
	default:
	}
	select { // nearly always there is room, and this is far cheaper
	case c.queue <- p:
	default:
		select {
		case c.queue <- p:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		case <-j.closing:
			return nil, ErrClosed
		}
	}
	j.metrics.queued.Inc()
	select {
	case err := <-p.done:
		return p.verdict(err)
	case <-ctx.Done():
		if p.abandon() {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	case <-c.exited:
		if p.abandon() {
			return nil, ErrClosed
		}
	}
	return p.verdict(<-p.done)
}

func (p *pending) verdict(err error) ([]wire.StreamID, error) {
	if err != nil {
		return nil, err
	}
	return p.ids, nil
}
