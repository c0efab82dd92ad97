package front_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

// A reader that stops is closed with queue_full once its bounded queue is full; what
// it then reads is whole frames and the close; others do not wait (FAULTS B04).
func TestSlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		slow := s.dial(t)
		slowPeer := s.handler.peer(t, 0)
		healthy := s.dial(t)

		msg := bytes.Repeat([]byte("s"), 10_000)
		sent := 0
		for slowPeer.conn.Send(msg) {
			sent++
			if sent%10 == 0 {
				began := time.Now()
				healthy.write(text("fast"))
				healthy.requireText("fast")
				require.Less(t, time.Since(began), patience/2)
			}
			require.Less(t, sent, 20_000, "a queue without bound")
		}
		slowPeer.requireClosed(t, wire.ClosePolicy)
		require.False(t, slowPeer.conn.Send(msg))
		require.GreaterOrEqual(t, sent, wire.MaxQueueBytes/10_004)

		got := 0
		for {
			f := slow.read()
			if f.Header.OpCode == ws.OpClose {
				code, reason := ws.ParseCloseFrameData(f.Payload)
				require.Equal(t, wire.ClosePolicy, wire.CloseCode(code))
				require.Equal(t, wire.ReasonQueue, reason)
				break
			}
			require.True(t, bytes.Equal(msg, f.Payload))
			got++
		}
		slow.requireEnd()
		require.Less(t, got, sent-60, "what waited was dropped")
	})
}

// The bound on frames holds as exactly as the one on bytes: with nothing taken by
// the peer, one frame over it closes.
func TestQueueBoundsAreExact(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		frames, bytes int
		size          int // of each payload; its frame is 4 bytes longer
		fit           int
	}{
		{"frames", 16, 1 << 20, 1000, 16},
		{"bytes", 1 << 20, 16 * 1004, 1000, 16},
		{"bytes, less one", 1 << 20, 16*1004 - 1, 1000, 15},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, pathDefault, func(c *front.Config) {
				c.Limits.QueueFrames, c.Limits.QueueBytes = tt.frames, tt.bytes
			})
			// The kernel takes some bytes more when it pleases: then all begins anew.
			exact := func(attempt int) bool {
				s.dial(t)
				peer := s.handler.peer(t, attempt)
				waiting := 0
				send := func() bool {
					if !peer.conn.Send(make([]byte, tt.size)) {
						return false
					}
					waiting += tt.size + 4
					return true
				}
				moved := func() bool { return front.Waiting(peer.conn) != waiting }
				// Fill the kernel's buffers, until one frame is begun and stays so.
				for waiting == 0 {
					require.True(t, send())
					require.Eventually(t, func() bool { return front.Flushed(peer.conn) }, patience, time.Microsecond)
					waiting = front.Waiting(peer.conn)
				}
				// The begun frame counts as one frame, and with the bytes of it that wait.
				free := tt.fit - 1
				if tt.bytes < 1<<20 {
					free = (tt.bytes - waiting) / (tt.size + 4)
				}
				for i := range free {
					require.True(t, send(), i)
				}
				if moved() {
					return false
				}
				if send() {
					require.True(t, moved(), "one more than fits")
					return false
				}
				peer.requireClosed(t, wire.ClosePolicy)
				return true
			}
			attempt := 0
			for ; !exact(attempt); attempt++ {
				require.Less(t, attempt, 100)
			}
		})
	}
}

// The envelope of a room without encryption can be larger than what else may wait: it
// fits beside a queue that is less than half full, and a second one behind it does not.
func TestOneLargeFrameFitsBesideOthers(t *testing.T) {
	t.Parallel()
	s := startServer(t, pathDefault, nil)
	filler, large := make([]byte, 50_000), make([]byte, wire.MaxPlaintext)
	fits := func(attempt int) bool {
		s.dial(t)
		peer := s.handler.peer(t, attempt)
		for front.Waiting(peer.conn) < wire.MaxQueueBytes/4 { // the peer reads nothing
			require.True(t, peer.conn.Send(filler))
			require.Eventually(t, func() bool { return front.Flushed(peer.conn) }, patience, time.Microsecond)
		}
		require.True(t, peer.conn.Send(large))
		waiting := front.Waiting(peer.conn)
		if peer.conn.Send(large) { // only if the kernel has taken a part of the first one
			require.Less(t, front.Waiting(peer.conn), waiting+len(large))
			return false
		}
		peer.requireClosed(t, wire.ClosePolicy)
		return true
	}
	attempt := 0
	for ; !fits(attempt); attempt++ {
		require.Less(t, attempt, 100)
	}
}

// more than the kernel takes for a peer that reads nothing: what is sent beyond it waits.
const overKernel = 6 << 20

// holdsMuch lets so much wait, and readsLittle has the kernel take little of it.
func holdsMuch(c *front.Config) { c.Limits.QueueBytes, c.Limits.QueueFrames = 2*overKernel, 1<<20 }

func (c *client) readsLittle() {
	c.t.Helper()
	nc := c.Conn
	if inner, ok := nc.(*tls.Conn); ok {
		nc = inner.NetConn()
	}
	require.NoError(c.t, nc.(*net.TCPConn).SetReadBuffer(64<<10)) //nolint:errcheck // it is TCP
}

func TestWhenDrained(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, holdsMuch)
		c := s.dial(t)
		c.readsLittle()
		peer := s.handler.peer(t, 0)
		wait := func(ch chan struct{}) {
			t.Helper()
			select {
			case <-ch:
			case <-time.After(patience):
				require.Fail(t, "not called")
			}
		}

		now := make(chan struct{})
		peer.conn.WhenDrained(1, func() { close(now) })
		wait(now)

		// A replay larger than any queue, without a goroutine of its own: each step
		// sends a little and asks to be called again.
		const rows = 5000
		msg := strings.Repeat("r", 1000)
		next := 0
		done := make(chan struct{})
		var step func()
		step = func() {
			for range 32 {
				if next == rows {
					close(done)
					return
				}
				if !peer.conn.Send([]byte(fmt.Sprint(next, msg))) {
					t.Error("refused")
				}
				next++
			}
			peer.conn.WhenDrained(16<<10, step)
		}
		peer.conn.WhenDrained(1, step)
		for i := range rows {
			c.requireText(fmt.Sprint(i, msg))
		}
		wait(done)

		// Fill the queue, then close: what is held is called too.
		for range overKernel / 50_000 {
			require.True(t, peer.conn.Send(make([]byte, 50_000)))
		}
		called := make(chan struct{})
		peer.conn.WhenDrained(1, func() { close(called) })
		select {
		case <-called:
			require.Fail(t, "called while bytes wait")
		default:
		}
		peer.conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
		wait(called)
		after := make(chan struct{})
		peer.conn.WhenDrained(1, func() { close(after) })
		wait(after)
	})
}

// Close sends what is queued first, to a peer that reads.
func TestCloseSendsWhatIsQueued(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		c := s.dial(t)
		peer := s.handler.peer(t, 0)
		msg := strings.Repeat("q", 20_000)
		for range 50 {
			require.True(t, peer.conn.Send([]byte(msg)))
		}
		peer.conn.Close(wire.CloseFrozen, wire.ReasonFrozen)
		peer.conn.Close(wire.CloseGoingAway, "only the first call counts")
		for range 50 {
			c.requireText(msg)
		}
		c.requireClose(wire.CloseFrozen, wire.ReasonFrozen)
	})
}

// A revoked credential gets nothing more than the frame that is already begun
// (DESIGN section 6, "Freshness").
func TestCloseAuthDropsWhatIsQueued(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, holdsMuch)
		c := s.dial(t)
		c.readsLittle()
		peer := s.handler.peer(t, 0)
		msg := strings.Repeat("q", 20_000)
		const sent = overKernel / 20_000
		for range sent {
			require.True(t, peer.conn.Send([]byte(msg)))
		}
		peer.conn.Close(wire.CloseAuth, wire.ReasonAuth)
		got := 0
		f := c.read()
		for ; f.Header.OpCode == ws.OpText; got++ {
			require.Equal(t, msg, string(f.Payload))
			f = c.read()
		}
		code, _ := ws.ParseCloseFrameData(f.Payload)
		require.Equal(t, wire.CloseAuth, wire.CloseCode(code))
		require.Less(t, got, sent*3/4)
		c.requireEnd()
	})
}

// No byte of a message is ever another's: many recipients, some slow, some cut in
// the middle, sizes at random (FAULTS A14, A09).
func TestBytesAreNeverMixed(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		const recipients, senders, each = 30, 8, 30
		s := startServer(t, p, nil)
		var clients []*client
		for range recipients {
			clients = append(clients, s.dial(t))
		}
		peers := make([]*echoPeer, recipients)
		for i := range peers {
			peers[i] = s.handler.peer(t, i)
		}

		slow := time.NewTicker(2 * time.Millisecond)
		defer slow.Stop()
		var reading sync.WaitGroup
		var received atomic.Int64
		for i, c := range clients {
			reading.Go(func() {
				for n := 0; ; n++ {
					f, err := c.tryRead()
					if err != nil || f.Header.OpCode == ws.OpClose {
						return
					}
					if err := checkStamped(f.Payload); err != nil {
						t.Error(err)
						return
					}
					received.Add(1)
					if i%3 == 2 && n == 20 {
						_ = c.Close() // cut while more is on its way
						return
					}
					if i%3 == 1 && n%10 == 0 {
						<-slow.C // reads, but slowly
					}
				}
			})
		}
		var sending sync.WaitGroup
		for sender := range senders {
			random := rand.New(rand.NewPCG(uint64(sender), 7))
			sending.Go(func() {
				for n := range each {
					msg := stamped(uint64(sender)<<32|uint64(n), 200+random.IntN(wire.MaxMessage-200))
					for _, peer := range peers {
						peer.conn.Send(msg) // may be refused: that reader was too slow, or is cut
					}
					clear(msg) // Send has copied it
				}
			})
		}
		sending.Wait()
		for _, peer := range peers {
			peer.conn.Close(wire.CloseGoingAway, "")
		}
		reading.Wait()
		require.Greater(t, received.Load(), int64(recipients))
	})
}

// stamped is a text of n bytes that is its id all over, and its own checksum.
func stamped(id uint64, n int) []byte {
	unit := fmt.Appendf(nil, "%016x", id)
	msg := bytes.Repeat(unit, n/16+1)[:n-64]
	return fmt.Appendf(msg, "%x", sha256.Sum256(msg))
}

func checkStamped(msg []byte) error {
	body, sum := msg[:len(msg)-64], msg[len(msg)-64:]
	if fmt.Sprintf("%x", sha256.Sum256(body)) != string(sum) {
		return fmt.Errorf("changed bytes in a message of %d", len(msg))
	}
	if i := bytes.Index(body, body[:16]); i != 0 || binary.BigEndian.Uint64(body) == 0 {
		return errors.New("no id in front")
	}
	return nil
}
