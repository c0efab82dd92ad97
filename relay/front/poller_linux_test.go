package front

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/wire"
)

type silent struct{}

func (silent) Open(relay.Conn) relay.Peer { return silent{} }
func (silent) Message([]byte)             {}
func (silent) Closed(wire.CloseCode)      {}

// attached returns a connection that idles in a poller, and its client's side.
func attached(t *testing.T) (*Front, *conn, net.Conn) {
	t.Helper()
	f, err := New(Config{Handler: silent{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Shutdown(t.Context())) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	nc, err := listener.Accept()
	require.NoError(t, err)
	addr := client.LocalAddr().(*net.TCPAddr).AddrPort() //nolint:errcheck // it is TCP
	require.True(t, f.begin())
	require.Empty(t, f.admission.admit(addr.Addr()))
	f.serve(nc, addr, nil)
	c := f.poller.conns()[0]
	require.Equal(t, addr, c.RemoteAddr())
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.turn == turnIdle && c.wantRead
	}, 10*time.Second, time.Millisecond)
	return f, c, client
}

// An event of a socket that had the same descriptor before is nobody's.
func TestStaleEventIsIgnored(t *testing.T) {
	f, c, _ := attached(t)
	f.poller.dispatch(c, c.generation-1, unix.EPOLLIN|unix.EPOLLHUP)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.True(t, c.wantRead, "still armed")
	require.NotZero(t, c.armed)
	require.Equal(t, turnIdle, c.turn)
}

// An idle connection holds nothing but itself.
func TestIdleConnHoldsNoBuffers(t *testing.T) {
	_, c, client := attached(t)
	_, err := client.Write(masked(9, true, "ping"))
	require.NoError(t, err)
	pong := make([]byte, 6)
	_, err = client.Read(pong)
	require.NoError(t, err)
	require.Equal(t, "ping", string(pong[2:]))
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.turn == turnIdle && c.wantRead && c.out.buf == nil && c.decoder == nil
	}, 10*time.Second, time.Millisecond)
}
