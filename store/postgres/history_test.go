package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// bench is a store with one flusher, whose table a test can hold closed so that
// messages pile up in the queue.
type bench struct {
	*postgres.Store
	db       *owner
	resident resident
	metrics  *prometheus.Registry
}

func newBench(t *testing.T, options ...func(*postgres.Config)) bench {
	t.Helper()
	url, registry := pgtest.URL(t), prometheus.NewRegistry()
	s := pgtest.Open(t, url, append([]func(*postgres.Config){func(c *postgres.Config) {
		c.History.Flushers, c.Registerer = 1, registry
	}}, options...)...)
	db := newOwner(url)
	return bench{s, db, newResident(t, s, db, 1), registry}
}

// closeTable holds history's table until the returned function is called.
func (b bench) closeTable(t *testing.T) (open func()) {
	t.Helper()
	tx, err := b.db.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE session_history")
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// pile starts n appends behind a first one that is held up in the database, and
// returns when all wait. The answers arrive in the channel.
func (b bench) pile(t *testing.T, n int, message func(i int) store.Message) <-chan answer {
	t.Helper()
	answers := make(chan answer, n+1)
	send := func(i int, m store.Message) {
		go func() {
			got, err := b.AppendMessage(t.Context(), m)
			answers <- answer{i, got, err}
		}()
	}
	send(-1, text(b.resident, "plug", "x"))
	awaitBlocked(t, b.db, 1)
	for i := range n {
		send(i, message(i))
	}
	require.Eventually(t, func() bool { return b.HistoryDepth() == n }, patience, time.Millisecond)
	return answers
}

type answer struct {
	i   int
	got store.Appended
	err error
}

func (b bench) rows(t *testing.T) int {
	t.Helper()
	return query[int](t, b.db, "SELECT count(*) FROM session_history WHERE room_id = $1", b.resident.member.Room)
}

// commits returns how many commits of messages there were.
func (b bench) commits(t *testing.T) int {
	t.Helper()
	families, err := b.metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "relay_store_commit_rows" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "history" {
				return int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatal("no metric")
	return 0
}

func TestWaitingMessagesShareACommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := b.commits(t)
	open := b.closeTable(t)
	answers := b.pile(t, 100, func(i int) store.Message { return text(b.resident, fmt.Sprintf("m-%d", i), "x") })
	open()
	for range 101 {
		a := <-answers
		require.NoError(t, a.err)
		require.False(t, a.got.Duplicate)
	}
	after := b.commits(t)
	require.Equal(t, 2, after-before, "the first alone, and all that waited meanwhile")
	require.Equal(t, 102, b.rows(t))
}

// One id several times in one batch: one row, and each call its true verdict.
func TestOneIDManyTimesInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.closeTable(t)
	const ids, copies = 10, 5 // of each id: three times the same bytes, twice others
	answers := b.pile(t, ids*copies, func(i int) store.Message {
		return text(b.resident, fmt.Sprintf("id-%d", i%ids), fmt.Sprintf("text-%d", max(0, i/ids-2)))
	})
	open()
	stored, duplicates, conflicts := 0, 0, 0
	for range ids*copies + 1 {
		switch a := <-answers; {
		case a.i == -1:
			require.NoError(t, a.err)
		case a.err != nil:
			require.ErrorContains(t, a.err, "history_conflict")
			conflicts++
		case a.got.Duplicate:
			duplicates++
		default:
			stored++
		}
	}
	require.Equal(t, ids, stored)
	require.Equal(t, ids*(copies-1), duplicates+conflicts)
	require.Equal(t, ids+2, b.rows(t))
	for i := range ids { // each id holds one of the texts that were sent
		matches := 0
		for k := range 3 {
			if _, err := b.AppendMessage(t.Context(), text(b.resident, fmt.Sprintf("id-%d", i), fmt.Sprintf("text-%d", k))); err == nil {
				matches++
			}
		}
		require.Equal(t, 1, matches)
	}
}

// A row that the database refuses costs no other row of its batch its verdict.
func TestOneBadRowInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	neighbour := newResident(t, b, b.db, 2)
	b.db.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.message_id LIKE 'bad%' THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$`)
	b.db.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON session_history FOR EACH ROW EXECUTE FUNCTION refuse()")
	open := b.closeTable(t)
	answers := b.pile(t, 40, func(i int) store.Message {
		switch {
		case i%10 == 5:
			return text(b.resident, fmt.Sprintf("bad-%d", i), "x")
		case i%2 == 0:
			return text(neighbour, fmt.Sprintf("good-%d", i), "x")
		}
		return text(b.resident, fmt.Sprintf("good-%d", i), "x")
	})
	open()
	for range 41 {
		a := <-answers
		if a.i%10 == 5 {
			requireUnknown(t, a.err)
			continue
		}
		require.NoError(t, a.err)
	}
	require.Equal(t, 1+36+2, query[int](t, b.db, "SELECT count(*) FROM session_history"))
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*postgres.Config){
		"by rows":  func(c *postgres.Config) { c.History.BatchRows = 7 },
		"by bytes": func(c *postgres.Config) { c.History.BatchBytes = 61 }, // reached by seven times ten
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, option)
			before := b.commits(t)
			open := b.closeTable(t)
			answers := b.pile(t, 21, func(i int) store.Message { return text(b.resident, fmt.Sprintf("m-%d", i), "0123456789") })
			open()
			for range 22 {
				require.NoError(t, (<-answers).err)
			}
			after := b.commits(t)
			require.Equal(t, 1+3, after-before)
		})
	}
}

func TestOneSendersMessagesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *postgres.Config) { c.History.Flushers = 3 })
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			for i := range 25 {
				if _, err := b.AppendMessage(t.Context(), text(b.resident, fmt.Sprintf("%d-%03d", sender, i), "x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	rows, err := b.db.connect(t).Query(t.Context(), "SELECT message_id FROM session_history WHERE message_id LIKE '%-%' ORDER BY position")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, ids, 100)
	last := map[byte]string{}
	for _, id := range ids {
		require.Less(t, last[id[0]], id)
		last[id[0]] = id
	}
}

func TestFullQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *postgres.Config) { c.History.Queue = 3 })
	open := b.closeTable(t)
	answers := b.pile(t, 3, func(i int) store.Message { return text(b.resident, fmt.Sprintf("m-%d", i), "x") })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.AppendMessage(ctx, text(b.resident, "one-more", "x"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	open()
	for range 4 {
		require.NoError(t, (<-answers).err)
	}
	require.Equal(t, 1+4, b.rows(t), "what was given up on was not stored")
}

func TestWithdrawnMessagesAreNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.closeTable(t)
	answers := b.pile(t, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 10)
	for i := range cap(results) {
		go func() {
			_, err := b.AppendMessage(ctx, text(b.resident, fmt.Sprintf("m-%d", i), "x"))
			results <- err
		}()
	}
	require.Eventually(t, func() bool { return b.HistoryDepth() == cap(results) }, patience, time.Millisecond)
	cancel()
	for range cap(results) {
		require.ErrorIs(t, <-results, context.Canceled)
	}
	open()
	require.NoError(t, (<-answers).err)
	_, err := b.AppendMessage(t.Context(), text(b.resident, "after", "x"))
	require.NoError(t, err)
	require.Equal(t, 1+2, b.rows(t))
}

// A call whose message is being written waits for the true outcome.
func TestCancelledWhileWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.closeTable(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := b.AppendMessage(ctx, text(b.resident, "m", "x"))
		result <- err
	}()
	awaitBlocked(t, b.db, 1)
	cancel()
	open()
	require.NoError(t, <-result)
	require.Equal(t, 2, b.rows(t))
}

func TestCloseFinishesWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.closeTable(t)
	answers := b.pile(t, 50, func(i int) store.Message { return text(b.resident, fmt.Sprintf("m-%d", i), "x") })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b.Close()
	}()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := b.AppendMessage(ctx, text(b.resident, "late", "x"))
		return errors.Is(err, postgres.ErrClosed)
	}, patience, time.Millisecond)
	open()
	for range 51 {
		require.NoError(t, (<-answers).err)
	}
	<-closed
	require.Equal(t, 1+51, b.rows(t))
	_, err := b.Roster(t.Context(), b.resident.tenant, b.resident.member.Room)
	require.Error(t, err)
	b.Close() // again
}

func TestCloseEndsInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *postgres.Config) { c.Timeout = 300 * time.Millisecond })
	open := b.closeTable(t)
	defer open()
	answers := b.pile(t, 5, func(i int) store.Message { return text(b.resident, fmt.Sprintf("m-%d", i), "x") })
	b.Close()
	for range 6 {
		requireUnknown(t, (<-answers).err)
	}
}
