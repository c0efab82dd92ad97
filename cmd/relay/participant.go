package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/secretfile"
)

// ParticipantCmd groups the commands on the participants of a room.
type ParticipantCmd struct {
	Add    ParticipantAddCmd    `cmd:"" help:"Add a participant, with a first credential."`
	Remove ParticipantRemoveCmd `cmd:"" help:"Remove a participant; its connections close everywhere before this returns."`
	List   ParticipantListCmd   `cmd:"" help:"List who is in a room."`
}

// terms are the flags of what mints a credential.
type terms struct {
	Kind           string        `enum:"session,development" default:"session" help:"Kind of the credential: session, or development for hello with direct: true."`
	TTL            time.Duration `name:"ttl" default:"24h" help:"How long the credential is valid."`
	CredentialFile string        `placeholder:"FILE" help:"Put the credential into this new file, readable by you only, instead of showing it."`
}

func (t *terms) seconds() (*int64, error) {
	if t.TTL < time.Second || t.TTL > api.MaxCredentialTTL || t.TTL%time.Second != 0 {
		return nil, usageError{fmt.Sprintf("--ttl must be whole seconds, at least one and at most %.0fh", api.MaxCredentialTTL.Hours())}
	}
	seconds := int64(t.TTL / time.Second)
	return &seconds, nil
}

// ParticipantAddCmd adds a participant.
type ParticipantAddCmd struct {
	Room   string `required:"" placeholder:"ID" help:"The room."`
	Role   string `required:"" enum:"owner,controller,agent,viewer" placeholder:"ROLE" help:"owner and controller are people, agent is an agent, viewer only reads."`
	Device string `placeholder:"ID" help:"The device; default: a new local one that needs no enrollment."`
	terms  `embed:""`
}

// Help is shown by relay participant add --help.
func (*ParticipantAddCmd) Help() string {
	return `Example:

  relay participant add --room ROOM_ID --role agent --credential-file alice.cred`
}

// Run adds it.
func (c *ParticipantAddCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("room", c.Room); err != nil {
		return err
	}
	if c.Device != "" {
		if err := checkID("device", c.Device); err != nil {
			return err
		}
	}
	ttl, err := c.seconds()
	if err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	file, err := secretfile.New(c.CredentialFile, "--credential-file")
	if err != nil {
		return err
	}
	defer file.Close()
	var member api.Member
	body := api.NewMember{Role: c.Role, DeviceID: c.Device, Kind: c.Kind, TTLSeconds: ttl}
	if err := server.call(ctx, http.MethodPost, "/v1/rooms/"+c.Room+"/members", nil, body, &member); err != nil {
		return fmt.Errorf("add the participant: %w", err)
	}
	if member.Warning != "" {
		con.notef("warning: %s", member.Warning)
	}
	kept := file.Keep(member.Credential)
	if kept != nil {
		file = new(secretfile.File) // then it has to be shown
	}
	return orError(kept, show(globals, con, member, func(w io.Writer) {
		fmt.Fprintf(w, "Participant %s (%s) is in the room.\n", member.ParticipantID, member.Role)
		tellCredential(w, file, member.Credential, member.ExpiresAt)
		next(w, globals, con,
			"participant list --room "+member.RoomID,
			"inbox --participant "+member.ParticipantID)
		fmt.Fprintf(w, "  %s\n", listenCommand(con, file, server.relayURL(ctx)))
	}))
}

func orError(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// ParticipantRemoveCmd removes a participant.
type ParticipantRemoveCmd struct {
	Room        string `required:"" placeholder:"ID" help:"The room."`
	Participant string `required:"" placeholder:"ID" help:"Who is removed."`
}

// Help is shown by relay participant remove --help.
func (*ParticipantRemoveCmd) Help() string {
	return `Example:

  relay participant remove --room ROOM_ID --participant PARTICIPANT_ID

Its credentials end with it. Removing somebody who is removed already is no error.`
}

// Run removes it.
func (c *ParticipantRemoveCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("room", c.Room); err != nil {
		return err
	}
	if err := checkID("participant", c.Participant); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var removed api.Removed
	if err := server.call(ctx, http.MethodDelete, "/v1/rooms/"+c.Room+"/members/"+c.Participant, nil, nil, &removed); err != nil {
		return fmt.Errorf("remove the participant: %w", err)
	}
	return show(globals, con, removed, func(w io.Writer) {
		fmt.Fprintf(w, "Participant %s is removed, and its connections are closed.\n", removed.ParticipantID)
		next(w, globals, con, "participant list --room "+c.Room)
	})
}

// ParticipantListCmd lists a room.
type ParticipantListCmd struct {
	Room string `required:"" placeholder:"ID" help:"The room."`
}

// Help is shown by relay participant list --help.
func (*ParticipantListCmd) Help() string {
	return `Example:

  relay participant list --room ROOM_ID --json`
}

// Run lists it, all pages of it.
func (c *ParticipantListCmd) Run(ctx context.Context, globals *Globals, con console) error {
	if err := checkID("room", c.Room); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	all := api.Participants{Participants: []api.Participant{}}
	query := url.Values{}
	for {
		var page api.Participants
		if err := server.call(ctx, http.MethodGet, "/v1/sessions/"+c.Room+"/participants", query, nil, &page); err != nil {
			return fmt.Errorf("list the participants: %w", err)
		}
		all.Participants = append(all.Participants, page.Participants...)
		if page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	return show(globals, con, all, func(w io.Writer) {
		if len(all.Participants) == 0 {
			fmt.Fprintln(w, "Nobody is in the room.")
			next(w, globals, con, "participant add --room "+c.Room+" --role agent")
			return
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PARTICIPANT\tROLE\tJOINED\tDEVICE")
		for _, p := range all.Participants {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.ParticipantID, p.Role, moment(p.JoinedAt), p.DeviceID)
		}
		_ = table.Flush() // into a buffer
		next(w, globals, con,
			"inbox --participant "+all.Participants[0].ParticipantID,
			"credential mint --participant "+all.Participants[0].ParticipantID)
	})
}
