package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

const patience = 20 * time.Second

func conns(n int) func(*postgres.Config) { return func(c *postgres.Config) { c.MaxConns = n } }

func text(r resident, id, body string) store.Message {
	return store.Message{
		Tenant: r.tenant, Room: r.member.Room, Sender: r.member.ID, ID: id, Kind: wire.KindMessage, Bytes: []byte(body),
	}
}

// No tenant stays on a pooled connection, whatever its last transaction met.
func TestTenantEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, conns(1)), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	rekeying := newResident(t, s, db, 3) // where somebody is removed: it takes no more messages
	ctx := t.Context()

	for name, disturb := range map[string]func(t *testing.T){
		"an ordinary call": func(t *testing.T) {
			_, err := s.Roster(ctx, a.tenant, a.member.Room)
			require.NoError(t, err)
		},
		"a transaction of several statements": func(t *testing.T) {
			_, err := s.RevokeParticipantCredentials(ctx, a.tenant, a.member.ID)
			require.NoError(t, err)
		},
		"a message": func(t *testing.T) {
			_, err := s.AppendMessage(ctx, text(a, "m", "x"))
			require.NoError(t, err)
		},
		"a trace, stored and refused": func(t *testing.T) {
			to := companion(t, s, rekeying)
			_, err := s.AppendTrace(ctx, private(rekeying, to, "t"))
			require.NoError(t, err)
			_, err = s.RemoveParticipant(ctx, rekeying.tenant, to.Room, to.ID, uuid.Nil)
			require.NoError(t, err)
			_, err = s.AppendTrace(ctx, private(rekeying, to, "refused"))
			require.ErrorIs(t, err, store.ErrNotFound)
		},
		"pages": func(t *testing.T) {
			_, _, err := s.HistoryPage(ctx, a.tenant, a.member.Room, store.Page{Limit: 1})
			require.NoError(t, err)
			_, _, err = s.TracePage(ctx, a.tenant, a.member.Room, store.Page{Limit: 1, Newest: true})
			require.NoError(t, err)
			_, err = s.HistoryMessage(ctx, a.tenant, a.member.Room, "nothing")
			require.ErrorIs(t, err, store.ErrNotFound)
		},
		"a failure": func(t *testing.T) {
			_, err := s.CreateRoom(ctx, store.NewRoom{Tenant: a.tenant})
			require.ErrorIs(t, err, store.ErrInvalid)
		},
		"a call cancelled in mid-query": func(t *testing.T) {
			owner := db.connect(t)
			tx, err := owner.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "SELECT FROM rooms WHERE id = $1 FOR UPDATE", a.member.Room)
			require.NoError(t, err)
			short, cancel := context.WithCancel(ctx)
			result := make(chan error, 1)
			go func() {
				_, err := s.RemoveParticipant(short, a.tenant, a.member.Room, a.member.ID, uuid.Nil)
				result <- err
			}()
			awaitBlocked(t, db, 1)
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
			require.NoError(t, tx.Rollback(ctx))
		},
		"a connection killed by the server": func(t *testing.T) {
			killSessions(t, db)
		},
	} {
		t.Run(name, func(t *testing.T) {
			disturb(t)
			require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, patience, time.Millisecond)
			require.NoError(t, s.Pool().AcquireFunc(ctx, func(c *pgxpool.Conn) error {
				var left string
				err := c.QueryRow(ctx, `SELECT concat(current_setting('relay.tenant', true), current_setting('relay.actor', true),
					current_setting('relay.token', true), current_setting('relay.device', true))`).Scan(&left)
				require.Empty(t, left)
				return err
			}))
			roster, err := s.Roster(ctx, b.tenant, b.member.Room)
			require.NoError(t, err)
			require.Equal(t, []store.Participant{b.member}, roster.Participants)
			_, err = s.Roster(ctx, b.tenant, a.member.Room)
			require.ErrorIs(t, err, store.ErrNotFound)
			_, _, err = s.HistoryPage(ctx, b.tenant, a.member.Room, store.Page{Limit: 1})
			require.ErrorIs(t, err, store.ErrNotFound)
			require.Equal(t, 1, query[int](t, db, "SELECT count(*) FROM participants WHERE tenant_id = $1 AND left_at IS NULL", a.tenant))
		})
	}
}

// awaitBlocked returns when n of the database's sessions wait for a lock.
func awaitBlocked(t *testing.T, db *owner, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return query[int](t, db, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	}, patience, time.Millisecond)
}

// killSessions ends the store's sessions, and returns when they are gone.
func killSessions(t *testing.T, db *owner) {
	t.Helper()
	db.exec(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

// No call holds a connection while it asks for another.
func TestTwiceAsManyCallsAsConnections(t *testing.T) {
	t.Parallel()
	const size = 3
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, conns(size)), newOwner(url)
	r := newResident(t, s, db, 1)
	to := companion(t, s, r)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	start, errs := make(chan struct{}), make(chan error, 100)
	var calls sync.WaitGroup
	at := func(do func(i int) error) {
		for i := range 2 * size {
			calls.Go(func() {
				<-start
				errs <- do(i)
			})
		}
	}
	at(func(i int) error {
		_, err := s.AppendMessage(ctx, text(r, fmt.Sprintf("m-%d", i), "x"))
		return err
	})
	at(func(int) error {
		_, err := s.AppendMessage(ctx, text(r, "the-same", "x"))
		return err
	})
	at(func(i int) error {
		_, err := s.AppendTrace(ctx, private(r, to, fmt.Sprintf("t-%d", i)))
		return err
	})
	at(func(int) error {
		_, err := s.AppendTrace(ctx, private(r, to, "the-same-trace"))
		return err
	})
	at(func(int) error {
		_, _, err := s.HistoryPage(ctx, r.tenant, r.member.Room, store.Page{Limit: 100})
		return err
	})
	at(func(int) error {
		_, err := s.AddParticipant(ctx, store.NewParticipant{Tenant: r.tenant, Room: r.member.Room, Role: store.RoleAgent})
		return err
	})
	at(func(i int) error { return s.AppendNotice(ctx, alertOf(r, fmt.Sprintf("n-%d", i), "x")) })
	at(func(int) error { _, err := s.Authenticate(ctx, r.hash); return err })
	close(start)
	calls.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Zero(t, s.Pool().Stat().AcquiredConns())
	require.LessOrEqual(t, s.Pool().Stat().TotalConns(), int32(size))
	require.Zero(t, query[int](t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND state LIKE 'idle in transaction%'`))
}

// Statements that were prepared before a migration still answer after it.
func TestMigrationUnderTraffic(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, conns(1)), newOwner(url)
	r := newResident(t, s, db, 1)
	n, to := 0, companion(t, s, r)
	traffic := func(t *testing.T) {
		t.Helper()
		for range 8 { // enough for the server to change to a generic plan
			n++
			_, err := s.AppendMessage(t.Context(), text(r, fmt.Sprintf("m-%d", n), "x"))
			require.NoError(t, err)
			_, err = s.AppendTrace(t.Context(), private(r, to, fmt.Sprintf("t-%d", n)))
			require.NoError(t, err)
			_, _, err = s.HistoryPage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 2})
			require.NoError(t, err)
			_, _, err = s.TracePage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 2, Newest: true})
			require.NoError(t, err)
			_, err = s.Authenticate(t.Context(), r.hash)
			require.NoError(t, err)
			_, err = s.Roster(t.Context(), r.tenant, r.member.Room)
			require.NoError(t, err)
			_, err = s.FindRoom(t.Context(), r.tenant, r.member.Room)
			require.NoError(t, err)
			_, err = s.RevokeCredential(t.Context(), r.tenant, uuid.New(), uuid.Nil)
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	traffic(t)
	for _, table := range tenantTables {
		db.exec(t, "ALTER TABLE "+table+" ADD COLUMN later text NOT NULL DEFAULT 'x'")
	}
	traffic(t)

	t.Run("a changed result type", func(t *testing.T) {
		// First the premise: without the store's repetition this statement fails.
		db.exec(t, "ALTER TABLE rooms ALTER COLUMN scheme TYPE varchar(32)")
		require.NoError(t, s.Pool().AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			_, err := c.Exec(t.Context(), postgres.RoomByIDSQL, r.tenant, r.member.Room)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr)
			require.Equal(t, "cached plan must not change result type", pgErr.Message)
			return nil
		}))
		traffic(t)
		db.exec(t, "ALTER TABLE rooms ALTER COLUMN scheme TYPE text")
		traffic(t)
	})

	t.Run("statements that a pooler lost", func(t *testing.T) {
		require.NoError(t, s.Pool().AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			_, err := c.Exec(t.Context(), "DEALLOCATE ALL")
			return err
		}))
		traffic(t)
	})
}

func TestCallsEndInTime(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.Timeout = 300 * time.Millisecond }), newOwner(url)
	r := newResident(t, s, db, 1)
	owner := db.connect(t)
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE rooms, session_history")
	require.NoError(t, err)

	begin := time.Now()
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := s.Roster(t.Context(), r.tenant, r.member.Room)
		requireUnknown(t, err)
	})
	calls.Go(func() {
		_, err := s.AppendMessage(t.Context(), text(r, "late", "x"))
		requireUnknown(t, err)
	})
	calls.Wait()
	require.Less(t, time.Since(begin), patience)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = s.AppendMessage(t.Context(), text(r, "late", "x"))
	require.NoError(t, err)
}

// requireUnknown asks for an error that says nothing about what is stored.
func requireUnknown(t *testing.T, err error) {
	t.Helper()
	var refusal *wire.Error
	if err == nil || errors.As(err, &refusal) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		t.Errorf("want an unknown outcome, got %v", err)
	}
}
