package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/infra/natsd"
	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/outbox"
	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// Node is a running relay process.
type Node struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry

	lock     *pgd.FolderLock
	database *pgd.Server     // nil with DatabaseURL, and on an edge
	nats     *natsd.Server   // nil with an external one
	postgres *postgres.Store // nil on an edge
	store    database        // postgres, or the API of another node
	broker   broker          // where an external NATS is
	inboxes  *inbox.JetStream
	bus      *nats.Conn
	cluster  *cluster.Node
	late     lateCore
	core     *relay.Relay
	front    *front.Front
	outbox   *outbox.Publisher // nil on an edge
	web      *web
	api      *api.API // nil on an edge

	stopping atomic.Bool
	failed   chan error // something that the node needs ended by itself
	undo     []step     // what Close ends, last one first
}

// database is what every role asks for.
type database interface {
	relay.Store
	Ping(ctx context.Context) error
}

type step struct {
	name string
	end  func(context.Context) error
}

// Start brings everything up. On an error nothing is left running. ctx bounds the
// bring-up only.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &Node{cfg: cfg, log: cfg.Logger, registry: prometheus.NewRegistry(), failed: make(chan error, 4)}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() {
		if err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			err = errors.Join(err, n.Close(closing))
		}
	}()
	for _, bring := range n.parts() {
		if !bring.roles[cfg.Role] {
			continue
		}
		began := time.Now()
		if err := bring.up(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", bring.name, err)
		}
		n.log.Debug("started", "part", bring.name, "took", time.Since(began))
	}
	return n, nil
}

// part is one step of the bring-up and the roles that have it.
type part struct {
	name  string
	roles map[string]bool
	up    func(context.Context) error
}

// parts are all steps, in their order.
func (n *Node) parts() []part {
	every := map[string]bool{RoleAll: true, RoleAPI: true, RoleEdge: true}
	withDatabase := map[string]bool{RoleAll: true, RoleAPI: true}
	withFront := map[string]bool{RoleAll: true, RoleEdge: true}
	return []part{
		{"data folder", every, n.startFolder},
		{"listeners", every, n.startListeners},
		{"database", withDatabase, n.startDatabase},
		{"store", withDatabase, n.startStore},
		{"API", map[string]bool{RoleEdge: true}, n.startRemote},
		{"NATS", every, n.startNATS},
		{"inboxes", every, n.startInboxes},
		{"cluster", every, n.startCluster},
		{"core", every, n.startCore},
		{"front", withFront, n.startFront},
		{"outbox", withDatabase, n.startOutbox},
		{"web", every, n.startWeb},
	}
}

const (
	closeTimeout  = 20 * time.Second // of a bring-up that failed
	recentTimeout = 3 * time.Second  // for recent rows to be read back, before clients are let in
	pingTimeout   = 2 * time.Second  // of the database, for one readiness check
)

// Close ends everything in the order of DESIGN section 7: not ready, no new
// connections, what is in flight, sockets (1001), NATS, PostgreSQL. It may be
// called again.
func (n *Node) Close(ctx context.Context) error {
	n.stopping.Store(true)
	var errs []error
	for _, step := range slices.Backward(n.undo) {
		if err := step.end(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", step.name, err))
		}
	}
	n.undo = nil
	return errors.Join(errs...)
}

// Failed gives an error when a part that the node cannot do without has ended by
// itself.
func (n *Node) Failed() <-chan error { return n.failed }

func (n *Node) onClose(name string, end func(context.Context) error) {
	n.undo = append(n.undo, step{name, end})
}

func (n *Node) startFolder(context.Context) error {
	if err := os.MkdirAll(n.cfg.Data, 0o700); err != nil {
		return err
	}
	data, err := filepath.Abs(n.cfg.Data)
	if err != nil {
		return err
	}
	n.cfg.Data = data
	if n.lock, err = pgd.Lock(data); err != nil {
		return err
	}
	n.onClose("data folder", func(context.Context) error { return n.lock.Unlock() })
	if n.cfg.NATSContext != "" { // whoever is told of it may be in another folder
		if n.cfg.NATSContext, err = filepath.Abs(n.cfg.NATSContext); err != nil {
			return err
		}
	}
	if n.cfg.NodeID == "" {
		if n.cfg.NodeID, err = nodeID(data); err != nil {
			return err
		}
	}
	return nil
}

// nodeID names this data folder's node, the same after each start.
func nodeID(data string) (string, error) {
	path := filepath.Join(data, "keys", "node-id")
	if known, err := os.ReadFile(path); err == nil {
		if id, err := uuid.ParseBytes(known); err == nil {
			return id.String(), nil
		}
	}
	id := uuid.NewString()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return id, os.WriteFile(path, []byte(id), 0o600)
}

func (n *Node) startDatabase(ctx context.Context) error {
	if n.cfg.DatabaseURL != "" {
		return nil
	}
	if err := n.checkDatabaseThere(); err != nil {
		return err
	}
	var err error
	n.database, err = pgd.Start(ctx, pgd.Config{Dir: n.cfg.Data, Logger: n.log, Roles: []string{schema.ServiceRole}})
	if err != nil {
		return err
	}
	n.onClose("database", n.database.Close)
	return nil
}

// checkDatabaseThere refuses to make a new, empty database in a folder whose inboxes say
// that it was in use: every credential would be unknown, and 4403 tells clients to give
// up for good. A mount that did not come up looks like that.
func (n *Node) checkDatabaseThere() error {
	database, inboxes := filepath.Join(n.cfg.Data, "postgres", "data"), filepath.Join(n.cfg.Data, "nats", "jetstream")
	if _, err := os.Stat(inboxes); err != nil {
		return nil //nolint:nilerr // no inboxes, so nothing was in use
	}
	if _, err := os.Stat(database); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing, though %s is there: mount or restore it, use --database-url, "+
			"or remove nats/ to begin anew", database, inboxes)
	}
	return nil
}

func (n *Node) startStore(ctx context.Context) error {
	owner, service := n.cfg.DatabaseURL, n.cfg.DatabaseURL
	if n.database != nil {
		owner, service = n.database.URL(), n.database.URLAs(schema.ServiceRole)
	}
	if err := schema.Up(ctx, owner); err != nil {
		return fmt.Errorf("migrate: %w", ExplainDatabase(err))
	}
	var err error
	n.postgres, err = postgres.Open(ctx, postgres.Config{
		URL:        service,
		Timeout:    n.cfg.StoreTimeout,
		Logger:     n.log,
		Registerer: n.registry,
		MLS:        n.cfg.MLS,
		History:    postgres.HistoryConfig{KeepRows: n.cfg.HistoryRows, KeepFor: n.cfg.HistoryAge},
	})
	if err != nil {
		return err
	}
	n.store = n.postgres
	n.onClose("store", func(context.Context) error { n.postgres.Close(); return nil })
	return nil
}

func (n *Node) startNATS(ctx context.Context) error {
	var err error
	if n.cfg.external() {
		n.broker, err = n.cfg.findBroker()
		return err
	}
	n.nats, err = natsd.Start(ctx, natsd.Config{
		Dir:        n.cfg.Data,
		Edges:      n.cfg.Role == RoleAPI,
		SyncAlways: n.cfg.InboxSync == SyncAlways,
		ListenAddr: n.cfg.NATSListen,
		Logger:     n.log,
	})
	if err != nil {
		return err
	}
	n.onClose("NATS", n.nats.Close)
	return nil
}

// dial opens one connection to NATS with the options every relay connection has.
func (n *Node) dial(name string, options ...nats.Option) (*nats.Conn, error) {
	handlers := natsd.Handlers{Error: func(_ *nats.Conn, _ *nats.Subscription, err error) {
		n.log.Warn("connection to NATS", "connection", name, "error", err)
	}}
	all := append(natsd.ConnOptions(name, handlers), options...)
	if n.nats != nil {
		return n.nats.InProcess(all...)
	}
	conn, err := nats.Connect(n.broker.url, append(all, n.broker.options...)...)
	if err != nil {
		return nil, natsError(n.broker.url, err)
	}
	return conn, nil
}

// shared reports whether other nodes may write the same streams. They may where NATS is
// external, and where this node's own serves edges.
func (n *Node) shared() bool { return n.nats == nil || n.cfg.Role == RoleAPI }

func (n *Node) startInboxes(ctx context.Context) error {
	mode, tails := inbox.Embedded, ""
	if n.shared() {
		mode = inbox.Shared
	}
	if n.nats != nil { // nobody else knows how far its streams went
		tails = filepath.Join(n.cfg.Data, "nats", "inbox-tails.json")
	}
	var err error
	n.inboxes, err = inbox.Open(ctx, inbox.Config{
		Dial:         n.dial,
		Sink:         &n.late,
		Mode:         mode,
		TailsFile:    tails,
		SyncAlways:   n.cfg.InboxSync == SyncAlways,
		Shards:       n.cfg.InboxShards,
		Replicas:     n.cfg.InboxReplicas,
		RecentBytes:  n.cfg.RecentBytes,
		MaxAge:       n.cfg.InboxAge,
		WriteTimeout: n.cfg.InboxTimeout,
		ReadTimeout:  n.cfg.InboxTimeout,
		Logger:       n.log,
		Registerer:   n.registry,
	})
	if err != nil {
		return err
	}
	n.onClose("inboxes", n.inboxes.Close)
	waiting, cancel := context.WithTimeout(ctx, recentTimeout)
	defer cancel()
	if err := n.inboxes.AwaitRecent(waiting); err != nil && ctx.Err() == nil {
		n.log.Info("serving before all recent rows are in memory; replays are slower until they are")
	}
	return ctx.Err()
}

func (n *Node) startCluster(ctx context.Context) error {
	var err error
	if n.bus, err = n.dial("relay-cluster"); err != nil {
		return err
	}
	n.onClose("cluster connection", func(context.Context) error { n.bus.Close(); return nil })
	n.cluster, err = cluster.Start(ctx, cluster.Config{
		Conn:        n.bus,
		NodeID:      n.cfg.NodeID,
		LeaseTTL:    n.cfg.LeaseTTL,
		ReplacesOld: true, // the data folder's lock proves that no other process has this id
		Applier:     &n.late,
		Replicas:    max(n.cfg.InboxReplicas, 1),
		Logger:      n.log,
		Registerer:  n.registry,
	})
	if err != nil {
		return err
	}
	n.onClose("cluster", n.cluster.Close)
	return nil
}

// startCore makes the protocol core. A node without a front has no connections, but what
// participants do over HTTP is held back by changes there just the same.
func (n *Node) startCore(context.Context) error {
	var err error
	n.core, err = relay.New(relay.Config{
		Store:              n.store,
		Inboxes:            n.inboxes,
		Lease:              n.cluster,
		Presence:           presence{n.cluster, n.log},
		SharedInboxes:      n.shared(),
		AllowDevelopment:   n.cfg.AllowDevelopment,
		EnvelopesPerSecond: n.cfg.EnvelopesPerSecond,
		ParticipantConns:   n.cfg.ParticipantConns,
		TenantConns:        n.cfg.TenantConns,
		FramesPerSecond:    n.cfg.FramesPerSecond,
		PingInterval:       n.cfg.PingInterval,
		Logger:             n.log,
		Registerer:         n.registry,
	})
	if err != nil {
		return err
	}
	n.late.core.Store(n.core)
	n.onClose("core", func(context.Context) error { n.core.Close(); return nil })
	return nil
}

func (n *Node) startFront(context.Context) error {
	var err error
	n.front, err = front.New(front.Config{
		Handler:    n.core,
		Logger:     n.log,
		Registerer: n.registry,
		Origins:    n.cfg.Origins,
		Limits: front.Limits{
			Conns: n.cfg.NodeConns, PreAuthPerAddr: n.cfg.AddressConns,
			HelloTimeout: n.cfg.HelloTimeout, MessageTimeout: n.cfg.MessageTimeout,
		},
	})
	if err != nil {
		return err
	}
	n.onClose("front", n.front.Shutdown)
	return nil
}

// startOutbox brings Board hints and room events into inboxes. Any number of nodes may do
// it.
func (n *Node) startOutbox(context.Context) error {
	var err error
	n.outbox, err = outbox.Start(outbox.Config{
		Outbox:     n.postgres,
		Rosters:    n.postgres,
		Inboxes:    n.inboxes,
		Logger:     n.log,
		Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.onClose("outbox", n.outbox.Close)
	return nil
}

// Addr is where the public listener listens.
func (n *Node) Addr() net.Addr { return n.web.public.Addr() }

// MetricsAddr is where metrics and profiles are served; nil when they are not.
func (n *Node) MetricsAddr() net.Addr {
	if n.web.private == nil {
		return nil
	}
	return n.web.private.Addr()
}

// Data is the absolute path of the data folder.
func (n *Node) Data() string { return n.cfg.Data }

// Role is what this process runs.
func (n *Node) Role() string { return n.cfg.Role }

// EdgeContextFile is the file that edge nodes are given to reach this node's embedded
// NATS; empty where there are none.
func (n *Node) EdgeContextFile() string {
	if n.nats == nil || n.cfg.Role != RoleAPI {
		return ""
	}
	return n.nats.EdgeContextFile()
}

// ServiceTokenFile holds the token that edge nodes show this one.
func (n *Node) ServiceTokenFile() string {
	return cmp.Or(n.cfg.ServiceTokenFile, filepath.Join(n.cfg.Data, "keys", "service.token"))
}

// ContextFile is the nats command line's context for this node's embedded NATS;
// empty with an external one.
func (n *Node) ContextFile() string {
	if n.nats == nil {
		return ""
	}
	return n.nats.ContextFile()
}

// checks are the parts that readiness depends on.
func (n *Node) checks() map[string]func() error {
	checks := map[string]func() error{
		"shutdown": func() error {
			if n.stopping.Load() {
				return errors.New("shutting down")
			}
			return nil
		},
		n.storeCheck(): func() error {
			ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
			defer cancel()
			return n.store.Ping(ctx)
		},
		"history": n.core.Ready,
		"inboxes": n.inboxes.Ready,
		"lease":   n.cluster.Ready,
	}
	if n.nats != nil {
		checks["nats"] = n.nats.Healthy
	} else {
		checks["nats"] = func() error {
			if n.bus.IsConnected() {
				return nil
			}
			return fmt.Errorf("not connected to %s", natsServers(n.broker.url))
		}
	}
	return checks
}

// storeCheck names the check of the store.
func (n *Node) storeCheck() string {
	if n.cfg.Role == RoleEdge {
		return "api"
	}
	return "postgresql"
}

// Present reports whether a participant is connected to any node.
func (n *Node) Present(ctx context.Context, participant uuid.UUID) (bool, error) {
	found, err := n.cluster.Lookup(ctx, []uuid.UUID{participant})
	return len(found) > 0, err
}
