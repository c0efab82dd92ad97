package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store/postgres"
)

func keep(rows int, age time.Duration) func(*postgres.Config) {
	return func(c *postgres.Config) { c.History.KeepRows, c.History.KeepFor = rows, age }
}

// fill stores n messages, and returns when the newest one is stored.
func fill(t *testing.T, db *owner, r resident, n int) {
	t.Helper()
	db.exec(t, `INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, envelope)
		SELECT $1, $2, 'fill-' || n, $3, 'message', 0, 'x' FROM generate_series(1, $4::int) n`,
		r.tenant, r.member.Room, r.member.ID, n)
}

func kept(t *testing.T, db *owner, r resident) (rows int, oldest string) {
	t.Helper()
	rows = query[int](t, db, "SELECT count(*) FROM session_history WHERE room_id = $1", r.member.Room)
	if rows > 0 {
		oldest = query[string](t, db, "SELECT message_id FROM session_history WHERE room_id = $1 ORDER BY position LIMIT 1", r.member.Room)
	}
	return rows, oldest
}

func TestPruneByCount(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, keep(10, time.Hour)), newOwner(url)
	a, b, few := newResident(t, s, db, 1), newResident(t, s, db, 2), newResident(t, s, db, 3)
	fill(t, db, a, 2_525) // several batches
	fill(t, db, b, 11)
	fill(t, db, few, 9) // ten with its first message: exactly the window
	deleted, err := s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2_525+1-10+11+1-10), deleted)
	for r, want := range map[resident]string{a: "fill-2516", b: "fill-2", few: "first"} {
		rows, oldest := kept(t, db, r)
		require.Equal(t, 10, rows)
		require.Equal(t, want, oldest, "the newest are kept")
	}
	deleted, err = s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Zero(t, deleted)
}

func TestPruneByAge(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, keep(1_000, 30*24*time.Hour)), newOwner(url)
	r := newResident(t, s, db, 1)
	fill(t, db, r, 20)
	db.exec(t, "UPDATE session_history SET received_at = now() - interval '30 days 1 minute' WHERE message_id = 'first' OR position <= (SELECT position FROM session_history WHERE message_id = 'fill-5')")
	db.exec(t, "UPDATE session_history SET received_at = now() - interval '29 days 23 hours' WHERE message_id = 'fill-6'")
	deleted, err := s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(6), deleted)
	rows, oldest := kept(t, db, r)
	require.Equal(t, 15, rows)
	require.Equal(t, "fill-6", oldest)
}

// Credentials are forgotten when they have ended as long ago as history is kept, by
// expiring or by being revoked, whichever came first.
func TestPruneCredentials(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.History.KeepFor = 24 * time.Hour }), newOwner(url)
	a, b := newResident(t, s, db, 1), newResident(t, s, db, 2)
	valid := query[int](t, db, "SELECT count(*) FROM credentials")
	require.Positive(t, valid)
	mint := func(r resident, n int, expires, revoked string) {
		db.exec(t, `INSERT INTO credentials (tenant_id, id, room_id, participant_id, kind, token_hash, created_at, expires_at, revoked_at)
			SELECT $1, gen_random_uuid(), $2, $3, 'session', sha256(gen_random_uuid()::text::bytea), now() - interval '9 days', now() + $4::interval, now() + $5::interval
			FROM generate_series(1, $6::int)`, r.tenant, r.member.Room, r.member.ID, expires, nullable(revoked), n)
	}
	for _, r := range []resident{a, b} {
		mint(r, 1, "-25 hours", "")
		mint(r, 1, "1 hour", "-25 hours")
		mint(r, 1, "-25 hours", "-1 hour")
		mint(r, 1, "-23 hours", "")
		mint(r, 1, "1 hour", "-23 hours")
		mint(r, 1, "1 hour", "")
	}
	mint(a, 2_500, "-2 days", "") // several batches
	deleted, err := s.PruneCredentials(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2*3+2_500), deleted)
	require.Equal(t, valid+2*3, query[int](t, db, "SELECT count(*) FROM credentials"))
	require.Zero(t, query[int](t, db, "SELECT count(*) FROM credentials WHERE least(expires_at, revoked_at) < now() - interval '24 hours'"))
	_, err = s.Authenticate(t.Context(), a.hash)
	require.NoError(t, err, "a valid one goes on")
	deleted, err = s.PruneCredentials(t.Context())
	require.NoError(t, err)
	require.Zero(t, deleted)
}

func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func TestPruneOnOneNodeAtATime(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, keep(1, time.Hour)), newOwner(url)
	r := newResident(t, s, db, 1)
	fill(t, db, r, 5)
	other := db.connect(t)
	_, err := other.Exec(t.Context(), "SELECT pg_advisory_lock($1)", postgres.PruneLock)
	require.NoError(t, err)
	deleted, err := s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Zero(t, deleted)
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", postgres.PruneLock)
	require.NoError(t, err)
	deleted, err = s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(5), deleted)
}

func TestPruneByItself(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := pgtest.Open(t, url, keep(3, time.Hour), func(c *postgres.Config) { c.History.PruneEvery = 10 * time.Millisecond })
	db := newOwner(url)
	r := newResident(t, s, db, 1)
	for i := range 10 {
		_, err := s.AppendMessage(t.Context(), text(r, fmt.Sprintf("m-%d", i), "x"))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { rows, _ := kept(t, db, r); return rows == 3 }, patience, 10*time.Millisecond)
}

// More rooms than one page, so that the walk over them is known to go on.
func TestPruneWalksAllRooms(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, keep(1, time.Hour)), newOwner(url)
	r := newResident(t, s, db, 1)
	db.exec(t, `INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages)
		SELECT $1, gen_random_uuid(), 'group', 'none', 'allowed' FROM generate_series(1, 450)`, r.tenant)
	db.exec(t, `INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, envelope)
		SELECT tenant_id, id, 'm-' || n, $2, 'message', 0, 'x' FROM rooms, generate_series(1, 2) n WHERE tenant_id = $1`, r.tenant, r.member.ID)
	deleted, err := s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(450+2), deleted)
}
