package main

import (
	"context"
	"errors"
	"fmt"
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
	roomCommand
	Files string `type:"path" placeholder:"FOLDER" help:"Save files that come in this folder. Without it they are named only, and are gone."`
}

// printer prints what comes. Close it.
func (c readCommand) printer(con console, d *client.Device, s *client.Session) (*printer, error) {
	keep, err := newKeeper(c.Files)
	if err != nil {
		return nil, err
	}
	return &printer{con: con, json: c.JSON, room: c.Room, self: s.Participant(), keep: keep, names: newNames(d)}, nil
}

type listenCommand struct {
	readCommand
	ExitAfter int           `placeholder:"N" help:"End when N messages were printed; with code 1 if --timeout is over first."`
	Timeout   time.Duration `placeholder:"DURATION" help:"End when this is over."`
}

// Help is kong's long text of the command.
func (*listenCommand) Help() string {
	return `Prints what waits, then what comes, until Ctrl-C, and connects again when the connection is lost. Each message is printed once:
the next peer listen or peer poll goes on after it. Where this is killed in the middle of a message, that one is printed again, with
the same id.

While it runs it has the device's keys open. Other peer commands of the same device run inside of it, such as a peer listen for another
room; they end when it does.

With --json each line is an object whose type is message, failure (a message that cannot be decrypted or is not authentic), event (of
the room), board (a card changed) or gap (the relay dropped messages before they were read).

Examples:
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
	dir, err := c.dir()
	if err != nil && con.shared == nil {
		return err
	}
	return c.in(ctx, con, func(r *running, s *client.Session) error {
		if con.shared == nil {
			stop := r.serve(ctx, dir, con)
			defer stop()
		}
		p, err := c.printer(con, r.device, s)
		if err != nil {
			return err
		}
		defer p.keep.close()
		return c.listen(ctx, s, p)
	})
}

func (c *listenCommand) listen(outer context.Context, s *client.Session, p *printer) error {
	ctx, cancel := context.WithCancel(outer)
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(outer, c.Timeout)
	}
	defer cancel()
	err := s.ListenWith(ctx, c.told(p.con), func(item client.Item) error {
		if c.enough(p) {
			return errEnough // this item comes again
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.print(ctx, item); err != nil {
			return err
		}
		if c.enough(p) {
			cancel() // when it was taken
		}
		return nil
	})
	switch {
	case c.enough(p), outer.Err() != nil: // Ctrl-C
		return nil
	case ctx.Err() == nil:
		return err
	case c.ExitAfter > 0:
		return fmt.Errorf("%w: %d of %d messages within %s", errLate, p.printed, c.ExitAfter, c.Timeout)
	}
	return nil
}

func (c *listenCommand) enough(p *printer) bool { return c.ExitAfter > 0 && p.printed >= c.ExitAfter }

// told says how it goes.
func (c *listenCommand) told(con console) client.ListenOptions {
	options := client.ListenOptions{Lost: func(err error, pause time.Duration) {
		con.notef("%v; connecting again in %s", err, pause.Round(100*time.Millisecond))
	}}
	if !c.JSON {
		options.CaughtUp = func() { con.notef("listening in room %s; Ctrl-C ends it", c.Room) }
	}
	return options
}
