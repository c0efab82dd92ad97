package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

type rawListenCommand struct {
	connection
	After     string        `default:"$" help:"Where to begin: $ (what comes from now on), 0 (all that is retained), or a stream id."`
	Limit     int           `placeholder:"N" help:"Rows per page of the replay, 1 to 500; the next page is asked for at once."`
	ExitAfter int           `placeholder:"N" help:"Exit when N rows were printed."`
	NoFollow  bool          `help:"Exit when the replay is complete; with code 1 if that takes longer than --timeout."`
	Timeout   time.Duration `placeholder:"DURATION" help:"Exit with code 1 when this is over first; none by default, 30s with --no-follow."`
	JSON      bool          `help:"Print every frame as one line of JSON."`
}

// Help is kong's long text of the command.
func (*rawListenCommand) Help() string {
	return `Reconnects with growing pauses and goes on after the last row of an ordered replay, as the protocol asks; rows that were
printed before are not printed again. Stops with code 1 where another attempt would end the same way: when the credential is
refused (4403), on every other close the protocol says not to retry, when the server answers 4xx instead of opening a
WebSocket, and when its certificate cannot be verified.

Examples:
  peer raw listen --credential-file bob.cred
  peer raw listen --home alice --room ROOM_ID
  peer raw listen --credential-file bob.cred --after 0 --no-follow --json`
}

// Pauses between attempts to connect.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	jitter       = 40 // per cent
)

// replayTimeout bounds --no-follow where --timeout does not.
const replayTimeout = 30 * time.Second

// Run listens until it is told to stop.
func (c *rawListenCommand) Run(ctx context.Context, con console) error {
	if _, err := wire.ParseCursor([]byte(c.After)); err != nil {
		return usageError{fmt.Sprintf("--after: %v", err)}
	}
	if c.Limit < 0 || c.Limit > wire.MaxResumeLimit {
		return usageError{fmt.Sprintf("--limit is 1 to %d", wire.MaxResumeLimit)}
	}
	if c.Timeout < 0 || c.ExitAfter < 0 {
		return usageError{"--timeout and --exit-after are not negative"}
	}
	dialer, err := c.dialer(con)
	if err != nil {
		return err
	}
	defer dialer.close()
	stop, err := c.serve(ctx, con, dialer)
	if err != nil {
		return err
	}
	defer stop()
	bounded, cancel := c.bound(ctx)
	defer cancel()
	l := &listening{command: c, con: con, cursor: c.After, dialer: dialer, pause: firstPause}
	err = l.run(bounded)
	switch {
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() != nil: // Ctrl-C
		return l.interrupted()
	case bounded.Err() != nil:
		return l.late()
	}
	return err
}

// serve lets other commands of the device run inside of this one.
func (c *rawListenCommand) serve(ctx context.Context, con console, dialer *dialer) (stop func(), err error) {
	if dialer.opened == nil || con.shared != nil {
		return func() {}, nil
	}
	dir, err := c.dir()
	if err != nil {
		return nil, err
	}
	return dialer.opened.serve(ctx, dir, con), nil
}

// bound is ctx with the time-out that was asked for.
func (c *rawListenCommand) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 && c.NoFollow {
		c.Timeout = replayTimeout
	}
	if c.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// interrupted is nil where the user has seen all that was asked for.
func (l *listening) interrupted() error {
	switch {
	case l.command.ExitAfter > 0:
		return fmt.Errorf("stopped after %d of %d rows", l.printed, l.command.ExitAfter)
	case l.command.NoFollow:
		return fmt.Errorf("stopped after %d rows, before the replay was complete", l.printed)
	}
	return nil
}

// late says how far it came in time, and what was in the way.
func (l *listening) late() error {
	text := fmt.Sprintf("%d rows within %s", l.printed, l.command.Timeout)
	if l.command.NoFollow {
		text = fmt.Sprintf("the replay was not complete within %s, after %d rows", l.command.Timeout, l.printed)
	}
	if l.lost != nil {
		return fmt.Errorf("%s; last: %w", text, l.lost)
	}
	return errors.New(text)
}

// errEnough ends listening with success.
var errEnough = errors.New("printed as many rows as were asked for")

// listening is one run of peer raw listen, over all its connections.
type listening struct {
	command *rawListenCommand
	con     console
	dialer  *dialer
	pause   time.Duration // the first one after a connection that worked

	cursor  string // the last row of an ordered replay that was handled
	skip    bool   // the running replay only finds where "$" is
	seen    recentRows
	printed int
	lost    error // why the last connection ended, or did not come about
}

func (l *listening) run(ctx context.Context) error {
	for {
		backoff := l.backoff()
		for {
			resumed, err := l.connection(ctx)
			if errors.Is(err, errEnough) || ctx.Err() != nil {
				return err
			}
			if !l.dialer.retryable(err) {
				return err
			}
			l.lost = err
			if resumed {
				backoff = l.backoff()
			}
			if err := l.wait(ctx, backoff, err); err != nil {
				return err
			}
		}
	}
}

func (l *listening) backoff() retry.Backoff {
	return retry.WithJitterPercent(jitter, retry.WithCappedDuration(longestPause, retry.NewExponential(l.pause)))
}

func (l *listening) wait(ctx context.Context, backoff retry.Backoff, cause error) error {
	pause, _ := backoff.Next()
	l.con.notef("%v; connecting again in %s", cause, pause.Round(100*time.Millisecond))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connection lives through one connection. resumed says whether its replay
// completed.
func (l *listening) connection(ctx context.Context) (resumed bool, err error) {
	conn, err := l.dialer.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := l.resume(ctx, conn); err != nil {
		return false, err
	}
	for {
		frame, err := conn.Receive(ctx)
		if err != nil {
			return resumed, err
		}
		complete, err := l.frame(ctx, conn, frame)
		if err != nil {
			return resumed, err
		}
		resumed = resumed || complete
	}
}

// resume asks for what follows the cursor. For "$" it asks for all that is
// retained and prints none of it: the last of those rows is the place to go on
// from when the connection is lost before anything new came.
func (l *listening) resume(ctx context.Context, conn *client.Conn) error {
	if l.cursor == "$" && !l.command.NoFollow {
		l.skip = true
		return conn.Resume(ctx, "0", 0)
	}
	return conn.Resume(ctx, l.cursor, l.command.Limit)
}

// frame handles one frame and reports whether it completed the replay.
func (l *listening) frame(ctx context.Context, conn *client.Conn, frame wire.ServerFrame) (complete bool, err error) {
	switch frame.Type {
	case wire.ServerDeliver, wire.ServerBoardUpdate, wire.ServerRoomEvent:
		return false, l.row(frame)
	case wire.ServerResumeComplete:
		return l.resumeComplete(ctx, conn, frame)
	default:
		return false, l.print(frame)
	}
}

func (l *listening) row(frame wire.ServerFrame) error {
	if frame.Replay == wire.ReplayStored {
		l.cursor = frame.StreamID // only replay rows prove that nothing before is missing
		if l.skip {
			l.seen.add(frame.StreamID)
			return nil
		}
	}
	if !l.seen.add(frame.StreamID) {
		return nil
	}
	if err := l.print(frame); err != nil {
		return err
	}
	l.printed++
	if l.command.ExitAfter > 0 && l.printed >= l.command.ExitAfter {
		return errEnough
	}
	return nil
}

func (l *listening) resumeComplete(ctx context.Context, conn *client.Conn, frame wire.ServerFrame) (bool, error) {
	if l.skip {
		return true, l.foundStart(frame)
	}
	if frame.More {
		return false, conn.Resume(ctx, l.cursor, l.command.Limit)
	}
	if err := l.print(frame); err != nil {
		return true, err
	}
	if l.command.NoFollow {
		return true, errEnough
	}
	return true, nil
}

// foundStart ends the silent replay that "$" began with: no row was shown.
func (l *listening) foundStart(frame wire.ServerFrame) error {
	l.skip = false
	if l.cursor == "$" { // the inbox is empty: everything in it will be new
		l.cursor = "0"
	}
	frame.Raw, frame.Replayed = wire.AppendResumeComplete(nil, 0, false), 0
	return l.print(frame)
}

// recentRows remembers the newest rows that were handled. An inbox retains
// wire.MaxInboxRows of them, so a replay brings none that fell out.
type recentRows struct {
	ids  map[string]struct{}
	ring [2 * wire.MaxInboxRows]string
	next int
}

// add reports whether the row is new.
func (r *recentRows) add(id string) bool {
	if _, ok := r.ids[id]; ok {
		return false
	}
	if r.ids == nil {
		r.ids = make(map[string]struct{}, len(r.ring))
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.ids[id] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
	return true
}
