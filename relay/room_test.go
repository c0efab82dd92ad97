package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// rosters answers look-ups with what a test says, when it says so: the only way to
// hold a look-up in the middle.
type rosters func(context.Context) (store.Roster, error)

func (f rosters) Roster(ctx context.Context, _, _ uuid.UUID) (store.Roster, error) { return f(ctx) }

// DESIGN section 6, "Freshness": a look-up that started before a change never
// overwrites what came after it.
func TestRosterLookUpThatBeganBeforeAChangeIsNotKept(t *testing.T) {
	t.Parallel()
	rm := newRoom(uuid.New(), uuid.New())
	asked, answer := make(chan struct{}, 10), make(chan store.Roster)
	lookup := rosters(func(context.Context) (store.Roster, error) {
		asked <- struct{}{}
		return <-answer, nil
	})
	version := func(n int64) store.Roster { return store.Roster{Room: store.Room{Version: n}} }
	got := make(chan *roster)
	go func() {
		found, err := rm.currentRoster(t.Context(), lookup)
		if err != nil {
			found = nil
		}
		got <- found
	}()
	<-asked
	rm.changed()
	answer <- version(1)
	<-asked
	answer <- version(2)
	require.EqualValues(t, 2, (<-got).room.Version)

	cached, err := rm.currentRoster(t.Context(), lookup)
	require.NoError(t, err)
	require.EqualValues(t, 2, cached.room.Version)
}

func TestRosterLookUpFails(t *testing.T) {
	t.Parallel()
	rm := newRoom(uuid.New(), uuid.New())
	down := errors.New("down")
	_, err := rm.currentRoster(t.Context(), rosters(func(context.Context) (store.Roster, error) {
		return store.Roster{}, down
	}))
	require.ErrorIs(t, err, down)
	require.Nil(t, rm.roster.Load(), "nothing is kept of a look-up that failed")
}

// A second sender of the same message id waits for the first.
func TestTwinsOfOneMessageTakeTurns(t *testing.T) {
	t.Parallel()
	rm := newRoom(uuid.New(), uuid.New())
	var inside, most, total int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if rm.begin(t.Context(), "x") != nil {
				return
			}
			mu.Lock()
			inside++
			total++
			most = max(most, inside)
			mu.Unlock()
			mu.Lock()
			inside--
			mu.Unlock()
			rm.end("x")
		})
	}
	wg.Wait()
	require.Equal(t, 1, most)
	require.Equal(t, 50, total)
	require.Empty(t, rm.sending)

	require.NoError(t, rm.begin(t.Context(), "y"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, rm.begin(ctx, "y"), context.DeadlineExceeded)
	rm.end("y")
}

// DESIGN section 5, "Live push": what a catch-up may skip, and where it begins.
func TestRecentRows(t *testing.T) {
	t.Parallel()
	var r recentRows
	now := time.Now()
	for n := uint64(1); n <= maxRecent+44; n++ {
		r.add(n, now)
	}
	require.EqualValues(t, 44, r.evicted, "the newest are remembered")
	require.True(t, r.has(maxRecent+44))
	require.True(t, r.has(r.evicted+1))
	require.False(t, r.has(r.evicted))

	r.add(2*maxRecent, now.Add(overtaking+time.Second))
	require.Len(t, r.rows, 1, "what is old has certainly arrived")
	require.EqualValues(t, maxRecent+44, r.evicted)
	r.add(50, now.Add(overtaking+time.Second))
	require.True(t, r.has(50), "one that was overtaken")
}

func TestWorkersAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	w := newWorkers(3)
	var mu sync.Mutex
	var running, most, done int
	hold := make(chan struct{})
	finished := make(chan struct{}, 20)
	for range 20 {
		w.run(func() {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-hold
			mu.Lock()
			running--
			done++
			mu.Unlock()
			finished <- struct{}{}
		})
	}
	close(hold)
	for range 20 {
		<-finished
	}
	w.close()
	w.run(func() { t.Error("a job after close") })
	w.close()
	require.Equal(t, 20, done)
	require.LessOrEqual(t, most, 3)
}
