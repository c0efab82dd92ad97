package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/wire"
)

// databaseOwner is a connection to the relay's database as its owner.
func databaseOwner(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func askDatabase[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	answer, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return answer
}

// Twice as many session messages, private messages and notices at once as the pool has
// connections, and then more Board events: nothing that holds a connection waits for
// another one (FAULTS G04).
func TestMoreAtOnceThanConnections(t *testing.T) {
	t.Parallel()
	const pool = 10 // store/postgres.Config, MaxConns
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database), testkit.ParticipantConns(100))
	who := room(t, s, "agent", "agent", "agent", "owner")
	gens := []uint64{generation(t, s, who[0], 1), generation(t, s, who[1], 2)}
	var peers []*peer
	for i := range 6 * pool {
		peers = append(peers, connect(t, s, who[i%2]))
	}
	barrier := make(chan struct{})
	var all sync.WaitGroup
	var queued atomic.Int64
	for i, p := range peers {
		recipients := 3
		var frame []byte
		switch id := fmt.Sprintf("at-once-%d", i); i / 2 % 3 {
		case 0:
			frame = p.envelope("message", p.who.Room, id)
		case 1:
			frame, recipients = p.envelope("message", who[2].ID, id), 1
		case 2:
			frame = p.fresh(id, gens[i%2])
		}
		all.Go(func() {
			<-barrier
			if p.conn.SendRaw(t.Context(), frame) != nil {
				return
			}
			for range recipients {
				got, err := p.conn.Receive(t.Context())
				if err != nil || got.Type != wire.ServerQueued {
					t.Errorf("%d: %s, %v", i, got.Raw, err)
					return
				}
			}
			queued.Add(1)
		})
	}
	close(barrier)
	all.Wait()
	require.EqualValues(t, 6*pool, queued.Load())

	card := newCard(t, s, who[0], "task")
	for range pool + 1 {
		all.Go(func() { comment(t, s, who[1], card.CardID) })
	}
	all.Wait()
	require.Eventually(t, func() bool { return len(resumeOnce(t, s, who[2], "0").rows) == 6*pool+pool+2 }, patience, poll,
		"each row, and each hint")
	owner := databaseOwner(t, database)
	require.LessOrEqual(t, askDatabase[int](t, owner, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"), pool)
	require.Zero(t, askDatabase[int](t, owner, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"))
}

// Columns are added and widened under traffic, as a later migration does: statements that
// were prepared before are repeated inside, and nobody is told unavailable (FAULTS G05;
// no pooler in transaction mode stands between: that case is store/postgres's).
func TestTablesChangeUnderTraffic(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database))
	who := room(t, s, "agent", "agent", "agent", "owner")
	gen := generation(t, s, who[1], 1)
	card := newCard(t, s, who[0], "task")
	stop := make(chan struct{})
	var running sync.WaitGroup
	var rounds [4]atomic.Int64
	keep := func(i int, do func(n int)) {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					do(n)
					rounds[i].Add(1)
					pause(t, 50*time.Millisecond) // requests of a credential are limited
				}
			}
		})
	}
	a, b, c := connect(t, s, who[0]), connect(t, s, who[1]), connect(t, s, who[2])
	owners := []testkit.Participant{who[3], who[3], who[3]}
	for i := range owners {
		owners[i].Credential = s.Mint(t, who[3], "session", time.Hour)
	}
	keep(0, func(n int) { a.queued(a.envelope("message", a.who.Room, fmt.Sprintf("m-%d", n)), 3) })
	keep(1, func(n int) {
		if n < 20 { // of one sender, unexpired
			b.queued(b.fresh(fmt.Sprintf("n-%d", n), gen), 3)
		}
		session[any](t, s, owners[0], http.MethodGet, "/notices?limit=5", nil, http.StatusOK)
		session[any](t, s, owners[0], http.MethodGet, "/participants", nil, http.StatusOK)
	})
	keep(2, func(n int) {
		c.queued(c.envelope("message", who[0].ID, fmt.Sprintf("p-%d", n)), 1)
		session[any](t, s, owners[1], http.MethodGet, "/history?limit=5", nil, http.StatusOK)
		session[any](t, s, owners[1], http.MethodGet, "/traces?limit=5", nil, http.StatusOK)
	})
	keep(3, func(int) {
		comment(t, s, owners[2], card.CardID)
		session[any](t, s, owners[2], http.MethodGet, "/board/cards", nil, http.StatusOK)
		connect(t, s, owners[2]).leave()
	})
	more := func(n int64) {
		t.Helper()
		var before [4]int64
		for i := range rounds {
			before[i] = rounds[i].Load()
		}
		require.Eventually(t, func() bool {
			for i := range rounds {
				if rounds[i].Load() < before[i]+n {
					return false
				}
			}
			return true
		}, 2*patience, poll)
	}
	more(8) // enough for the server to keep a plan
	owner := databaseOwner(t, database)
	for _, change := range []string{
		"ALTER TABLE session_history ADD COLUMN later text NOT NULL DEFAULT 'x'",
		"ALTER TABLE notices ADD COLUMN later text NOT NULL DEFAULT 'x'",
		"ALTER TABLE message_traces ADD COLUMN later text NOT NULL DEFAULT 'x'",
		"ALTER TABLE devices ADD COLUMN later text NOT NULL DEFAULT 'x'",
		"ALTER TABLE credentials ADD COLUMN later text",
		"ALTER TABLE board_events ADD COLUMN later text",
		"ALTER TABLE rooms ALTER COLUMN scheme TYPE varchar(32)",
		"ALTER TABLE session_history ALTER COLUMN kind TYPE varchar(32)",
	} {
		_, err := owner.Exec(t.Context(), change)
		require.NoError(t, err, change)
	}
	more(5)
	close(stop)
	running.Wait()
	require.Equal(t, http.StatusOK, s.Ready(t))
}

// The roles that a relay works as own nothing and no policy lets them by: in the database
// of a whole relay they see the rows of the tenant that is set, and none without one or
// with another (FAULTS G01).
func TestRolesOfTheDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database))
	who := room(t, s, "agent", "agent")
	a := connect(t, s, who[0])
	a.queued(a.envelope("message", a.who.Room, "m"), 1)
	owner := databaseOwner(t, database)
	for _, role := range []string{schema.ServiceRole, schema.DeviceRole} {
		require.True(t, askDatabase[bool](t, owner, "SELECT NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole AND NOT rolcreatedb FROM pg_roles WHERE rolname = '"+role+"'"), role)
		require.Zero(t, askDatabase[int](t, owner, "SELECT count(*) FROM pg_class WHERE relowner = '"+role+"'::regrole"), role)
	}
	require.Zero(t, askDatabase[int](t, owner, `SELECT count(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND NOT (c.relrowsecurity AND c.relforcerowsecurity)`))

	tenant := askDatabase[string](t, owner, "SELECT id::text FROM tenants")
	for _, table := range []string{
		"rooms", "participants", "credentials", "devices", "session_history", "message_traces", "notices", "board_cards", "board_events",
	} {
		require.Zero(t, visible(t, owner, table, ""), table)
		require.Zero(t, visible(t, owner, table, who[0].ID), table)
	}
	require.Equal(t, 1, visible(t, owner, "rooms", tenant))
	require.Equal(t, 1, visible(t, owner, "session_history", tenant))
}

// visible is how many rows of a table the service sees while this tenant is set.
func visible(t *testing.T, owner *pgx.Conn, table, tenant string) (rows int) {
	t.Helper()
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL ROLE "+schema.ServiceRole)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT set_config('relay.tenant', $1, true), set_config('relay.actor', 'service', true)", tenant)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows))
	return rows
}
