package front_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

// Shutdown lets the message that is being handled finish, and its answer go out;
// then everyone gets 1001, and nobody new is let in.
func TestShutdown(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		inside, release := make(chan struct{}), make(chan struct{})
		s := startServer(t, p, nil)
		s.handler.onMsg = func(_ *echoPeer, msg []byte) bool {
			if string(msg) == "busy" {
				close(inside)
				<-release
			}
			return false
		}
		idle, busy, half := s.dial(t), s.dial(t), s.dial(t)
		half.write([]byte{0x81})
		busy.write(join(text("busy"), text("behind it, not handled any more")))
		<-inside

		done := make(chan error, 1)
		go func() { done <- s.front.Shutdown(t.Context()) }()
		idle.requireClose(wire.CloseGoingAway, wire.ReasonShutdown)
		half.requireClose(wire.CloseGoingAway, wire.ReasonShutdown)
		status, _ := s.dialRaw(t).answer(upgradeRequest + "\r\n")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Empty(t, done)

		close(release)
		busy.requireText("busy")
		busy.requireClose(wire.CloseGoingAway, wire.ReasonShutdown)
		for _, c := range []*client{idle, half, busy} {
			require.NoError(t, c.Close())
		}
		require.NoError(t, <-done)
		require.NoError(t, s.front.Shutdown(t.Context()), "again")
	})
}

// Shutdown is bounded by its context: sockets are freed, and a handler that does
// not return is reported.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		inside, release := make(chan struct{}), make(chan struct{})
		s := startServer(t, p, func(c *front.Config) { c.Limits.CloseTimeout = time.Minute })
		s.handler.onMsg = func(*echoPeer, []byte) bool {
			close(inside)
			<-release
			return false
		}
		stuck, deaf := s.dial(t), s.dial(t)
		stuck.write(text("stuck"))
		<-inside
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.front.Shutdown(ctx) }()
		deaf.requireClose(wire.CloseGoingAway, wire.ReasonShutdown) // and does not close its side
		require.Empty(t, done)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		_, err := stuck.tryRead()
		require.Error(t, err)
		close(release)
		require.NoError(t, s.front.Shutdown(t.Context()))
	})
}

// Thousands of connections that come and go in every way reuse descriptors all the
// time: no event reaches a wrong connection, none is left.
func TestDescriptorReuse(t *testing.T) {
	for _, p := range []path{pathDefault, pathWrapped} {
		t.Run(string(p), func(t *testing.T) {
			before := descriptors(t)
			s := startServer(t, p, func(c *front.Config) { c.Limits.CloseTimeout = 200 * time.Millisecond })
			goroutines, each := 16, 200
			if p == pathWrapped {
				each = 50 // each has a goroutine of its own, which no event reaches by a descriptor
			}
			var all sync.WaitGroup
			for g := range goroutines {
				random := rand.New(rand.NewPCG(uint64(g), 3))
				all.Go(func() {
					for i := range each {
						comeAndGo(t, s, random, fmt.Sprintf("%d/%d", g, i))
					}
				})
			}
			all.Wait()
			require.Eventually(t, func() bool { return descriptors(t) <= before+3 }, patience, 10*time.Millisecond)
			s.handler.peer(t, goroutines*each-1) // the last ones may not be open yet: their clients have left after the upgrade
			s.handler.mu.Lock()
			peers := s.handler.peers
			s.handler.mu.Unlock()
			require.Len(t, peers, goroutines*each)
			for _, peer := range peers {
				select {
				case <-peer.closed:
				case <-time.After(patience):
					require.Fail(t, "Closed was not called")
				}
				require.Empty(t, peer.closed, "Closed was called twice")
			}
		})
	}
}

func comeAndGo(t *testing.T, s *server, random *rand.Rand, id string) {
	c := s.dialRaw(t)
	defer c.Close()
	c.tryWrite([]byte(upgradeRequest + "\r\n"))
	if resp, err := http.ReadResponse(c.r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("upgrade: %v", err)
		return
	}
	for n := range random.IntN(3) {
		want := fmt.Sprint(id, "#", n)
		c.tryWrite(text(want))
		if f, err := c.tryRead(); err != nil || string(f.Payload) != want {
			t.Errorf("want %s, got %q, %v", want, f.Payload, err)
			return
		}
	}
	switch random.IntN(5) {
	case 0: // vanishes
	case 1:
		c.tryWrite(text("close"))
	case 2:
		c.tryWrite(frame(ws.OpClose, true, closeBody(1000, "")))
		_, _ = c.tryRead()
	case 3:
		c.tryWrite([]byte{0x81, 0xfe, 0x10}) // in the middle of a header
	case 4:
		c.tryWrite(text(id))
		_ = closeWrite(c.Conn)
		_, _ = c.tryRead()
	}
}

// A thousand connections that close at once, from both sides at the same time, are
// all gone at once.
func TestThousandCloses(t *testing.T) {
	for _, p := range []path{pathDefault, pathWrapped} {
		t.Run(string(p), func(t *testing.T) {
			before := descriptors(t)
			s := startServer(t, p, func(c *front.Config) { c.Limits.CloseTimeout = time.Hour })
			const n = 1000
			clients := make([]*client, n)
			for i := range clients {
				clients[i] = s.dial(t)
			}
			s.handler.peer(t, n-1) // all are open
			var closing sync.WaitGroup
			closing.Go(func() {
				for i := range n {
					s.handler.peer(t, i).conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
				}
			})
			for _, c := range clients {
				closing.Go(func() {
					c.tryWrite(frame(ws.OpClose, true, closeBody(1000, "")))
					if f, err := c.tryRead(); err != nil || f.Header.OpCode != ws.OpClose {
						t.Errorf("no close frame: %v", err)
					}
					_ = c.Close()
				})
			}
			closing.Wait()
			require.Eventually(t, func() bool { return descriptors(t) <= before+3 }, patience, 10*time.Millisecond, "not by a deadline")
		})
	}
}

// An independent client understands all of it.
func TestInteropWithCoderWebsocket(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		url := strings.Replace(s.http.URL, "http", "ws", 1) + "/v1/relay?token=ignored"
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
			HTTPClient: s.http.Client(), CompressionMode: websocket.CompressionContextTakeover,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.CloseNow() })
		c.SetReadLimit(wire.MaxMessage)
		for _, n := range []int{0, 1, 125, 126, 65_535, wire.MaxMessage} {
			msg := strings.Repeat("i", n)
			require.NoError(t, c.Write(ctx, websocket.MessageText, []byte(msg)))
			kind, got, err := c.Read(ctx)
			require.NoError(t, err)
			require.Equal(t, websocket.MessageText, kind)
			require.Equal(t, msg, string(got))
		}
		reading := c.CloseRead(ctx)
		require.NoError(t, c.Ping(ctx))
		require.NoError(t, c.Close(websocket.StatusNormalClosure, "bye"))
		<-reading.Done()
		s.handler.peer(t, 0).requireClosed(t, 1000)

		c, _, err = websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: s.http.Client()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.CloseNow() })
		require.NoError(t, c.Write(ctx, websocket.MessageText, []byte("close")))
		_, _, err = c.Read(ctx)
		require.Equal(t, websocket.StatusCode(wire.CloseAuth), websocket.CloseStatus(err))
	})
}

// All turns wait while every worker is busy, and none is lost.
func TestBusyWorkers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var inside sync.WaitGroup
	inside.Add(3)
	s := startServer(t, pathDefault, func(c *front.Config) { c.Limits.Workers = 3 })
	s.handler.onMsg = func(_ *echoPeer, msg []byte) bool {
		if string(msg) == "block" {
			inside.Done()
			<-release
		}
		return false
	}
	var clients []*client
	for range 3 {
		c := s.dial(t)
		c.write(text("block"))
		clients = append(clients, c)
	}
	inside.Wait()
	for range 50 {
		c := s.dial(t)
		c.write(text("wait"))
		clients = append(clients, c)
	}
	require.True(t, s.handler.peer(t, 0).conn.Send([]byte("pushed"))) // writes need no worker
	close(release)
	for _, c := range clients {
		f := c.read()
		for string(f.Payload) == "pushed" {
			f = c.read()
		}
		require.Contains(t, []string{"block", "wait"}, string(f.Payload))
	}
}

// A socket is freed by its deadline though every worker is busy; Closed comes when
// one is free.
func TestCloseWithoutWorkers(t *testing.T) {
	// Not parallel: it counts the descriptors of the process.
	inside, release := make(chan struct{}), make(chan struct{})
	s := startServer(t, pathDefault, func(c *front.Config) { c.Limits.Workers, c.Limits.CloseTimeout = 1, time.Second })
	s.handler.onMsg = func(_ *echoPeer, msg []byte) bool {
		if string(msg) == "block" {
			close(inside)
			<-release
		}
		return false
	}
	deaf := s.dial(t)
	deaf.write(text("first"))
	deaf.requireText("first")
	peer := s.handler.peer(t, 0)
	blocking := s.dial(t)
	blocking.write(text("block"))
	<-inside

	before := descriptors(t)
	peer.conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
	require.Eventually(t, func() bool { return descriptors(t) < before }, patience, 10*time.Millisecond)
	require.Empty(t, peer.closed)
	deaf.requireClose(wire.CloseFrozen, wire.ReasonFrozen)
	close(release)
	peer.requireClosed(t, wire.CloseFrozen)
	blocking.requireText("block")
}
