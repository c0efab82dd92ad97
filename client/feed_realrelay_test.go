package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// controlTo is an envelope that the relay stores in one inbox.
func controlTo(from, to testkit.Participant, id string, seq int) client.Outgoing {
	return client.Outgoing{Recipients: 1, Envelope: fmt.Appendf(nil,
		`{"v":1,"id":%q,"session_id":%q,"from":%q,"to":%q,"kind":"control","gen":1,"seq":%d,"ts":%d,"nonce":"","ct":""}`,
		id, from.Room, from.ID, to.ID, seq, time.Now().UnixMilli())}
}

// inbox is what one participant has got of an inbox, over many connections: it drops what
// comes again by envelope id.
type inbox struct {
	t  *testing.T
	mu sync.Mutex

	cursor string
	ids    map[string]bool // envelopes
	moved  []string        // stream ids of rows that moved the cursor
	last   wire.StreamID   // the newest row
	rows   int             // of all kinds, with repeats
	slow   func()
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	return &inbox{t: t, cursor: "0", ids: make(map[string]bool), slow: func() {}}
}

func (i *inbox) take(rows []client.Row) error {
	i.slow()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, row := range rows {
		i.rows++
		if id, ok := client.EnvelopeID(row.Frame.Envelope); ok {
			i.ids[id] = true
		}
		if id, ok := wire.ParseStreamID([]byte(row.Frame.StreamID)); ok && id.Compare(i.last) > 0 {
			i.last = id
		}
		if row.Moves {
			i.cursor = row.Frame.StreamID
			i.moved = append(i.moved, row.Frame.StreamID)
		}
	}
	return nil
}

func (i *inbox) at() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cursor
}

func (i *inbox) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.ids)
}

func noGap(string) error { return errors.New("nothing was lost here") }

// requireRisen demands that the cursor moved over each row once, in order.
func (i *inbox) requireRisen() {
	i.t.Helper()
	var last wire.StreamID
	for _, text := range i.moved {
		id, ok := wire.ParseStreamID([]byte(text))
		require.True(i.t, ok)
		require.Positive(i.t, id.Compare(last), "%s after %s", id, last)
		last = id
	}
}

func dialAs(t *testing.T, s *testkit.Relay, who testkit.Participant) *client.Conn {
	t.Helper()
	conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: who.Credential})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendRows fills an inbox.
func sendRows(t *testing.T, s *testkit.Relay, from, to testkit.Participant, count int) {
	t.Helper()
	conn := dialAs(t, s, from)
	defer conn.Close()
	var batch []client.Outgoing
	for n := range count {
		batch = append(batch, controlTo(from, to, fmt.Sprintf("row-%d", n), n+1))
	}
	verdicts, err := conn.SendAll(t.Context(), batch)
	require.NoError(t, err)
	require.Len(t, verdicts, count)
}

// FAULTS D03: a page that is cut by its limit is followed by the next at once.
func TestPagesOfARealInbox(t *testing.T) {
	s := testkit.Start(t, testkit.EnvelopesPerSecond(100_000))
	room := s.Room(t, testkit.RoomOptions{Scheme: "sender_keys"})
	alice, bob := s.Join(t, room, "owner"), s.Join(t, room, "agent")
	s.Told(t, room)
	conn, in := dialAs(t, s, bob), newInbox(t)
	_, err := conn.Page(t.Context(), in.at(), 0, noGap, in.take)
	require.NoError(t, err)
	sendRows(t, s, alice, bob, 250)

	conn = dialAs(t, s, bob)
	before := in.rows
	for _, want := range []int{100, 100, 50} {
		began := time.Now()
		more, err := conn.Page(t.Context(), in.at(), 100, noGap, in.take)
		require.NoError(t, err)
		require.Equal(t, want == 100, more)
		require.Equal(t, want, in.rows-before)
		require.Less(t, time.Since(began), time.Second)
		before = in.rows
	}
	require.Equal(t, 250, in.count())
	in.requireRisen()
}

// FAULTS D07, D08: a reader that reconnects quickly and stalls, under live traffic, has each
// row once in the end, and a connected one moves its cursor.
func TestQuickReconnectsLoseNothing(t *testing.T) {
	const reconnects, rows = 50, 400
	s := testkit.Start(t, testkit.EnvelopesPerSecond(100_000), testkit.FramesPerSecond(100_000))
	room := s.Room(t, testkit.RoomOptions{Scheme: "sender_keys"})
	alice, bob := s.Join(t, room, "owner"), s.Join(t, room, "agent")
	s.Told(t, room)
	in := newInbox(t)

	var sending sync.WaitGroup
	pause := time.NewTicker(4 * time.Millisecond)
	defer pause.Stop()
	sender := dialAs(t, s, alice)
	sending.Go(func() {
		for n := range rows {
			<-pause.C
			if _, err := sender.SendAll(t.Context(), []client.Outgoing{controlTo(alice, bob, fmt.Sprintf("row-%d", n), n+1)}); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	})
	for range reconnects {
		conn := dialAs(t, s, bob)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(50))*time.Millisecond)
		err := conn.Follow(ctx, in.at, noGap, func() error { return nil }, in.take)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
		require.NoError(t, conn.Close())
	}

	clock := clockwork.NewFakeClock()
	link := client.NewLink(func(ctx context.Context) (*client.Conn, error) {
		return client.Dial(ctx, s.RelayURL(), client.Options{Token: bob.Credential})
	}, client.Retryable, clock)
	in.slow = func() {
		if rand.IntN(10) == 0 {
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // a reader that stalls
		}
	}
	stop := aside(t, link, func(ctx context.Context, conn *client.Conn) error {
		return conn.Follow(ctx, in.at, noGap, func() error { return nil }, in.take)
	}, make(pauses))
	sending.Wait()
	require.Eventually(t, func() bool { return in.count() == rows }, patience, 10*time.Millisecond)
	newest := in.newest()
	require.Eventually(t, func() bool {
		clock.Advance(client.SettleTime) // what came live comes again as replay
		return in.at() == newest
	}, patience, 50*time.Millisecond)
	require.NoError(t, stop())
	in.requireRisen()
	require.GreaterOrEqual(t, len(in.moved), rows)
}

// newest is the newest row's id.
func (i *inbox) newest() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last.String()
}
