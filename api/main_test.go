package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/infra/natsd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}

// patience bounds every wait; none of them measures time.
const patience = time.Minute

// stack is the API over a real store, real inboxes and two real cluster nodes.
type stack struct {
	url     string // of the database, as its owner
	store   *postgres.Store
	inboxes *inbox.JetStream
	here    *recorder
	there   *recorder // of the other node
	fault   *faults
	log     *logBuffer
	api     *api.API
	server  *httptest.Server // as on the socket
	public  *httptest.Server
	token   string
}

func newStack(t *testing.T, options ...func(*api.Config)) *stack {
	t.Helper()
	url := pgtest.URL(t)
	s := &stack{url: url, store: pgtest.Open(t, url), here: &recorder{}, there: &recorder{}, log: &logBuffer{}}
	broker, err := natsd.Start(t.Context(), natsd.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close(context.Background())) })
	dial := func(name string, options ...nats.Option) (*nats.Conn, error) {
		return broker.InProcess(append(natsd.ConnOptions(name, natsd.Handlers{}), options...)...)
	}
	s.inboxes, err = inbox.Open(t.Context(), inbox.Config{Dial: dial, Sink: noSink{}, Shards: 2, RecentBytes: 1 << 20, Readers: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.inboxes.Close(context.Background())) })

	s.fault = &faults{Store: s.store, Announcer: joinCluster(t, dial, "here", s.here)}
	joinCluster(t, dial, "there", s.there)
	token, hash := store.NewToken()
	s.token = token
	cfg := api.Config{
		Store: s.fault, Announcer: s.fault, Inboxes: s.inboxes, OperatorToken: hash,
		NATSContext: "/data dir/nats/context.json", Version: "v1", NodeID: "here", Listen: "127.0.0.1:1",
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, option := range options {
		option(&cfg)
	}
	s.api, err = api.New(cfg)
	require.NoError(t, err)
	s.server = serve(t, s.api.Socket())
	s.public = serve(t, s.api.Public())
	return s
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Client().CloseIdleConnections()
		server.Close()
	})
	return server
}

func joinCluster(t *testing.T, dial func(string, ...nats.Option) (*nats.Conn, error), id string, r *recorder) *cluster.Node {
	t.Helper()
	conn, err := dial(id)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	node, err := cluster.Start(t.Context(), cluster.Config{Conn: conn, NodeID: id, Applier: r, Repeat: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close(context.Background())) })
	return node
}

type noSink struct{}

func (noSink) Deliver(*inbox.Live) {}
func (noSink) Missed(uuid.UUID)    {}

// recorder is the protocol core's place in these tests.
type recorder struct {
	mu      sync.Mutex
	changes []cluster.Change
}

func (r *recorder) Apply(_ context.Context, c cluster.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
	return nil
}
func (*recorder) Resync()    {}
func (*recorder) LeaseLost() {}

func (*recorder) PeerLost() {}

// changesNow returns what was applied since the last take, and keeps it.
func (r *recorder) changesNow() []cluster.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// take returns what was applied since the last take.
func (r *recorder) take() []cluster.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.changes
	r.changes = nil
	return taken
}

// requireOneChange demands one change, whose announcement may have been repeated, as it is on a
// busy machine.
func requireOneChange(t *testing.T, changes []cluster.Change) {
	t.Helper()
	require.NotEmpty(t, changes)
	for _, c := range changes {
		require.Equal(t, changes[0], c)
	}
}

var errFault = errors.New("injected fault")

// faults lets calls fail: announcements, and changes of the store whose answer is lost
// after they took effect.
type faults struct {
	api.Store
	api.Announcer

	mu        sync.Mutex
	announces int // so many announcements fail
	lose      bool
	fail      bool // RemoveParticipant fails before it did anything
	panics    bool
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) Announce(ctx context.Context, c cluster.Change) error {
	f.mu.Lock()
	failing := f.announces > 0
	f.announces = max(0, f.announces-1)
	f.mu.Unlock()
	if failing {
		return errFault
	}
	return f.Announcer.Announce(ctx, c)
}

func (f *faults) lost(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("injected panic")
	}
	if err == nil && f.lose {
		return errFault
	}
	return err
}

func (f *faults) RemoveParticipant(ctx context.Context, tenant, room, participant, by uuid.UUID) (store.Room, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail {
		return store.Room{}, errFault
	}
	after, err := f.Store.RemoveParticipant(ctx, tenant, room, participant, by)
	return after, f.lost(err)
}

func (f *faults) ArchiveRoom(ctx context.Context, tenant, room, by uuid.UUID) (store.Room, error) {
	archived, err := f.Store.ArchiveRoom(ctx, tenant, room, by)
	return archived, f.lost(err)
}

func (f *faults) RevokeCredential(ctx context.Context, tenant, credential, by uuid.UUID) ([]store.Credential, error) {
	revoked, err := f.Store.RevokeCredential(ctx, tenant, credential, by)
	return revoked, f.lost(err)
}

// RevokeParticipantCredentials loses its answer too, unless it is asked about somebody
// who has been removed.
func (f *faults) RevokeParticipantCredentials(ctx context.Context, tenant, participant uuid.UUID) ([]store.Credential, error) {
	revoked, err := f.Store.RevokeParticipantCredentials(ctx, tenant, participant)
	return revoked, f.lost(err)
}

func (f *faults) SuspendDevice(ctx context.Context, tenant, device, by uuid.UUID) (store.DeviceChange, error) {
	change, err := f.Store.SuspendDevice(ctx, tenant, device, by)
	return change, f.lost(err)
}

func (f *faults) SetFrozen(ctx context.Context, tenant uuid.UUID, frozen bool) error {
	return f.lost(f.Store.SetFrozen(ctx, tenant, frozen))
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// response is an answer read whole.
type response struct {
	status int
	header http.Header
	body   string
}

func (r response) decode(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.body), into), r.body)
}

// refused demands an error answer of that code.
func (r response) refused(t *testing.T, status int, code string) {
	t.Helper()
	require.Equal(t, status, r.status, r.body)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	var body map[string]string
	r.decode(t, &body)
	require.Equal(t, code, body["error"], r.body)
}

func send(t *testing.T, server *httptest.Server, method, path, body string, headers ...string) response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	client := *server.Client() // a copy, since requests are sent at the same time
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return response{answer.StatusCode, answer.Header, string(text)}
}

func (s *stack) send(t *testing.T, method, path, body string) response {
	t.Helper()
	return send(t, s.server, method, path, body)
}

func (s *stack) room(t *testing.T) api.Room {
	t.Helper()
	answer := s.send(t, http.MethodPost, "/v1/rooms", `{}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var room api.Room
	answer.decode(t, &room)
	return room
}

func (s *stack) member(t *testing.T, room, role string) api.Member {
	t.Helper()
	answer := s.send(t, http.MethodPost, "/v1/rooms/"+room+"/members", `{"role":"`+role+`"}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var member api.Member
	answer.decode(t, &member)
	return member
}

// valid reports whether a credential would be accepted in a hello.
func (s *stack) valid(t *testing.T, token string) bool {
	t.Helper()
	hash, ok := store.HashToken([]byte(token))
	require.True(t, ok)
	_, err := s.store.Authenticate(t.Context(), hash)
	if err != nil {
		require.ErrorIs(t, err, store.ErrUnauthenticated)
	}
	return err == nil
}
