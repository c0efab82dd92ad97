package front_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen at once. A machine that has other
// work makes nothing fail.
const patience = time.Minute

// path is a way connections are served.
type path string

const (
	pathDefault path = "default" // epoll on Linux
	pathWrapped path = "wrapped" // a net.Conn that is not a *net.TCPConn: a goroutine each
	pathTLS     path = "tls"
)

func forEachPath(t *testing.T, test func(t *testing.T, p path)) {
	t.Helper()
	for _, p := range []path{pathDefault, pathWrapped, pathTLS} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// echo answers each message with itself, and does what some messages ask for.
type echo struct {
	mu     sync.Mutex
	peers  []*echoPeer
	opened func(*echoPeer) // called by Open
	onMsg  func(*echoPeer, []byte) bool
}

type echoPeer struct {
	handler *echo
	conn    relay.Conn
	closed  chan wire.CloseCode // gets one code

	mu       sync.Mutex
	messages int
	inside   bool
}

func (h *echo) Open(c relay.Conn) relay.Peer {
	p := &echoPeer{handler: h, conn: c, closed: make(chan wire.CloseCode, 2)}
	h.mu.Lock()
	h.peers = append(h.peers, p)
	h.mu.Unlock()
	if h.opened != nil {
		h.opened(p)
	}
	return p
}

func (p *echoPeer) enter(inside bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if inside && (p.inside || len(p.closed) > 0) {
		panic("messages overlap, or one came after Closed")
	}
	p.inside = inside
	if inside { // not when it is done: its answer may be with the client before that
		p.messages++
	}
}

func (p *echoPeer) Message(msg []byte) {
	p.enter(true)
	defer p.enter(false)
	if p.handler.onMsg != nil && p.handler.onMsg(p, msg) {
		return
	}
	switch string(msg) {
	case "auth":
		p.conn.Authenticated()
	case "freeze":
		p.conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
	case "close":
		p.conn.Close(wire.CloseAuth, wire.ReasonAuth)
	}
	p.conn.Send(msg)
}

func (p *echoPeer) Closed(code wire.CloseCode) { p.closed <- code }

// requireInside waits until a message is being handled.
func (p *echoPeer) requireInside(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.inside
	}, patience, time.Millisecond)
}

func (p *echoPeer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}

func (h *echo) peer(t *testing.T, i int) *echoPeer {
	t.Helper()
	var p *echoPeer
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if i < len(h.peers) {
			p = h.peers[i]
		}
		return p != nil
	}, patience, time.Millisecond)
	return p
}

func (p *echoPeer) requireClosed(t *testing.T, code wire.CloseCode) {
	t.Helper()
	select {
	case got := <-p.closed:
		require.Equal(t, code, got)
	case <-time.After(patience):
		require.Fail(t, "Closed was not called")
	}
}

// server is a Front behind an http.Server, the way cmd/relay mounts it.
type server struct {
	front   *front.Front
	handler *echo
	http    *httptest.Server
	path    path
}

type wrapListener struct{ net.Listener }

type wrappedConn struct{ net.Conn }

func (c wrappedConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite shuts the sending side of a connection.
func closeWrite(nc net.Conn) error {
	half, ok := nc.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

func (l wrapListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrappedConn{c}, nil
}

func startServer(t testing.TB, p path, change func(*front.Config)) *server {
	t.Helper()
	return startServerWith(t, p, patience, change)
}

func startServerWith(t testing.TB, p path, headerTimeout time.Duration, change func(*front.Config)) *server {
	t.Helper()
	s := &server{handler: &echo{}, path: p}
	// Whom a slow machine keeps waiting is not cut off: tests of deadlines set their own.
	config := front.Config{Handler: s.handler, Limits: front.Limits{
		PreAuthPerAddr: 1 << 20, HelloTimeout: time.Hour, MessageTimeout: time.Hour, CloseTimeout: patience,
	}}
	if change != nil {
		change(&config)
	}
	var err error
	s.front, err = front.New(config)
	require.NoError(t, err)
	s.http = httptest.NewUnstartedServer(s.front)
	s.http.Config.ReadHeaderTimeout = headerTimeout
	s.http.Config.MaxHeaderBytes = 16 << 10
	s.http.Config.ErrorLog = nil
	switch p {
	case pathTLS:
		s.http.StartTLS()
	case pathWrapped:
		s.http.Listener = wrapListener{s.http.Listener}
		s.http.Start()
	default:
		s.http.Start()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.front.Shutdown(ctx))
		s.http.Close()
	})
	return s
}

func (s *server) addr() string { return s.http.Listener.Addr().String() }

// client is a WebSocket client that can do everything wrong.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

const upgradeRequest = "GET /v1/relay HTTP/1.1\r\nHost: our.host\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

func (s *server) dialRaw(t testing.TB) *client {
	t.Helper()
	var nc net.Conn
	nc, err := net.Dial("tcp", s.addr())
	require.NoError(t, err)
	if s.path == pathTLS {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	c := &client{t: t, Conn: nc, r: bufio.NewReader(nc)}
	require.NoError(t, nc.SetDeadline(time.Now().Add(3*patience)))
	t.Cleanup(func() { _ = nc.Close() })
	return c
}

func (s *server) dial(t testing.TB) *client {
	t.Helper()
	c := s.dialRaw(t)
	c.write([]byte(upgradeRequest + "\r\n"))
	c.readUpgrade()
	return c
}

func (c *client) readUpgrade() {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Equal(c.t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept")) // RFC 6455 section 1.3
	require.Empty(c.t, resp.Header.Values("Sec-WebSocket-Extensions"))
	require.Empty(c.t, resp.Header.Values("Sec-WebSocket-Protocol"))
}

func (c *client) write(b []byte) {
	c.t.Helper()
	_, err := c.Write(b)
	require.NoError(c.t, err)
}

// tryWrite is for bytes the server may already have refused.
func (c *client) tryWrite(b []byte) { _, _ = c.Write(b) }

func (c *client) shutWrite() {
	c.t.Helper()
	require.NoError(c.t, closeWrite(c.Conn))
}

// frame is a masked client frame.
func frame(op ws.OpCode, fin bool, payload []byte) []byte {
	return ws.MustCompileFrame(ws.MaskFrame(ws.NewFrame(op, fin, payload)))
}

func text(s string) []byte { return frame(ws.OpText, true, []byte(s)) }

func closeBody(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// head is a frame header alone, with a mask of zeros.
func head(op ws.OpCode, length int64) []byte {
	var b bytes.Buffer
	if err := ws.WriteHeader(&b, ws.Header{Fin: true, OpCode: op, Masked: true, Length: length}); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func (c *client) read() ws.Frame {
	c.t.Helper()
	f, err := c.tryRead()
	require.NoError(c.t, err)
	return f
}

// tryRead reads a frame and checks what no server frame may break.
func (c *client) tryRead() (ws.Frame, error) {
	h, err := ws.ReadHeader(c.r)
	if err != nil {
		return ws.Frame{}, err
	}
	if h.Masked || h.Rsv != 0 || !h.Fin || h.Length > wire.MaxMessage {
		return ws.Frame{}, fmt.Errorf("impossible frame: %+v", h)
	}
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(c.r, f.Payload)
	return f, err
}

func (c *client) requireText(want string) {
	c.t.Helper()
	f := c.read()
	require.Equal(c.t, ws.OpText, f.Header.OpCode, "%q", f.Payload)
	if len(want) > 200 {
		require.Equal(c.t, sha256.Sum256([]byte(want)), sha256.Sum256(f.Payload), "long text differs")
		return
	}
	require.Equal(c.t, want, string(f.Payload))
}

func (c *client) requirePong(payload string) {
	c.t.Helper()
	f := c.read()
	require.Equal(c.t, ws.OpPong, f.Header.OpCode)
	require.Equal(c.t, payload, string(f.Payload))
}

// requireClose reads until the close frame, then until the end of the connection.
func (c *client) requireClose(code wire.CloseCode, reason string) {
	c.t.Helper()
	f := c.read()
	require.Equal(c.t, ws.OpClose, f.Header.OpCode, "%q", f.Payload)
	got, text := ws.ParseCloseFrameData(f.Payload)
	require.Equal(c.t, code, wire.CloseCode(got), "%s", text)
	if reason != "" {
		require.Equal(c.t, reason, text)
	}
	c.requireEnd()
}

func (c *client) requireEnd() {
	c.t.Helper()
	_, err := c.r.ReadByte()
	require.ErrorIs(c.t, err, io.EOF)
}

// answer sends a plain HTTP request and returns the answer's status and head.
func (c *client) answer(request string) (int, string) {
	c.t.Helper()
	c.write([]byte(request))
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(c.t, err)
	var b strings.Builder
	require.NoError(c.t, resp.Header.Write(&b))
	return resp.StatusCode, b.String()
}
