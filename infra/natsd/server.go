package natsd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrStore says that the stored streams can't be used as they are. Nothing was changed.
var ErrStore = errors.New("stored streams can't be opened")

// Config says where and how the server runs. Only Dir is required.
type Config struct {
	// Dir is the relay's data folder; see the package comment for what lies where.
	Dir string
	// SyncAlways flushes to disk before every acknowledgement. Else the server flushes
	// every second: a killed process loses nothing, a power cut at most the last second.
	SyncAlways bool
	// Edges makes a user for nodes elsewhere that write inboxes too, and its context file
	// (EdgeContextFile). Without it there is neither.
	Edges bool
	// MaxPayload is the largest message in bytes. Default 2 MiB: a row of plaintext has up
	// to about 1.1 MiB.
	MaxPayload int
	// MaxMemory bounds streams in memory, of which the relay keeps small ones only.
	// Default 256 MiB.
	MaxMemory int64
	// ListenAddr is where TCP clients connect. Default 127.0.0.1:0: a port of the
	// system's choice at first, then the same one as long as it is free.
	ListenAddr string
	// Logger gets the server's lines, at most ten a second; nil discards them.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("no data folder given")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("find data folder: %w", err)
	}
	c.Dir = dir
	if c.MaxPayload == 0 {
		c.MaxPayload = 2 << 20
	}
	if c.MaxPayload < 0 || c.MaxPayload > server.MAX_PAYLOAD_MAX_SIZE {
		return c, fmt.Errorf("maximum payload %d is not in 1..%d", c.MaxPayload, server.MAX_PAYLOAD_MAX_SIZE)
	}
	if c.MaxMemory == 0 {
		c.MaxMemory = 256 << 20
	}
	if c.ListenAddr == "" {
		c.ListenAddr = "127.0.0.1:0"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "nats")
	return c, nil
}

// Server is a running NATS server. Its methods are safe for concurrent use.
type Server struct {
	ns      *server.Server
	log     *slog.Logger
	lines   *serverLog
	secrets secrets
	dir     string // <data>/nats
	gate    *gate
	started chan struct{} // closed when the server's Start has returned

	jetStream server.JetStreamConfig // what it was started with
	stopping  chan struct{}          // closed when the end begins
	repaired  chan struct{}          // closed when nothing is repaired any more

	closeOnce sync.Once
	closed    chan struct{} // closed when nothing of the server runs any more
}

// Start starts the server, recovers its streams, and returns when it takes connections.
// It sets no signal handlers and never ends the process.
//
// A stream whose folder is there but which the server can't recover is ErrStore: going
// on would mean to forget it. When ctx ends first, the recovery runs to its end (the
// server can't be stopped in the middle of it), the server is stopped, and the error
// wraps ctx's.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	begin := time.Now()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s := &Server{
		log: cfg.Logger, lines: newServerLog(cfg.Logger), dir: filepath.Join(cfg.Dir, "nats"),
		started: make(chan struct{}), closed: make(chan struct{}),
		stopping: make(chan struct{}), repaired: make(chan struct{}),
	}
	if err := s.start(ctx, cfg); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s.log.InfoContext(ctx, "started", "version", server.VERSION, "url", s.URL(),
		"sync_always", cfg.SyncAlways, "took", time.Since(begin))
	return s, nil
}

func (s *Server) start(ctx context.Context, cfg Config) (err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make NATS folder: %w", err)
	}
	if s.secrets, err = loadSecrets(filepath.Join(cfg.Dir, "keys"), cfg.Edges); err != nil {
		return err
	}
	opts, err := s.options(ctx, cfg)
	if err != nil {
		return err
	}
	if s.ns, err = server.NewServer(opts); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	s.ns.SetLoggerV2(s.lines, false, false, false)
	go func() {
		defer close(s.started)
		s.ns.Start()
	}()
	err = s.awaitReady(ctx)
	if err == nil {
		s.gate, err = s.openGate()
	}
	if err == nil {
		err = s.writeFiles(cfg)
	}
	s.jetStream = server.JetStreamConfig{
		MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, StoreDir: opts.StoreDir,
		SyncInterval: opts.SyncInterval, SyncAlways: opts.SyncAlways,
		Strict: !opts.NoJetStreamStrict, CompressOK: true,
	}
	go s.keepRepaired()
	if err != nil {
		s.shutdown()
		<-s.closed
	}
	return err
}

// options translates cfg. Limits are explicit: with a zero the server would take a part
// of the free disk at start for its limit, and refuse writes there.
func (s *Server) options(ctx context.Context, cfg Config) (*server.Options, error) {
	host, portText, err := net.SplitHostPort(cfg.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("read listen address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("read listen address: %w", err)
	}
	if port == 0 {
		port = keptPort(ctx, s.portFile(), host)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts := &server.Options{
		ServerName:             "relay",
		Host:                   host,
		Port:                   port,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		MaxPayload:             int32(cfg.MaxPayload), // bounded by withDefaults
		WriteDeadline:          10 * time.Second,
		JetStream:              true,
		StoreDir:               s.dir,
		JetStreamMaxMemory:     cfg.MaxMemory,
		JetStreamMaxStore:      1 << 60, // the disk is the limit
		SyncInterval:           time.Second,
		SyncAlways:             cfg.SyncAlways,
	}
	if err := opts.ProcessConfigString(accountsConfig(s.secrets)); err != nil {
		// Its text may quote the passwords.
		return nil, errors.New("set up accounts: the server does not accept them")
	}
	return opts, nil
}

func (s *Server) portFile() string { return filepath.Join(s.dir, "port") }

// awaitReady returns when the server has started, or why it has not.
func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-s.started:
	case <-s.lines.fatal:
	case <-ctx.Done():
		return fmt.Errorf("wait for recovery of the streams: %w", ctx.Err())
	}
	if err := s.lines.failure(); err != nil {
		return fmt.Errorf("server in %s: %w", s.dir, err)
	}
	// It has started; this bound is for the accept loop alone.
	if !s.ns.ReadyForConnections(10 * time.Second) {
		return errors.New("server does not take connections")
	}
	// The server skips a stream that it can't read with a warning. Each has a folder.
	if err := s.Healthy(); err != nil {
		return fmt.Errorf("%w: %w; bring its folder below %s back from a backup, or move it away to go on without "+
			"its rows", ErrStore, err, filepath.Join(s.dir, "jetstream", relayAccount, "streams"))
	}
	return nil
}

// writeFiles keeps the port for the next start and writes the context file.
func (s *Server) writeFiles(cfg Config) error {
	addr, ok := s.ns.Addr().(*net.TCPAddr)
	if !ok {
		return errors.New("server has no address")
	}
	if strings.HasSuffix(cfg.ListenAddr, ":0") {
		if err := writeFile(s.portFile(), []byte(strconv.Itoa(addr.Port)+"\n")); err != nil {
			return err
		}
	}
	if err := writeContext(s.ContextFile(), "Peer Relay, read only", s.URL(), debugUser, s.secrets.debug); err != nil {
		return err
	}
	if cfg.Edges {
		return writeContext(s.EdgeContextFile(), "Peer Relay, for its edge nodes", s.URL(), edgeUser, s.secrets.edge)
	}
	// One of an earlier start names a user that is no more.
	if err := os.Remove(s.EdgeContextFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove context file: %w", err)
	}
	return nil
}

func writeContext(path, description, url, user, password string) error {
	b, err := contextFile(description, url, user, password)
	if err != nil {
		return fmt.Errorf("write context file: %w", err)
	}
	return writeFile(path, b)
}

// URL is the address for TCP clients, without credentials.
func (s *Server) URL() string { return s.ns.ClientURL() }

// ContextFile is the path of the file for nats --context: the read-only user.
func (s *Server) ContextFile() string { return filepath.Join(s.dir, "context.json") }

// EdgeContextFile is the path of the file with the address, user and password for nodes
// elsewhere, which is there with Config.Edges.
func (s *Server) EdgeContextFile() string { return filepath.Join(s.dir, "edge.json") }

// Healthy is nil while the server can store into every stream. After a failed write (a
// full disk) a stream stores nothing and answers nothing until JetStream is started anew,
// which happens by itself once the disk takes data; what it had acknowledged is kept.
func (s *Server) Healthy() error {
	if err := s.lines.failure(); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	status := s.ns.Healthz(&server.HealthzOptions{Details: true})
	if len(status.Errors) > 0 {
		return fmt.Errorf("NATS: %s", status.Errors[0].Error)
	}
	acc, err := s.ns.LookupAccount(relayAccount)
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	if !acc.JetStreamEnabled() {
		return errors.New("NATS: JetStream is off for the relay's account, see the log")
	}
	return nil
}

// InProcess connects the relay's full user within the process, without a socket. The
// options of ConnOptions apply, and opts after them. The caller closes the connection,
// before the server.
func (s *Server) InProcess(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect(relayUser, s.secrets.relay, append(opts, nats.InProcessServer(s.ns))...)
}

// Loopback is InProcess over TCP.
func (s *Server) Loopback(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect(relayUser, s.secrets.relay, opts...)
}

func (s *Server) connect(user, password string, opts ...nats.Option) (*nats.Conn, error) {
	all := append(ConnOptions(user, Handlers{}), opts...)
	nc, err := nats.Connect(s.URL(), append(all, nats.UserInfo(user, password))...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// Close stops the server: it flushes its stores and breaks its connections off. When ctx
// ends first it returns ctx's error and the server goes on stopping; a further call
// waits for that.
func (s *Server) Close(ctx context.Context) error {
	s.shutdown()
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop NATS: %w", ctx.Err())
	}
}

// shutdown begins the end of the server, once.
func (s *Server) shutdown() {
	s.closeOnce.Do(func() {
		go func() {
			defer close(s.closed)
			<-s.started // the server can't be stopped while it starts: it races
			close(s.stopping)
			<-s.repaired
			s.gate.close()
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
		}()
	})
}
