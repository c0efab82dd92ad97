package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
)

// maxPoll is how many rows one poll reads at most (RELAY, "A polling client").
const maxPoll = 100

type pollCommand struct {
	readCommand
	Limit int `default:"100" help:"Rows of each room's inbox to read, 1 to 100."`
}

// Help is kong's long text of the command.
func (*pollCommand) Help() string {
	return `Prints what waits and was not printed yet, and ends. Room events and keys are rows too, so that fewer messages than the limit may
be printed while more wait. With --json the last line is {"type":"polled","messages":N,"more":BOOL}.

Without --room it polls all rooms of the device, one after the other.

Examples:
  peer poll --home alice
  peer poll --home robot --room ROOM_ID --json --files received`
}

// polledLine ends what a poll prints with --json.
type polledLine struct {
	Type     string `json:"type"` // polled
	Messages int    `json:"messages"`
	More     bool   `json:"more"` // more waits
}

// Run polls once.
func (c *pollCommand) Run(ctx context.Context, con console) error {
	if c.Limit < 1 || c.Limit > maxPoll {
		return usageError{"--limit is 1 to 100"}
	}
	if c.Room == "" {
		return c.with(con, func(r *running) error {
			return c.explain(c.poll(con, r, func(p *printer) (bool, error) { return c.everyRoom(ctx, r, p) }))
		})
	}
	return c.one().in(ctx, con, func(r *running, s *client.Session) error {
		return c.poll(con, r, func(p *printer) (bool, error) { return c.room(ctx, s, p) })
	})
}

func (c *pollCommand) poll(con console, r *running, read func(p *printer) (more bool, err error)) error {
	p, err := c.printer(con, r.device)
	if err != nil {
		return err
	}
	defer p.keep.close()
	more, err := read(p)
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		return writeJSON(con.out, polledLine{Type: "polled", Messages: p.printed, More: more})
	case more:
		con.notef("more messages wait: poll again")
	case p.printed == 0:
		con.notef("no new messages")
	}
	return nil
}

func (c *pollCommand) room(ctx context.Context, s *client.Session, p *printer) (more bool, err error) {
	p.room, p.self = s.Room(), s.Participant()
	return s.Poll(ctx, c.Limit, func(item client.Item) error { return p.print(ctx, item) })
}

// everyRoom polls one room after the other. A room that cannot be polled does not keep the others
// from it; the first such error is returned.
func (c *pollCommand) everyRoom(ctx context.Context, r *running, p *printer) (more bool, err error) {
	found, err := roomsOf(ctx, r.device)
	if err != nil {
		return false, err
	}
	var first error
	for i := range found {
		waits, err := c.oneOf(ctx, r, found[i].RoomID, p)
		more = more || waits
		switch {
		case err == nil:
		case errors.Is(err, encryption.ErrScheme):
			p.con.notef("room %s is left out: %v", found[i].RoomID, err)
		case !ofRoom(err) || unreachable(err) || ctx.Err() != nil:
			return more, err
		case first == nil:
			first = fmt.Errorf("room %s: %w", found[i].RoomID, err)
		default:
			p.con.notef("%v", c.explain(fmt.Errorf("room %s: %w", found[i].RoomID, err)))
		}
	}
	return more, first
}

func (c *pollCommand) oneOf(ctx context.Context, r *running, room string, p *printer) (more bool, err error) {
	s, err := r.session(ctx, room)
	if err != nil {
		return false, err
	}
	return c.room(ctx, s, p)
}
