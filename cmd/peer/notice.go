package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/peerrelay/peerrelay/client"
)

// noticeCommands are alerts of agents.
type noticeCommands struct {
	Send noticeSendCommand `cmd:"" default:"withargs" help:"Send a notice to everybody in a room, as an agent (default)."`
	List noticeListCommand `cmd:"" help:"List the notices of a room that the relay has accepted, without what they say."`
}

type noticeSendCommand struct {
	roomCommand
	Text []string      `arg:"" optional:"" help:"The text; without it, or as -, it is read from standard input."`
	TTL  time.Duration `name:"ttl" default:"10m" help:"How long it is good, at most 24h."`
}

// Help is kong's long text of the command.
func (*noticeSendCommand) Help() string {
	return `An alert of an agent to everybody in the room, which is good for some time. It comes to the others as a message of kind notice. One
that got no answer is not kept: look with peer notice list whether it was stored before it is sent again.

send may be left out: peer notice "the build is broken".

Example:
  peer notice send --home robot --room ROOM_ID --ttl 30m "the build is broken"`
}

// Run sends it.
func (c *noticeSendCommand) Run(ctx context.Context, con console) error {
	if c.TTL < time.Second {
		return usageError{"--ttl is at least a second"}
	}
	return c.in(ctx, con, func(_ *running, s *client.Session) error {
		text, err := (&sendCommand{roomCommand: c.roomCommand, Text: c.Text}).text(ctx, con)
		if err != nil {
			return err
		}
		return c.send(ctx, con, s, client.Draft{Text: text, Expires: time.Now().Add(c.TTL)})
	})
}

type noticeListCommand struct{ roomCommand }

// Help is kong's long text of the command.
func (*noticeListCommand) Help() string {
	return `Who sent them, when, and until when they are good, by the relay's word. What they say came through peer listen or peer poll, once:
the keys of a notice are deleted when it was opened.

Example:
  peer notice list --home alice --room ROOM_ID`
}

// noticeLine is a notice as it is listed.
type noticeLine struct {
	ID         string    `json:"id"`
	From       string    `json:"from"`
	AcceptedAt time.Time `json:"accepted_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// Run lists them.
func (c *noticeListCommand) Run(ctx context.Context, con console) error {
	if err := c.checkRoom(); err != nil {
		return err
	}
	return c.with(con, func(r *running) error {
		found := []noticeLine{}
		for n, err := range r.device.Notices(ctx, c.Room, client.OldestFirst) {
			if err != nil {
				return c.explain(err)
			}
			found = append(found, noticeLine{ID: n.MessageID, From: n.From, AcceptedAt: n.AcceptedAt, ExpiresAt: n.ExpiresAt})
		}
		return c.show(con, map[string]any{"notices": found}, func(w io.Writer) { tellNotices(w, found) })
	})
}

func tellNotices(w io.Writer, found []noticeLine) {
	if len(found) == 0 {
		fmt.Fprintln(w, "There are no notices.")
		return
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NOTICE\tFROM\tACCEPTED\tGOOD UNTIL")
	for i := range found {
		n := &found[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.ID, n.From, moment(n.AcceptedAt), moment(n.ExpiresAt))
	}
	_ = table.Flush() // into a builder
	fmt.Fprint(w, out.String())
}
