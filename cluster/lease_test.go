package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/cluster"
)

func leaseKeys(t *testing.T, nc *nats.Conn) []string {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), cluster.LeaseBucket)
	require.NoError(t, err)
	keys, err := kv.Keys(t.Context())
	require.NoError(t, err)
	var leases []string
	for _, key := range keys {
		if key != "barrier" {
			leases = append(leases, key)
		}
	}
	return leases
}

func TestLeaseIsKeptAndRemoved(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, r, nc := join(t, b.url(), runsOut)
	require.True(t, node.Held())
	require.NoError(t, node.Ready())
	lease := leaseKeys(t, nc)
	require.Len(t, lease, 1)

	require.Never(t, func() bool { return !node.Held() }, shortTTL*3/2, 20*time.Millisecond)
	require.Equal(t, lease, leaseKeys(t, nc), "a renewed lease keeps its epoch")

	require.NoError(t, node.Close(withTimeout(t, soon)))
	require.False(t, node.Held())
	require.ErrorIs(t, node.Ready(), cluster.ErrNotHeld)
	require.ErrorIs(t, node.Announce(t.Context(), change(1)), cluster.ErrClosed)
	require.Empty(t, leaseKeys(t, nc))
	_, losses := r.counts()
	require.Zero(t, losses, "closing is no loss")
}

func TestLeaseLossOnCutLink(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	l := newLink(t, strings.TrimPrefix(b.url(), "nats://"))
	node, r, _ := join(t, l.url(), runsOut)
	resyncs, _ := r.counts()

	l.set(true)
	cut := time.Now()
	var held time.Time // the last moment before which it said so
	require.Eventually(t, func() bool {
		asked := time.Now()
		if node.Held() {
			held = asked
			return false
		}
		return true
	}, soon, 5*time.Millisecond)
	require.LessOrEqual(t, held.Sub(cut), shortTTL, "held past the end of the lease")
	require.Eventually(t, func() bool { _, losses := r.counts(); return losses == 1 }, soon, 5*time.Millisecond)

	l.set(false)
	require.Eventually(t, node.Held, soon, 5*time.Millisecond)
	again, losses := r.counts()
	require.Equal(t, 1, losses, "one loss, told once")
	require.Greater(t, again, resyncs, "held again only after everything is looked up again")
}

func TestShortCutKeepsTheLeaseAndResyncs(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	l := newLink(t, strings.TrimPrefix(b.url(), "nats://"))
	cfgConn, r := connect(t, l.url()), &recorder{}
	cfg := testConfig(cfgConn, r)
	node := startNode(t, cfg)
	resyncs, _ := r.counts()

	l.set(true)
	require.Eventually(t, func() bool { return !cfgConn.IsConnected() }, soon, time.Millisecond)
	l.set(false)
	require.Eventually(t, func() bool { again, _ := r.counts(); return again > resyncs }, soon, 5*time.Millisecond)
	require.True(t, node.Held())
	_, losses := r.counts()
	require.Zero(t, losses)
}

func TestLeaseSurvivesBrokerRestart(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, r, nc := join(t, b.url(), runsOut)
	other, _, _ := join(t, b.url(), runsOut)
	b.stop()
	require.Eventually(t, func() bool { return !node.Held() && !other.Held() }, soon, 5*time.Millisecond)
	require.Error(t, node.Announce(withTimeout(t, 300*time.Millisecond), change(1)))
	require.Eventually(t, func() bool { return r.has(1) }, soon, time.Millisecond, "a change is in force here, even if nobody else can be told")
	b.start(t)
	require.Eventually(t, func() bool { return node.Held() && other.Held() }, soon, 5*time.Millisecond)
	require.NoError(t, node.Announce(withTimeout(t, soon), change(2)))
	require.Eventually(t, func() bool { return len(leaseKeys(t, nc)) == 2 }, soon, 20*time.Millisecond, "lost leases are removed")
}

func TestLeaseEndedByOthersIsLost(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, r, nc := join(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), cluster.LeaseBucket)
	require.NoError(t, err)
	old := leaseKeys(t, nc)
	require.NoError(t, kv.Delete(t.Context(), old[0]))
	require.Eventually(t, func() bool { _, losses := r.counts(); return losses == 1 }, soon, 5*time.Millisecond)
	require.Eventually(t, node.Held, soon, 5*time.Millisecond)
	require.NotEqual(t, old, leaseKeys(t, nc), "a new lease is a new epoch")
}

// A renewal that was stored although its acknowledgement never came must not cost
// the lease.
func TestLeaseRevisionMovedByLostAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, r, nc := join(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), cluster.LeaseBucket)
	require.NoError(t, err)
	key := leaseKeys(t, nc)[0]
	entry, err := kv.Get(t.Context(), key)
	require.NoError(t, err)
	moved, err := kv.Put(t.Context(), key, entry.Value())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := kv.Get(t.Context(), key)
		return err == nil && now.Revision() > moved
	}, soon, 10*time.Millisecond)
	require.True(t, node.Held())
	_, losses := r.counts()
	require.Zero(t, losses)
}

// Whoever takes a lease for dead must not end one that was renewed meanwhile.
func TestRenewedLeaseIsNotEnded(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, r, nc := join(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), cluster.LeaseBucket)
	require.NoError(t, err)
	key := leaseKeys(t, nc)[0]
	before, err := kv.Get(t.Context(), key)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := kv.Get(t.Context(), key)
		return err == nil && now.Revision() > before.Revision()
	}, soon, 10*time.Millisecond)
	other, _, _ := join(t, b.url())
	gone, err := other.EndLeaseAt(t.Context(), key, before.Revision())
	require.NoError(t, err)
	require.False(t, gone)
	require.Contains(t, leaseKeys(t, nc), key)
	require.True(t, node.Held())
	_, losses := r.counts()
	require.Zero(t, losses)
}

func TestNewProcessReplacesItsOldLease(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	nc := connect(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	cfg := testConfig(nc, &recorder{})
	cfg.NodeID, cfg.ReplacesOld = "edge-1", true
	require.NoError(t, startNode(t, cfg).Close(withTimeout(t, soon)))
	kv, err := js.KeyValue(t.Context(), cluster.LeaseBucket)
	require.NoError(t, err)
	_, err = kv.PutString(t.Context(), "7d1c1c8e-0000-4000-8000-000000000001", `{"node":"edge-1","instance":"dead","ttl_ms":60000,"since":"2026-01-01T00:00:00Z"}`)
	require.NoError(t, err)
	node := startNode(t, cfg)
	require.Len(t, leaseKeys(t, nc), 1)
	require.NoError(t, node.Announce(withTimeout(t, soon), change(1)), "nobody waits for the dead process")
}

func TestStartRefusesBadConfig(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	nc := connect(t, b.url())
	for name, spoil := range map[string]func(*cluster.Config){
		"no connection":  func(c *cluster.Config) { c.Conn = nil },
		"no applier":     func(c *cluster.Config) { c.Applier = nil },
		"node id":        func(c *cluster.Config) { c.NodeID = "a.b*" },
		"renews too few": func(c *cluster.Config) { c.RenewEvery = c.LeaseTTL },
		"no replicas":    func(c *cluster.Config) { c.Replicas = 3 }, // one server cannot
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(nc, &recorder{})
			spoil(&cfg)
			_, err := cluster.Start(t.Context(), cfg)
			require.Error(t, err)
		})
	}
}

func TestIncompatibleBucketIsAClearError(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	nc := connect(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_nodes", Subjects: []string{"$KV.nodes.>"}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	_, err = cluster.Start(t.Context(), testConfig(nc, &recorder{}))
	require.ErrorContains(t, err, `bucket "nodes"`)
}

func TestMetricsAreRegisteredAndRemoved(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	registry := prometheus.NewRegistry()
	cfg := testConfig(connect(t, b.url()), &recorder{})
	cfg.Registerer = registry
	node := startNode(t, cfg)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 8)
	require.NoError(t, node.Close(withTimeout(t, soon)))
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}

// DESIGN section 5, "Live push": a peer node's heartbeat that stops triggers a catch-up on
// every other node; one that closes in order lost nothing.
func TestPeersLearnOfANodeThatDied(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	_, one, _ := join(t, b.url(), runsOut)
	_, two, _ := join(t, b.url(), runsOut)
	third, _, thirdConn := join(t, b.url(), runsOut)
	leaving, _, _ := join(t, b.url(), runsOut)
	require.NoError(t, leaving.Close(withTimeout(t, soon)))
	require.Never(t, func() bool { return one.peersLost()+two.peersLost() > 0 }, 300*time.Millisecond, 10*time.Millisecond)
	thirdConn.Close() // it cannot renew any more
	require.Eventually(t, func() bool { return one.peersLost() > 0 && two.peersLost() > 0 }, soon, 5*time.Millisecond)
	require.False(t, third.Held())
}

// runChild is the body of the re-executed test binary: it reads one byte, answers
// which lease is held (an empty line: none), and so on.
func runChild(url string) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	defer nc.Close()
	cfg := testConfig(nc, &recorder{})
	runsOut(&cfg)
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	for {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		fmt.Println(cluster.HeldLease(node))
	}
}

func TestFrozenProcessFindsItsLeaseExpired(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	node, _, _ := join(t, b.url())
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "CLUSTER_TEST_CHILD="+b.url())
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	lines := bufio.NewScanner(stdout)
	ask := func() string {
		require.True(t, lines.Scan(), "child ended")
		return lines.Text()
	}
	require.Equal(t, "ready", ask())
	before := ""
	for before == "" { // it may have lost its lease where the machine had other work
		_, err = stdin.Write([]byte{'?'})
		require.NoError(t, err)
		before = ask()
	}

	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	var state syscall.WaitStatus
	_, err = syscall.Wait4(child.Process.Pid, &state, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, state.Stopped())
	// The question waits in the pipe, so it is answered among the first instructions
	// after the process goes on.
	_, err = stdin.Write([]byte{'?'})
	require.NoError(t, err)
	require.NoError(t, node.Announce(withTimeout(t, soon), change(1)))
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	require.NotEqual(t, before, ask(), "the announcement was answered, so the frozen node may accept nothing under that lease")
}
