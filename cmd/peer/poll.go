package main

import (
	"context"

	"github.com/peerrelay/peerrelay/client"
)

// maxPoll is how many rows one poll reads at most (RELAY, "A polling client").
const maxPoll = 100

type pollCommand struct {
	readCommand
	Limit int `default:"100" help:"Rows of the inbox to read, 1 to 100."`
}

// Help is kong's long text of the command.
func (*pollCommand) Help() string {
	return `Prints what waits and was not printed yet, and ends. Room events and keys are rows too, so that fewer messages than the limit may
be printed while more wait. With --json the last line is {"type":"polled","messages":N,"more":BOOL}.

Examples:
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
	return c.in(ctx, con, func(r *running, s *client.Session) error {
		p, err := c.printer(con, r.device, s)
		if err != nil {
			return err
		}
		defer p.keep.close()
		more, err := s.Poll(ctx, c.Limit, func(item client.Item) error { return p.print(ctx, item) })
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
	})
}
