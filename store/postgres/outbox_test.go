package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

func (b *boardRoom) claim(t *testing.T, limit int) []store.OutboxRow {
	t.Helper()
	rows, err := b.s.ClaimRows(t.Context(), limit, time.Hour)
	require.NoError(t, err)
	return rows
}

// expire ends every lease, as time would.
func (b *boardRoom) expire(t *testing.T) {
	t.Helper()
	b.db.exec(t, "UPDATE outbox SET claimed_until = now() - interval '1 second'")
}

// quiet forgets the room events of making rooms and members, where a test looks at what
// follows only.
func (o *owner) quiet(t *testing.T) {
	t.Helper()
	o.exec(t, "DELETE FROM outbox WHERE kind = 'room.event'")
}

// hintOf is the row of an event's hint, but for its position.
func hintOf(b *boardRoom, e board.Event) store.OutboxRow {
	return store.OutboxRow{
		Tenant: b.tenant, Room: b.room, Kind: "board.update",
		Payload: fmt.Appendf(nil, `{"event_id":"%s","card_id":"%s","revision":%d}`, e.ID, e.Card, e.Revision),
	}
}

// unplaced are the rows without their positions, which must rise within a room.
func unplaced(t *testing.T, rows []store.OutboxRow) []store.OutboxRow {
	t.Helper()
	last, plain := map[uuid.UUID]int64{}, slices.Clone(rows)
	for i, row := range rows {
		require.Greater(t, row.Position, last[row.Room])
		last[row.Room], plain[i].Position = row.Position, 0
	}
	return plain
}

// RELAY, "New Idea cards remain available … without an urgent wake; their follow-up
// comments send hints": a hint commits with the event that is due one.
func TestHintsCommitWithTheirEvents(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	var want []store.OutboxRow
	for _, kind := range []board.Kind{board.KindIdea, board.KindTask, board.KindQuestion, board.KindDecision} {
		made := b.created(kind)
		events := []board.Event{
			b.commit(t, made), b.commit(t, b.event(board.EventUpdated, made.Card, 1)),
			b.commit(t, b.event(board.EventOptionChosen, made.Card, 2)), b.commit(t, b.event(board.EventComment, made.Card, 0)),
			b.commit(t, b.event(board.EventClosed, made.Card, 4)), b.commit(t, b.event(board.EventComment, made.Card, 0)),
		}
		for _, e := range events {
			if kind != board.KindIdea || e.Type == board.EventComment {
				want = append(want, hintOf(b, e))
			}
		}
		_, _, err := b.s.AppendBoardEvent(t.Context(), made)
		require.NoError(t, err, "a repeat is due no hint of its own")
	}
	waiting, err := b.s.WaitingRows(t.Context(), 100)
	require.NoError(t, err)
	require.Len(t, want, waiting)
	waiting, err = b.s.WaitingRows(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, 5, waiting, "counted up to a bound")
	claimed := b.claim(t, 1000)
	require.Equal(t, want, unplaced(t, claimed))
	require.NoError(t, b.s.SettleRows(t.Context(), claimed))
	require.NoError(t, b.s.SettleRows(t.Context(), claimed), "again")
	require.NoError(t, b.s.SettleRows(t.Context(), nil))
	waiting, err = b.s.WaitingRows(t.Context(), 100)
	require.NoError(t, err)
	require.Zero(t, waiting)
	require.Empty(t, b.claim(t, 1000))
}

func TestRowsAreClaimedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	made := b.created(board.KindTask)
	var all []store.OutboxRow
	all = append(all, hintOf(b, b.commit(t, made)))
	for range 5 {
		all = append(all, hintOf(b, b.commit(t, b.event(board.EventComment, made.Card, 0))))
	}
	first := b.claim(t, 2)
	require.Equal(t, all[:2], unplaced(t, first), "the oldest")
	require.Empty(t, b.claim(t, 100), "later ones of the room wait for them")

	tenant := subject(b.s, b.db).NewTenant(t)
	room, members := b.newRoom(t, tenant)
	other := b.created(board.KindTask)
	other.Tenant, other.Room, other.Author = tenant, room, members[store.RoleOwner].ID
	b.commit(t, other)
	claimed := b.claim(t, 100)
	require.Len(t, claimed, 1, "another room's does not, though it is another tenant's")
	require.Equal(t, tenant, claimed[0].Tenant)

	require.NoError(t, b.s.SettleRows(t.Context(), first[:1]))
	require.Empty(t, b.claim(t, 100), "the second is still claimed")
	b.expire(t)
	require.NoError(t, b.s.SettleRows(t.Context(), claimed), "also by who had it before its lease ran out")
	require.Equal(t, all[1:], unplaced(t, b.claim(t, 100)), "the rest, when nothing is held")

	for _, bad := range []func() error{
		func() error { _, err := b.s.ClaimRows(t.Context(), 0, time.Second); return err },
		func() error { _, err := b.s.ClaimRows(t.Context(), -1, time.Second); return err },
		func() error { _, err := b.s.ClaimRows(t.Context(), 1, 0); return err },
	} {
		require.ErrorIs(t, bad(), store.ErrInvalid)
	}
}

// A room event commits with the change that it tells of, names its room, has an id of its
// own, and is for everybody or for one. Several of one change keep their order, between
// Board hints of the room.
func TestRoomEventsCommitWithTheirChange(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	room, members := b.newRoom(t, b.tenant)
	undone := errors.New("undone")
	err := b.s.Tell(t.Context(), b.tenant, func() error { return undone }, postgres.Due{Room: b.room, Event: wire.RoomEvent{Event: wire.RoomReset}})
	require.ErrorIs(t, err, undone)
	waiting, err := b.s.WaitingRows(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, waiting, "the change was undone")

	made := b.created(board.KindTask)
	first := hintOf(b, b.commit(t, made))
	var told []postgres.Due
	for version := range int64(20) {
		told = append(told, postgres.Due{Room: b.room, Event: wire.RoomEvent{Event: wire.CommitAccepted, Version: version}})
	}
	told[3].To, told[3].Event.Event = b.members[store.RoleViewer].ID, wire.WelcomeWaits
	told[5].Room, told[5].To = room, members[store.RoleAgent].ID
	require.NoError(t, b.s.Tell(t.Context(), b.tenant, func() error { return nil }, told...))
	require.NoError(t, b.s.Tell(t.Context(), b.tenant, func() error { return nil }), "nothing")
	last := hintOf(b, b.commit(t, b.event(board.EventComment, made.Card, 0)))

	rows := unplaced(t, b.claim(t, 100))
	here, there := slices.Clone(told), told[5:6]
	here = slices.Delete(here, 5, 6)
	ids := map[string]bool{}
	requireEvents := func(rows []store.OutboxRow, want []postgres.Due) {
		t.Helper()
		require.Len(t, rows, len(want))
		for i, row := range rows {
			require.Equal(t, "room.event", row.Kind)
			require.Equal(t, want[i].To, row.To)
			data, err := wire.AppendRoomEvent(nil, wire.StreamID{Incarnation: 1, Sequence: 1}, false, row.Payload)
			require.NoError(t, err)
			frame, err := wire.ParseServer(data)
			require.NoError(t, err)
			event := want[i].Event
			event.EventID, event.RoomID = frame.RoomEvent.EventID, want[i].Room.String()
			require.Equal(t, &event, frame.RoomEvent)
			require.NoError(t, uuid.Validate(event.EventID))
			ids[event.EventID] = true
		}
	}
	byRoom := map[uuid.UUID][]store.OutboxRow{}
	for _, row := range rows {
		byRoom[row.Room] = append(byRoom[row.Room], row)
	}
	mine := byRoom[b.room]
	require.Equal(t, first, mine[0])
	require.Equal(t, last, mine[len(mine)-1])
	requireEvents(mine[1:len(mine)-1], here)
	requireEvents(byRoom[room], there)
	require.Len(t, ids, len(told), "each has an id of its own")
}

// What fails again and again is tried less and less often, up to a bound.
func TestRowsBackOff(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	b.commit(t, b.created(board.KindTask))
	for _, hours := range []float64{1, 2, 4, 8, 8} {
		require.Len(t, b.claim(t, 1), 1)
		held := query[float64](t, b.db, "SELECT extract(epoch FROM claimed_until - now()) FROM outbox")
		require.InDelta(t, hours*3600, held, 600)
		b.expire(t)
	}
}

// A room whose rows are written slowly is not treated as one whose rows fail: those that
// were claimed and not reached do not back off.
func TestRowsThatWereNotReachedDoNotBackOff(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t)
	for range 5 {
		b.commit(t, b.created(board.KindTask))
	}
	failing := b.created(board.KindTask)
	room, members := b.newRoom(t, b.tenant)
	failing.Room, failing.Author = room, members[store.RoleOwner].ID
	b.commit(t, failing)
	for left := 5; left > 0; left-- {
		rows := b.claim(t, 10)
		mine := slices.DeleteFunc(slices.Clone(rows), func(row store.OutboxRow) bool { return row.Room != b.room })
		require.Len(t, mine, left)
		held := query[float64](t, b.db, "SELECT max(extract(epoch FROM claimed_until - now())) FROM outbox WHERE room_id = $1", b.room)
		require.InDelta(t, time.Hour.Seconds(), held, 600)
		require.NoError(t, b.s.SettleRows(t.Context(), mine[:1]))
		b.expire(t)
	}
	require.Len(t, b.claim(t, 10), 1)
	held := query[float64](t, b.db, "SELECT extract(epoch FROM claimed_until - now()) FROM outbox")
	require.InDelta(t, 8*time.Hour.Seconds(), held, 600, "the room that failed each time")
}

// Nodes that claim at the same time share the rows, and none gets a later one of a
// room whose earlier ones another has.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	b := newBoardRoom(t, func(c *postgres.Config) { c.MaxConns = 8 })
	const rooms, each = 6, 10
	for range rooms {
		room, members := b.newRoom(t, b.tenant)
		for range each {
			e := b.created(board.KindTask)
			e.Room, e.Author = room, members[store.RoleOwner].ID
			b.commit(t, e)
		}
	}
	for round := 0; ; round++ {
		var wg sync.WaitGroup
		claims, errs := make([][]store.OutboxRow, 8), make([]error, 8)
		for i := range claims {
			wg.Go(func() { claims[i], errs[i] = b.s.ClaimRows(t.Context(), 7, time.Hour) })
		}
		wg.Wait()
		owners := map[uuid.UUID]int{}
		taken := 0
		for i, rows := range claims {
			require.NoError(t, errs[i])
			for _, row := range rows {
				if owner, ok := owners[row.Room]; ok {
					require.Equal(t, owner, i, "one node has a room")
				}
				owners[row.Room] = i
			}
			taken += len(rows)
			require.NoError(t, b.s.SettleRows(t.Context(), rows))
		}
		if taken == 0 {
			require.Positive(t, round)
			break
		}
	}
	waiting, err := b.s.WaitingRows(t.Context(), 1000)
	require.NoError(t, err)
	require.Zero(t, waiting)
}

// FAULTS G04: no call holds one connection while it waits for another.
func TestBoardWithFewConnections(t *testing.T) {
	t.Parallel()
	const conns = 2
	b := newBoardRoom(t, func(c *postgres.Config) { c.MaxConns = conns })
	made := b.created(board.KindTask)
	b.commit(t, made)
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for range 10 * conns {
		wg.Go(func() {
			_, _, err := b.s.AppendBoardEvent(t.Context(), b.event(board.EventComment, made.Card, 0))
			errs <- err
		})
		wg.Go(func() {
			rows, err := b.s.ClaimRows(t.Context(), 10, time.Hour)
			errs <- err
			errs <- b.s.SettleRows(t.Context(), rows)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Zero(t, b.s.Pool().Stat().AcquiredConns())
	require.Zero(t, query[int](t, b.db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"))
}

// The commit happened and its answer was lost: the store asks once more by itself and
// finds the event; while the database stays away the outcome is unknown, and the same
// event again is the same event.
func TestLostBoardCommitAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	db, p := newOwner(direct), newProxy(t, direct)
	s := pgtest.Open(t, p.url, func(c *postgres.Config) { c.Timeout = patience })
	b := &boardRoom{s: s, db: db, tenant: subject(s, db).NewTenant(t)}
	b.room, b.members = b.newRoom(t, b.tenant)
	made := b.created(board.KindTask)
	b.commit(t, made)

	type result struct {
		event board.Event
		err   error
	}
	lose := func(e board.NewEvent) <-chan result {
		t.Helper()
		done := make(chan result, 1)
		p.mute.Store(true)
		go func() {
			event, _, err := s.AppendBoardEvent(t.Context(), e)
			done <- result{event, err}
		}()
		require.Eventually(t, func() bool {
			return query[bool](t, db, "SELECT EXISTS (SELECT FROM board_events WHERE id = $1)", e.ID)
		}, patience, time.Millisecond)
		return done
	}
	comment := b.event(board.EventComment, made.Card, 0)
	done := lose(comment)
	p.mute.Store(false)
	p.cut()
	found := <-done
	require.NoError(t, found.err)
	require.Equal(t, int64(2), found.event.Sequence)
	require.Equal(t, comment.ID, found.event.ID)

	second := b.event(board.EventComment, made.Card, 0)
	done = lose(second)
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.cut()
			}
		}
	})
	lost := <-done
	close(stop)
	cutting.Wait()
	p.mute.Store(false)
	requireUnknown(t, lost.err)
	event, committed, err := s.AppendBoardEvent(t.Context(), second)
	require.NoError(t, err)
	require.False(t, committed)
	require.Equal(t, int64(3), event.Sequence)
	require.Len(t, b.events(t, 0, 10), 3)
}
