package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/peerrelay/peerrelay/api"
)

// RoomCmd groups the commands on rooms.
type RoomCmd struct {
	Create  RoomCreateCmd  `cmd:"" help:"Make a room."`
	List    RoomListCmd    `cmd:"" help:"List the rooms."`
	Show    RoomShowCmd    `cmd:"" help:"Show a room and who is in it."`
	Archive RoomArchiveCmd `cmd:"" help:"Close a room for good; its members may read on."`
	Reset   RoomResetCmd   `cmd:"" help:"Begin a room's encryption anew."`
}

// RoomCreateCmd makes a room.
type RoomCreateCmd struct {
	Scheme          string `enum:"sender_keys,mls,none,double_ratchet," default:"" placeholder:"SCHEME" help:"How its content is encrypted: sender_keys (default), mls or none; in a direct room double_ratchet (default), sender_keys, mls or none. Cannot change later."`
	PrivateMessages string `enum:"allowed,refused" default:"allowed" help:"Whether agents may send each other private messages: allowed or refused. Cannot change later."`
	Kind            string `enum:"group,direct" default:"group" help:"group, or direct for a person (owner or controller) and an agent."`
}

// Help is shown by relay room create --help.
func (*RoomCreateCmd) Help() string {
	return `Examples:

  relay room create
  relay room create --kind direct --json`
}

// Run makes it.
func (c *RoomCreateCmd) Run(ctx context.Context, globals *Globals, con console) error {
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var room api.Room
	body := api.NewRoom{Kind: c.Kind, Scheme: c.Scheme, PrivateMessages: c.PrivateMessages}
	if err := server.call(ctx, http.MethodPost, "/v1/rooms", nil, body, &room); err != nil {
		return fmt.Errorf("make the room: %w", err)
	}
	return show(globals, con, room, func(w io.Writer) {
		fmt.Fprintf(w, "Room %s is made (%s, %s, private messages %s).\n", room.ID, room.Kind, room.Scheme, room.PrivateMessages)
		next(w, globals, con,
			"participant add --room "+room.ID+" --role owner",
			"participant add --room "+room.ID+" --role agent",
			"participant list --room "+room.ID)
	})
}

// RoomListCmd lists rooms.
type RoomListCmd struct{}

// Help is shown by relay room list --help.
func (*RoomListCmd) Help() string {
	return `Example:

  relay room list --json`
}

// Run lists them, all pages.
func (*RoomListCmd) Run(ctx context.Context, globals *Globals, con console) error {
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	all := api.Rooms{Rooms: []api.Room{}}
	query := url.Values{"limit": {"500"}}
	for {
		var page api.Rooms
		if err := server.call(ctx, http.MethodGet, "/v1/rooms", query, nil, &page); err != nil {
			return fmt.Errorf("list the rooms: %w", err)
		}
		all.Rooms = append(all.Rooms, page.Rooms...)
		if page.NextCursor == "" {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	return show(globals, con, all, func(w io.Writer) {
		if len(all.Rooms) == 0 {
			fmt.Fprintln(w, "There is no room.")
			next(w, globals, con, "room create")
			return
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ROOM\tSTATE\tKIND\tSCHEME\tSINCE")
		for _, r := range all.Rooms {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.State, r.Kind, r.Scheme, moment(r.CreatedAt))
		}
		_ = table.Flush() // into a buffer
		next(w, globals, con, "room show --room "+all.Rooms[0].ID)
	})
}

// roomFlag names one room.
type roomFlag struct {
	Room string `required:"" placeholder:"ID" help:"The room."`
}

// call calls the endpoint of the room that is below its address.
func (f *roomFlag) call(ctx context.Context, globals *Globals, con console, method, below, doing string, text func(w io.Writer, r api.Room)) error {
	if err := checkID("room", f.Room); err != nil {
		return err
	}
	server, err := dial(globals, con)
	if err != nil {
		return err
	}
	var room api.Room
	if err := server.call(ctx, method, "/v1/rooms/"+f.Room+below, nil, nil, &room); err != nil {
		return fmt.Errorf("%s the room: %w", doing, err)
	}
	return show(globals, con, room, func(w io.Writer) { text(w, room) })
}

// RoomShowCmd shows a room.
type RoomShowCmd struct {
	roomFlag `embed:""`
}

// Help is shown by relay room show --help.
func (*RoomShowCmd) Help() string {
	return `Example:

  relay room show --room ROOM_ID

With --json each participant has the public keys of its device.`
}

// Run shows it.
func (c *RoomShowCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.call(ctx, globals, con, http.MethodGet, "", "show", func(w io.Writer, r api.Room) {
		fmt.Fprintf(w, "Room %s is %s (%s, %s, private messages %s), made at %s.\n", r.ID, r.State, r.Kind, r.Scheme, r.PrivateMessages, moment(r.CreatedAt))
		if r.Activated != nil && !*r.Activated {
			fmt.Fprintln(w, "Its owner has to write first.")
		}
		if len(r.Participants) == 0 {
			fmt.Fprintln(w, "Nobody is in it.")
			next(w, globals, con, "participant add --room "+r.ID+" --role agent")
			return
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PARTICIPANT\tROLE\tJOINED\tDEVICE")
		for _, p := range r.Participants {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.ParticipantID, p.Role, moment(p.JoinedAt), p.DeviceID)
		}
		_ = table.Flush() // into a buffer
		next(w, globals, con, "device list", "participant add --room "+r.ID+" --role agent")
	})
}

// RoomArchiveCmd archives a room.
type RoomArchiveCmd struct {
	roomFlag `embed:""`
}

// Help is shown by relay room archive --help.
func (*RoomArchiveCmd) Help() string {
	return "Example:\n\n  relay room archive --room ROOM_ID\n\nThere is no way back: nothing is stored in it any more. Archiving again is no error."
}

// Run archives it.
func (c *RoomArchiveCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.call(ctx, globals, con, http.MethodPost, "/archive", "archive", func(w io.Writer, r api.Room) {
		fmt.Fprintf(w, "Room %s is archived: nothing is stored in it any more, and its members may read on.\n", r.ID)
		next(w, globals, con, "room list")
	})
}

// RoomResetCmd resets a room.
type RoomResetCmd struct {
	roomFlag `embed:""`
}

// Help is shown by relay room reset --help.
func (*RoomResetCmd) Help() string {
	return `Example:

  relay room reset --room ROOM_ID

For a room whose members cannot read one another any more. Who is in it stays as it is; each of them makes new keys.`
}

// Run resets it.
func (c *RoomResetCmd) Run(ctx context.Context, globals *Globals, con console) error {
	return c.call(ctx, globals, con, http.MethodPost, "/reset", "reset", func(w io.Writer, r api.Room) {
		fmt.Fprintf(w, "Room %s begins its encryption anew: the keys of before are retired.\n", r.ID)
		next(w, globals, con, "room show --room "+r.ID)
	})
}
