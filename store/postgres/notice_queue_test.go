package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

// crowd is a store with a room that a test can hold, so that notices pile up.
type crowd struct {
	*postgres.Store

	db       *owner
	resident resident
}

func newCrowd(t *testing.T) crowd {
	t.Helper()
	url := pgtest.URL(t)
	s, db := pgtest.Open(t, url, func(c *postgres.Config) { c.Timeout = patience }), newOwner(url)
	return crowd{s, db, newResident(t, s, db, 1)}
}

// hold holds the room until the returned function is called, and the first notice with it.
func (c crowd) hold(t *testing.T) (plug <-chan error, open func()) {
	t.Helper()
	tx, err := c.db.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM rooms WHERE id = $1 FOR UPDATE", c.resident.member.Room)
	require.NoError(t, err)
	plug = c.send(t.Context(), alertOf(c.resident, "plug", "x"))
	awaitBlocked(t, c.db, 1)
	return plug, func() { require.NoError(t, tx.Rollback(t.Context())) }
}

func (c crowd) send(ctx context.Context, n store.Notice) <-chan error {
	result := make(chan error, 1)
	go func() { result <- c.AppendNotice(ctx, n) }()
	return result
}

func (c crowd) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { _, waiting := c.NoticesWaiting(); return waiting == n }, patience, time.Millisecond)
}

// ids are those of the stored notices, and how many transactions stored them.
func (c crowd) ids(t *testing.T) (ids []string, commits int) {
	t.Helper()
	rows, _, err := c.NoticePage(t.Context(), c.resident.tenant, c.resident.member.Room, store.Page{Limit: store.MaxPage})
	require.NoError(t, err)
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, query[int](t, c.db, "SELECT count(DISTINCT xmin::text) FROM notices WHERE room_id = $1", c.resident.member.Room)
}

func TestWaitingNoticesShareACommit(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	plug, open := c.hold(t)
	want := []string{"first", "plug"}
	var sent []<-chan error
	for i := range store.NoticeCap - len(want) {
		n := alertOf(c.resident, fmt.Sprintf("n-%d", i), "x")
		sent = append(sent, c.send(t.Context(), n))
		c.awaitWaiting(t, i+1)
		want = append(want, n.ID)
	}
	twin := c.send(t.Context(), alertOf(c.resident, "n-0", "x"))
	c.awaitWaiting(t, len(sent)+1)
	other := c.send(t.Context(), alertOf(c.resident, "n-1", "y"))
	c.awaitWaiting(t, len(sent)+2)
	over := c.send(t.Context(), alertOf(c.resident, "over", "x"))
	c.awaitWaiting(t, len(sent)+3)
	open()
	require.NoError(t, <-plug)
	for _, answer := range sent {
		require.NoError(t, <-answer)
	}
	require.ErrorIs(t, <-twin, &wire.Error{Code: wire.NoticeDuplicate}, "of the same batch")
	require.ErrorIs(t, <-other, &wire.Error{Code: wire.NoticeIDConflict}, "of the same batch")
	require.ErrorIs(t, <-over, &wire.Error{Code: wire.NoticeCap}, "counted with the batch")
	ids, commits := c.ids(t)
	require.Equal(t, want, ids, "in the order they came")
	require.Equal(t, 3, commits, "the first, the plug, and all that waited")
	require.Eventually(t, func() bool { rooms, _ := c.NoticesWaiting(); return rooms == 0 }, patience, time.Millisecond)
}

// A notice whose caller gave up while it waited is not stored; one on its way gets its
// true verdict, and so do those that wait behind it.
func TestNoticesOfCallersWhoGaveUp(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	tx, err := c.db.connect(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM rooms WHERE id = $1 FOR UPDATE", c.resident.member.Room)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leader := c.send(ctx, alertOf(c.resident, "leader", "x"))
	awaitBlocked(t, c.db, 1)
	gone := c.send(ctx, alertOf(c.resident, "gone", "x"))
	c.awaitWaiting(t, 1)
	stays := c.send(t.Context(), alertOf(c.resident, "stays", "x"))
	c.awaitWaiting(t, 2)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	c.awaitWaiting(t, 1)
	require.Empty(t, leader)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-leader)
	require.NoError(t, <-stays)
	require.ErrorIs(t, <-c.send(ctx, alertOf(c.resident, "late", "x")), context.Canceled)
	ids, _ := c.ids(t)
	require.Equal(t, []string{"first", "leader", "stays"}, ids)
}

// A notice that the database fails over fails alone.
func TestOneNoticeFailsAlone(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.db.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.notice_id = 'bad' THEN RAISE EXCEPTION 'bad'; END IF; RETURN NEW; END $$`)
	c.db.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON notices FOR EACH ROW EXECUTE FUNCTION refuse()")
	plug, open := c.hold(t)
	answers := map[string]<-chan error{"plug": plug}
	for i, id := range []string{"a", "bad", "b"} {
		answers[id] = c.send(t.Context(), alertOf(c.resident, id, "x"))
		c.awaitWaiting(t, i+1)
	}
	open()
	for id, answer := range answers {
		if id == "bad" {
			requireUnknown(t, <-answer)
			continue
		}
		require.NoError(t, <-answer, id)
	}
	ids, _ := c.ids(t)
	require.Equal(t, []string{"first", "plug", "a", "b"}, ids)
}

// As many wait as may; the next is told at once, and nothing of it is stored.
func TestTooManyNoticesWait(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	plug, open := c.hold(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan error, postgres.NoticeWaiters)
	for i := range postgres.NoticeWaiters {
		go func() { answers <- c.AppendNotice(ctx, alertOf(c.resident, fmt.Sprintf("n-%d", i), "x")) }()
	}
	c.awaitWaiting(t, postgres.NoticeWaiters)
	requireUnknown(t, c.AppendNotice(t.Context(), alertOf(c.resident, "over", "x")))
	elsewhere := newResident(t, c, c.db, 2)
	require.NoError(t, c.AppendNotice(t.Context(), alertOf(elsewhere, "n", "x")), "another room is not held up")
	cancel()
	for range postgres.NoticeWaiters {
		require.ErrorIs(t, <-answers, context.Canceled)
	}
	open()
	require.NoError(t, <-plug)
	ids, _ := c.ids(t)
	require.Equal(t, []string{"first", "plug"}, ids)
}
