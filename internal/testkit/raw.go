package testkit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// Raw is a WebSocket that sends what a test says and answers nothing by itself.
type Raw struct{ ws *websocket.Conn }

// RawDial upgrades and says nothing.
func (s *Relay) RawDial(t testing.TB) *Raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A small receive buffer from the start, so that a test that stops reading is soon felt.
	dialer := net.Dialer{Control: func(_, _ string, conn syscall.RawConn) error {
		var err error
		controlled := conn.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10)
		})
		return errors.Join(controlled, err)
	}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	ws, _, err := websocket.Dial(ctx, s.RelayURL(), &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	require.NoError(t, err)
	ws.SetReadLimit(wire.MaxServerMessage)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &Raw{ws: ws}
}

// Send sends one text message.
func (r *Raw) Send(t testing.TB, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.ws.Write(ctx, websocket.MessageText, []byte(message)))
}

// Next returns the next frame, or the code the connection was closed with.
func (r *Raw) Next(t testing.TB) (wire.ServerFrame, wire.CloseCode) {
	t.Helper()
	frame, closed := r.read(t)
	if closed != nil {
		return wire.ServerFrame{}, wire.CloseCode(closed.Code)
	}
	return frame, 0
}

func (r *Raw) read(t testing.TB) (wire.ServerFrame, *websocket.CloseError) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, message, err := r.ws.Read(ctx)
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return wire.ServerFrame{}, &closed
	}
	require.NoError(t, err)
	frame, err := wire.ParseServer(message)
	require.NoError(t, err)
	return frame, nil
}

// Until reads frames up to one of this type.
func (r *Raw) Until(t testing.TB, want wire.ServerType) wire.ServerFrame {
	t.Helper()
	for {
		frame, closed := r.read(t)
		require.Nil(t, closed)
		if frame.Type == want {
			return frame
		}
	}
}

// CloseCode reads until the connection is closed and returns how.
func (r *Raw) CloseCode(t testing.TB) (wire.CloseCode, string) {
	t.Helper()
	for {
		_, closed := r.read(t)
		if closed != nil {
			return wire.CloseCode(closed.Code), closed.Reason
		}
	}
}

// Connections returns how many authenticated connections the relay has.
func (s *Relay) Connections(t testing.TB) int {
	t.Helper()
	return int(s.Metric(t, "relay_front_connections", "authenticated"))
}

// RequireConnections waits until the relay has that many.
func (s *Relay) RequireConnections(t testing.TB, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Connections(t) == want }, patience, 10*time.Millisecond)
}

// Presence reports whether the participant is present somewhere.
func (s *Relay) Presence(t testing.TB, participant string) bool {
	t.Helper()
	present, err := s.node.Present(t.Context(), uuid.MustParse(participant))
	require.NoError(t, err)
	return present
}
