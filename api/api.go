package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
)

// Store is what the endpoints read and change.
type Store interface {
	store.Edge
	store.Operator
	store.Tenants
	store.HistoryReader
	store.TraceReader
	store.NoticeReader
	store.Rules
	store.Generations
	store.Enrollments
	store.Devices
	store.SignIns
	store.Rooms
	store.KeyPackages
	store.Groups
	store.Prekeys
}

// Announcer puts a committed change in force on every node; a cluster.Node is one.
type Announcer interface {
	Announce(ctx context.Context, c cluster.Change) error
}

// Inboxes tells where an inbox is and how full, and takes plaintext messages; an
// inbox.JetStream does.
type Inboxes interface {
	inbox.Writer
	Describe(ctx context.Context, room, participant uuid.UUID) (inbox.Description, error)
}

// Config of New. Store, Announcer and Inboxes are required.
type Config struct {
	Store     Store
	Announcer Announcer
	Inboxes   Inboxes
	// Presence says who is connected. Nil: presence is answered with unavailable.
	Presence Presence
	// Admission lets changes wait for what participants do over HTTP. Nil: whatever they
	// do that has an effect is answered with unavailable.
	Admission Admission
	// Board keeps cards and their events. Nil: there is none, and its endpoints answer
	// not_found.
	Board board.Store
	// MLS opens the endpoints of MLS rooms.
	MLS bool
	// OutboxWake is called after something was committed that inboxes are told of; an
	// outbox.Publisher's Wake. May be nil.
	OutboxWake func()

	// OperatorToken is the hash of the token that the public listener asks for; zero:
	// the operator's endpoints are closed there.
	OperatorToken store.TokenHash
	// ServiceToken is the hash of the token that edge nodes bring; zero: everything below
	// /internal/ is refused.
	ServiceToken store.TokenHash
	// Checks are the parts that must work for the process to be ready. All are asked at
	// once and at most ten times a second; each bounds its own time.
	Checks map[string]func() error
	// NATSContext is what `nats --context` takes: a name or the path of a file.
	NATSContext string
	// NATSServers and NATSCreds are what `nats --server` and `nats --creds` take, for a
	// NATS without a context. The addresses hold no user and no password.
	NATSServers string
	NATSCreds   string

	Version string
	NodeID  string
	Listen  string // the public address, for people
	TLS     bool   // the public listener speaks it

	Limits Limits // of the public listener

	RequestTimeout  time.Duration // of one request's look-ups and changes; default 10 s
	AnnounceTimeout time.Duration // of one announcement; default 10 s

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // nil: discard

	Registerer prometheus.Registerer // nil: metrics are kept but not exposed
}

func (c Config) withDefaults() Config {
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 10 * time.Second
	}
	if c.AnnounceTimeout == 0 {
		c.AnnounceTimeout = 10 * time.Second
	}
	c.Limits = c.Limits.withDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// API is the HTTP API of one process.
type API struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	tenants remembered[string, uuid.UUID] // by name
	// cursorKeys of tenants
	cursorKeys remembered[uuid.UUID, [16]byte]
	health     health
	senders    *senders
	limits     *limiter
	metrics    *metrics
	events     *eventHub
	standIn    identity.Keys // for enrollments without keys that are accepted

	reference func() (*reference, error) // made when somebody asks for it first
	internal  internalLimits
}

// New makes the API.
func New(cfg Config) (*API, error) {
	if cfg.Store == nil || cfg.Announcer == nil || cfg.Inboxes == nil {
		return nil, errors.New("api: a store, an announcer and inboxes are required")
	}
	a := newAPI(cfg)
	routes := a.routes()
	a.metrics = newMetrics(cfg.Registerer, routes)
	a.reference = sync.OnceValues(func() (*reference, error) { return newReference(routes, a.cfg.Version) })
	return a, nil
}

// newAPI makes one without metrics and reference, which come from its routes.
func newAPI(cfg Config) *API {
	cfg = cfg.withDefaults()
	a := &API{cfg: cfg, log: cfg.Logger.With("component", "api"), started: cfg.Now(), internal: newInternalLimits()}
	a.health.checks = cfg.Checks
	a.senders = newSenders(cfg.Now)
	a.events, a.standIn = newEventHub(a.pendingDevices), newStandIn()
	a.limits = newLimiter(cfg.Limits, cfg.Now, func(limit string) { a.metrics.limited.WithLabelValues(limit).Inc() })
	return a
}

// Socket is the handler for the unix socket: whoever opened it may do everything.
func (a *API) Socket() http.Handler { return newRouter(a, a.guardSocket, a.routes()) }

// Public is the handler for the public listener: health and reference are open, all
// else asks for a token.
func (a *API) Public() http.Handler {
	rt := newRouter(a, a.guardPublic, a.routes())
	rt.limits = a.limits
	return rt
}

// Close ends the answers that go on by themselves, of GET /v1/events. It is called before
// the servers are closed, which wait for answers.
func (a *API) Close() { a.events.close() }
