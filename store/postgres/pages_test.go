package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// stall makes a writer that stores an id beginning with "slow" stop after it has drawn
// its position and before it commits, until the returned function is called.
func stall(t *testing.T, db *owner, table string) (release func()) {
	t.Helper()
	const key = 4711
	db.exec(t, fmt.Sprintf(`CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.message_id LIKE 'slow%%' THEN PERFORM pg_advisory_xact_lock(%d); END IF; RETURN NEW; END $$`, key))
	db.exec(t, "CREATE TRIGGER stall AFTER INSERT ON "+table+" FOR EACH ROW EXECUTE FUNCTION stall()")
	gate := db.connect(t)
	_, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock($1)", key)
	require.NoError(t, err)
	return func() {
		_, err := gate.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", key)
		require.NoError(t, err)
	}
}

// No row ever appears behind a position that was handed out: one node has drawn its
// position and not committed, another node commits to the same room, a reader pages.
func TestNothingAppearsBehindACursor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		table  string
		append func(context.Context, *postgres.Store, resident, store.Participant, string) error
		page   func(context.Context, *postgres.Store, resident, int64) ([]string, int64, error)
	}{
		"history": {"session_history", func(ctx context.Context, s *postgres.Store, r resident, _ store.Participant, id string) error {
			_, err := s.AppendMessage(ctx, text(r, id, "x"))
			return err
		}, func(ctx context.Context, s *postgres.Store, r resident, from int64) (ids []string, last int64, err error) {
			rows, _, err := s.HistoryPage(ctx, r.tenant, r.member.Room, store.Page{From: from, Limit: 100})
			for _, row := range rows {
				ids, last = append(ids, row.ID), row.Position
			}
			return ids, last, err
		}},
		"traces": {"message_traces", func(ctx context.Context, s *postgres.Store, r resident, to store.Participant, id string) error {
			_, err := s.AppendTrace(ctx, private(r, to, id))
			return err
		}, func(ctx context.Context, s *postgres.Store, r resident, from int64) (ids []string, last int64, err error) {
			rows, _, err := s.TracePage(ctx, r.tenant, r.member.Room, store.Page{From: from, Limit: 100})
			for _, row := range rows {
				ids, last = append(ids, row.MessageID), row.Position
			}
			return ids, last, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			one, two, three, db := pgtest.Open(t, url), pgtest.Open(t, url), pgtest.Open(t, url), newOwner(url)
			r, free := newResident(t, one, db, 1), newResident(t, one, db, 2)
			to, besides := companion(t, one, r), companion(t, one, free)
			release := stall(t, db, c.table)
			_, cursor, err := c.page(t.Context(), one, r, 0)
			require.NoError(t, err)
			require.NotZero(t, cursor, "the resident's own row")

			slow, fast := make(chan error, 1), make(chan error, 1)
			go func() { slow <- c.append(t.Context(), one, r, to, "slow") }()
			awaitBlocked(t, db, 1)
			drawn := query[int64](t, db, "SELECT last_value FROM "+c.table+"_position_seq")
			require.Greater(t, drawn, cursor, "the slow one has its position")
			go func() { fast <- c.append(t.Context(), two, r, to, "fast") }()
			awaitBlocked(t, db, 2)

			ids, _, err := c.page(t.Context(), two, r, cursor)
			require.NoError(t, err, "a reader waits for nobody")
			require.Empty(t, ids, "nothing that comes after the slow one")
			require.NoError(t, c.append(t.Context(), three, free, besides, "other-room"), "other rooms go on")

			release()
			require.NoError(t, <-slow)
			require.NoError(t, <-fast)
			ids, _, err = c.page(t.Context(), two, r, cursor)
			require.NoError(t, err)
			require.Equal(t, []string{"slow", "fast"}, ids)
		})
	}
}

// What makes the lock enough: positions are drawn one by one, none in advance.
func TestPositionsAreNotCached(t *testing.T) {
	t.Parallel()
	db := newOwner(pgtest.URL(t))
	for _, table := range []string{"session_history", "message_traces"} {
		require.Equal(t, int64(1), query[int64](t, db, "SELECT seqcache FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence($1, 'position')::regclass", table))
	}
}

// The database alone decides who waits for whom: many nodes, each with several rooms in
// one commit, never deadlock, and every reader's walk is a prefix of the final order.
func TestReadersBesideWritersOnTwoNodes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	nodes := []*postgres.Store{pgtest.Open(t, url), pgtest.Open(t, url)}
	db := newOwner(url)
	rooms := make([]resident, 6)
	for i := range rooms {
		rooms[i] = newResident(t, nodes[0], db, byte(i+1))
	}
	const writers, each = 24, 10
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var failed error
			for i := range each {
				r := rooms[(w+i)%len(rooms)]
				if _, err := nodes[w%2].AppendMessage(t.Context(), text(r, fmt.Sprintf("%d-%d", w, i), "x")); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	seen := make(map[uuid.UUID][]string)
	cursors := make(map[uuid.UUID]int64)
	read := func() {
		for _, r := range rooms {
			rows, _, err := nodes[1].HistoryPage(t.Context(), r.tenant, r.member.Room, store.Page{From: cursors[r.tenant], Limit: 7})
			require.NoError(t, err)
			for _, row := range rows {
				seen[r.tenant], cursors[r.tenant] = append(seen[r.tenant], row.ID), row.Position
			}
		}
	}
	for finished := 0; finished < writers; {
		select {
		case err := <-done:
			require.NoError(t, err)
			finished++
		default:
			read()
		}
	}
	for range 1 + writers*each { // more than enough
		read()
	}
	total := 0
	for _, r := range rooms {
		require.Equal(t, query[string](t, db, "SELECT string_agg(message_id, ' ' ORDER BY position) FROM session_history WHERE tenant_id = $1", r.tenant),
			fmtList(seen[r.tenant]))
		total += len(seen[r.tenant])
	}
	require.Equal(t, writers*each+len(rooms), total)
}

func fmtList(ids []string) string {
	text := fmt.Sprint(ids)
	return text[1 : len(text)-1]
}

// FAULTS BL-D10: rows of one transaction, all of one time. And a cursor whose row was
// pruned goes on with what is left.
func TestPagesOfOneTransactionAndAfterPruning(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, keep(100, time.Hour)), newOwner(url)
	r := newResident(t, s, db, 1)
	fill(t, db, r, 250)
	walk := func(page store.Page) (ids []string) {
		for {
			rows, more, err := s.HistoryPage(t.Context(), r.tenant, r.member.Room, page)
			require.NoError(t, err)
			for _, row := range rows {
				ids, page.From = append(ids, row.ID), row.Position
			}
			if !more {
				return ids
			}
		}
	}
	want := []string{"first"}
	for i := range 250 {
		want = append(want, fmt.Sprintf("fill-%d", i+1))
	}
	for _, limit := range []int{1, 2, 100} {
		require.Equal(t, want, walk(store.Page{Limit: limit}))
		backwards := walk(store.Page{Limit: limit, Newest: true})
		require.Len(t, backwards, len(want))
		for i, id := range backwards {
			require.Equal(t, want[len(want)-1-i], id)
		}
	}
	rows, more, err := s.HistoryPage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 10})
	require.NoError(t, err)
	require.True(t, more)
	_, err = s.PruneHistory(t.Context())
	require.NoError(t, err)
	require.Equal(t, want[len(want)-100:], walk(store.Page{From: rows[9].Position, Limit: 30}))
	require.Empty(t, walk(store.Page{From: rows[9].Position, Limit: 30, Newest: true}))
}

// A row without kid and files is one with empty ones (FAULTS BL-G07).
func TestRowsWithNulls(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url), newOwner(url)
	r := newResident(t, s, db, 1)
	require.Equal(t, 1, query[int](t, db, "SELECT count(*) FROM session_history WHERE kid IS NULL"))
	require.Equal(t, 1, query[int](t, db, "SELECT count(*) FROM message_traces WHERE files IS NULL"))
	for _, newest := range []bool{false, true} {
		messages, _, err := s.HistoryPage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 1, Newest: newest})
		require.NoError(t, err)
		require.Empty(t, messages[0].KID)
		traces, _, err := s.TracePage(t.Context(), r.tenant, r.member.Room, store.Page{Limit: 1, Newest: newest})
		require.NoError(t, err)
		require.Nil(t, traces[0].Files)
		require.Zero(t, traces[0].Digest)
	}
}
