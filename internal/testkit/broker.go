package testkit

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

// Broker is an external NATS server with JetStream that a test stops and starts.
type Broker struct {
	options server.Options
	server  *server.Server
}

// StartBroker runs one until the test ends.
func StartBroker(t testing.TB) *Broker {
	t.Helper()
	b := &Broker{options: server.Options{
		Host: "127.0.0.1", Port: port.Free(t), JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true, SyncInterval: time.Second,
	}}
	b.Start(t)
	t.Cleanup(b.Stop)
	return b
}

// Start starts a stopped broker on its data and its port.
func (b *Broker) Start(t testing.TB) {
	t.Helper()
	options := b.options
	broker, err := server.NewServer(&options)
	require.NoError(t, err)
	broker.Start()
	require.True(t, broker.ReadyForConnections(patience))
	b.server = broker
}

// Stop ends it. Stopping a stopped one does nothing.
func (b *Broker) Stop() {
	if b.server == nil {
		return
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.server = nil
}

// URL is where it listens.
func (b *Broker) URL() string { return b.server.ClientURL() }
