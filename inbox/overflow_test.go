package inbox

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// told notes in which order a sink is told what, while nothing blocks it.
type told struct {
	blocked chan struct{}

	mu  sync.Mutex // guards the following field
	all []uint64   // sequences, and 0 for Missed
}

func (s *told) Deliver(live *Live) {
	<-s.blocked
	s.note(live.Copies[0].ID.Sequence)
}

func (s *told) Missed(uuid.UUID) { s.note(0) }

func (s *told) note(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sequence)
}

func (s *told) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// A connection reads on from the newest row that it had. So none that follows a dropped one
// reaches it before it is told, however late whoever tells it is.
func TestNoRowHidesADroppedOne(t *testing.T) {
	t.Parallel()
	sink := &told{blocked: make(chan struct{})}
	m, err := newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })
	require.NoError(t, err)
	f := newFeed(Config{Mode: Embedded, Sink: sink, Logger: slog.New(slog.DiscardHandler)}, m)
	f.wait.Go(func() { f.dispatch(f.dispatchers[0]) }) // and watch does not come to it
	defer f.close()
	room := uuid.New()
	require.NoError(t, f.join(t.Context(), room))
	message, stored := &Message{Room: room, To: []uuid.UUID{uuid.New()}, Payload: []byte("x")}, uint64(0)
	store := func() {
		stored++
		f.handOver(message, []wire.StreamID{{Incarnation: 1, Sequence: stored}}, nil)
	}
	for range feedQueue + 10 {
		store()
	}
	close(sink.blocked)
	require.Eventually(t, func() bool { return sink.count() >= feedQueue && len(f.dispatchers[0].own) == 0 }, time.Minute, time.Millisecond)
	store()
	f.wait.Go(f.watch)
	require.Eventually(t, func() bool { return !f.overflowed.Load() }, time.Minute, time.Millisecond)
	store()
	require.Eventually(t, func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return sink.all[len(sink.all)-1] == stored
	}, time.Minute, time.Millisecond)
	before := uint64(0)
	for _, sequence := range sink.all {
		if sequence != 0 && before != 0 {
			require.Equal(t, before+1, sequence, "a row follows one that was dropped")
		}
		before = sequence
	}
	require.Contains(t, sink.all, uint64(0))
}
