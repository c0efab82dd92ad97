package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OwnerRole is the superuser that owns the database; migrations run as it.
const OwnerRole = "relay_owner"

// Database is the name of the relay's database.
const Database = "relay"

// Config says where and how the server runs. Only Dir is required.
type Config struct {
	// Dir is the relay's data folder; the server lives in Dir/postgres.
	Dir string
	// Logger gets a few lines on starting and ending; nil discards them. The server's
	// own log is the file Dir/postgres/log/postgres.log.
	Logger *slog.Logger
	// BinDir is the folder of the server programs. Empty: $RELAY_PG_BIN, else PATH and
	// the usual places, and of those the newest, or the one the data was made with.
	BinDir string
	// Roles are login roles, besides OwnerRole, as which the relay's operating system
	// user may connect (see URLAs). They need not exist yet.
	Roles []string
	// RunAs are the users to run the server as when the relay is root; the first that
	// exists is taken. Default: postgres, nobody.
	RunAs []string
	// Settings replace or add to the server settings of this package.
	Settings map[string]string
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "postgres")
	if c.RunAs == nil {
		c.RunAs = []string{"postgres", "nobody"}
	}
	return c, nil
}

// Server is a running PostgreSQL server. Its methods are safe for concurrent use.
type Server struct {
	log       *slog.Logger
	folder    folder
	lock      *FolderLock
	socketDir string
	version   int

	cmd     *exec.Cmd
	output  *os.File // read end of the server's stderr
	logs    *logFile
	drained chan struct{} // closed when the log has been read to its end
	exited  chan struct{} // closed when the postmaster has ended; waitErr is set then
	waitErr error

	mu      sync.Mutex
	closing bool
	done    chan struct{} // closed when it ended unasked

	closeOnce sync.Once
	closed    chan struct{}
	closeErr  error
}

// Start starts the server of the data folder, first making the database if there is
// none, and returns when it answers. A server that an earlier relay left running there
// is ended first.
//
// Errors to tell apart: ErrNoPrograms, ErrVersion, ErrLocked. When ctx ends first, what
// was started is ended, an unfinished database is removed, and the error wraps ctx's.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	begin := time.Now()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s := &Server{
		log:    cfg.Logger,
		exited: make(chan struct{}), drained: make(chan struct{}),
		done: make(chan struct{}), closed: make(chan struct{}),
	}
	if err := s.start(ctx, cfg); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.log.InfoContext(ctx, "started", "version", s.version, "socket_dir", s.socketDir,
		"run_as", s.folder.acct.name, "took", time.Since(begin))
	return s, nil
}

func (s *Server) start(ctx context.Context, cfg Config) (err error) {
	want, err := dataVersion(cfg.Dir)
	if err != nil {
		return err
	}
	progs, err := findPrograms(ctx, cfg.BinDir, want)
	if err != nil {
		return err
	}
	s.version = progs.version
	if s.folder, err = openFolder(cfg.Dir, cfg.RunAs); err != nil {
		return err
	}
	if s.lock, err = Lock(s.folder.root); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.folder.removeSocketDir(), s.lock.Unlock())
		}
	}()
	if err := s.prepare(ctx, cfg, progs); err != nil {
		return err
	}
	if err := s.launch(progs); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		s.abort()
		return err
	}
	return nil
}

// prepare brings the folder into the state in which the server can be launched.
func (s *Server) prepare(ctx context.Context, cfg Config, p programs) error {
	for _, data := range []string{s.folder.data(), s.folder.draft()} {
		left, err := stopLeftover(ctx, data)
		if err != nil {
			return err
		}
		if left {
			s.log.WarnContext(ctx, "ended a server that an earlier relay had left running")
		}
	}
	made, err := s.folder.initialise(ctx, p)
	if err != nil {
		return err
	}
	if made {
		s.log.InfoContext(ctx, "made a new database", "version", p.version)
	}
	if err := s.folder.removeStaleLocks(); err != nil {
		return err
	}
	if s.socketDir, err = s.folder.socketDir(); err != nil {
		return err
	}
	return s.folder.writeConf(cfg)
}

// removeStaleLocks removes the lock files of a server that is known to be gone.
func (f folder) removeStaleLocks() error {
	if !canSeeProcesses {
		return nil // PostgreSQL looks for itself
	}
	for _, path := range []string{
		filepath.Join(f.data(), "postmaster.pid"),
		filepath.Join(f.run(), socketName),
		filepath.Join(f.run(), socketName+".lock"),
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove stale lock file: %w", err)
		}
	}
	return nil
}

// launch starts the postmaster and the two goroutines that own it.
func (s *Server) launch(p programs) error {
	base, inherit, err := s.folder.reach()
	if err != nil {
		return err
	}
	defer closeAll(inherit)
	if s.logs, err = openLog(s.folder.log()); err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make log pipe: %w", err)
	}
	defer in.Close()
	serverSide := s.socketDir
	if base != s.folder.root {
		serverSide = filepath.Join(base, "run")
	}
	args := append([]string{"-D", filepath.Join(base, "data")}, fixedArgs(base, serverSide)...)
	cmd := exec.Command(p.path("postgres"), args...) //nolint:noctx // it outlives Start's context
	cmd.Dir = "/"
	cmd.Env = cleanEnv()
	cmd.ExtraFiles = inherit
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = s.folder.acct.sysProcAttr()
	dieWithRelay(cmd.SysProcAttr, syscall.SIGINT) // fast shutdown
	ended, err := startBound(cmd)
	if err != nil {
		out.Close()
		s.logs.file.Close()
		return fmt.Errorf("start server: %w", err)
	}
	s.cmd, s.output = cmd, out
	go func() {
		defer close(s.drained)
		s.logs.drain(out)
	}()
	go func() { s.ended(<-ended) }()
	return nil
}

// ended records the end of the postmaster.
func (s *Server) ended(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = errors.New("exit status 0")
	}
	s.waitErr = err
	close(s.exited)
	if !s.closing {
		close(s.done)
		s.log.Error("server ended by itself", "error", err)
	}
}

// awaitReady returns when the database can be used, making it if need be.
func (s *Server) awaitReady(ctx context.Context) error {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		answer := s.probe(ctx)
		if answer == nil || !startingUp(answer) {
			return answer
		}
		select {
		case <-retry.C:
		case <-s.exited:
			<-s.drained
			return fmt.Errorf("server ended while it started (%w), see %s: %s", s.waitErr, s.logs.path,
				strings.TrimSpace(s.logs.tail.String()))
		case <-ctx.Done():
			return fmt.Errorf("wait until the server answers: %w, last: %w", ctx.Err(), answer)
		}
	}
}

func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if hasCode(err, "3D000") { // no such database
		return s.createDatabase(ctx)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return conn.Close(ctx)
}

func (s *Server) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url(OwnerRole, "postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE relay"); err != nil && !hasCode(err, "42P04") {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// startingUp tells a server that is not there yet from one that refuses.
func startingUp(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code == "57P03" // cannot_connect_now
	}
	_, badConfig := errors.AsType[*pgconn.ParseConfigError](err)
	return !badConfig
}

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

// URL is the connection URL of the owner, a superuser, for migrations. It holds no
// secret and works for the relay's operating system user and root only.
func (s *Server) URL() string { return s.URLAs(OwnerRole) }

// URLAs is URL for another role, one of Config.Roles.
func (s *Server) URLAs(role string) string { return s.url(role, Database) }

func (s *Server) url(role, database string) string {
	q := url.Values{"host": {s.socketDir}, "port": {"5432"}, "sslmode": {"disable"}}
	return (&url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: q.Encode()}).String()
}

// SocketDir is the folder of the server's socket, as psql -h takes it.
func (s *Server) SocketDir() string { return s.socketDir }

// Version is the server's major version.
func (s *Server) Version() int { return s.version }

// Done is closed when the server ends without Close.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server by a fast shutdown: it breaks connections off, rolls their
// transactions back and writes a checkpoint. When ctx ends first the shutdown becomes an
// immediate one, which costs the next start a recovery but loses nothing that was
// committed. It returns when all is gone; further calls wait for the first and return
// its result.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		defer close(s.closed)
		s.closeErr = s.close(ctx)
	})
	<-s.closed
	return s.closeErr
}

func (s *Server) close(ctx context.Context) error {
	err := s.stop(ctx)
	return errors.Join(err, s.folder.removeSocketDir(), s.lock.Unlock())
}

// abort ends a server that did not come up.
func (s *Server) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.stop(ctx); err != nil {
		s.log.Warn("end a server that did not come up", "error", err)
	}
}

// stop ends the postmaster and waits for it, its children and its log.
func (s *Server) stop(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	err := s.shutdown(ctx)
	// The children hold the log pipe: its end is theirs.
	select {
	case <-s.drained:
	case <-time.After(10 * time.Second):
		err = errors.Join(err, errors.New("server processes still hold the log"))
		err = errors.Join(err, s.output.SetReadDeadline(time.Now()))
		<-s.drained
	}
	s.output.Close()
	return err
}

func (s *Server) shutdown(ctx context.Context) error {
	select {
	case <-s.exited:
		if s.unasked() {
			return fmt.Errorf("server had ended by itself: %w", s.waitErr)
		}
		return nil
	default:
	}
	s.signal(syscall.SIGINT)
	select {
	case <-s.exited:
		return s.exitErr()
	case <-ctx.Done():
	}
	err := fmt.Errorf("fast shutdown was cut short: %w", ctx.Err())
	s.signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
		return err
	case <-time.After(5 * time.Second):
	}
	s.signal(syscall.SIGKILL)
	<-s.exited
	return err
}

// exitErr is nil when the postmaster ended as it should.
func (s *Server) exitErr() error {
	if s.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("fast shutdown: %w", s.waitErr)
}

func (s *Server) unasked() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// signal fails only when the postmaster has just ended, and then there is no need.
func (s *Server) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }
