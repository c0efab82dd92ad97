package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/peerrelay/peerrelay/api"
)

// InboxCmd shows an inbox.
type InboxCmd struct {
	Participant string `required:"" placeholder:"ID" help:"Whose inbox it is."`
}

// Help is shown by relay inbox --help.
func (*InboxCmd) Help() string {
	return `Example:

  relay inbox --participant PARTICIPANT_ID

It tells where the inbox is, how full, and which commands of the nats program show what is in it.`
}

// Run shows it.
func (c *InboxCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("participant", c.Participant); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var inbox api.Inbox
	if err := server.call(ctx, http.MethodGet, "/v1/participants/"+c.Participant+"/inbox", nil, nil, &inbox); err != nil {
		return fmt.Errorf("look at the inbox: %w", err)
	}
	return show(globals, con, inbox, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "Stream\t%s\n", inbox.Stream)
		fmt.Fprintf(table, "Subject\t%s\n", inbox.Subject)
		fmt.Fprintf(table, "Messages\t%d\n", inbox.Messages)
		fmt.Fprintf(table, "Oldest\t%s\n", orNone(inbox.OldestID))
		fmt.Fprintf(table, "Newest\t%s\n", orNone(inbox.NewestID))
		_ = table.Flush() // into a buffer
		fmt.Fprint(w, "\nSee all of it, the newest one, and what arrives in the room:\n")
		for _, command := range inbox.Commands {
			fmt.Fprintf(w, "  %s\n", command)
		}
	})
}

func orNone(id *string) string {
	if id == nil {
		return "-"
	}
	return *id
}
