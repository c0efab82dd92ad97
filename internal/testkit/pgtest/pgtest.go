// Package pgtest gives every test a migrated PostgreSQL database of its own, on one
// managed server per test process.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// which ends the server after the tests. A machine without PostgreSQL's server programs
// fails the tests; it never skips them.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store/postgres"
)

const (
	template     = "pgtest_template"
	startTimeout = 2 * time.Minute
)

// server is the process's one server. It is package state because testing has no other
// place for what several tests share.
var server shared //nolint:gochecknoglobals // see above

type shared struct {
	start sync.Once
	pg    *pgd.Server
	dir   string
	err   error
	names atomic.Int64

	mu  sync.Mutex     // guards the following field
	end []func() error // of AtEnd
}

// Main runs the tests and then ends the server, if a test started one. Checks run after
// that, for example goleak.Find; an error fails the run.
func Main(m *testing.M, checks ...func() error) {
	code := m.Run()
	err := errors.Join(server.runEnd(), server.stop())
	if code == 0 {
		for _, check := range checks {
			err = errors.Join(err, check())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	os.Exit(code) //nolint:forbidigo // this is the main of a test binary
}

// AtEnd has Main call a function after the tests, before the server ends: the last one first.
func AtEnd(f func() error) {
	server.mu.Lock()
	defer server.mu.Unlock()
	server.end = append(server.end, f)
}

// URL returns the URL of a new, migrated database, as its owner; it is dropped after
// the test.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, " TEMPLATE "+template+" STRATEGY = FILE_COPY")
}

// EmptyURL returns the URL of a new database without any table.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

func create(t testing.TB, options string) string {
	t.Helper()
	server.start.Do(server.run)
	require.NoError(t, server.err, "start PostgreSQL for the tests")
	name := fmt.Sprintf("pgtest_%d", server.names.Add(1))
	require.NoError(t, server.exec(t.Context(), "CREATE DATABASE "+name+options))
	t.Cleanup(func() {
		require.NoError(t, server.exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"))
	})
	return server.url(name)
}

// As returns the URL of the same database for another login role: schema.ServiceRole.
func As(t testing.TB, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String()
}

// Store returns an open store on a new database of its own; it is closed after the
// test. Options change its configuration.
func Store(t testing.TB, options ...func(*postgres.Config)) *postgres.Store {
	t.Helper()
	return Open(t, URL(t), options...)
}

// Open returns an open store on the database at url; it is closed after the test.
func Open(t testing.TB, url string, options ...func(*postgres.Config)) *postgres.Store {
	t.Helper()
	cfg := postgres.Config{URL: url, MaxConns: 4, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, option := range options {
		option(&cfg)
	}
	s, err := postgres.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func (s *shared) run() {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if s.dir, s.err = os.MkdirTemp("", "pgtest-"); s.err != nil {
		return
	}
	s.pg, s.err = pgd.Start(ctx, pgd.Config{Dir: s.dir, Roles: []string{schema.ServiceRole}, Settings: map[string]string{
		"max_connections": "200", "fsync": "off", "full_page_writes": "off", "autovacuum": "off",
	}})
	if s.err != nil {
		return
	}
	if s.err = s.exec(ctx, "CREATE DATABASE "+template); s.err == nil {
		s.err = schema.Up(ctx, s.url(template))
	}
}

func (s *shared) runEnd() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range slices.Backward(s.end) {
		err = errors.Join(err, end())
	}
	return err
}

func (s *shared) stop() error {
	var err error
	if s.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		err = s.pg.Close(ctx)
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *shared) url(database string) string {
	u, err := url.Parse(s.pg.URL())
	if err != nil {
		panic(err) // pgd made it
	}
	u.Path = "/" + database
	return u.String()
}

func (s *shared) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}
