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
				c := s.dial(t)
				began := time.Now()
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
				require.GreaterOrEqual(t, time.Since(began), timeout-200*time.Millisecond)
				require.Less(t, time.Since(began), patience)
			})
		}
	})
}

func TestAuthenticatedLiftsHelloDeadline(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.HelloTimeout = 500 * time.Millisecond })
		authenticated, silent := s.dial(t), s.dial(t)
		authenticated.write(text("auth"))
		authenticated.requireText("auth")
		silent.requireClose(wire.CloseAuth, wire.ReasonAuth) // the later one, so the deadline of both is over
		authenticated.write(text("later"))
		authenticated.requireText("later")
	})
}

// A message begun must be finished in time, counted from its first byte (FAULTS
// A02); dribblers do not hold up others, though there are few workers.
func TestDribblers(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.MessageTimeout, c.Limits.Workers = timeout, 2 })
		whole := text(strings.Repeat("d", 1000))
		begun := map[string][]byte{
			"header":   whole[:1],
			"payload":  whole[:100],
			"ping":     frame(ws.OpPing, true, []byte("ping"))[:7],
			"fragment": frame(ws.OpText, false, []byte("first")),
		}
		more := map[string][]byte{
			"payload":  whole[100:104], // a whole turn of the mask
			"fragment": join(frame(ws.OpPing, true, nil), frame(ws.OpContinuation, false, []byte("more"))),
		}
		var dribblers sync.WaitGroup
		for name := range begun {
			for range 25 {
				c := s.dial(t)
				c.write(begun[name])
				began := time.Now()
				stop := make(chan struct{})
				dribblers.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(100 * time.Millisecond):
							c.tryWrite(more[name])
						}
					}
				})
				dribblers.Go(func() {
					defer close(stop)
					for {
						f, err := c.tryRead()
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						if f.Header.OpCode != ws.OpClose {
							continue
						}
						if took := time.Since(began); took < timeout-200*time.Millisecond || took > patience {
							t.Errorf("%s: closed after %s", name, took)
						}
						if code, reason := ws.ParseCloseFrameData(f.Payload); wire.CloseCode(code) != wire.ClosePolicy || reason != wire.ReasonSlow {
							t.Errorf("%s: %d %s", name, code, reason)
						}
						return
					}
				})
			}
		}
		healthy := s.dial(t)
		for i := range 20 {
			began := time.Now()
			healthy.write(text(fmt.Sprint("healthy", i)))
			healthy.requireText(fmt.Sprint("healthy", i))
			require.Less(t, time.Since(began), timeout/2)
		}
		dribblers.Wait()
		healthy.write(text("alive"))
		healthy.requireText("alive")
	})
}

// A handler that takes its time does not make a message late.
func TestSlowHandlerIsNotASlowMessage(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		release := make(chan struct{})
		s := startServer(t, p, func(c *front.Config) { c.Limits.MessageTimeout = 300 * time.Millisecond })
		s.handler.onMsg = func(_ *echoPeer, msg []byte) bool {
			if string(msg) == "wait" {
				<-release
			}
			return false
		}
		c, probe := s.dial(t), s.dial(t)
		sent := join(fragments("wait", 2, nil), fragments("next", 2, nil))
		c.write(sent[:5])
		c.write(sent[5 : len(sent)-3])
		probe.write([]byte{0x81})
		probe.requireClose(wire.ClosePolicy, wire.ReasonSlow)
		close(release)
		c.write(sent[len(sent)-3:])
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
			s := startServer(t, p, nil)
			const n = 500
			var clients []*client
			before := descriptors(t)
			for range n {
				c := s.dial(t)
				c.write(text("close")) // the handler refuses; the client neither reads nor closes
				clients = append(clients, c)
			}
			began := time.Now()
			c := s.dial(t)
			c.write(text("valid"))
			c.requireText("valid")
			require.Eventually(t, func() bool { return descriptors(t) <= before+n+2 }, 5*time.Second, 10*time.Millisecond)
			require.Less(t, time.Since(began), 5*time.Second)
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
