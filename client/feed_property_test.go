package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// flaky is a relay with one inbox of the rows 1 to rows, which arrive while it is read. It
// pushes rows live in between the replay's, some of them both ways, and cuts connections.
type flaky struct {
	rows   int
	marked bool // knows the replay marker
	limits bool // knows limits

	mu      sync.Mutex // guards the following fields
	random  *rand.Rand
	arrived int
	cuts    int // how many connections are still cut
}

func (f *flaky) chance(one int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(one) == 0
}

// newest lets some rows arrive.
func (f *flaky) newest(most int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived = min(f.rows, f.arrived+f.random.IntN(most+1))
	return f.arrived
}

// cut reports that the connection breaks now.
func (f *flaky) cut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cuts == 0 || f.random.IntN(60) > 0 {
		return false
	}
	f.cuts--
	return true
}

func (f *flaky) marker(replay bool) string {
	if !f.marked {
		return ""
	}
	return strconv.FormatBool(replay)
}

var errCut = errors.New("cut")

// script is one connection: it answers resumes, and pushes what is newer.
func (f *flaky) script(_ int, p peer) {
	p.send(welcome)
	asked := make(chan string, 8)
	go func() {
		defer close(asked)
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			asked <- string(got)
		}
	}()
	pushed := -1 // nothing is live before the first resume
	for {
		select {
		case got, ok := <-asked:
			if !ok || f.replay(p, got, &pushed) != nil {
				return
			}
		case <-time.After(time.Millisecond):
			if pushed >= 0 && f.push(p, &pushed, f.newest(40)) != nil {
				return
			}
		}
	}
}

func (f *flaky) write(p peer, frame string) error {
	if f.cut() {
		return errCut
	}
	return p.ws.Write(p.ctx, 1, []byte(frame))
}

// push sends rows live.
func (f *flaky) push(p peer, pushed *int, upTo int) error {
	for *pushed < upTo {
		*pushed++
		if err := f.write(p, deliver(*pushed, f.marker(false))); err != nil {
			return err
		}
	}
	return nil
}

func (f *flaky) replay(p peer, resume string, pushed *int) error {
	var after, limit int
	if _, err := fmt.Sscanf(resume, `{"type":"resume","last_id":"7-%d","limit":%d}`, &after, &limit); err != nil {
		return err
	}
	end := f.newest(30)
	*pushed = max(*pushed, end)
	sent := 0
	for i := after + 1; i <= end; i++ {
		if f.limits && sent == limit {
			return f.write(p, complete(sent, true))
		}
		if err := f.write(p, deliver(i, f.marker(true))); err != nil {
			return err
		}
		sent++
		if f.chance(20) {
			if err := f.push(p, pushed, f.newest(3)); err != nil {
				return err
			}
			if !f.marked && f.chance(2) { // the scan goes on over what has come live
				end = *pushed
			}
		}
	}
	return f.write(p, complete(sent, false))
}

// Property: whatever is cut, killed, live or replayed, the cursor moves over every row in
// order, and each is shown (FAULTS D01, D06, D08; RELAY, both kinds of relays).
func TestTheCursorMovesOverEveryRowInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		f := &flaky{rows: 400, marked: seed%2 == 0, limits: seed%4 == 0, random: rand.New(rand.NewPCG(seed, 0)), cuts: 12}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			clock := clockwork.NewFakeClock()
			link := client.NewLink(dialer(serveAll(t, f.script)), client.Retryable, clock)
			p := &program{t: t, flaky: f, shown: make(map[string]bool), lost: make(chan time.Duration, 1)}
			passing, stop := context.WithCancel(t.Context())
			defer stop()
			go p.passTime(passing, clock)
			for range 200 {
				if p.run(link) {
					break
				}
			}
			require.EqualValues(t, f.rows, p.cursor.Load())
			require.Len(t, p.shown, f.rows)
		})
	}
}

// program reads the inbox, and is killed now and then.
type program struct {
	t      *testing.T
	flaky  *flaky
	cursor atomic.Int64
	shown  map[string]bool
	idle   atomic.Bool // all rows were shown
	lost   chan time.Duration
}

// passTime lets pauses pass, and in the end the time until what came live comes as replay.
func (p *program) passTime(ctx context.Context, clock *clockwork.FakeClock) {
	for {
		select {
		case pause := <-p.lost:
			if clock.BlockUntilContext(ctx, 1) != nil {
				return
			}
			clock.Advance(pause)
		case <-time.After(20 * time.Millisecond):
			if p.idle.Load() {
				clock.Advance(client.SettleTime)
			}
		case <-ctx.Done():
			return
		}
	}
}

// check demands that a connection ended by a cut, or as time passed within a replay.
func (p *program) check(err error) {
	if errors.Is(err, client.ErrReplay) && !strings.Contains(err.Error(), "does not go on") {
		p.t.Errorf("the replay was refused: %v", err)
	}
}

func (p *program) take(rows []client.Row) error {
	for _, row := range rows {
		if p.flaky.chance(300) {
			return client.Final(errKilled)
		}
		p.shown[row.Frame.StreamID] = true
		p.idle.Store(len(p.shown) == p.flaky.rows)
		id, _ := wire.ParseStreamID([]byte(row.Frame.StreamID))
		if row.Moves && !p.cursor.CompareAndSwap(int64(id.Sequence)-1, int64(id.Sequence)) {
			return client.Final(fmt.Errorf("row %d moves the cursor from %d", id.Sequence, p.cursor.Load()))
		}
	}
	if p.cursor.Load() == int64(p.flaky.rows) {
		return client.Final(errDone)
	}
	return nil
}

var errDone = errors.New("all rows are read")

// run is one life of the program: it listens, or polls.
func (p *program) run(link client.Link) (done bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cursor := func() string { return fmt.Sprintf("7-%d", p.cursor.Load()) }
	var err error
	if p.flaky.chance(3) {
		err = link.With(ctx, func(conn *client.Conn) error {
			_, err := conn.Page(ctx, cursor(), 40, noGap, p.take)
			return err
		})
	} else {
		err = link.Run(ctx, func(ctx context.Context, conn *client.Conn) error {
			return conn.Follow(ctx, cursor, noGap, func() error { return nil }, p.take)
		}, func(err error, pause time.Duration) {
			p.check(err)
			p.lost <- pause
		})
	}
	if errors.Is(err, errDone) {
		return true
	}
	require.NoError(p.t, ctx.Err(), "it hangs at %d", p.cursor.Load())
	if err != nil && !errors.Is(err, errKilled) {
		require.True(p.t, client.Retryable(err))
		p.check(err)
		require.NotContains(p.t, err.Error(), "moves the cursor")
	}
	return false
}
