package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// Server is a running PostgreSQL server, which is started again when it ends by itself.
// Its methods are safe for concurrent use.
type Server struct {
	log       *slog.Logger
	cfg       Config
	folder    folder
	lock      *FolderLock
	socketDir string
	version   int

	current *postmaster // start's, then keep's, then close's
	end     context.CancelFunc
	kept    chan struct{} // closed when keep has ended

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
	s := &Server{log: cfg.Logger, cfg: cfg, kept: make(chan struct{}), closed: make(chan struct{})}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	go func() {
		defer close(s.kept)
		s.keep(life)
	}()
	s.log.InfoContext(ctx, "started", "version", s.version, "socket_dir", s.socketDir,
		"run_as", s.folder.acct.name, "took", time.Since(begin))
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	progs, err := s.findPrograms(ctx)
	if err != nil {
		return err
	}
	s.version = progs.version
	if s.folder, err = openFolder(s.cfg.Dir, s.cfg.RunAs); err != nil {
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
	if err := s.endLeftovers(ctx); err != nil {
		return err
	}
	made, err := s.folder.initialise(ctx, progs)
	if err != nil {
		return err
	}
	if made {
		s.log.InfoContext(ctx, "made a new database", "version", s.version)
	}
	if s.socketDir, err = s.folder.socketDir(); err != nil {
		return err
	}
	if err := s.folder.writeConf(s.cfg); err != nil {
		return err
	}
	return s.launch(ctx, progs)
}

func (s *Server) findPrograms(ctx context.Context) (programs, error) {
	want, err := dataVersion(s.cfg.Dir)
	if err != nil {
		return programs{}, err
	}
	return findPrograms(ctx, s.cfg.BinDir, want)
}

// endLeftovers ends what is left of an earlier run, an earlier relay's too, so that the
// server can be launched.
func (s *Server) endLeftovers(ctx context.Context) error {
	for _, data := range []string{s.folder.data(), s.folder.draft()} {
		left, err := stopLeftover(ctx, data)
		if err != nil {
			return err
		}
		if left {
			s.log.WarnContext(ctx, "ended server processes that an earlier run had left")
		}
	}
	return s.folder.removeStaleLocks()
}

// launch starts a postmaster and waits until it can be used.
func (s *Server) launch(ctx context.Context, progs programs) error {
	p, err := launch(s.folder, s.socketDir, progs)
	if err != nil {
		return err
	}
	if err := s.awaitReady(ctx, p); err != nil {
		p.abort(s.log)
		return err
	}
	s.current = p
	return nil
}

const (
	firstPause = 100 * time.Millisecond // before a server that has ended is started again
	lastPause  = 10 * time.Second       // when that has failed often
	settled    = time.Minute            // who has run for so long begins with the first pause
)

// keep starts the server again whenever it ends by itself, until life ends. It does not
// give up: what keeps it from starting, as a full disk, may go away, and a relay that is
// not ready meanwhile tells its clients more than one that is gone.
func (s *Server) keep(life context.Context) {
	pause := firstPause
	for {
		begin := time.Now()
		select {
		case <-s.current.exited:
		case <-life.Done():
			return
		}
		if time.Since(begin) >= settled {
			pause = firstPause
		}
		ended := time.Now()
		s.log.ErrorContext(life, "server ended by itself, and is started again", "error", s.current.err)
		for {
			select {
			case <-time.After(pause):
			case <-life.Done():
				return
			}
			pause = min(2*pause, lastPause)
			err := s.again(life)
			if err == nil {
				s.log.InfoContext(life, "started again", "took", time.Since(ended))
				break
			}
			if life.Err() != nil {
				return
			}
			s.log.ErrorContext(life, "server could not be started again; another attempt follows", "error", err)
		}
	}
}

// again launches the server after current has ended.
func (s *Server) again(ctx context.Context) error {
	// Looked for anew, since an upgrade of the package is one of the ways to end.
	progs, err := s.findPrograms(ctx)
	if err != nil {
		return err
	}
	if err := s.endLeftovers(ctx); err != nil {
		return err
	}
	if err := s.current.drain(); err != nil { // a program of the server's, as to archive: the log is let go of
		s.log.WarnContext(ctx, "a server that ended is followed by another", "error", err)
	}
	return s.launch(ctx, progs)
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

// awaitReady returns when the database can be used, making it if need be.
func (s *Server) awaitReady(ctx context.Context, p *postmaster) error {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		answer := s.probe(ctx)
		if answer == nil || !startingUp(answer) {
			return answer
		}
		select {
		case <-retry.C:
		case <-p.exited:
			_ = p.drain() // its last words
			return fmt.Errorf("server ended while it started (%w), see %s: %s", p.err, p.logs.path,
				strings.TrimSpace(p.logs.tail.String()))
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
	s.end()
	<-s.kept
	err := s.current.stop(ctx)
	return errors.Join(err, s.folder.removeSocketDir(), s.lock.Unlock())
}
