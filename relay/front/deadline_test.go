package front_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

// One absolute deadline before hello, that no noise renews (FAULTS B02).
func TestHelloDeadline(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	noises := map[string][]byte{
		"silence":      nil,
		"pings":        frame(ws.OpPing, true, []byte("x")),
		"pongs":        frame(ws.OpPong, true, []byte("x")),
		"frames":       text(`{"type":"noise"}`),
		"large frames": text(strings.Repeat("x", wire.MaxMessage)),
	}
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.HelloTimeout = timeout })
		for name, noise := range noises {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				began := time.Now() // before the server can count
				c := s.dial(t)
				stop := make(chan struct{})
				var making sync.WaitGroup
				making.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(50 * time.Millisecond):
							c.tryWrite(noise)
						}
					}
				})
				f := c.readUntilClose()
				close(stop)
				making.Wait()
				code, reason := ws.ParseCloseFrameData(f.Payload)
				require.Equal(t, wire.CloseAuth, wire.CloseCode(code))
				require.Equal(t, wire.ReasonAuth, reason)
				require.GreaterOrEqual(t, time.Since(began), timeout)
				require.Less(t, time.Since(began), patience)
			})
		}
	})
}

func TestAuthenticatedLiftsHelloDeadline(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.HelloTimeout = 3 * time.Second })
		authenticated := s.dial(t)
		authenticated.write(text("auth"))
		authenticated.requireText("auth")
		s.dial(t).requireClose(wire.CloseAuth, wire.ReasonAuth) // the later one, so the deadline of both is over
		authenticated.write(text("later"))
		authenticated.requireText("later")
	})
}

// dribble is the beginning of a message, and what of it comes now and then.
type dribble struct{ begun, more []byte }

func dribbles() map[string]dribble {
	whole := text(strings.Repeat("d", 1000))
	return map[string]dribble{
		"header":  {begun: whole[:1]},
		"payload": {whole[:100], whole[100:104]}, // a whole turn of the mask
		"ping":    {begun: frame(ws.OpPing, true, []byte("ping"))[:7]},
		"fragment": {
			frame(ws.OpText, false, []byte("first")),
			join(frame(ws.OpPing, true, nil), frame(ws.OpContinuation, false, []byte("more"))),
		},
	}
}

// A message begun must be finished in time, counted from its first byte (FAULTS A02).
func TestDribbledMessagesEnd(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.MessageTimeout = timeout })
		for name, d := range dribbles() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.dial(t)
				began := time.Now() // before the server can count
				c.write(d.begun)
				stop := make(chan struct{})
				var dribbling sync.WaitGroup
				dribbling.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(50 * time.Millisecond):
							c.tryWrite(d.more)
						}
					}
				})
				f := c.readUntilClose()
				close(stop)
				dribbling.Wait()
				code, reason := ws.ParseCloseFrameData(f.Payload)
				require.Equal(t, wire.ClosePolicy, wire.CloseCode(code))
				require.Equal(t, wire.ReasonSlow, reason)
				require.GreaterOrEqual(t, time.Since(began), timeout)
				require.Less(t, time.Since(began), patience)
			})
		}
	})
}

// Dribblers do not hold up others, though there are few workers: none of them ends while
// this test lasts.
func TestDribblersHoldUpNobody(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.Workers = 2 })
		var dribblers []*client
		all := dribbles()
		for _, d := range all {
			for range 25 {
				c := s.dial(t)
				c.write(d.begun)
				dribblers = append(dribblers, c)
			}
		}
		healthy := s.dial(t)
		for i := range 20 {
			for _, c := range dribblers {
				c.write(all["payload"].more[:i%2])
			}
			healthy.write(text(fmt.Sprint("healthy", i)))
			healthy.requireText(fmt.Sprint("healthy", i))
		}
	})
}

// A handler that takes its time does not make a message late.
func TestSlowHandlerIsNotASlowMessage(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		release := make(chan struct{})
		s := startServer(t, p, func(c *front.Config) { c.Limits.MessageTimeout = time.Second })
		s.handler.onMsg = func(_ *echoPeer, msg []byte) bool {
			if string(msg) == "wait" {
				<-release
			}
			return false
		}
		c, probe := s.dial(t), s.dial(t)
		sent := join(fragments("wait", 2, nil), fragments("next", 2, nil))
		c.write(sent[:len(sent)-3])
		s.handler.peer(t, 0).requireInside(t)
		probe.write([]byte{0x81})
		probe.requireClose(wire.ClosePolicy, wire.ReasonSlow)
		c.write(sent[len(sent)-3:]) // it waits to be read
		close(release)
		c.requireText("wait")
		c.requireText("next")
	})
}

// Refused sockets are gone soon, whatever their peers do (FAULTS B01), and a valid
// client gets in meanwhile.
func TestRefusedSocketsDoNotLinger(t *testing.T) {
	// Not parallel: it counts the descriptors of the process.
	for _, p := range []path{pathDefault, pathWrapped, pathTLS} {
		t.Run(string(p), func(t *testing.T) {
			s := startServer(t, p, func(c *front.Config) { c.Limits.CloseTimeout = time.Second })
			n := 500
			if p == pathTLS {
				n = 100 // handshakes are most of the work
			}
			var clients []*client
			before := descriptors(t)
			for range n {
				c := s.dial(t)
				c.write(text("close")) // the handler refuses; the client neither reads nor closes
				clients = append(clients, c)
			}
			c := s.dial(t)
			c.write(text("valid"))
			c.requireText("valid")
			require.Eventually(t, func() bool { return descriptors(t) <= before+n+2 }, patience, 10*time.Millisecond)
			for _, c := range clients {
				c.requireClose(wire.CloseAuth, wire.ReasonAuth) // the close frame was not lost
			}
		})
	}
}

// descriptors counts the open files of the process: both ends of the connections.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
