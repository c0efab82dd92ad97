package node

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// bounded is a server that answers everything, with the bounds of a public listener.
func bounded(t *testing.T, perAddress int, most func() int) (*connections, string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := newConnections(perAddress, most, prometheus.NewRegistry())
	server := &http.Server{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Minute, ConnState: c.changed,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return c, listener.Addr().String()
}

// visitor is one connection from an address of its own choice.
type visitor struct {
	t    *testing.T
	conn net.Conn
}

func visit(t *testing.T, server, from string) *visitor {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", server)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	t.Cleanup(func() { _ = conn.Close() })
	return &visitor{t, conn}
}

// ask makes a request, and leaves the connection idle.
func (v *visitor) ask() error {
	v.t.Helper()
	if _, err := v.conn.Write([]byte("GET / HTTP/1.1\r\nHost: relay\r\n\r\n")); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(v.conn), nil)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// gone demands that the server has closed the connection.
func (v *visitor) gone() {
	v.t.Helper()
	_, err := v.conn.Read(make([]byte, 1))
	require.Error(v.t, err)
	timeout, ok := err.(net.Error) //nolint:errorlint // net's own
	require.False(v.t, ok && timeout.Timeout(), "it is still open")
}

func eventually(t *testing.T, c *connections, idle int) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.idle.Len() == idle
	}, 20*time.Second, time.Millisecond)
}

// FAULTS B: connections that do nothing must not take the files that a relay needs. Whoever
// is idle for longest makes room.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	var most atomic.Int64
	most.Store(3)
	c, server := bounded(t, 100, func() int { return int(most.Load()) })
	var visitors []*visitor
	for i := range 3 {
		visitors = append(visitors, visit(t, server, "127.0.0.1"))
		require.NoError(t, visitors[i].ask())
		eventually(t, c, i+1)
	}
	require.NoError(t, visitors[0].ask(), "now it is not the one that is idle for longest")
	eventually(t, c, 3)
	late := visit(t, server, "127.0.0.1")
	require.NoError(t, late.ask())
	visitors[1].gone()
	require.NoError(t, visitors[0].ask())
	require.NoError(t, visitors[2].ask())

	most.Store(0) // WebSockets took what there was
	eventually(t, c, 3)
	require.NoError(t, visit(t, server, "127.0.0.1").ask(), "there is always room for one")
	for _, v := range []*visitor{visitors[0], visitors[2], late} {
		_ = v.conn.Close()
	}
}

// One address cannot take the places of others, nor can connections on which nothing was
// asked yet.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	c, server := bounded(t, 2, func() int { return 100 })
	first, second := visit(t, server, "127.0.0.1"), visit(t, server, "127.0.0.1")
	require.NoError(t, first.ask())
	eventually(t, c, 1)
	third := visit(t, server, "127.0.0.1")
	first.gone()
	visit(t, server, "127.0.0.1").gone()
	require.NoError(t, visit(t, server, "127.0.0.2").ask(), "another address")
	require.NoError(t, second.ask())
	require.NoError(t, third.ask())
	require.NoError(t, second.conn.Close())
	require.Eventually(t, func() bool { return c.count() == 2 }, 20*time.Second, time.Millisecond)
	require.NoError(t, third.ask())
	require.NoError(t, third.conn.Close())
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.addresses) == 1 && len(c.open) == 1 && c.idle.Len() == 1
	}, 20*time.Second, time.Millisecond, "nothing is kept of who has left")
}
