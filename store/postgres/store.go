package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Store is the store on PostgreSQL. It is safe for concurrent use.
type Store struct {
	cfg     Config
	q       *sqlcgen.Queries
	pool    *pgxpool.Pool
	metrics *metrics
	history *groupCommit[store.Message]
	traces  *groupCommit[traceRow]
	notices *noticeQueues
	pruner  *pruner
}

var _ store.Store = (*Store)(nil)

// Errors of Open that an operator can act upon, besides schema.ErrNewer and
// schema.ErrOutdated.
var (
	// ErrPrivileged: the role the store works as is one that row-level security does not bind.
	ErrPrivileged = errors.New("refusing to run with more rights than the service role may have")
	// ErrRole: the user of the URL can't become schema.ServiceRole, or that can't become
	// schema.DeviceRole, or inherits from it.
	ErrRole = errors.New("the database's roles are not what they must be; run the migrations, or let an administrator run: ALTER ROLE " +
		schema.ServiceRole + " NOINHERIT; GRANT " + schema.DeviceRole + " TO " + schema.ServiceRole + "; GRANT " +
		schema.ServiceRole + " TO <this user>")
)

// Open connects to a database that schema.Up has brought up to date, and starts the
// writers of history and traces. Every connection it ever makes is checked: it refuses a role that is a
// superuser, has BYPASSRLS, owns a table, may become one that does or is, or meets a
// table without forced row-level security.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, q: sqlcgen.New()}
	if err := s.connect(ctx); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.history = newGroupCommit(s, historyTable{s}, commitHistory)
	s.traces = newGroupCommit(s, traceTable{s}, commitTraces)
	s.notices = newNoticeQueues(s)
	metrics, err := newMetrics(cfg.Registerer, s.pool, s.history.metrics, s.traces.metrics)
	if err != nil {
		s.pool.Close()
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.metrics = metrics
	s.history.start()
	s.traces.start()
	s.pruner = startPruner(s)
	return s, nil
}

func (s *Store) connect(ctx context.Context) error {
	pool, err := pgxpool.ParseConfig(s.cfg.URL)
	if err != nil {
		return fmt.Errorf("read database URL: %w", err)
	}
	pool.MaxConns = int32(min(s.cfg.MaxConns, 10_000))
	pool.MinIdleConns = min(2, pool.MaxConns)
	pool.MaxConnIdleTime = 5 * time.Minute
	pool.AfterConnect = s.prepareSession
	s.pool, err = pgxpool.NewWithConfig(ctx, pool)
	if err != nil {
		return fmt.Errorf("make connection pool: %w", err)
	}
	if err := s.checkVersion(ctx); err != nil {
		s.pool.Close()
		return err
	}
	return nil
}

func (s *Store) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	return schema.Check(ctx, conn)
}

// prepareSession makes a new connection the service role's and checks what that role
// could do.
func (s *Store) prepareSession(ctx context.Context, conn *pgx.Conn) error {
	registerTypes(conn)
	if err := s.q.SessionBegin(ctx, conn, strconv.FormatInt(s.cfg.Timeout.Milliseconds(), 10)); err != nil {
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && (pgErr.Code == insufficientPrivilege || pgErr.Code == invalidParameter) {
			return fmt.Errorf("%w (%s)", ErrRole, pgErr.Message)
		}
		return fmt.Errorf("begin session: %w", err)
	}
	posture, err := s.q.SessionPosture(ctx, conn)
	if err != nil {
		return fmt.Errorf("check role: %w", err)
	}
	switch {
	case posture.Superuser:
		return fmt.Errorf("%w: it is a superuser, or may become one", ErrPrivileged)
	case posture.Bypassrls:
		return fmt.Errorf("%w: it has BYPASSRLS, or may become a role that has", ErrPrivileged)
	case posture.Owner:
		return fmt.Errorf("%w: it owns tables, or is a member of a role that does", ErrPrivileged)
	case posture.Unprotected:
		return fmt.Errorf("%w: a table does not force row-level security", ErrPrivileged)
	case !posture.Apart:
		return fmt.Errorf("%w: %s must be a member of %s and inherit nothing from it", ErrRole, schema.ServiceRole, schema.DeviceRole)
	}
	return nil
}

// Close finishes the messages and traces that wait, refuses new ones with ErrClosed, and
// closes every connection. It takes no longer than the timeout of a call.
func (s *Store) Close() {
	s.pruner.close()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	s.traces.refuse()
	s.history.close(ctx.Done())
	s.traces.close(ctx.Done())
	s.pool.Close()
	s.metrics.unregister()
}

// Ping reports whether the database answers and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, "ping", acting{}, func(ctx context.Context, db sqlcgen.DBTX) error {
		writable, err := s.q.SessionWritable(ctx, db)
		if err == nil && !writable {
			err = errors.New("the database is read-only")
		}
		return err
	})
}
