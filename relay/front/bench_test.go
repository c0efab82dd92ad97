package front_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay"
	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

// bounce is the least a handler can do: it sends each message back.
type bounce struct{ conn relay.Conn }

func (b bounce) Open(c relay.Conn) relay.Peer {
	c.Authenticated()
	return bounce{c}
}

func (b bounce) Message(msg []byte)    { b.conn.Send(msg) }
func (b bounce) Closed(wire.CloseCode) {}

// BenchmarkEcho counts messages of 1 KiB that go to the server and back. Its client
// does not allocate, so allocations are the server's.
func BenchmarkEcho(b *testing.B) {
	for _, p := range []path{pathDefault, pathWrapped} {
		for _, conns := range []int{1, 64} {
			for _, pipelined := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/conns=%d/pipelined=%d", p, conns, pipelined), func(b *testing.B) {
					s := startServer(b, p, func(c *front.Config) { c.Handler = bounce{} })
					clients := make([]*client, conns)
					for i := range clients {
						clients[i] = s.dial(b)
					}
					b.ReportAllocs()
					b.ResetTimer()
					var all sync.WaitGroup
					for _, c := range clients {
						all.Go(func() { echoes(b, c, max(b.N/conns/pipelined, 1), pipelined) })
					}
					all.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
				})
			}
		}
	}
}

func echoes(b *testing.B, c *client, rounds, pipelined int) {
	sent := []byte(strings.Repeat(string(text(strings.Repeat("b", 1024))), pipelined))
	back := make([]byte, pipelined*(1024+4))
	for range rounds {
		if _, err := c.Write(sent); err != nil {
			b.Error(err)
			return
		}
		if _, err := io.ReadFull(c.Conn, back); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkFanOut counts messages pushed to connections from outside their turns.
func BenchmarkFanOut(b *testing.B) {
	const conns = 100
	s := startServer(b, pathDefault, nil)
	var reading sync.WaitGroup
	peers := make([]*echoPeer, conns)
	rounds := b.N/conns + 1
	for range conns {
		c := s.dial(b)
		reading.Go(func() {
			_, err := io.CopyN(io.Discard, c.Conn, int64(rounds*(1024+4)))
			if err != nil {
				b.Error(err)
			}
		})
	}
	for i := range peers {
		require.Eventually(b, func() bool {
			s.handler.mu.Lock()
			defer s.handler.mu.Unlock()
			return len(s.handler.peers) == conns
		}, patience, time.Millisecond)
		peers[i] = s.handler.peers[i]
	}
	msg := []byte(strings.Repeat("f", 1024))
	b.ReportAllocs()
	b.ResetTimer()
	for range rounds {
		for _, peer := range peers {
			for front.Waiting(peer.conn) > wire.MaxQueueBytes/2 {
				continue // let the reader catch up: it is the benchmark that is too fast
			}
			peer.conn.Send(msg)
		}
	}
	reading.Wait()
}
