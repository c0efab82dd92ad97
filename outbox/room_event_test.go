package outbox_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/outbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// STATE, "Add Member", "Remove Member": what happens in a room is told to whoever is in it
// when the row is written, as a row of the kind room.event, byte for byte.
func TestRoomEventsReachEverybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room, elsewhere := w.room(t), w.room(t)
	first, second, removed := w.join(t, room, store.RoleOwner), w.join(t, room, store.RoleViewer), w.join(t, room, store.RoleAgent)
	stranger := w.join(t, elsewhere, store.RoleAgent)
	w.remove(t, room, removed)
	p := w.publisher(t, func(c *outbox.Config) { c.Poll = time.Hour })
	told := w.tell(t, room, uuid.Nil, wire.MemberRemoved)
	p.Wake()
	eventually(t, func() bool { return w.settled(t) }, "without a poll")
	for _, member := range []uuid.UUID{first, second} {
		rows := w.rows(t, room, member)
		require.Len(t, rows, 1)
		require.Equal(t, inbox.RowRoomEvent, rows[0].Kind)
		require.Equal(t, told, string(rows[0].Payload))
	}
	require.Empty(t, w.all(t, room, removed))
	require.Empty(t, w.all(t, elsewhere, stranger))
}

// A row for one participant goes to that one; when it has left the room the row is
// settled and goes nowhere.
func TestRoomEventsForOneParticipant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	other, added, removed := w.join(t, room, store.RoleAgent), w.join(t, room, store.RoleAgent), w.join(t, room, store.RoleAgent)
	w.remove(t, room, removed)
	w.tell(t, room, removed, wire.PrekeysLow)
	w.tell(t, room, uuid.New(), wire.PrekeysLow)
	told := w.tell(t, room, added, wire.WelcomeWaits)
	registry := prometheus.NewRegistry()
	w.publisher(t, func(c *outbox.Config) { c.Registerer = registry })
	eventually(t, func() bool { return w.settled(t) }, "settled, those of nobody too")
	require.Equal(t, []string{told}, w.all(t, room, added))
	require.Empty(t, w.all(t, room, other))
	require.Empty(t, w.all(t, room, removed))
	eventually(t, func() bool { return metric(t, registry, "relay_outbox_published_total", "room.event") == 3 }, "counted")
	require.Zero(t, metric(t, registry, "relay_outbox_failed_total", "room.event"))
}

// Members of an archived room hear that it was archived. There is no Board to look at any
// more.
func TestArchivedRoomsHearOfEventsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	member := w.join(t, room, store.RoleAgent)
	w.create(t, room, member, board.KindTask)
	w.archive(t, room)
	told := []string{w.tell(t, room, uuid.Nil, wire.ArchivedRoom), w.tell(t, room, member, wire.PrekeysLow)}
	w.publisher(t)
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Equal(t, told, w.all(t, room, member))
}

// Rows of a room are written in the order in which they were put into the outbox,
// whatever their kinds.
func TestBothKindsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author, other := w.join(t, room, store.RoleAgent), w.join(t, room, store.RoleAgent)
	var all, others []string
	for range 4 {
		hint := payload(w.create(t, room, author, board.KindTask))
		told := w.tell(t, room, uuid.Nil, wire.CommitAccepted)
		own := w.tell(t, room, author, wire.WelcomeWaits)
		all, others = append(all, hint, told, own), append(others, hint, told)
	}
	w.publisher(t, func(c *outbox.Config) { c.Batch = 5 })
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Equal(t, all, w.all(t, room, author))
	require.Equal(t, others, w.all(t, room, other))
}

// A node that ends between writing and settling leaves a repeat with the same bytes, and
// so with the same event_id.
func TestACrashRepeatsTheSameBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author := w.join(t, room, store.RoleAgent)
	want := []string{payload(w.create(t, room, author, board.KindTask)), w.tell(t, room, uuid.Nil, wire.RoomJoined)}

	dying := w.publisher(t, func(c *outbox.Config) {
		c.Outbox, c.Lease = &faultyOutbox{Outbox: w.store, unsettle: 1_000_000}, time.Minute
	})
	eventually(t, func() bool { return len(w.all(t, room, author)) == 2 }, "written and not settled")
	closePublisher(t, dying)
	require.False(t, w.settled(t))

	w.expire(t)
	w.publisher(t)
	eventually(t, func() bool { return w.settled(t) }, "settled by the next node")
	require.Equal(t, append(want, want...), w.all(t, room, author))
}

// A row of a kind that came with a newer relay is never written as something else: it
// stays, with what follows it in its room, for a node that knows it.
func TestUnknownKindsAreLeftToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_kind_ck")
	room, elsewhere := w.room(t), w.room(t)
	member, other := w.join(t, room, store.RoleAgent), w.join(t, elsewhere, store.RoleAgent)
	before := w.tell(t, room, uuid.Nil, wire.RoomJoined)
	w.exec(t, `INSERT INTO outbox (tenant_id, room_id, kind, payload) VALUES ($1, $2, 'room.topic', '{}')`, w.tenant, room)
	after := w.tell(t, room, uuid.Nil, wire.RoomReset)
	apart := w.tell(t, elsewhere, uuid.Nil, wire.RoomReset)

	registry, logged := prometheus.NewRegistry(), new(lines)
	w.publisher(t, func(c *outbox.Config) {
		c.Lease, c.Registerer, c.Logger = time.Minute, registry, slog.New(slog.NewTextHandler(logged, nil))
	})
	tried := func() float64 { return metric(t, registry, "relay_outbox_failed_total", "other") }
	eventually(t, func() bool { return tried() == 1 }, "refused")
	w.expire(t)
	eventually(t, func() bool { return tried() == 2 }, "refused again")
	require.Equal(t, []string{before}, w.all(t, room, member))
	require.Equal(t, []string{apart}, w.all(t, elsewhere, other), "other rooms do not wait")
	require.Contains(t, logged.String(), `\"room.topic\": a kind of row that this program does not know`)
	var waiting int
	w.query(t, &waiting, "SELECT count(*) FROM outbox WHERE room_id = $1", room)
	require.Equal(t, 2, waiting)

	w.exec(t, "DELETE FROM outbox WHERE kind = 'room.topic'") // as who knows it settles it
	w.expire(t)
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Equal(t, []string{before, after}, w.all(t, room, member))
}

// Every kind is there from the start, so that a rate over a time without any is 0.
func TestMetricsOfEveryKindAreThere(t *testing.T) {
	t.Parallel()
	s, registry := newStuck(0), prometheus.NewRegistry()
	p := s.start(t, func(c *outbox.Config) { c.Registerer = registry })
	for _, kind := range []string{wire.ServerBoardUpdate.String(), wire.ServerRoomEvent.String()} {
		require.Zero(t, metric(t, registry, "relay_outbox_published_total", kind))
		require.Zero(t, metric(t, registry, "relay_outbox_failed_total", kind))
	}
	require.Zero(t, metric(t, registry, "relay_outbox_failed_total", "other"))
	closePublisher(t, p)
}
