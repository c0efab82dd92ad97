package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/deploy"
	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

// clusterSize is how many servers a cluster has: one may be missing.
const clusterSize = 3

// Cluster is three NATS servers in processes of their own, which keep three copies of
// each stream where they are asked to. Any of them can be killed or stopped for a while.
type Cluster struct {
	members [clusterSize]memberConfig
	running [clusterSize]*child
}

// Users of a cluster, as deploy/nats-cluster.conf has them.
const (
	relayPassword   = "relay-password"
	edgePassword    = "edge-password"
	clusterPassword = "cluster-password"
)

// memberConfig is one server of a cluster, as its process is told.
type memberConfig struct {
	Name   string
	Dir    string
	Port   int
	Route  int                 // port for the other servers
	Routes [clusterSize]string // of all servers
}

// StartCluster runs one until the test ends. The test's TestMain has to begin with
// RunChild.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	var routes [clusterSize]string
	for i := range c.members {
		c.members[i] = memberConfig{Name: fmt.Sprintf("n%d", i), Dir: t.TempDir(), Port: port.Free(t), Route: port.Free(t)}
		routes[i] = fmt.Sprintf("nats://cluster:%s@127.0.0.1:%d", clusterPassword, c.members[i].Route)
	}
	t.Cleanup(func() {
		for i := range c.running {
			c.Kill(i)
		}
	})
	for i := range c.members {
		c.members[i].Routes = routes
		c.Start(t, i)
	}
	c.awaitLeader(t)
	return c
}

// Start starts server i, after Kill on its data and its ports.
func (c *Cluster) Start(t testing.TB, i int) {
	t.Helper()
	c.running[i] = startChild(t, childMember, c.members[i], nil)
}

// Kill ends server i with SIGKILL. Killing a killed one does nothing.
func (c *Cluster) Kill(i int) {
	if c.running[i] != nil {
		c.running[i].kill()
		c.running[i] = nil
	}
}

// Pause makes server i stand still, its connections open, until Continue.
func (c *Cluster) Pause(t testing.TB, i int) { c.signal(t, i, syscall.SIGSTOP) }

// Continue ends a pause.
func (c *Cluster) Continue(t testing.TB, i int) { c.signal(t, i, syscall.SIGCONT) }

func (c *Cluster) signal(t testing.TB, i int, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, c.running[i].command.Process.Signal(signal))
}

// URLs is what a node with a database connects to: all servers.
func (c *Cluster) URLs() string { return c.list("relay", relayPassword) }

// EdgeURLs is what an edge connects to.
func (c *Cluster) EdgeURLs() string { return c.list("edge", edgePassword) }

func (c *Cluster) list(user, password string) string {
	urls := make([]string, clusterSize)
	for i := range urls {
		urls[i] = fmt.Sprintf("nats://%s:%s@%s", user, password, c.Addr(i))
	}
	return strings.Join(urls, ",")
}

// URL is what a node with a database connects to for server i alone.
func (c *Cluster) URL(i int) string { return strings.Split(c.URLs(), ",")[i] }

// Addr is the host and port of server i.
func (c *Cluster) Addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", c.members[i].Port) }

// Leader is the number of the server that leads a stream; it waits while there is none.
func (c *Cluster) Leader(t testing.TB, stream string) int {
	t.Helper()
	leader := -1
	c.ask(t, func(ctx context.Context, js jetstream.JetStream) bool {
		found, err := js.Stream(ctx, stream)
		if err != nil || found.CachedInfo().Cluster == nil {
			return false
		}
		for i := range c.members {
			if c.members[i].Name == found.CachedInfo().Cluster.Leader {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

// Follower is the number of a server that holds a copy of a stream and does not lead it.
func (c *Cluster) Follower(t testing.TB, stream string) int {
	t.Helper()
	return (c.Leader(t, stream) + 1) % clusterSize
}

// awaitLeader returns when streams can be made.
func (c *Cluster) awaitLeader(t testing.TB) {
	t.Helper()
	c.ask(t, func(ctx context.Context, js jetstream.JetStream) bool {
		_, err := js.AccountInfo(ctx)
		return err == nil
	})
}

// ask asks the cluster until it gives the answer.
func (c *Cluster) ask(t testing.TB, answered func(context.Context, jetstream.JetStream) bool) {
	t.Helper()
	conn, err := nats.Connect(c.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		return answered(ctx, js)
	}, patience, 20*time.Millisecond, "the cluster answers")
}

// runMember is the main of the process of one server of a cluster.
func runMember(config []byte) error {
	var cfg memberConfig
	if err := json.Unmarshal(config, &cfg); err != nil {
		return err
	}
	options, err := cfg.options()
	if err != nil {
		return err
	}
	member, err := server.NewServer(options)
	if err != nil {
		return err
	}
	member.Start()
	if !member.ReadyForConnections(patience) {
		return errors.New("not ready")
	}
	say(childReady{Listen: member.Addr().String()})
	_, err = io.Copy(io.Discard, os.Stdin) // until the test is gone
	return err
}

// options are those of the configuration that operators are given, so that the tests run
// with its users, permissions and limits.
func (c memberConfig) options() (*server.Options, error) {
	for name, value := range map[string]string{
		"NATS_NAME":             c.Name,
		"NATS_LISTEN":           fmt.Sprintf("127.0.0.1:%d", c.Port),
		"NATS_CLUSTER_LISTEN":   fmt.Sprintf("127.0.0.1:%d", c.Route),
		"NATS_STORE":            filepath.Join(c.Dir, "nats"),
		"NATS_ROUTE_1":          c.Routes[0],
		"NATS_ROUTE_2":          c.Routes[1],
		"NATS_ROUTE_3":          c.Routes[2],
		"NATS_CLUSTER_PASSWORD": clusterPassword,
		"NATS_RELAY_PASSWORD":   relayPassword,
		"NATS_EDGE_PASSWORD":    edgePassword,
	} {
		if err := os.Setenv(name, value); err != nil { // of this server's own process
			return nil, err
		}
	}
	options := &server.Options{NoLog: true, NoSigs: true}
	return options, options.ProcessConfigString(deploy.NATSCluster)
}
