package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// roomCommand is the flags of a command that reads or writes in one room.
type roomCommand struct {
	deviceCommand
	Room string `required:"" env:"PEER_ROOM" placeholder:"ID" help:"The room's id (peer rooms)."`
}

// in runs do with the room's session.
func (c roomCommand) in(ctx context.Context, con console, do func(r *running, s *client.Session) error) error {
	if err := c.checkRoom(); err != nil {
		return err
	}
	return c.with(con, func(r *running) error {
		session, err := r.session(ctx, c.Room)
		if err != nil {
			return c.explain(err)
		}
		return c.explain(do(r, session))
	})
}

func (c roomCommand) checkRoom() error {
	if _, ok := wire.ParseUUID([]byte(c.Room)); !ok {
		return usageError{"--room is the id of a room"}
	}
	return nil
}

// readCommand is the flags of a command that prints what came.
type readCommand struct {
	deviceCommand
	Room  string `env:"PEER_ROOM" placeholder:"ID" help:"This room alone (peer rooms). Without it: all rooms of the device."`
	Files string `type:"path" placeholder:"FOLDER" help:"Save files that come in this folder. Without it they are named only, and are gone."`
}

// one is the same for the room that was named.
func (c readCommand) one() roomCommand { return roomCommand{c.deviceCommand, c.Room} }

// printer prints what comes. Close its keeper.
func (c readCommand) printer(con console, d *client.Device) (*printer, error) {
	keep, err := newKeeper(c.Files)
	if err != nil {
		return nil, err
	}
	return &printer{con: con, json: c.JSON, tagged: c.Room == "", keep: keep, names: newNames(d)}, nil
}

type listenCommand struct {
	readCommand
	ExitAfter int           `placeholder:"N" help:"End when N messages were printed; with code 1 if --timeout is over first."`
	Timeout   time.Duration `placeholder:"DURATION" help:"End when this is over."`
	LookAgain time.Duration `default:"15s" placeholder:"DURATION" help:"Without --room: how often to ask the relay which rooms there are."`
}

// Help is kong's long text of the command.
func (*listenCommand) Help() string {
	return `Prints what waits, then what comes, until Ctrl-C, and connects again when the connection is lost. Each message is printed once:
the next peer listen or peer poll goes on after it. Where this is killed in the middle of a message, that one is printed again, with
the same id.

Without --room it follows all rooms of the device, at most ` + strconv.Itoa(maxRooms) + ` of them, and those that the device comes into meanwhile. It lets go of a room
that the device is not in any more, and says so where it cannot read one.

While it runs it has the device's keys open. Other peer commands of the same device run inside of it, such as a peer listen for another
room; they end when it does.

With --json each line is an object whose type is message, failure (a message that cannot be decrypted or is not authentic), event (of
the room), board (a card changed) or gap (the relay dropped messages before they were read); its room_id is the room's.

Examples:
  peer listen --home alice
  peer listen --home alice --room ROOM_ID
  peer listen --home robot --room ROOM_ID --json --files received`
}

// errLate says that a time-out was over.
var errLate = errors.New("timed out")

// Run listens until it is told to stop.
func (c *listenCommand) Run(ctx context.Context, con console) error {
	if c.Timeout < 0 || c.ExitAfter < 0 {
		return usageError{"--timeout and --exit-after are not negative"}
	}
	if c.LookAgain < time.Second {
		return usageError{"--look-again is at least a second"}
	}
	dir, err := c.dir()
	if err != nil && con.shared == nil {
		return err
	}
	if c.Room == "" {
		return c.with(con, func(r *running) error { return c.explain(c.hosting(ctx, con, r, dir, c.everyRoom(r))) })
	}
	return c.one().in(ctx, con, func(r *running, s *client.Session) error {
		return c.hosting(ctx, con, r, dir, func(ctx context.Context, con console, take taking) error {
			return s.ListenWith(ctx, c.told(con, s.Room()), take(s))
		})
	})
}

// taking is what takes the items of a session.
type taking func(s *client.Session) func(client.Item) error

// hosting follows one room, or all, and runs the commands of others meanwhile.
func (c *listenCommand) hosting(
	ctx context.Context, con console, r *running, dir string, follow func(ctx context.Context, con console, take taking) error,
) error {
	if con.shared == nil {
		stop := r.serve(ctx, dir, con)
		defer stop()
	}
	con.err = &lockedWriter{to: con.err} // rooms are followed side by side
	p, err := c.printer(con, r.device)
	if err != nil {
		return err
	}
	defer p.keep.close()
	return c.listen(ctx, p, func(ctx context.Context, take taking) error { return follow(ctx, con, take) })
}

func (c *listenCommand) listen(outer context.Context, p *printer, follow func(ctx context.Context, take taking) error) error {
	ctx, cancel := context.WithCancel(outer)
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(outer, c.Timeout)
	}
	defer cancel()
	var printing sync.Mutex // guards the printer and the following variable
	var failure error       // of printing
	err := follow(ctx, func(s *client.Session) func(client.Item) error {
		return func(item client.Item) error {
			printing.Lock()
			defer printing.Unlock()
			if c.enough(p) {
				return errEnough // this item comes again
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.room, p.self = s.Room(), s.Participant()
			if failure = p.print(ctx, item); failure != nil {
				cancel()
				return failure
			}
			if c.enough(p) {
				cancel() // when it was taken
			}
			return nil
		}
	})
	switch {
	case c.enough(p), outer.Err() != nil: // Ctrl-C
		return nil
	case failure != nil:
		return failure
	case ctx.Err() == nil:
		return err
	case c.ExitAfter > 0:
		return fmt.Errorf("%w: %d of %d messages within %s", errLate, p.printed, c.ExitAfter, c.Timeout)
	}
	return nil
}

func (c *listenCommand) enough(p *printer) bool { return c.ExitAfter > 0 && p.printed >= c.ExitAfter }

// told says how it goes.
func (c *listenCommand) told(con console, room string) client.ListenOptions {
	of := "" // the only room
	if c.Room == "" {
		of = "room " + room + ": "
	}
	options := client.ListenOptions{Lost: func(err error, pause time.Duration) {
		con.notef("%s%v; connecting again in %s", of, err, pause.Round(100*time.Millisecond))
	}}
	if !c.JSON {
		options.CaughtUp = func() { con.notef("listening in room %s; Ctrl-C ends it", room) }
	}
	return options
}

// lockedWriter takes what several goroutines write.
type lockedWriter struct {
	mu sync.Mutex // guards the following field
	to io.Writer
}

// Write writes it.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
