package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hintRow is a row of the inbox 7 that is a Board hint, event n of it.
func hintRow(n int, replay bool) []byte {
	return fmt.Appendf(nil, `{"type":"board.update","stream_id":"9000000000000-%d","event_id":"01980000-0000-7000-8000-%012d",`+
		`"card_id":"01980000-0000-7000-8000-00000000000c","revision":%d,"replay":%t}`, n, n, n, replay)
}

// inboxOf answers the resumes of an agent in the relay's place.
func (o *offline) inboxOf(answer func(cursor string) [][]byte) (resumes func() []string) {
	var mu sync.Mutex
	var all []string
	var due [][]byte
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		var frame struct {
			Type   string `json:"type"`
			LastID string `json:"last_id"` //nolint:tagliatelle // the protocol's
		}
		if json.Unmarshal(message, &frame) != nil || frame.Type != "resume" {
			return true, nil
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, frame.LastID)
		due = answer(frame.LastID)
		return true, nil // the relay answers, too; onDown puts the rows in its place
	})
	o.proxy.onDown(func(message []byte) [][]byte {
		var frame struct{ Type string }
		mu.Lock()
		defer mu.Unlock()
		switch _ = json.Unmarshal(message, &frame); frame.Type {
		case "resume_complete", "resync_required":
			rows := due
			due = nil
			return rows
		case "deliver", "room.event", "board.update":
			return nil
		default:
			return [][]byte{message}
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// FAULTS D01, D06: 300 rows of a replay; a live row with a higher id comes after row 20, and the
// program is stopped when it has handled row 50. The next one resumes from row 50, and every row
// is handled once.
func TestALiveRowMovesNoCursorOfASession(t *testing.T) {
	t.Parallel()
	const live, last = 400, 300
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	bob.poll(t) // what the relay itself has
	var first []string
	resumes := o.inboxOf(func(cursor string) (rows [][]byte) {
		first = append(first, cursor)
		if len(first) == 1 {
			for n := 1; n <= 50; n++ {
				rows = append(rows, hintRow(n, true))
				if n == 20 {
					rows = append(rows, hintRow(live, false))
				}
			}
			return rows // and no more: the replay does not complete
		}
		for n := 51; n <= last; n++ {
			rows = append(rows, hintRow(n, true))
		}
		return append(rows, hintRow(live, true), []byte(`{"type":"resume_complete","replayed":251}`))
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bob.Listen(ctx, bob.take) }()
	require.Eventually(t, func() bool { return len(bob.hints()) == 50 }, sessionPatience, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	handled := bob.hints()
	bob = o.again(t)
	bob.listen(t)
	require.Equal(t, "9000000000000-50", resumes()[1])
	handled = append(handled, bob.hints()...)
	slices.Sort(handled)
	var want []uint64
	for n := uint64(1); n <= last; n++ {
		want = append(want, n)
	}
	require.Equal(t, append(want, live), handled)
}

// hints are the revisions of the Board hints so far.
func (r *talker) hints() (all []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if item.Board != nil {
			all = append(all, item.Board.Revision)
		}
	}
	return all
}

// FAULTS D06, D03: a connection that ends before the first row leaves the cursor, one that ends
// after row 7 of 20 leaves it there, and a Poll goes on from the last row of the one before.
func TestTheCursorOfASessionIsThatOfTheLastRow(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	steps := [][][]byte{
		nil,
		{hintRow(1, true), hintRow(2, true), hintRow(3, true), hintRow(4, true), hintRow(5, true), hintRow(6, true), hintRow(7, true)},
	}
	rest := func(from, to int, more string) (rows [][]byte) {
		for n := from; n <= to; n++ {
			rows = append(rows, hintRow(n, true))
		}
		return append(rows, fmt.Appendf(nil, `{"type":"resume_complete","replayed":%d%s}`, to-from+1, more))
	}
	steps = append(steps, rest(8, 107, `,"more":true`), rest(108, 207, `,"more":true`), rest(208, 257, ""), rest(258, 258, ""), rest(259, 258, ""))
	asked := 0
	resumes := o.inboxOf(func(string) [][]byte {
		asked++
		return steps[asked-1]
	})
	for cut := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := bob.Poll(ctx, 0, bob.take)
			ended <- err
		}()
		require.Eventually(t, func() bool { return len(resumes()) == cut+1 && len(bob.hints()) == 7*cut }, sessionPatience, time.Millisecond)
		o.proxy.cut()
		require.Error(t, <-ended)
		cancel()
	}
	for _, rows := range []int{100, 100, 50, 1, 0} {
		before := len(bob.hints())
		more, err := bob.Poll(t.Context(), 0, bob.take)
		require.NoError(t, err)
		require.Equal(t, rows == 100, more)
		require.Len(t, bob.hints(), before+rows)
	}
	require.Equal(t, []string{"0", "0", "9000000000000-7", "9000000000000-107", "9000000000000-207", "9000000000000-257", "9000000000000-258"}, resumes())
	require.Len(t, bob.hints(), 258)
	require.True(t, slices.IsSorted(bob.hints()))
}
