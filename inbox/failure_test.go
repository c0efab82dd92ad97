package inbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// ledger writes from several goroutines and keeps every verdict.
type ledger struct {
	mu      sync.Mutex
	room    uuid.UUID
	to      []uuid.UUID
	stored  map[string][]wire.StreamID
	refused map[string]error
}

func newLedger() *ledger {
	return &ledger{
		room: uuid.New(), to: participants(3),
		stored: make(map[string][]wire.StreamID), refused: make(map[string]error),
	}
}

func (l *ledger) write(j *inbox.JetStream, payload string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ids, err := j.Write(ctx, inbox.Message{Room: l.room, To: l.to, Payload: []byte(payload)})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused[payload] = err
	} else {
		l.stored[payload] = ids
	}
	return err
}

// check demands that every stored row is there once, at its id, with its bytes, and
// that a refused one is there at most once.
func (l *ledger) check(t *testing.T, j *inbox.JetStream) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, who := range l.to {
		rows := readAll(t, j, l.room, who, 0, 500)
		found := make(map[string]wire.StreamID)
		last := uint64(0)
		for _, row := range rows {
			require.NotContains(t, found, string(row.Payload), "stored twice")
			found[string(row.Payload)] = row.ID
			require.Greater(t, row.ID.Sequence, last)
			last = row.ID.Sequence
		}
		for payload, ids := range l.stored {
			require.Equal(t, ids[i], found[payload], "row %q", payload)
		}
		for payload, err := range l.refused {
			require.ErrorIs(t, err, inbox.ErrUnavailable, payload)
		}
	}
}

func ready(tb testing.TB, j *inbox.JetStream) {
	tb.Helper()
	eventually(tb, func() bool { return j.Ready() == nil }, "ready again")
}

// Somebody publishes into the stream by hand while messages are written: every
// message keeps its true sequence, and memory still knows every row.
func TestForeignWriter(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	one := func(c *inbox.Config) { c.Shards = 1 }
	j := s.open(&recorder{}, one)
	stream := s.open(&recorder{}, one, noMemory)
	l := newLedger()
	conn := s.connect()
	subject := fmt.Sprintf("inbox.00.%s.%s", l.room, l.to[0])
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for n := range 25 {
				if err := l.write(j, fmt.Sprintf("%d/%d", w, n)); err != nil {
					t.Error(err)
				}
				if w == 0 && n%5 == 0 {
					if err := conn.Publish(subject, fmt.Appendf(nil, "by hand %d", n)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	require.NoError(t, conn.Flush())
	require.NoError(t, l.write(j, "after the last by hand"))
	l.check(t, j)
	l.check(t, stream)
	for _, who := range l.to {
		require.Equal(t, readAll(t, stream, l.room, who, 0, 500), readAll(t, j, l.room, who, 0, 500))
	}
	require.Len(t, readAll(t, j, l.room, l.to[0], 0, 500), 106)
	require.NoError(t, j.Ready())
}

// What people purge or delete by hand is not served from memory.
func TestPurgeByHand(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	j := s.open(&recorder{}, func(c *inbox.Config) { c.Shards = 1 })
	l := newLedger()
	write := func(from, to int) {
		for n := from; n < to; n++ {
			require.NoError(t, l.write(j, fmt.Sprint(n)))
		}
	}
	write(0, 20)
	stream, err := s.jetStream().Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), l.stored["7"][1].Sequence))
	eventually(t, func() bool { return len(readAll(t, j, l.room, l.to[1], 0, 500)) == 19 }, "deleted row is gone")
	write(20, 30)
	require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(fmt.Sprintf("inbox.00.%s.%s", l.room, l.to[0]))))
	eventually(t, func() bool { return len(readAll(t, j, l.room, l.to[0], 0, 500)) == 0 }, "purged inbox is empty")
	require.Len(t, readAll(t, j, l.room, l.to[2], 0, 500), 30)
	write(30, 40)
	require.NoError(t, stream.Purge(t.Context()))
	eventually(t, func() bool { return len(readAll(t, j, l.room, l.to[2], 0, 500)) == 0 }, "purged stream is empty")
	require.NoError(t, l.write(j, "after"))
	require.Equal(t, []string{"after"}, payloads(readAll(t, j, l.room, l.to[0], 0, 500)))
	bounds, err := j.Bounds(t.Context(), l.room, l.to[1])
	require.NoError(t, err)
	require.EqualValues(t, 122, bounds.Oldest)
	require.NoError(t, j.Ready())
}

// A stream that vanishes under the running relay is made anew, as another
// incarnation, and whoever wrote meanwhile got a true verdict (FAULTS C06).
func TestStreamVanishes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			j := s.open(&recorder{}, change)
			l := newLedger()
			require.NoError(t, l.write(j, "lost"))
			js := s.jetStream()
			stream := fmt.Sprintf("INBOX_%02d", j.ShardOf(l.room))
			require.NoError(t, js.DeleteStream(t.Context(), stream))
			before := l.stored["lost"][0]
			l.stored = map[string][]wire.StreamID{}
			eventually(t, func() bool {
				n := len(l.stored) + len(l.refused)
				return l.write(j, fmt.Sprint(n)) == nil
			}, "stores again")
			ready(t, j)
			require.NoError(t, l.write(j, "more"))
			l.check(t, j)
			require.Greater(t, l.stored["more"][0].Incarnation, before.Incarnation)
			bounds, err := j.Bounds(t.Context(), l.room, l.to[0])
			require.NoError(t, err)
			require.Equal(t, l.stored["more"][0].Incarnation, bounds.Incarnation)
			info, err := js.Stream(t.Context(), stream)
			require.NoError(t, err)
			require.EqualValues(t, 500, info.CachedInfo().Config.MaxMsgsPerSubject)
			require.Equal(t, 24*time.Hour, info.CachedInfo().Config.MaxAge)
			require.Equal(t, jetstream.FileStorage, info.CachedInfo().Config.Storage)
		})
	}
}

// NATS goes away in the middle of traffic and comes back: every verdict is true,
// refused messages are never delivered live, and everything works again.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inbox.Config){"embedded": func(*inbox.Config) {}, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t)
			sink := &recorder{}
			j := s.open(sink, change, func(c *inbox.Config) { c.WriteTimeout = time.Second })
			l := newLedger()
			require.NoError(t, j.Join(t.Context(), l.room))
			var stop atomic.Bool
			var wait sync.WaitGroup
			for w := range 8 {
				wait.Go(func() {
					for n := 0; !stop.Load() && n < 60; n++ {
						_ = l.write(j, fmt.Sprintf("%d/%d", w, n))
					}
				})
			}
			count := func() (stored, refused int) {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.stored), len(l.refused)
			}
			eventually(t, func() bool { n, _ := count(); return n > 20 }, "some stored")
			s.stop()
			eventually(t, func() bool { return j.Ready() != nil }, "not ready")
			stop.Store(true)
			wait.Wait()
			require.ErrorIs(t, l.write(j, "while down"), inbox.ErrUnavailable)
			s.start()
			ready(t, j)
			eventually(t, func() bool { return len(sink.allMissed()) > 0 }, "told that live messages may be lost")
			require.Contains(t, sink.allMissed(), uuid.Nil)
			require.NoError(t, l.write(j, "after"))
			eventually(t, func() bool {
				all := sink.all()
				return len(all) > 0 && all[len(all)-1].payload == "after"
			}, "live again")
			l.check(t, j)
			for _, c := range sink.all() {
				require.NotContains(t, l.refused, c.payload, "refused, but delivered live")
			}
			rows := readAll(t, j, l.room, l.to[0], 0, 500)
			require.NotContains(t, payloads(rows), "while down")
		})
	}
}

// Missing metadata of one stream, or a whole store that is gone, is a new
// incarnation for every old cursor and never an error (FAULTS C06).
func TestStoreDamaged(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	j, err := inbox.Open(t.Context(), s.config(&recorder{}))
	require.NoError(t, err)
	l := newLedger()
	require.NoError(t, l.write(j, "old"))
	old := l.stored["old"][0]
	stream := fmt.Sprintf("INBOX_%02d", j.ShardOf(l.room))
	closeInboxes(j)
	s.stop()
	require.NoError(t, os.Remove(filepath.Join(s.dir, "jetstream", "$G", "streams", stream, "meta.inf")))
	s.start()
	for range 2 {
		j, err = inbox.Open(t.Context(), s.config(&recorder{}))
		require.NoError(t, err)
		bounds, err := j.Bounds(t.Context(), l.room, l.to[0])
		require.NoError(t, err)
		require.Greater(t, bounds.Incarnation, old.Incarnation)
		for _, row := range readAll(t, j, l.room, l.to[0], 0, 500) { // the server found its files
			require.Equal(t, bounds.Incarnation, row.ID.Incarnation)
			require.Equal(t, "old", string(row.Payload))
		}
		old.Incarnation = bounds.Incarnation
		closeInboxes(j)
		s.stop()
		require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "jetstream")))
		s.start()
	}
}

// After Close every call answers, with ErrClosed, and what was under way had its
// verdict.
func TestClose(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	j := s.open(&recorder{})
	l := newLedger()
	var wait sync.WaitGroup
	started := make(chan struct{}, 16)
	for w := range 16 {
		wait.Go(func() {
			for n := range 1000 {
				err := l.write(j, fmt.Sprintf("%d/%d", w, n))
				if n == 0 {
					started <- struct{}{}
				}
				if err != nil {
					return
				}
			}
		})
	}
	for range 16 {
		<-started
	}
	closeInboxes(j)
	wait.Wait()
	_, err := j.Write(t.Context(), inbox.Message{Room: l.room, To: l.to, Payload: []byte("x")})
	require.ErrorIs(t, err, inbox.ErrClosed)
	require.ErrorIs(t, j.Ready(), inbox.ErrClosed)
	for _, err := range l.refused {
		require.ErrorIs(t, err, inbox.ErrClosed)
	}
	l.refused = nil
	again := s.open(&recorder{}, func(c *inbox.Config) { c.MaxRows = 500 })
	for i, who := range l.to {
		rows := readAll(t, again, l.room, who, 0, 500)
		newest := make(map[wire.StreamID]string)
		for _, row := range rows {
			newest[row.ID] = string(row.Payload)
		}
		for payload, ids := range l.stored {
			if ids[i].Sequence >= rows[0].ID.Sequence {
				require.Equal(t, payload, newest[ids[i]])
			}
		}
	}
}

// A caller that gives up gets its payload back: either it was not stored, or the
// verdict came.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	j := s.open(&recorder{})
	room, to := uuid.New(), participants(1)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	stored := 0
	for range 50 {
		if _, err := j.Write(cancelled, inbox.Message{Room: room, To: to, Payload: []byte("x")}); err == nil {
			stored++
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	_, err := j.Write(t.Context(), inbox.Message{Room: room, To: to, Payload: []byte("last")})
	require.NoError(t, err)
	require.Len(t, readAll(t, j, room, to[0], 0, 500), stored+1)
}

// Part of a fan-out is stored and then the link breaks: the message is refused, what
// was stored of it is removed again, and a resend stores it whole.
func TestPartOfFanOut(t *testing.T) {
	t.Parallel()
	s := startNATS(t)
	var armed atomic.Bool
	sink := &recorder{}
	j := s.open(sink, func(c *inbox.Config) {
		c.Dial = func(name string, options ...nats.Option) (*nats.Conn, error) {
			if name == "relay inbox publish" {
				options = append(options, nats.SetCustomDialer(cuttingDialer{armed: &armed, before: "PUB inbox.", after: 1}))
			}
			return s.dial(name, options...)
		}
	})
	stream := s.open(&recorder{}, noMemory)
	l := newLedger()
	require.NoError(t, j.Join(t.Context(), l.room))
	require.NoError(t, l.write(j, "before"))
	armed.Store(true)
	require.ErrorIs(t, l.write(j, "in parts"), inbox.ErrUnavailable)
	require.False(t, armed.Load())
	ready(t, j)
	for _, from := range []*inbox.JetStream{j, stream} {
		for _, who := range l.to {
			require.Equal(t, []string{"before"}, payloads(readAll(t, from, l.room, who, 0, 500)))
		}
	}
	require.Positive(t, j.OrphansRemoved(), "or nothing was stored in parts")
	m := inbox.Message{Room: l.room, To: l.to, Payload: []byte("in parts")}
	ids, err := j.Complete(t.Context(), m)
	require.NoError(t, err)
	for _, from := range []*inbox.JetStream{j, stream} {
		for i, who := range l.to {
			rows := readAll(t, from, l.room, who, 0, 500)
			require.Equal(t, []string{"before", "in parts"}, payloads(rows))
			require.Equal(t, ids[i], rows[1].ID)
		}
	}
	eventually(t, func() bool { return len(sink.all()) == 6 }, "both delivered live, once")

	// What a search found before a failure may be gone after it.
	m.Payload = []byte("found, then removed")
	ids, err = j.CompleteWithStaleSearch(t.Context(), m)
	require.NoError(t, err)
	for i, who := range l.to {
		rows := readAll(t, stream, l.room, who, 0, 500)
		require.Equal(t, ids[i], rows[2].ID)
	}
}
