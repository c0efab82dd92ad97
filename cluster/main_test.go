package cluster_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("CLUSTER_TEST_CHILD"); url != "" {
		runChild(url)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	ttl      = time.Minute     // the most there is: no lease runs out because the machine has other work
	shortTTL = 3 * time.Second // where it is to run out
	renew    = 250 * time.Millisecond
	repeat   = 50 * time.Millisecond
	soon     = 40 * time.Second // for what happens at once on an idle machine
)

// broker is a real NATS server that can be stopped and started again.
type broker struct {
	dir    string
	port   int
	server *server.Server
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{dir: t.TempDir(), port: port.Free(t)}
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start(t testing.TB) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true,
	})
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(soon))
	b.server = s
}

func (b *broker) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *broker) url() string { return b.server.ClientURL() }

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// recorder is the Applier of the tests.
type recorder struct {
	mu      sync.Mutex
	applied []cluster.Change
	resyncs int
	losses  int
	peers   int                                               // lost
	apply   func(ctx context.Context, c cluster.Change) error // optional
}

func (r *recorder) Apply(ctx context.Context, c cluster.Change) error {
	r.mu.Lock()
	apply := r.apply
	r.mu.Unlock()
	if apply != nil {
		if err := apply(ctx, c); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = append(r.applied, c)
	return nil
}

func (r *recorder) Resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resyncs++
}

func (r *recorder) LeaseLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses++
}

func (r *recorder) PeerLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers++
}

func (r *recorder) peersLost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers
}

// changes are those that were applied so far, each once: one may be repeated, also after it
// was acknowledged.
func (r *recorder) changes() (once []cluster.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.applied {
		same := func(other cluster.Change) bool { return reflect.DeepEqual(c, other) }
		if !slices.ContainsFunc(once, same) {
			once = append(once, c)
		}
	}
	return once
}

func (r *recorder) has(version int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.applied {
		if c.Version == version {
			return true
		}
	}
	return false
}

func (r *recorder) counts() (resyncs, losses int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resyncs, r.losses
}

func testConfig(nc *nats.Conn, applier cluster.Applier) cluster.Config {
	return cluster.Config{Conn: nc, Applier: applier, LeaseTTL: ttl, RenewEvery: renew, Repeat: repeat}
}

// runsOut has the node's lease run out soon.
func runsOut(c *cluster.Config) { c.LeaseTTL = shortTTL }

func startNode(t testing.TB, cfg cluster.Config) *cluster.Node {
	t.Helper()
	n, err := cluster.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = n.Close(ctx) // the broker may be gone by now
	})
	return n
}

// join starts a node on a connection of its own.
func join(t testing.TB, url string, change ...func(*cluster.Config)) (*cluster.Node, *recorder, *nats.Conn) {
	t.Helper()
	nc, r := connect(t, url), &recorder{}
	cfg := testConfig(nc, r)
	for _, f := range change {
		f(&cfg)
	}
	return startNode(t, cfg), r, nc
}

func withTimeout(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func change(version int64) cluster.Change {
	return cluster.Change{Tenant: uuid.New(), Room: uuid.New(), Version: version}
}

// link is a TCP proxy that can be cut and mended.
type link struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, target: target, conns: make(map[net.Conn]struct{})}
	l.wg.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(true)
		l.wg.Wait()
	})
	return l
}

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", l.target)
		if err != nil || !l.track(client, upstream) {
			_ = client.Close()
			if upstream != nil {
				_ = upstream.Close()
			}
			continue
		}
		l.wg.Go(func() { pipe(client, upstream) })
		l.wg.Go(func() { pipe(upstream, client) })
	}
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

func (l *link) track(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for _, c := range conns {
		l.conns[c] = struct{}{}
	}
	return true
}

// set cuts (true) or mends the link.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if !cut {
		return
	}
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

var errRefused = errors.New("applier refuses")
