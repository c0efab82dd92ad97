package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// Store is what the core asks of the database. Its calls are bounded in time by
// the implementation.
type Store interface {
	store.Credentials
	store.Rosters
	store.History
	store.TraceWriter
	store.NoticeWriter
}

// Inboxes is what the core asks of inbox storage. Its calls are bounded in time
// by the implementation.
type Inboxes interface {
	inbox.Writer
	inbox.Reader
	inbox.Feed
	Ready() error
}

// Lease says whether this node may accept and deliver at this moment (DESIGN
// section 6, "Freshness"). Held is called for every envelope.
type Lease interface {
	Held() bool
}

// Presence is told who is connected to this node. Calls do not block.
type Presence interface {
	// Seen says that a participant is connected since a time; rtt is 0 until a
	// ping was answered.
	Seen(participant uuid.UUID, since time.Time, rtt time.Duration)
	// Gone says that a participant's last connection to this node has ended.
	Gone(participant uuid.UUID)
}

// Config is what New needs. Zero limits mean the protocol's own.
type Config struct {
	Store    Store
	Inboxes  Inboxes
	Lease    Lease
	Presence Presence

	// SharedInboxes says that other nodes write the same streams, so that live
	// rows of one inbox may arrive out of order.
	SharedInboxes bool
	// AllowDevelopment accepts hello with direct: true from development credentials.
	AllowDevelopment bool

	EnvelopesPerSecond  int           // per participant, and the burst; default wire.EnvelopesPerSec
	ParticipantConns    int           // connections of one participant; default 8
	TenantConns         int           // connections of one tenant on this node; default 1,024
	PingInterval        time.Duration // default wire.PingInterval
	FramesPerSecond     int           // frames of one connection that are no accepted envelope; default 20, burst ten times
	ReplayWorkers       int           // replays and catch-ups that run at once; default 32
	AuthenticateWorkers int           // hellos that ask the store at once; default 64

	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: metrics are kept but not exposed
}

func (c Config) withDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.EnvelopesPerSecond, wire.EnvelopesPerSec)
	set(&c.ParticipantConns, 8)
	set(&c.TenantConns, 1024)
	set(&c.FramesPerSecond, 20)
	set(&c.ReplayWorkers, 32)
	set(&c.AuthenticateWorkers, 64)
	if c.PingInterval == 0 {
		c.PingInterval = wire.PingInterval
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// Relay is the protocol core of one node. It is the Handler of the front, the Sink
// of the inboxes' live feed and the Applier of the cluster's changes.
type Relay struct {
	cfg     Config
	log     *limitedLog
	metrics *metrics

	ctx    context.Context // ends when the relay closes; never carries values
	cancel context.CancelFunc

	// changes counts the changes applied so far. A hello that began before one
	// authenticates again after it has joined its room.
	changes atomic.Uint64

	history writes
	hub     *hub
	outside outsideFlight
	rates   *rates
	replays *workers
	hellos  chan struct{} // semaphore

	stopped sync.WaitGroup
}

// New returns a core that is ready for connections once Run has been called.
func New(cfg Config) (*Relay, error) {
	if cfg.Store == nil || cfg.Inboxes == nil || cfg.Lease == nil || cfg.Presence == nil {
		return nil, errors.New("relay needs a store, inboxes, a lease and presence")
	}
	cfg = cfg.withDefaults()
	r := &Relay{
		cfg:     cfg,
		log:     newLimitedLog(cfg.Logger),
		metrics: newMetrics(cfg.Registerer),
		hub:     newHub(),
		rates:   newRates(cfg.EnvelopesPerSecond),
		replays: newWorkers(cfg.ReplayWorkers),
		hellos:  make(chan struct{}, cfg.AuthenticateWorkers),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.stopped.Add(2)
	go r.beat()
	go r.keepFresh()
	return r, nil
}

// Open makes the protocol side of a connection. It is called by the front.
func (r *Relay) Open(c Conn) Peer {
	return &session{relay: r, conn: c}
}

// Close ends the heartbeat and every replay. Connections are the front's to close,
// before this.
func (r *Relay) Close() {
	r.cancel()
	r.stopped.Wait()
	r.replays.close()
}

var (
	_ Handler    = (*Relay)(nil)
	_ inbox.Sink = (*Relay)(nil)
)
