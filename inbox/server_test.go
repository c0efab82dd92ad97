package inbox_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/internal/testkit/port"
	"github.com/peerrelay/peerrelay/wire"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		if err := serveNATS(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Loops of the server's own file store that a stream made on leftover files never
	// ends; the package's own goroutines all count.
	const natsServer = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(natsServer+".(*msgBlock).flushLoop"),
		goleak.IgnoreAnyFunction(natsServer+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(natsServer+"/ats.Register.func1"))
}

// natsServer is a real NATS server with JetStream, in this process, on a port and a
// store that survive a restart.
type natsServer struct {
	tb   testing.TB
	dir  string
	port int
	sync bool  // flush every write
	max  int32 // payload; 0: the server's default, 1 MiB
	*server.Server
}

func startNATS(tb testing.TB, change ...func(*natsServer)) *natsServer {
	tb.Helper()
	s := &natsServer{tb: tb, dir: tb.TempDir(), port: port.Free(tb)}
	for _, f := range change {
		f(s)
	}
	s.start()
	tb.Cleanup(s.stop)
	return s
}

func (s *natsServer) start() {
	s.tb.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: s.port, JetStream: true, StoreDir: s.dir, NoSigs: true, NoLog: true,
		SyncInterval: time.Second, SyncAlways: s.sync, MaxPayload: s.max,
	})
	require.NoError(s.tb, err)
	srv.Start()
	require.True(s.tb, srv.ReadyForConnections(20*time.Second), "NATS did not start")
	s.Server = srv
}

func (s *natsServer) stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

func (s *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

func (s *natsServer) dial(name string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(s.url(), append(options, nats.Name(name))...)
}

func (s *natsServer) dialInProcess(name string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(options, nats.Name(name), nats.InProcessServer(s.Server))...)
}

// connect returns a connection of the test's own.
func (s *natsServer) connect() *nats.Conn {
	s.tb.Helper()
	conn, err := s.dial("test")
	require.NoError(s.tb, err)
	s.tb.Cleanup(conn.Close)
	return conn
}

func (s *natsServer) jetStream() jetstream.JetStream {
	s.tb.Helper()
	js, err := jetstream.New(s.connect())
	require.NoError(s.tb, err)
	return js
}

// open opens inboxes on the server with few shards, so that rooms share them.
func (s *natsServer) open(sink inbox.Sink, change ...func(*inbox.Config)) *inbox.JetStream {
	s.tb.Helper()
	j, err := inbox.Open(s.tb.Context(), s.config(sink, change...))
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { closeInboxes(j) })
	return j
}

func (s *natsServer) config(sink inbox.Sink, change ...func(*inbox.Config)) inbox.Config {
	config := inbox.Config{Dial: s.dial, Sink: sink, Shards: 4, Readers: 2, ProbeEvery: 20 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	return config
}

func closeInboxes(j *inbox.JetStream) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = j.Close(ctx) // an error only says that the server is gone already
}

// patient allows for slow disks.
func patient(c *inbox.Config) { c.WriteTimeout, c.ReadTimeout = time.Minute, time.Minute }

func shared(c *inbox.Config)     { c.Mode = inbox.Shared }
func syncAlways(c *inbox.Config) { c.SyncAlways = true }
func noMemory(c *inbox.Config)   { c.RecentBytes = -1 }

// delivered is one copy as the sink got it.
type delivered struct {
	room        uuid.UUID
	participant uuid.UUID
	id          wire.StreamID
	kind        inbox.RowKind
	payload     string
}

// recorder is a sink that keeps everything.
type recorder struct {
	mu     sync.Mutex
	copies []delivered
	missed []uuid.UUID
	block  chan struct{} // Deliver waits while it is not closed, when set
}

func (r *recorder) Deliver(live *inbox.Live) {
	if r.block != nil {
		<-r.block
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range live.Copies {
		r.copies = append(r.copies, delivered{live.Room, c.Participant, c.ID, live.Kind, string(live.Payload)})
	}
}

func (r *recorder) Missed(room uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = append(r.missed, room)
}

func (r *recorder) all() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivered(nil), r.copies...)
}

func (r *recorder) allMissed() []uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]uuid.UUID(nil), r.missed...)
}

// eventually waits for a condition, in small steps.
func eventually(tb testing.TB, condition func() bool, what string) {
	tb.Helper()
	require.Eventually(tb, condition, time.Minute, 5*time.Millisecond, what)
}

func participants(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

// readAll replays a whole inbox in steps of limit rows.
func readAll(tb testing.TB, j *inbox.JetStream, room, participant uuid.UUID, after uint64, limit int) []inbox.Row {
	tb.Helper()
	bounds, err := j.Bounds(tb.Context(), room, participant)
	require.NoError(tb, err)
	var all []inbox.Row
	for more := true; more; {
		var rows []inbox.Row
		rows, more, err = j.Read(tb.Context(), room, participant, after, bounds.Newest, limit)
		require.NoError(tb, err)
		require.LessOrEqual(tb, len(rows), limit)
		all = append(all, rows...)
		if len(rows) > 0 {
			after = rows[len(rows)-1].ID.Sequence
		}
	}
	return all
}

func payloads(rows []inbox.Row) []string {
	var all []string
	for _, row := range rows {
		all = append(all, string(row.Payload))
	}
	return all
}
