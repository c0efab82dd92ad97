package inbox_test

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
)

// A sink that falls behind until messages are dropped is told, after the last drop,
// that it missed some; nothing is lost silently.
func TestSlowSink(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			sink := &recorder{block: make(chan struct{})}
			receiver := s.open(sink, change, noMemory)
			writer := receiver // the only one
			if name == "shared" {
				writer = s.open(&recorder{}, change)
			}
			room, to := uuid.New(), participants(1)
			require.NoError(t, receiver.Join(t.Context(), room))
			const count = 8192 + 300
			var wait sync.WaitGroup
			for range 100 {
				wait.Go(func() {
					for range count / 100 {
						if _, err := writer.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("x")}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			require.NoError(t, receiver.FlushFeed())
			close(sink.block)
			eventually(t, func() bool { return len(sink.allMissed()) > 0 }, "told of the drop")
			want := room
			if name == "embedded" {
				want = uuid.Nil
			}
			require.Contains(t, sink.allMissed(), want)
			last, err := writer.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("last")})
			require.NoError(t, err)
			eventually(t, func() bool {
				all := sink.all()
				return all[len(all)-1].id == last[0]
			}, "live again")
		})
	}
}

// Rooms that are joined cost no goroutine each, and joins of many at once are quick.
func TestManyRooms(t *testing.T) {
	// Not parallel: it counts the goroutines of the process.
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			s := startNATS(t)
			sink := &recorder{}
			j := s.open(sink, change)
			rooms := participants(2000)
			before := runtime.NumGoroutine()
			var wait sync.WaitGroup
			for part := range 20 {
				wait.Go(func() {
					for _, room := range rooms[part*100 : part*100+100] {
						if err := j.Join(t.Context(), room); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			require.Less(t, runtime.NumGoroutine(), before+200, "of the server and the writers")
			to := participants(1)
			for i := 0; i < len(rooms); i += 100 {
				_, err := j.Write(t.Context(), inbox.Message{Room: rooms[i], To: to, Payload: fmt.Append(nil, i)})
				require.NoError(t, err)
			}
			eventually(t, func() bool { return len(sink.all()) == 20 }, "live messages of some rooms")
			for _, room := range rooms {
				j.Leave(room)
			}
			_, err := j.Write(t.Context(), inbox.Message{Room: rooms[1], To: to, Payload: []byte("not joined")})
			require.NoError(t, err)
			require.NoError(t, j.Join(t.Context(), rooms[2]))
			_, err = j.Write(t.Context(), inbox.Message{Room: rooms[2], To: to, Payload: []byte("joined")})
			require.NoError(t, err)
			eventually(t, func() bool { return len(sink.all()) == 21 }, "live message of the joined room")
			require.Equal(t, "joined", sink.all()[20].payload)
		})
	}
}

// What somebody else publishes on a live subject never reaches the sink broken.
func TestLiveGarbage(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	sink := &recorder{}
	j := s.open(sink)
	room, to := uuid.New(), participants(1)
	require.NoError(t, j.Join(t.Context(), room))
	conn := s.connect()
	for _, text := range []string{"", "\n", "envelope\n", "envelope 1\npayload", "envelope 1 @0 x:1\n", "what 1 @0 " + to[0].String() + ":1\n", "envelope 1 @0 " + to[0].String() + ":\n", "envelope 1 " + to[0].String() + ":1\n", "envelope 1 @-1 " + to[0].String() + ":1\n"} {
		require.NoError(t, conn.Publish("live."+room.String(), []byte(text)))
	}
	require.NoError(t, conn.Publish("live.x", []byte("envelope 1 @0 "+to[0].String()+":1\n")))
	require.NoError(t, conn.Flush())
	_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("good")})
	require.NoError(t, err)
	eventually(t, func() bool { return len(sink.all()) == 1 }, "the good one")
	require.Equal(t, "good", sink.all()[0].payload)
}

// cuttingDialer makes connections that break, once armed, before a protocol line
// that begins so, but only after so many of them.
type cuttingDialer struct {
	armed  *atomic.Bool
	before string
	after  int
}

func (d cuttingDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return cutter{conn, d}, err
}

type cutter struct {
	net.Conn
	cuttingDialer
}

func (c cutter) Write(b []byte) (int, error) {
	at := 0
	for range c.after + 1 {
		next := bytes.Index(b[at:], []byte(c.before))
		if next < 0 || !c.armed.Load() {
			return c.Conn.Write(b)
		}
		at += next + len(c.before)
	}
	c.armed.Store(false)
	n, _ := c.Conn.Write(b[:at-len(c.before)])
	_ = c.Close()
	return n, net.ErrClosed
}

// cutAnnouncements makes the publisher's link break before an announcement is sent, when armed.
func (s *natsServer) cutAnnouncements(armed *atomic.Bool) func(*inbox.Config) {
	return func(c *inbox.Config) {
		c.Shards = 1
		c.Dial = func(name string, options ...nats.Option) (*nats.Conn, error) {
			if name == "relay inbox publish" {
				options = append(options, nats.SetCustomDialer(cuttingDialer{armed: armed, before: "PUB live."}))
			}
			return s.dial(name, options...)
		}
	}
}

// A message is stored and the link breaks before its announcement is sent: every
// node is told that it missed something in that room.
func TestLostAnnouncement(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	var armed atomic.Bool
	writer := s.open(&recorder{}, shared, s.cutAnnouncements(&armed))
	sink := &recorder{}
	receiver := s.open(sink, shared, noMemory, func(c *inbox.Config) { c.Shards = 1 })
	room, to := uuid.New(), participants(1)
	other := uuid.New() // whose announcement surely was sent
	for _, room := range []uuid.UUID{other, room} {
		require.NoError(t, receiver.Join(t.Context(), room))
	}
	for range 2 {
		_, err := writer.Write(t.Context(), inbox.Message{Room: other, To: to, Payload: []byte("x")})
		require.NoError(t, err)
		_, err = writer.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("x")})
		require.NoError(t, err)
	}
	eventually(t, func() bool { return len(sink.all()) == 4 }, "live")
	armed.Store(true)
	_, err := writer.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("stored, not announced")})
	require.NoError(t, err)
	eventually(t, func() bool { return len(sink.allMissed()) == 1 }, "told of what it missed")
	require.Equal(t, []uuid.UUID{room}, sink.allMissed())
	require.Len(t, sink.all(), 4)
	require.Len(t, readAll(t, receiver, room, to[0], 0, 10), 3)
	ready(t, writer)
}

// Where a process is the only writer, what it stored reaches its own connections whatever
// becomes of the announcement, which others may watch; and its bytes are not the caller's.
func TestOwnMessagesNeedNoAnnouncement(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	var armed atomic.Bool
	sink := &recorder{}
	j := s.open(sink, s.cutAnnouncements(&armed))
	watching, err := s.dial("a person who watches")
	require.NoError(t, err)
	defer watching.Close()
	watched, err := watching.SubscribeSync("live.*")
	require.NoError(t, err)
	require.NoError(t, watching.Flush())
	room, to, payload := uuid.New(), participants(2), []byte("first")
	_, err = j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("of before")})
	require.NoError(t, err)
	require.NoError(t, j.Join(t.Context(), room))
	first, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: payload})
	require.NoError(t, err)
	copy(payload, "xxxxx")
	for _, text := range []string{"of before", "first"} {
		message, err := watched.NextMsg(15 * time.Second)
		require.NoError(t, err)
		require.Contains(t, string(message.Data), "\n"+text)
	}
	armed.Store(true)
	second, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("second")})
	require.NoError(t, err)
	eventually(t, func() bool { return len(sink.all()) == 4 }, "live")
	require.False(t, armed.Load(), "the link broke")
	for i, row := range sink.all() {
		require.Equal(t, []string{"first", "first", "second", "second"}[i], row.payload)
		require.Equal(t, append(first, second...)[i], row.id)
	}
	require.Empty(t, sink.allMissed())
	ready(t, j)
}
