package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// row is one row of an inbox, a deliver, board.update or room.event. It may come again: as
// replay after it came live, and over another connection. Dropping repeats, by envelope id or
// event_id, is the reader's task.
type row struct {
	frame wire.ServerFrame
	moves bool // the cursor may move to frame.StreamID once this row and those before were processed
}

const (
	// rowBatch is how many rows are processed together at most: those that are there already.
	rowBatch = 32
	// pollRows is how many rows a poll takes (RELAY: "a bounded poll may stop after 100 replay rows").
	pollRows = 100
	// settleRows and settleTime are after how many live rows, or how long after the first of
	// them, follow resumes again, so that the cursor moves over them.
	settleRows = 50
	settleTime = 2 * time.Minute
	// replayTimeout is how long a replay may bring nothing before it is given up.
	replayTimeout = 30 * time.Second
	// resumeTries is how often a resume is sent that is answered with resume_in_progress.
	resumeTries = 3
	// maxHeldRows and maxHeldBytes bound what is kept until resume_complete of a relay without
	// the replay marker, whose inboxes have about wire.MaxInboxRows rows.
	maxHeldRows  = 2 * wire.MaxInboxRows
	maxHeldBytes = 64 << 20
)

// ErrReplay says that a relay's replay broke the protocol or did not end: rows that do not
// rise, or none for half a minute. The cursor stays where it is.
var ErrReplay = errors.New("the relay's replay is not one")

// page resumes after cursor and hands over up to limit replay rows, in batches and in order. It
// returns when the replay is complete, with whether more is retained behind it: then page may
// be called again, on the same connection, with the cursor at the last of the rows. gap is
// told of resync_required, before the rows. Live rows are left to a later resume. A relay
// without the replay marker is read as RELAY says: nothing is handed over before
// resume_complete.
//
// An empty cursor is "0". limit is 1 to wire.MaxResumeLimit; others are pollRows. An error of
// gap or rows comes back as it is and ends the page; what the relay refuses (invalid_cursor)
// is a *wire.Error that also ends link.run. Only one page or follow of a connection may run,
// and nobody else may Receive.
func (c *Conn) page(ctx context.Context, cursor string, limit int, gap func(oldest string) error, rows func([]row) error) (more bool, err error) {
	if limit < 1 || limit > wire.MaxResumeLimit {
		limit = pollRows
	}
	f := &feed{conn: c, gap: gap, rows: rows}
	return f.resume(ctx, cursor, limit)
}

// follow resumes after cursor() and hands over rows, replayed and live, in batches as they are
// there, until the connection or ctx ends. Live rows that come during a replay wait for its end,
// as they are newer than all that it still brings. Now and then it resumes again, so that what came
// live comes as replay too and the cursor moves. caughtUp is told once, when a replay has
// nothing more behind it. cursor is asked before each resume, when all rows that were handed
// over are processed. gap is told once for each cursor, but again with the next follow as long
// as no row has moved the cursor. Errors are those of page; follow never returns nil.
func (c *Conn) follow(ctx context.Context, cursor func() string, gap func(oldest string) error, caughtUp func() error, rows func([]row) error) error {
	f := &feed{conn: c, gap: gap, rows: rows, live: true}
	for first := true; ; first = false {
		for more := true; more; {
			var err error
			if more, err = f.resume(ctx, cursor(), pollRows); err != nil {
				return err
			}
		}
		if first {
			if err := caughtUp(); err != nil {
				return err
			}
		}
		if err := f.listen(ctx); err != nil {
			return err
		}
	}
}

// feed is one page or follow.
type feed struct {
	conn *Conn
	gap  func(oldest string) error
	rows func([]row) error
	live bool // live rows are handed over, and no replay row is left out

	batch []row // not handed over yet
	gapAt string
	replay
}

// replay is what one resume brought so far.
type replay struct {
	cursor string
	limit  int
	last   wire.StreamID // of the rows that move, or the cursor
	marked bool          // a row with replay: true came
	moved  int           // rows that move
	passed int           // live rows, of the replay's time and after it
	cut    bool          // rows beyond the limit were left out
	held   []row         // rows without a marker
	later  []row         // live rows, until the replay is complete
	bytes  int           // of held
}

// errDue says that the time given to await is over.
var errDue = errors.New("it is time")

// errInProgress says that the relay still answers another resume.
var errInProgress = errors.New("another resume is running")

// resume sends a resume and hands over what it brings, until resume_complete.
func (f *feed) resume(ctx context.Context, cursor string, limit int) (more bool, err error) {
	cursor = cmp.Or(cursor, "0")
	for range resumeTries {
		if err := f.drain(ctx); err != nil {
			return false, err
		}
		f.replay = replay{cursor: cursor, limit: limit}
		f.last, _ = wire.ParseStreamID([]byte(cursor)) // "0" and "$" come before every row
		if err := f.conn.Resume(ctx, cursor, limit); err != nil {
			return false, err
		}
		if more, err = f.collect(ctx); !errors.Is(err, errInProgress) {
			return more, err
		}
	}
	return false, &wire.Error{Code: wire.ResumeInProgress, Detail: errInProgress.Error()}
}

// drain waits for the end of a replay that was left before, and drops its rows: where they
// belong is not known any more. They come again.
func (f *feed) drain(ctx context.Context) error {
	for f.conn.resuming.Load() {
		if _, err := f.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *feed) collect(ctx context.Context) (more bool, err error) {
	for {
		frame, err := f.next(ctx)
		if err != nil {
			return false, err
		}
		switch frame.Type {
		case wire.ServerDeliver, wire.ServerBoardUpdate, wire.ServerRoomEvent:
			err = f.take(frame)
		case wire.ServerResyncRequired:
			err = f.missed(frame)
		case wire.ServerResumeComplete:
			return f.complete(frame)
		case wire.ServerError:
			err = f.refused(frame)
		default: // receipts of others, and what later relays send
		}
		if err != nil {
			return false, cmp.Or(f.flush(), err) // what came before is good
		}
	}
}

// next is the next frame. What waits is handed over before it blocks, and a relay that says
// nothing of a replay for replayTimeout is given up.
func (f *feed) next(ctx context.Context) (wire.ServerFrame, error) {
	frame, ok, err := f.ready(ctx)
	if ok || err != nil {
		return frame, err
	}
	timer := f.conn.clock.NewTimer(replayTimeout)
	defer timer.Stop()
	frame, err = f.conn.await(ctx, timer.Chan())
	if errors.Is(err, errDue) {
		err = fmt.Errorf("%w: it does not go on", ErrReplay)
	}
	return frame, err
}

// ready is a frame that is there already. Where there is none, what waits is handed over.
func (f *feed) ready(ctx context.Context) (frame wire.ServerFrame, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return frame, false, err
	}
	if frame, ok := f.conn.ready(); ok {
		return frame, true, nil
	}
	return frame, false, f.flush()
}

func (f *feed) add(r row) error {
	f.batch = append(f.batch, r)
	if len(f.batch) < rowBatch {
		return nil
	}
	return f.flush()
}

func (f *feed) flush() error {
	if len(f.batch) == 0 {
		return nil
	}
	batch := f.batch
	f.batch = nil // the rows are the receiver's
	return f.rows(batch)
}

// take takes a row that came during a replay.
func (f *feed) take(frame wire.ServerFrame) error {
	switch frame.Replay {
	case wire.ReplayUnmarked:
		return f.hold(frame)
	case wire.ReplayStored:
		id := streamID(frame)
		if id.Compare(f.last) <= 0 {
			return fmt.Errorf("%w: row %s came after %s", ErrReplay, id, f.last)
		}
		f.last, f.marked = id, true
		return f.move(frame)
	default:
		f.wait(frame)
		return nil
	}
}

// move hands over a row of the replay, up to the limit. follow takes what a relay sends that
// does not know limits.
func (f *feed) move(frame wire.ServerFrame) error {
	if f.moved == f.limit && !f.live {
		f.cut = true
		return nil
	}
	f.moved++
	return f.add(row{frame: frame, moves: true})
}

// pass hands over a row that moves nothing.
func (f *feed) pass(frame wire.ServerFrame) error {
	if !f.live {
		return nil
	}
	f.passed++
	return f.add(row{frame: frame})
}

// wait keeps a live row until the replay is complete. Beyond a number of them follow resumes
// again at once, and has the others as replay.
func (f *feed) wait(frame wire.ServerFrame) {
	if !f.live {
		return
	}
	if f.passed++; f.passed < settleRows {
		f.later = append(f.later, row{frame: frame})
	}
}

// hold keeps a row that may be one of the replay or live; resume_complete tells.
func (f *feed) hold(frame wire.ServerFrame) error {
	f.bytes += len(frame.Raw)
	if len(f.held) == maxHeldRows || f.bytes > maxHeldBytes {
		return fmt.Errorf("%w: it has no end", ErrReplay)
	}
	f.held = append(f.held, row{frame: frame})
	return nil
}

// missed tells of rows that are gone. What is retained may then be anything, also before the
// cursor.
func (f *feed) missed(frame wire.ServerFrame) error {
	if f.moved > 0 {
		return fmt.Errorf("%w: resync_required came after rows", ErrReplay)
	}
	f.last = wire.StreamID{}
	if err := f.flush(); err != nil {
		return err
	}
	if f.gapAt == f.cursor {
		return nil
	}
	f.gapAt = f.cursor
	return f.gap(frame.OldestID)
}

// refused reads an error frame, which does not say what it answers: of these it is the resume.
func (f *feed) refused(frame wire.ServerFrame) error {
	switch {
	case frame.Reason == wire.ResumeInProgress:
		return errInProgress
	case frame.Reason == wire.InvalidCursor, frame.Reason == wire.InvalidFrame,
		frame.Reason == wire.UnknownFrame && frame.FrameType == "resume":
		f.conn.resuming.Store(false)
		return final(&wire.Error{Code: frame.Reason, Detail: oneLine(frame.Detail)})
	}
	return nil
}

func (f *feed) complete(frame wire.ServerFrame) (more bool, err error) {
	if err := f.release(frame.Replayed); err != nil {
		return false, err
	}
	// A relay that has more without having sent anything would be asked for ever.
	more = (frame.More || f.cut) && f.moved > 0
	if !more { // else they come as replay, behind those that they follow
		for _, r := range f.later {
			if err := f.add(r); err != nil {
				return false, err
			}
		}
	}
	return more, f.flush()
}

// release hands over the rows without a marker (RELAY, "A client meeting an older relay"). They
// are sorted; as a replay leaves out none from the cursor up to its end, the first ones behind
// the cursor are it, whatever live rows came between. Where marked rows came, too, the relay
// broke the protocol, and those without a marker move nothing.
func (f *feed) release(replayed int) error {
	held := f.held
	f.held = nil
	slices.SortStableFunc(held, func(a, b row) int { return streamID(a.frame).Compare(streamID(b.frame)) })
	held = slices.CompactFunc(held, func(a, b row) bool { return a.frame.StreamID == b.frame.StreamID })
	first := slices.IndexFunc(held, func(r row) bool { return streamID(r.frame).Compare(f.last) > 0 })
	if first < 0 {
		first = len(held)
	}
	behind := first + replayed // of the rows that move
	if f.marked {
		behind = first
	}
	if behind > len(held) && len(held) > 0 {
		return fmt.Errorf("%w: %d of its %d rows came", ErrReplay, len(held)-first, replayed)
	}
	for i, r := range held {
		hand := f.pass
		if i >= first && i < behind {
			hand = f.move
		}
		if err := hand(r.frame); err != nil {
			return err
		}
	}
	return nil
}

// listen hands over live rows until it is time to resume again for those that came.
func (f *feed) listen(ctx context.Context) error {
	var due <-chan time.Time
	for f.passed < settleRows {
		if f.passed > 0 && due == nil {
			timer := f.conn.clock.NewTimer(settleTime)
			defer timer.Stop()
			due = timer.Chan()
		}
		frame, ok, err := f.ready(ctx)
		if err == nil && !ok {
			frame, err = f.conn.await(ctx, due)
		}
		if errors.Is(err, errDue) {
			return nil
		}
		if err != nil {
			return err
		}
		switch frame.Type {
		case wire.ServerDeliver, wire.ServerBoardUpdate, wire.ServerRoomEvent: // also one that says it is of a replay
			if err := f.pass(frame); err != nil {
				return err
			}
		default: // a resume_complete that nobody asked for, too
		}
	}
	return f.flush()
}

// streamID reads the id of a row, whose form wire.ParseServer has checked.
func streamID(frame wire.ServerFrame) wire.StreamID {
	id, _ := wire.ParseStreamID([]byte(frame.StreamID))
	return id
}
