package front_test

import (
	"strings"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

func TestEchoOfEveryLength(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		c := startServer(t, p, nil).dial(t)
		for _, n := range []int{0, 1, 2, 124, 125, 126, 127, 128, 8191, 8192, 8193, 65_535, wire.MaxMessage} {
			msg := strings.Repeat("*", n)
			c.write(text(msg))
			c.requireText(msg)
		}
	})
}

// The first frame may come in the packet of the upgrade request (FAULTS A01).
func TestFrameBehindTheRequest(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		for range 100 {
			c := s.dialRaw(t)
			c.write(join([]byte(upgradeRequest+"\r\n"), text("hello")))
			c.readUpgrade()
			c.requireText("hello")
			require.NoError(t, c.Close())
		}
		whole := text(strings.Repeat("h", 300))
		for cut := 1; cut < 9; cut++ {
			c := s.dialRaw(t)
			c.write(join([]byte(upgradeRequest+"\r\n"), whole[:cut]))
			c.readUpgrade()
			c.write(whole[cut:])
			c.requireText(strings.Repeat("h", 300))
		}
	})
}

// Several frames in one segment are all handled, also when the peer shuts its side
// right behind them (FAULTS A03).
func TestFramesInOneSegment(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		for _, shut := range []bool{false, true} {
			s := startServer(t, p, nil)
			c := s.dial(t)
			var all [][]byte
			for i := range 10 {
				all = append(all, text(strings.Repeat("m", i*100)))
			}
			c.write(join(all...))
			if shut {
				c.shutWrite()
			}
			for i := range 10 {
				c.requireText(strings.Repeat("m", i*100))
			}
			if shut {
				c.requireEnd()
				s.handler.peer(t, 0).requireClosed(t, 0)
			}
			require.Equal(t, 10, s.handler.peer(t, 0).count())
		}
	})
}

func TestPingsAndPongs(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		c := startServer(t, p, nil).dial(t)
		for _, payload := range []string{"", "hello", "\x00\xff\xfe", strings.Repeat("p", 125)} {
			c.write(frame(ws.OpPing, true, []byte(payload)))
			c.requirePong(payload)
		}
		c.write(frame(ws.OpPong, true, []byte("unsolicited")))
		var pings [][]byte
		for range 300 { // more than a write queue holds
			pings = append(pings, frame(ws.OpPing, true, []byte("many")))
		}
		c.write(join(pings...))
		for range 300 {
			c.requirePong("many")
		}
	})
}

// Nothing behind a Close in the read buffer is handed over.
func TestNothingFollowsClose(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		c := s.dial(t)
		c.write(join(text("one"), text("freeze"), text("two"), text("three")))
		c.requireText("one")
		c.requireClose(wire.CloseFrozen, wire.ReasonFrozen)
		s.handler.peer(t, 0).requireClosed(t, wire.CloseFrozen)
		require.Equal(t, 2, s.handler.peer(t, 0).count())
	})
}

func TestPeerCloses(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		for i, code := range []uint16{1000, 1001, 1003, 1007, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
			c := s.dial(t)
			c.write(frame(ws.OpClose, true, closeBody(code, "bye")))
			c.requireClose(wire.CloseCode(code), "")
			s.handler.peer(t, i).requireClosed(t, wire.CloseCode(code))
		}
		c := s.dial(t)
		c.write(frame(ws.OpClose, true, nil))
		f := c.read()
		require.Equal(t, ws.OpClose, f.Header.OpCode)
		require.Empty(t, f.Payload)
		c.requireEnd()
	})
}

// What a Message call queues is written at its end, in order with what is sent; what
// is queued elsewhere waits for Flush or the next Send.
func TestQueueIsWrittenAtTheEndOfTheMessage(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		h := &echo{onMsg: func(p *echoPeer, msg []byte) bool {
			p.conn.Queue(append([]byte("1 "), msg...))
			p.conn.Queue(append([]byte("2 "), msg...))
			if string(msg) == "sent" {
				p.conn.Send([]byte("3"))
			}
			return true
		}}
		c := startServer(t, p, func(config *front.Config) { config.Handler = h }).dial(t)
		c.write(join(text("a"), text("sent"), text("b")))
		for _, want := range []string{"1 a", "2 a", "1 sent", "2 sent", "3", "1 b", "2 b"} {
			c.requireText(want)
		}
		conn := h.peer(t, 0).conn
		require.True(t, conn.Queue([]byte("later")))
		conn.Flush()
		c.requireText("later")
		require.True(t, conn.Queue([]byte("first")))
		require.True(t, conn.Send([]byte("second")))
		c.requireText("first")
		c.requireText("second")
		conn.Flush() // nothing waits
		require.True(t, conn.Queue([]byte("last")))
		conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
		c.requireText("last")
		c.requireClose(wire.CloseFrozen, wire.ReasonFrozen)
		require.False(t, conn.Queue([]byte("too late")))
		conn.Flush()
	})
}
