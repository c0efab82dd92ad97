package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// Config of a Node. Conn and Applier are required.
type Config struct {
	// Conn carries control messages and presence. It must reconnect for ever; the
	// node does not close it.
	Conn *nats.Conn
	// JetStream is where the buckets are; nil: jetstream.New(Conn).
	JetStream jetstream.JetStream
	// NodeID names the node for people (lease values, presence, acknowledgements):
	// letters, digits, '-' and '_', at most 64 bytes. Empty: a random UUID.
	NodeID string
	// ReplacesOld says that no other process with this NodeID can be running (an
	// exclusive lock proves it), so leases that one left behind are deleted at start
	// instead of being waited for.
	ReplacesOld bool

	Applier Applier

	LeaseTTL   time.Duration // default 5 s
	RenewEvery time.Duration // default LeaseTTL/5
	Repeat     time.Duration // of unacknowledged announcements; default 200 ms
	Replicas   int           // of both buckets; default 1
	// LeaseStorage: file (default) keeps the leases of other nodes over a restart of
	// the broker. Memory is enough when the only node runs inside the broker's process.
	LeaseStorage jetstream.StorageType

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

func (c Config) withDefaults() Config {
	if c.NodeID == "" {
		c.NodeID = uuid.NewString()
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 5 * time.Second
	}
	if c.RenewEvery == 0 {
		c.RenewEvery = c.LeaseTTL / 5
	}
	if c.Repeat == 0 {
		c.Repeat = 200 * time.Millisecond
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Conn == nil:
		return errors.New("cluster: a NATS connection is required")
	case c.Applier == nil:
		return errors.New("cluster: an applier is required")
	case !validNodeID(c.NodeID):
		return fmt.Errorf("cluster: node id %q: letters, digits, '-' and '_', at most 64", c.NodeID)
	case c.LeaseTTL < 100*time.Millisecond || c.LeaseTTL > maxTTL:
		return fmt.Errorf("cluster: lease TTL %s: 100ms to %s", c.LeaseTTL, maxTTL)
	case c.RenewEvery <= 0 || c.RenewEvery > c.LeaseTTL/2:
		return fmt.Errorf("cluster: renewing every %s is too rare for a lease of %s", c.RenewEvery, c.LeaseTTL)
	case c.Repeat <= 0:
		return errors.New("cluster: repeat must be positive")
	}
	return nil
}

func validNodeID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= 64
}

// Node is this process as a member of the cluster.
type Node struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	js       jetstream.JetStream
	leases   jetstream.KeyValue
	stream   jetstream.Stream // of leases
	instance string           // this process, whatever it calls itself
	base     time.Time        // of the monotonic clock
	until    atomic.Int64     // monotonic nanoseconds; 0: no lease
	leaseKey atomic.Pointer[string]
	peers    peers
	work     *dispatcher

	closing sync.Once
	cancel  context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup
	control *nats.Subscription
	ends    *nats.Subscription // of leases
	status  chan nats.Status
	resync  chan struct{} // one slot
	lost    chan struct{} // one slot
}

// Start joins the cluster: it makes the buckets where they are missing, listens for
// changes, and returns once it holds a lease. What is cached before Start returns
// may be stale; look it up afterwards.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:      cfg,
		log:      cfg.Logger.With("component", "cluster", "node", cfg.NodeID),
		js:       cfg.JetStream,
		instance: uuid.NewString(),
		base:     time.Now(),
		peers:    peers{seen: make(map[string]sighting)},
		resync:   make(chan struct{}, 1),
		lost:     make(chan struct{}, 1),
	}
	n.metrics = newMetrics(n.Held)
	if err := n.metrics.register(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("register cluster metrics: %w", err)
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.work = newDispatcher()
	if err := n.start(ctx); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return nil, errors.Join(err, n.Close(closeCtx))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if n.js == nil {
		js, err := jetstream.New(n.cfg.Conn)
		if err != nil {
			return fmt.Errorf("open JetStream: %w", err)
		}
		n.js = js
	}
	if err := n.openBuckets(ctx); err != nil {
		return err
	}
	if n.cfg.ReplacesOld {
		if err := n.dropOldLeases(ctx); err != nil {
			return fmt.Errorf("drop leases of the previous process: %w", err)
		}
	}
	// Listening comes before the lease: whoever sees the lease may count on an answer.
	if err := n.subscribe(); err != nil {
		return fmt.Errorf("subscribe to control messages: %w", err)
	}
	n.status = n.cfg.Conn.StatusChanged(nats.CONNECTED)
	keeper := &keeper{node: n}
	if err := keeper.acquire(ctx); err != nil {
		return fmt.Errorf("acquire lease: %w", err)
	}
	n.wg.Go(func() { keeper.run(n.ctx) })
	n.wg.Go(func() { n.reap(n.ctx) })
	n.wg.Go(func() { n.resyncs(n.ctx) })
	n.wg.Go(func() { n.keepPresence(n.ctx) })
	return nil
}

// now is the node's monotonic clock. It goes on while the process is stopped.
func (n *Node) now() time.Duration { return time.Since(n.base) }

// Held reports whether this node may accept and deliver right now. It compares the
// clock with the end of the lease, so it is right in the first instruction after
// the process was frozen. It costs one atomic read and one clock read. A machine that
// sleeps stops that clock: nodes of a cluster must not be suspended.
func (n *Node) Held() bool { return int64(n.now()) < n.until.Load() }

// Ready returns nil while the lease is held, else ErrNotHeld.
func (n *Node) Ready() error {
	if !n.Held() {
		return ErrNotHeld
	}
	return nil
}

// ID is the node's name.
func (n *Node) ID() string { return n.cfg.NodeID }

// Close ends the membership: Held turns false, the lease is deleted so that nobody
// waits for it, and every goroutine of the node has ended unless ctx ended first. The
// Applier is not called once Close has returned nil. Only the first call does anything.
func (n *Node) Close(ctx context.Context) error {
	var err error
	n.closing.Do(func() { err = n.close(ctx) })
	return err
}

// dropTimeout bounds the end of a lease: while the bucket has no leader nobody answers, and
// others must get their part of the time there is for a shutdown.
const dropTimeout = 2 * time.Second

// dropLease deletes the lease, so that nobody waits for it. Where it fails, the lease runs
// out by itself.
func (n *Node) dropLease(ctx context.Context) {
	key := n.leaseKey.Load()
	if key == nil || !n.cfg.Conn.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	if err := n.leases.Delete(ctx, *key); err != nil {
		n.log.Info("lease not deleted; it runs out by itself", "error", err)
	}
}

func (n *Node) close(ctx context.Context) error {
	n.cancel()
	n.until.Store(math.MinInt64)
	var errs []error
	for _, sub := range []*nats.Subscription{n.control, n.ends} {
		if sub == nil {
			continue
		}
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("unsubscribe: %w", err))
		}
	}
	if n.status != nil {
		n.cfg.Conn.RemoveStatusListener(n.status)
	}
	done := make(chan struct{})
	go func() {
		n.work.close()
		n.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("wait for the node's goroutines: %w", ctx.Err()))
	}
	n.dropLease(ctx)
	n.metrics.unregister(n.cfg.Registerer)
	return errors.Join(errs...)
}
