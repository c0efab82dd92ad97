package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// deliver is a row of the inbox 7. marker is true, false, or empty for none.
func deliver(sequence int, marker string) string {
	if marker != "" {
		marker = `"replay":` + marker + ","
	}
	return fmt.Sprintf(`{"type":"deliver","stream_id":"7-%d",%s"envelope":{"v":1,"id":"m%d"}}`, sequence, marker, sequence)
}

// replayed are the rows from first to last.
func replayed(first, last int) (rows []string) {
	for i := first; i <= last; i++ {
		rows = append(rows, deliver(i, "true"))
	}
	return rows
}

func complete(count int, more bool) string {
	if more {
		return fmt.Sprintf(`{"type":"resume_complete","replayed":%d,"more":true}`, count)
	}
	return fmt.Sprintf(`{"type":"resume_complete","replayed":%d}`, count)
}

func resume(cursor string, limit int) string {
	return fmt.Sprintf(`{"type":"resume","last_id":%q,"limit":%d}`, cursor, limit)
}

// reader reads an inbox as a session does: it remembers what it has seen, and its cursor moves
// over rows that may move it, in their order.
type reader struct {
	t       *testing.T
	cursor  string
	rows    []string // stream ids, as they came, with a * where the cursor moved
	seen    map[string]int
	gaps    []string
	upTo    int // rows that are taken before the program is killed; 0: all
	batches []int
	caught  int
	wake    chan string // told of the last row of each batch, where there is one
}

var errKilled = errors.New("the program is killed")

func newReader(t *testing.T, cursor string) *reader {
	t.Helper()
	return &reader{t: t, cursor: cursor, seen: make(map[string]int)}
}

func (r *reader) take(batch []client.Row) error {
	r.batches = append(r.batches, len(batch))
	for _, row := range batch {
		if r.upTo > 0 && len(r.rows) == r.upTo {
			return errKilled
		}
		id := row.Frame.StreamID
		r.seen[id]++
		if row.Moves {
			r.cursor = id
			id += "*"
		}
		r.rows = append(r.rows, strings.TrimPrefix(id, "7-"))
	}
	if r.wake != nil {
		r.wake <- batch[len(batch)-1].Frame.StreamID
	}
	return nil
}

func (r *reader) gap(oldest string) error {
	r.gaps = append(r.gaps, oldest)
	return nil
}

func (r *reader) page(conn *client.Conn, limit int) (more bool, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return conn.Page(ctx, r.cursor, limit, r.gap, r.take)
}

func (r *reader) follow(conn *client.Conn) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return conn.Follow(ctx, func() string { return r.cursor }, r.gap, func() error { r.caught++; return nil }, r.take)
}

func list(text string) []string { return strings.Fields(text) }

// FAULTS D03 with a relay that sends more than was asked for.
func TestAPageEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("7-1", 3))
		p.send(replayed(2, 4)...)
		p.send(complete(3, true))
		p.expect(resume("7-4", 3))
		p.send(replayed(5, 9)...) // does not know limits
		p.send(complete(5, false))
		p.expect(resume("7-7", 3))
		p.send(deliver(8, "true"), deliver(10, "false"), deliver(9, "true"), complete(2, false))
		p.expect(resume("7-9", 100)) // 0 is 100
		p.send(complete(0, true))    // and more of it is not to be had
		p.gone()
	})
	r := newReader(t, "7-1")
	for _, want := range []bool{true, true, false} {
		more, err := r.page(conn, 3)
		require.NoError(t, err)
		require.Equal(t, want, more)
	}
	more, err := r.page(conn, 0)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, list("2* 3* 4* 5* 6* 7* 8* 9*"), r.rows, "live rows are left to a later resume")
}

func TestAPageOfANewInbox(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("0", 100))
		p.send(deliver(1, "true"), complete(1, false))
		p.gone()
	})
	r := newReader(t, "")
	more, err := r.page(conn, 5000)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, list("1*"), r.rows)
}

// Rows that are there already are handed over together, but not too many.
func TestRowsComeInBatches(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("0", 100))
		p.send(replayed(1, 100)...)
		p.send(`{"type":"ping","id":"1"}`)
		p.expect(`{"type":"pong","id":"1"}`) // all rows wait in the client
		p.send(complete(100, false))
		p.gone()
	})
	r := newReader(t, "")
	first := true
	_, err := conn.Page(t.Context(), "", 100, r.gap, func(batch []client.Row) error {
		if first {
			first = false
			require.Eventually(t, func() bool { return conn.Queued() > client.RowBatch }, patience, time.Millisecond)
		}
		return r.take(batch)
	})
	require.NoError(t, err)
	require.Len(t, r.rows, 100)
	require.Less(t, len(r.batches), 20)
	for _, size := range r.batches {
		require.LessOrEqual(t, size, client.RowBatch)
	}
	require.Contains(t, r.batches, client.RowBatch)
}

// FAULTS D06: the position is that of what was processed, not of what was asked for.
func TestAReplayThatIsCutMovesTheCursorAsFarAsItCame(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{0, 7} {
		resumed := make(chan string, 4)
		url := serveAll(t, func(n int, p peer) {
			p.send(welcome)
			if n == 0 && rows == 0 {
				return // cut before the resume is answered
			}
			resumed <- p.read()
			if n == 0 {
				p.send(replayed(4, 3+rows)...)
				return
			}
			p.send(complete(0, false))
			p.gone()
		})
		r := newReader(t, "7-3")
		for n := range 2 {
			conn, err := dialer(url)(t.Context())
			require.NoError(t, err)
			_, err = r.page(conn, 100)
			if n == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
		}
		require.Len(t, r.rows, rows)
		close(resumed)
		var asked []string
		for frame := range resumed {
			asked = append(asked, frame)
		}
		require.Equal(t, resume(fmt.Sprintf("7-%d", 3+rows), 100), asked[len(asked)-1])
	}
}

// FAULTS D01: a live row with a higher id says nothing of the rows before it, and is not shown
// before them.
func TestALiveRowMovesNoCursor(t *testing.T) {
	t.Parallel()
	const last, live = 300, 301
	resumed := make(chan string, 64)
	url := serveAll(t, func(n int, p peer) {
		p.send(welcome)
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			resumed <- string(got)
			var after int
			_, err = fmt.Sscanf(strings.Replace(string(got), `"0"`, `"7-0"`, 1), `{"type":"resume","last_id":"7-%d","limit":100}`, &after)
			if err != nil {
				t.Errorf("the client sent %s", got)
				return
			}
			end := last
			if n > 0 {
				end = live
			}
			end = min(end, after+100)
			for i := after + 1; i <= end; i++ {
				if p.ws.Write(p.ctx, 1, []byte(deliver(i, "true"))) != nil {
					return
				}
				if n == 0 && i == 20 {
					p.send(deliver(live, "false"))
				}
			}
			if p.ws.Write(p.ctx, 1, []byte(complete(end-after, end-after == 100))) != nil {
				return
			}
		}
	})
	r := newReader(t, "0")
	r.upTo = 50 // the live one waits for the 250 before it
	conn, err := dialer(url)(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, r.follow(conn), errKilled)
	require.NoError(t, conn.Close())
	require.Equal(t, "7-50", r.cursor)
	require.NotContains(t, r.rows, "301")
	require.Equal(t, resume("0", 100), <-resumed)

	r.upTo = 0
	conn, err = dialer(url)(t.Context())
	require.NoError(t, err)
	more := true
	for pages := 0; more; pages++ {
		more, err = r.page(conn, 100)
		require.NoError(t, err)
		require.Equal(t, resume(fmt.Sprintf("7-%d", 50+100*pages), 100), <-resumed)
	}
	require.NoError(t, conn.Close())
	require.Equal(t, "7-301", r.cursor)
	require.Len(t, r.seen, live)
	for i := 1; i <= live; i++ {
		require.Equal(t, 1, r.seen[fmt.Sprintf("7-%d", i)])
	}
}

// RELAY, "A client meeting an older relay without the marker".
func TestARelayWithoutTheReplayMarker(t *testing.T) {
	t.Parallel()
	// A live row between the replay's rows, and one that comes both ways, in any order.
	rows := []string{deliver(5, ""), deliver(9, ""), deliver(6, ""), deliver(8, ""), deliver(9, ""), deliver(12, "")}
	for _, test := range []struct {
		name     string
		replayed int
		follow   bool
		limit    int
		want     string
		more     bool
		err      error
	}{
		{"a page", 4, false, 100, "5* 6* 8* 9*", false, nil},
		{"a page, live rows within", 3, false, 100, "5* 6* 8*", false, nil},
		{"a bounded page", 4, false, 2, "5* 6*", true, nil},
		{"all of them", 5, false, 100, "5* 6* 8* 9* 12*", false, nil},
		{"more than came", 6, false, 100, "", false, client.ErrReplay},
		{"live ones only", 0, true, 0, "5 6 8 9 12", false, nil},
		{"followed", 3, true, 0, "5* 6* 8* 9 12", false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn := greeted(t, func(p peer) {
				p.read()
				p.send(rows...)
				p.send(complete(test.replayed, false))
			})
			r := newReader(t, "7-4")
			var more bool
			var err error
			if test.follow {
				require.Error(t, r.follow(conn), "the connection has ended")
				require.Equal(t, 1, r.caught)
			} else {
				more, err = r.page(conn, test.limit)
			}
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.more, more)
			require.Equal(t, list(test.want), append([]string{}, r.rows...))
		})
	}
}

func TestWithoutTheMarkerNothingMovesBeforeResumeComplete(t *testing.T) {
	t.Parallel()
	for _, follow := range []bool{true, false} {
		conn := greeted(t, func(p peer) {
			p.expect(resume("7-4", 100))
			p.send(deliver(5, ""), deliver(6, ""))
		})
		r := newReader(t, "7-4")
		if follow {
			require.Error(t, r.follow(conn))
		} else {
			_, err := r.page(conn, 100)
			require.Error(t, err)
		}
		require.Empty(t, r.rows)
		require.Equal(t, "7-4", r.cursor)
	}
}

func TestWithoutTheMarkerRowsAreNotKeptWithoutEnd(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.read()
		for i := range 2 * client.MaxHeldRows {
			if p.ws.Write(p.ctx, 1, []byte(deliver(5+i, ""))) != nil {
				return
			}
		}
		p.gone()
	})
	r := newReader(t, "7-4")
	_, err := r.page(conn, 100)
	require.ErrorIs(t, err, client.ErrReplay)
	require.Empty(t, r.rows)
	require.NoError(t, conn.Close())
}

func TestResyncRequired(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("9-50", 100))
		p.send(`{"type":"resync_required","oldest_id":"7-3"}`, deliver(3, "true"), deliver(4, "true"), complete(2, false))
		p.expect(resume("7-4", 100))
		p.send(`{"type":"resync_required","oldest_id":null}`, complete(0, false))
		p.gone()
	})
	r := newReader(t, "9-50")
	_, err := conn.Page(t.Context(), r.cursor, 0, func(oldest string) error {
		require.Empty(t, r.rows, "it is told before the rows")
		return r.gap(oldest)
	}, r.take)
	require.NoError(t, err)
	require.Equal(t, list("3* 4*"), r.rows, "all retained rows follow, whatever the cursor was")
	_, err = r.page(conn, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"7-3", ""}, r.gaps)
}

func TestAnErrorOfTheReaderEndsThePage(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.read()
		p.send(`{"type":"resync_required","oldest_id":"7-3"}`, deliver(3, "true"), complete(1, false))
		p.gone()
	})
	_, err := conn.Page(t.Context(), "7-1", 0, func(string) error { return errKilled }, nil)
	require.Equal(t, errKilled, err)
}

// A replay that was left is waited for, and its rows count for nothing: some of them were
// never processed.
func TestAReplayThatWasLeftIsOverBeforeTheNextBegins(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	conn := greeted(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(replayed(2, 4)...)
		<-left
		p.send(replayed(5, 6)...)
		p.send(complete(5, false))
		p.expect(resume("7-3", 100))
		p.send(replayed(4, 6)...)
		p.send(complete(3, false))
		p.gone()
	})
	r := newReader(t, "7-1")
	r.upTo = 2
	_, err := r.page(conn, 100)
	require.ErrorIs(t, err, errKilled)
	close(left)
	r.upTo = 0
	_, err = r.page(conn, 100)
	require.NoError(t, err)
	require.Equal(t, list("2* 3* 4* 5* 6*"), r.rows)
}

func refusal(reason wire.Code) string {
	return fmt.Sprintf(`{"type":"error","reason":%q,"detail":"said by a test"}`, reason)
}

func TestResumeInProgress(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(refusal(wire.ResumeInProgress), deliver(9, "true"), complete(8, false))
		p.expect(resume("7-1", 100))
		p.send(deliver(2, "true"), complete(1, false))
		for range 3 {
			p.expect(resume("7-2", 100))
			p.send(refusal(wire.ResumeInProgress), complete(0, false))
		}
		p.gone()
	})
	r := newReader(t, "7-1")
	_, err := r.page(conn, 100)
	require.NoError(t, err)
	require.Equal(t, list("2*"), r.rows)
	_, err = r.page(conn, 100)
	require.ErrorIs(t, err, &wire.Error{Code: wire.ResumeInProgress}, "it is not asked for ever")
}

// A cursor that the relay does not take is none on the next connection either.
func TestARefusedResumeIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("x", 100))
		p.send(refusal("of_a_later_relay"), refusal(wire.InvalidCursor))
		p.expect(resume("7-1", 100))
		p.send(complete(0, false))
		p.gone()
	})
	r := newReader(t, "x")
	_, err := r.page(conn, 100)
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidCursor})
	link := client.NewLink(func(context.Context) (*client.Conn, error) { return nil, err }, always, clockwork.NewFakeClock())
	require.ErrorIs(t, link.Run(t.Context(), nil, nil), &wire.Error{Code: wire.InvalidCursor})
	r.cursor = "7-1"
	_, err = r.page(conn, 100)
	require.NoError(t, err)
}

// Whatever a relay sends out of the protocol, the cursor moves over rising rows of a replay
// that was asked for, and nothing else.
func TestFramesOutOfTheProtocolMoveNoCursor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		frames []string
		want   string
		err    error // of the replay; nil: it is followed until the connection ends
	}{
		{"a row twice", []string{deliver(5, "true"), deliver(5, "true"), complete(2, false)}, "5*", client.ErrReplay},
		{"rows that fall", []string{deliver(6, "true"), deliver(5, "true"), complete(2, false)}, "6*", client.ErrReplay},
		{"a row before the cursor", []string{deliver(4, "true"), complete(1, false)}, "", client.ErrReplay},
		{"numbers, not text", []string{deliver(9, "true"), deliver(10, "true"), complete(2, false)}, "9* 10*", nil},
		{"resume_complete twice", []string{deliver(5, "true"), complete(1, false), complete(1, false), deliver(6, "false")}, "5* 6", nil},
		{"a replay row after the replay", []string{deliver(5, "true"), complete(1, false), deliver(8, "true")}, "5* 8", nil},
		{"resync_required after rows", []string{deliver(5, "true"), `{"type":"resync_required","oldest_id":"7-1"}`, deliver(2, "true")}, "5*", client.ErrReplay},
		{"resync_required without a resume", []string{complete(0, false), `{"type":"resync_required","oldest_id":"7-1"}`, deliver(7, "false")}, "7", nil},
		{"a row without marker among others", []string{deliver(5, "true"), deliver(9, ""), deliver(6, "true"), complete(3, false)}, "5* 6* 9", nil},
		{"a welcome, a verdict, an unknown frame", []string{welcome, queued("x", other, 9), nack("", wire.Partial), `{"type":"x"}`, deliver(5, "true"), complete(1, false)}, "5*", nil},
		{"more rows than replayed says", []string{deliver(5, "true"), deliver(6, "true"), complete(1, false)}, "5* 6*", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn := greeted(t, func(p peer) {
				p.expect(resume("7-4", 100))
				p.send(test.frames...)
				p.close(wire.CloseGoingAway, wire.ReasonShutdown)
			})
			r := newReader(t, "7-4")
			err := r.follow(conn)
			if test.err != nil {
				require.ErrorIs(t, err, test.err)
				require.True(t, client.Retryable(err))
			} else {
				var closed *client.CloseError
				require.ErrorAs(t, err, &closed)
			}
			require.Equal(t, list(test.want), append([]string{}, r.rows...))
		})
	}
}

// While it is connected the cursor moves as well: what came live comes again as replay.
func TestFollowResumesAgainAfterEnoughLiveRows(t *testing.T) {
	t.Parallel()
	conn, clock := clocked(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(deliver(2, "true"), complete(1, false))
		for i := range client.SettleRows {
			p.send(deliver(3+i, "false"))
		}
		p.expect(resume("7-2", 100))
		p.send(replayed(3, 2+client.SettleRows)...)
		p.send(complete(client.SettleRows, false), deliver(60, "false"))
		p.expect(resume("7-52", 100)) // when some time has passed
		p.send(deliver(60, "true"), complete(1, false))
		p.close(wire.CloseGoingAway, "")
	})
	r := newReader(t, "7-1")
	r.wake = make(chan string, 256)
	done := make(chan error, 1)
	go func() { done <- r.follow(conn) }()
	for <-r.wake != "7-60" { // everything before comes without time
	}
	elapse(t, clock, client.SettleTime)
	var closed *client.CloseError
	require.ErrorAs(t, <-done, &closed)
	require.Equal(t, "7-60", r.cursor)
	require.Equal(t, 1, r.caught)
	require.Len(t, r.rows, 1+2*client.SettleRows+2)
}

// A row that came live among those of the replay counts, too.
func TestFollowResumesAgainForALiveRowWithinTheReplay(t *testing.T) {
	t.Parallel()
	conn, clock := clocked(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(deliver(3, "false"), deliver(2, "true"), complete(1, false))
		p.expect(resume("7-2", 100))
		p.send(deliver(3, "true"), complete(1, false))
		p.close(wire.CloseGoingAway, "")
	})
	r := newReader(t, "7-1")
	caught := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- conn.Follow(t.Context(), func() string { return r.cursor }, noGap, func() error { close(caught); return nil }, r.take)
	}()
	<-caught
	elapse(t, clock, client.SettleTime)
	require.Error(t, <-done)
	require.Equal(t, list("2* 3 3*"), r.rows)
}

// A live row is newer than all that a replay still brings, so it waits for its end: beyond one
// page it comes as replay itself, and of very many the last ones do.
func TestLiveRowsDoNotOvertakeTheReplay(t *testing.T) {
	t.Parallel()
	conn := greeted(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(deliver(5, "false"), deliver(2, "true"), deliver(6, "false"), complete(1, true))
		p.expect(resume("7-2", 100))
		p.send(replayed(3, 4)...)
		for i := range client.SettleRows + 10 {
			p.send(deliver(7+i, "false"))
		}
		p.send(replayed(5, 6)...)
		p.send(complete(4, false))
		p.expect(resume("7-6", 100)) // at once
		p.send(replayed(7, 6+client.SettleRows+10)...)
		p.send(complete(client.SettleRows+10, false))
		p.close(wire.CloseGoingAway, "")
	})
	r := newReader(t, "7-1")
	require.Error(t, r.follow(conn))
	newest := 0
	for _, id := range r.rows {
		var sequence int
		_, err := fmt.Sscanf(id, "%d", &sequence)
		require.NoError(t, err)
		if r.seen[fmt.Sprintf("7-%d", sequence)] == 1 {
			require.Equal(t, max(newest, 1)+1, sequence, "%v", r.rows)
		}
		newest = max(newest, sequence)
	}
	require.Equal(t, 6+client.SettleRows+10, newest)
	require.Equal(t, fmt.Sprintf("7-%d", newest), r.cursor)
	require.Equal(t, 1, r.caught)
}

// Nothing is asked for where nothing came.
func TestFollowDoesNotResumeAgainWithoutRows(t *testing.T) {
	t.Parallel()
	caught := make(chan struct{})
	resumes := make(chan string, 8)
	conn, clock := clocked(t, func(p peer) {
		resumes <- p.read()
		p.send(complete(0, false))
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			resumes <- string(got)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- conn.Follow(ctx, func() string { return "7-1" }, nil, func() error { close(caught); return nil }, nil)
	}()
	<-caught
	for range 10 {
		clock.Advance(client.SettleTime)
	}
	require.NoError(t, conn.SendRaw(t.Context(), []byte("end")))
	require.Equal(t, resume("7-1", 100), <-resumes)
	require.Equal(t, "end", <-resumes)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestFollowTellsOfAGapOnce(t *testing.T) {
	t.Parallel()
	const gap = `{"type":"resync_required","oldest_id":null}`
	conn := greeted(t, func(p peer) {
		p.expect(resume("7-1", 100))
		p.send(gap, complete(0, false))
		for i := range client.SettleRows {
			p.send(deliver(3+i, "false"))
		}
		p.expect(resume("7-1", 100))
		p.send(gap, complete(0, false))
		p.close(wire.CloseGoingAway, "")
	})
	r := newReader(t, "7-1")
	require.Error(t, r.follow(conn))
	require.Equal(t, []string{""}, r.gaps)
}

// A relay that answers pings and nothing else does not hold a reader for ever.
func TestAReplayThatDoesNotGoOnIsGivenUp(t *testing.T) {
	t.Parallel()
	conn, clock := clocked(t, func(p peer) {
		p.read()
		p.send(deliver(5, "true"))
		p.gone()
	})
	r := newReader(t, "7-4")
	r.wake = make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		_, err := r.page(conn, 100)
		done <- err
	}()
	<-r.wake
	until(t, clock, client.ReplayTimeout, done, func(err error) { require.ErrorIs(t, err, client.ErrReplay) })
	require.Equal(t, list("5*"), r.rows)
	require.NoError(t, conn.Close())
}
