package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/outbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func payload(e board.Event) string {
	return fmt.Sprintf(`{"event_id":"%s","card_id":"%s","revision":%d}`, e.ID, e.Card, e.Revision)
}

func payloads(events ...board.Event) (all []string) {
	for _, e := range events {
		all = append(all, payload(e))
	}
	return all
}

// RELAY, "After a non-Idea Board event or a follow-up comment on any card": one opaque
// hint for each current participant, none for a new idea.
func TestHintsReachEveryParticipant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author, viewer, owner := w.join(t, room, store.RoleAgent), w.join(t, room, store.RoleViewer), w.join(t, room, store.RoleOwner)
	p := w.publisher(t, func(c *outbox.Config) { c.Poll = time.Hour })

	task := w.create(t, room, author, board.KindTask)
	updated := w.commit(t, room, author, task.Card, board.EventUpdated, 1)
	idea := w.create(t, room, author, board.KindIdea)
	w.commit(t, room, author, idea.Card, board.EventUpdated, 1)
	comment := w.commit(t, room, owner, idea.Card, board.EventComment, 0)
	w.commit(t, room, author, idea.Card, board.EventClosed, 3)
	approval := w.commit(t, room, owner, task.Card, board.EventApproval, 2)
	late := w.commit(t, room, owner, idea.Card, board.EventComment, 0)
	p.Wake()
	eventually(t, func() bool { return w.settled(t) }, "without a poll")

	want := payloads(task, updated, comment, approval, late)
	for _, participant := range []uuid.UUID{author, viewer, owner} {
		got := w.hints(t, room, participant)
		require.Equal(t, want, got, "in the order of the sequence")
		for _, row := range got {
			frame, err := wire.AppendBoardUpdate(nil, wire.StreamID{Incarnation: 1, Sequence: 2}, true, []byte(row))
			require.NoError(t, err)
			require.JSONEq(t, `{"type":"board.update","stream_id":"1-2","replay":true,`+row[1:], string(frame), "subject, content: nothing of it")
		}
	}
}

// Hints of another node, and those whose Wake was lost, are found by polling.
func TestHintsAreFoundByPolling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author := w.join(t, room, store.RoleAgent)
	before := w.create(t, room, author, board.KindTask)
	w.publisher(t)
	eventually(t, func() bool { return len(w.hints(t, room, author)) == 1 }, "left by a process that ended")
	after := w.create(t, room, author, board.KindTask)
	eventually(t, func() bool { return len(w.hints(t, room, author)) == 2 }, "without a wake")
	require.Equal(t, payloads(before, after), w.hints(t, room, author))
}

// FAULTS K02; RELAY, "each currently entitled recipient": who is in the room when the
// hint is published, not when the event was committed.
func TestEntitlementIsLookedUpAtPublishing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author, removed := w.join(t, room, store.RoleAgent), w.join(t, room, store.RoleAgent)
	task := w.create(t, room, author, board.KindTask)
	w.remove(t, room, removed)
	joined := w.join(t, room, store.RoleViewer)
	w.publisher(t)
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Equal(t, payloads(task), w.hints(t, room, author))
	require.Equal(t, payloads(task), w.hints(t, room, joined))
	require.Empty(t, w.hints(t, room, removed))
}

func TestHintsOfRoomsThatAreOverAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	archived, deserted := w.room(t), w.room(t)
	author, left := w.join(t, archived, store.RoleAgent), w.join(t, deserted, store.RoleAgent)
	w.create(t, archived, author, board.KindTask)
	w.create(t, deserted, left, board.KindTask)
	w.archive(t, archived)
	w.remove(t, deserted, left)
	registry := prometheus.NewRegistry()
	w.publisher(t, func(c *outbox.Config) { c.Registerer = registry })
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Empty(t, w.hints(t, archived, author))
	require.Empty(t, w.hints(t, deserted, left))
	eventually(t, func() bool { return metric(t, registry, "relay_outbox_published_total", "board.update") == 2 }, "counted")
	require.Zero(t, metric(t, registry, "relay_outbox_failed_total", "board.update"))
}

// metric is the value of a counter or gauge; of one kind of rows, where it has kinds.
func metric(t *testing.T, registry *prometheus.Registry, name, kind string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (kind == "" || m.GetLabel()[0].GetValue() == kind) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(t, "no metric "+name+" of "+kind)
	return 0
}

// What fails waits for its lease to run out and is never lost; what may have been
// written is written again.
func TestFailedHintsAreTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author := w.join(t, room, store.RoleAgent)
	var events []board.Event
	for range 3 {
		events = append(events, w.create(t, room, author, board.KindTask))
	}
	faulty, registry := &faultyInboxes{Writer: w.inboxes, before: 2, after: 1}, prometheus.NewRegistry()
	w.publisher(t, func(c *outbox.Config) {
		c.Inboxes, c.Lease, c.Registerer = faulty, 200*time.Millisecond, registry
	})
	eventually(t, func() bool { return w.settled(t) }, "settled at last")
	require.Equal(t, payloads(events[0], events[0], events[1], events[2]), w.hints(t, room, author),
		"the first was stored though its answer was lost; later ones did not overtake it")
	require.Positive(t, metric(t, registry, "relay_outbox_failed_total", "board.update"))
	eventually(t, func() bool { return metric(t, registry, "relay_outbox_published_total", "board.update") == 3 }, "counted")
}

// Crash between publishing and settling: the hint repeats, with the same event_id.
func TestUnsettledHintsAreRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author := w.join(t, room, store.RoleAgent)
	event := w.create(t, room, author, board.KindTask)
	faulty := &faultyOutbox{Outbox: w.store, unsettle: 1}
	w.publisher(t, func(c *outbox.Config) { c.Outbox, c.Lease = faulty, 200*time.Millisecond })
	eventually(t, func() bool { return w.settled(t) }, "settled at last")
	require.Equal(t, payloads(event, event), w.hints(t, room, author))
}

// A node died with hints in its hands: another has them when the lease runs out.
func TestHintsOfADeadNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	room := w.room(t)
	author := w.join(t, room, store.RoleAgent)
	first, second := w.create(t, room, author, board.KindTask), w.create(t, room, author, board.KindTask)
	claimed, err := w.store.ClaimRows(t.Context(), 1, 300*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	w.publisher(t)
	eventually(t, func() bool { return w.settled(t) }, "settled")
	require.Equal(t, payloads(first, second), w.hints(t, room, author), "the second waited for the first")
}

// Several nodes publish from one outbox: each hint once, in order, while all goes well.
func TestPublishersShareTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rooms, each = 5, 12
	for range 3 {
		w.publisher(t, func(c *outbox.Config) { c.Batch, c.Rooms, c.Lease = 4, 2, time.Minute })
	}
	want := make([][]string, rooms)
	members, ids := make([]uuid.UUID, rooms), make([]uuid.UUID, rooms)
	for i := range rooms {
		ids[i] = w.room(t)
		members[i] = w.join(t, ids[i], store.RoleAgent)
	}
	for range each {
		for i := range rooms {
			want[i] = append(want[i], payload(w.create(t, ids[i], members[i], board.KindTask)))
		}
	}
	eventually(t, func() bool { return w.settled(t) }, "settled")
	for i := range rooms {
		require.Equal(t, want[i], w.hints(t, ids[i], members[i]))
	}
}

// stuck is an outbox with a row of each of some rooms, a roster, and inboxes whose writes end with their
// context only.
type stuck struct {
	rooms int

	writing chan struct{}
	now     atomic.Int64
	most    atomic.Int64
	claims  atomic.Int64
	roster  error
	release chan struct{} // writes succeed once it is closed

	mu      sync.Mutex
	settled []store.OutboxRow
}

func newStuck(rooms int) *stuck {
	return &stuck{rooms: rooms, writing: make(chan struct{}, 1000), release: make(chan struct{})}
}

func (s *stuck) ClaimRows(context.Context, int, time.Duration) (rows []store.OutboxRow, err error) {
	if s.claims.Add(1) > 1 {
		return nil, nil
	}
	for range s.rooms {
		rows = append(rows, store.OutboxRow{
			Tenant: uuid.New(), Room: uuid.New(), Position: 1, Kind: "board.update", Payload: []byte("{}"),
		})
	}
	return rows, nil
}

func (s *stuck) SettleRows(_ context.Context, rows []store.OutboxRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, rows...)
	return nil
}

func (s *stuck) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settled)
}

func (s *stuck) WaitingRows(context.Context, int) (int, error) { return s.rooms, nil }

func (s *stuck) Roster(context.Context, uuid.UUID, uuid.UUID) (store.Roster, error) {
	return store.Roster{Participants: []store.Participant{{ID: uuid.New()}}}, s.roster
}

func (s *stuck) Write(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.writing <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.release:
		return make([]wire.StreamID, len(m.To)), nil
	}
}

func (s *stuck) Complete(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	return s.Write(ctx, m)
}

func (s *stuck) start(t *testing.T, change ...func(*outbox.Config)) *outbox.Publisher {
	t.Helper()
	cfg := outbox.Config{Outbox: s, Rosters: s, Inboxes: s, Poll: time.Millisecond, Lease: time.Hour}
	for _, f := range change {
		f(&cfg)
	}
	p, err := outbox.Start(cfg)
	require.NoError(t, err)
	return p
}

// Close keeps to its context, and lets what is being written finish as long as that lasts.
func TestCloseKeepsToItsContext(t *testing.T) {
	t.Parallel()
	s := newStuck(1)
	p := s.start(t)
	<-s.writing
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Close(over), context.Canceled)
	require.Zero(t, s.count(), "left to the next publisher")
	require.NoError(t, p.Close(t.Context()), "again")

	s = newStuck(1)
	p = s.start(t)
	<-s.writing
	closed := make(chan error, 1)
	go func() { closed <- p.Close(t.Context()) }()
	close(s.release)
	require.NoError(t, <-closed)
	require.Equal(t, 1, s.count(), "what was begun is finished and settled")
	p.Wake() // does nothing, and does not block
	p.Wake()
}

func TestRoomsArePublishedAtOnceWithinABound(t *testing.T) {
	t.Parallel()
	s := newStuck(20)
	p := s.start(t, func(c *outbox.Config) { c.Rooms = 3 })
	for range 3 {
		<-s.writing
	}
	close(s.release)
	eventually(t, func() bool { return s.count() == 20 }, "all of them")
	require.Equal(t, int64(3), s.most.Load())
	closePublisher(t, p)
}

// A batch does not outlast its lease.
func TestBatchEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	s := newStuck(2)
	p := s.start(t, func(c *outbox.Config) { c.Lease, c.Rooms = 20*time.Millisecond, 1 })
	eventually(t, func() bool { return s.claims.Load() > 1 }, "it goes on, though no write has ended by itself")
	require.Zero(t, s.count())
	closePublisher(t, p)
}

func TestRoomsThatAreGoneAndRostersThatFail(t *testing.T) {
	t.Parallel()
	gone := newStuck(2)
	gone.roster = fmt.Errorf("room: %w", store.ErrNotFound)
	p := gone.start(t)
	eventually(t, func() bool { return gone.count() == 2 }, "nobody is entitled")
	closePublisher(t, p)

	unknown := newStuck(2)
	unknown.roster = errInjected
	registry := prometheus.NewRegistry()
	p = unknown.start(t, func(c *outbox.Config) { c.Registerer = registry })
	eventually(t, func() bool { return unknown.claims.Load() > 1 }, "it goes on")
	require.Zero(t, unknown.count(), "a roster that is not known never means nobody, or everybody")
	eventually(t, func() bool { return metric(t, registry, "relay_outbox_pending", "") == 2 }, "counted")
	require.Equal(t, 2.0, metric(t, registry, "relay_outbox_failed_total", "board.update"))
	closePublisher(t, p)
	count, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Zero(t, count, "the metrics go with it")
}

func TestPublisherRefusesABadConfig(t *testing.T) {
	t.Parallel()
	s := newStuck(0)
	registry := prometheus.NewRegistry()
	whole := outbox.Config{Outbox: s, Rosters: s, Inboxes: s, Registerer: registry}
	for name, change := range map[string]func(*outbox.Config){
		"outbox":  func(c *outbox.Config) { c.Outbox = nil },
		"rosters": func(c *outbox.Config) { c.Rosters = nil },
		"inboxes": func(c *outbox.Config) { c.Inboxes = nil },
		"batch":   func(c *outbox.Config) { c.Batch = -1 },
	} {
		cfg := whole
		change(&cfg)
		_, err := outbox.Start(cfg)
		require.Error(t, err, name)
	}
	p, err := outbox.Start(whole)
	require.NoError(t, err)
	_, err = outbox.Start(whole)
	require.Error(t, err, "two in one registry")
	closePublisher(t, p)
}
