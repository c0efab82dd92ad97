package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/outbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/wire"
)

const natsServer = "github.com/nats-io/nats-server/v2/server"

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error {
		// Loops of the broker's file store, which it does not always end.
		return goleak.Find(
			goleak.IgnoreAnyFunction(natsServer+".(*msgBlock).flushLoop"),
			goleak.IgnoreAnyFunction(natsServer+".(*fileStore).flushStreamStateLoop"),
			goleak.IgnoreAnyFunction(natsServer+"/ats.Register.func1"))
	})
}

const patience = 20 * time.Second

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond, what)
}

// world is a real store and real inboxes, with faults where a test wants them.
type world struct {
	url     string
	store   *postgres.Store
	inboxes *inbox.JetStream
	tenant  uuid.UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{url: pgtest.URL(t)}
	w.store = pgtest.Open(t, w.url)
	broker := startBroker(t)
	var err error
	w.inboxes, err = inbox.Open(t.Context(), inbox.Config{
		Dial: func(name string, options ...nats.Option) (*nats.Conn, error) {
			return nats.Connect("", append(options, nats.Name(name), nats.InProcessServer(broker))...)
		},
		Sink: nobody{}, Shards: 2, Readers: 1,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, w.inboxes.Close(ctx))
	})
	w.tenant, err = w.store.DefaultTenant(t.Context())
	require.NoError(t, err)
	return w
}

func startBroker(t *testing.T) *server.Server {
	t.Helper()
	broker, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, SyncInterval: time.Second,
	})
	require.NoError(t, err)
	broker.Start()
	require.True(t, broker.ReadyForConnections(patience))
	t.Cleanup(func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	})
	return broker
}

// nobody listens to the live feed.
type nobody struct{}

func (nobody) Deliver(*inbox.Live) {}
func (nobody) Missed(uuid.UUID)    {}

func (w *world) room(t *testing.T) uuid.UUID {
	t.Helper()
	room, err := w.store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: w.tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	return room.ID
}

func (w *world) join(t *testing.T, room uuid.UUID, role store.Role) uuid.UUID {
	t.Helper()
	member, err := w.store.AddParticipant(t.Context(), store.NewParticipant{Tenant: w.tenant, Room: room, Role: role})
	require.NoError(t, err)
	w.exec(t, "DELETE FROM outbox WHERE room_id = $1 AND kind = 'room.event'", room) // each test makes its own
	return member.ID
}

func (w *world) remove(t *testing.T, room, participant uuid.UUID) {
	t.Helper()
	_, err := w.store.RemoveParticipant(t.Context(), w.tenant, room, participant, uuid.Nil)
	require.NoError(t, err)
	w.exec(t, "DELETE FROM outbox WHERE room_id = $1 AND kind = 'room.event'", room)
}

// exec works as the owner of the database.
func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// expire ends every lease, as time would.
func (w *world) expire(t *testing.T) {
	t.Helper()
	w.exec(t, "UPDATE outbox SET claimed_until = now() - interval '1 second'")
}

// query reads one value as the owner of the database.
func (w *world) query(t *testing.T, value any, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(value))
}

// tell puts a room event into the outbox, as a change of the room does. to is uuid.Nil
// for everybody. It returns the row's bytes.
func (w *world) tell(t *testing.T, room, to uuid.UUID, event wire.RoomEventType) string {
	t.Helper()
	row := (&wire.RoomEvent{EventID: uuid.NewString(), Event: event, RoomID: room.String(), Version: 7}).AppendRow(nil)
	w.exec(t, `INSERT INTO outbox (tenant_id, room_id, kind, participant_id, payload)
		VALUES ($1, $2, 'room.event', $3, $4)`, w.tenant, room, uuid.NullUUID{UUID: to, Valid: to != uuid.Nil}, row)
	return string(row)
}

func (w *world) archive(t *testing.T, room uuid.UUID) {
	t.Helper()
	w.exec(t, "UPDATE rooms SET state = 'ARCHIVED', archived_at = now() WHERE id = $1", room)
}

func (w *world) commit(t *testing.T, room, author, card uuid.UUID, kind board.EventType, revision int64) board.Event {
	t.Helper()
	e := board.NewEvent{
		Tenant: w.tenant, Room: room, Author: author, ID: uuid.New(), Card: card, Type: kind, Revision: revision,
		Content: []byte("sealed"), Signature: []byte("signed"),
	}
	event, committed, err := w.store.AppendBoardEvent(t.Context(), e)
	require.NoError(t, err)
	require.True(t, committed)
	return event
}

func (w *world) create(t *testing.T, room, author uuid.UUID, kind board.Kind) board.Event {
	t.Helper()
	event, committed, err := w.store.AppendBoardEvent(t.Context(), board.NewEvent{
		Tenant: w.tenant, Room: room, Author: author, ID: uuid.New(), Card: uuid.New(), Type: board.EventCreated, Kind: kind,
		Content: []byte("sealed"), Signature: []byte("signed"),
	})
	require.NoError(t, err)
	require.True(t, committed)
	return event
}

// publisher runs one over the world until the test ends.
func (w *world) publisher(t *testing.T, change ...func(*outbox.Config)) *outbox.Publisher {
	t.Helper()
	cfg := outbox.Config{
		Outbox: w.store, Rosters: w.store, Inboxes: w.inboxes, Poll: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Registerer: prometheus.NewRegistry(),
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := outbox.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { closePublisher(t, p) })
	return p
}

func closePublisher(t *testing.T, p *outbox.Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	require.NoError(t, p.Close(ctx))
}

func (w *world) settled(t *testing.T) bool {
	t.Helper()
	waiting, err := w.store.WaitingRows(t.Context(), 1)
	require.NoError(t, err)
	return waiting == 0
}

// hints are the Board hints in a participant's inbox.
func (w *world) hints(t *testing.T, room, participant uuid.UUID) (payloads []string) {
	t.Helper()
	for _, row := range w.rows(t, room, participant) {
		if row.Kind == inbox.RowBoardUpdate {
			payloads = append(payloads, string(row.Payload))
		}
	}
	return payloads
}

// all are the payloads of a participant's inbox, of whatever kind.
func (w *world) all(t *testing.T, room, participant uuid.UUID) (payloads []string) {
	t.Helper()
	for _, row := range w.rows(t, room, participant) {
		payloads = append(payloads, string(row.Payload))
	}
	return payloads
}

func (w *world) rows(t *testing.T, room, participant uuid.UUID) (all []inbox.Row) {
	t.Helper()
	bounds, err := w.inboxes.Bounds(t.Context(), room, participant)
	require.NoError(t, err)
	after := uint64(0)
	for more := bounds.Newest > 0; more; {
		var rows []inbox.Row
		rows, more, err = w.inboxes.Read(t.Context(), room, participant, after, bounds.Newest, 500)
		require.NoError(t, err)
		for _, row := range rows {
			all = append(all, row)
			after = row.ID.Sequence
		}
	}
	return all
}

// faultyInboxes lose writes before or after they took effect.
type faultyInboxes struct {
	inbox.Writer

	mu     sync.Mutex
	before int // so many writes fail before anything is stored
	after  int // and then so many after all was stored
}

var errInjected = errors.New("injected")

func (f *faultyInboxes) Write(ctx context.Context, m inbox.Message) ([]wire.StreamID, error) {
	f.mu.Lock()
	before, after := f.before > 0, f.before <= 0 && f.after > 0
	if before {
		f.before--
	} else if after {
		f.after--
	}
	f.mu.Unlock()
	if before {
		return nil, errInjected
	}
	ids, err := f.Writer.Write(ctx, m)
	if after {
		return nil, errInjected
	}
	return ids, err
}

// faultyOutbox loses the answers of settling, after or before it took effect.
type faultyOutbox struct {
	store.Outbox

	mu       sync.Mutex
	unsettle int
}

func (f *faultyOutbox) SettleRows(ctx context.Context, rows []store.OutboxRow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsettle > 0 {
		f.unsettle--
		return errInjected
	}
	return f.Outbox.SettleRows(ctx, rows)
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
