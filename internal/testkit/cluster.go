package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
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
)

// clusterSize is how many servers a cluster has: one may be missing.
const clusterSize = 3

// Cluster is three NATS servers in processes of their own, which keep three copies of
// each stream where they are asked to. Any of them can be killed or stopped for a while.
type Cluster struct {
	members [clusterSize]memberConfig
	running [clusterSize]*child
}

// memberConfig is one server of a cluster, as its process is told.
type memberConfig struct {
	Name   string
	Dir    string
	Port   int
	Route  int      // port for the other servers
	Routes []string // of all servers
}

// StartCluster runs one until the test ends. The test's TestMain has to begin with
// RunChild.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	var routes []string
	for i := range c.members {
		c.members[i] = memberConfig{Name: fmt.Sprintf("n%d", i), Dir: t.TempDir(), Port: freePort(t), Route: freePort(t)}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", c.members[i].Route))
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

// URLs is what a relay connects to: all servers.
func (c *Cluster) URLs() string {
	list := make([]string, clusterSize)
	for i := range list {
		list[i] = c.URL(i)
	}
	return strings.Join(list, ",")
}

// URL is where server i listens.
func (c *Cluster) URL(i int) string { return "nats://" + c.Addr(i) }

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
	options := &server.Options{
		ServerName: cfg.Name, Host: "127.0.0.1", Port: cfg.Port, JetStream: true, StoreDir: filepath.Join(cfg.Dir, "nats"),
		NoLog: true, NoSigs: true, SyncInterval: time.Second, MaxPayload: 2 << 20,
		Cluster: server.ClusterOpts{Name: "testkit", Host: "127.0.0.1", Port: cfg.Route},
	}
	for _, text := range cfg.Routes {
		route, err := url.Parse(text)
		if err != nil {
			return err
		}
		options.Routes = append(options.Routes, route)
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
