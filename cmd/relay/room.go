package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

// RoomCmd groups the commands on rooms.
type RoomCmd struct {
	Create RoomCreateCmd `cmd:"" help:"Make a room."`
}

// RoomCreateCmd makes a room.
type RoomCreateCmd struct {
	Scheme          string `enum:"sender_keys,mls,none,double_ratchet," default:"" placeholder:"SCHEME" help:"How its content is encrypted: sender_keys, mls, none; default sender_keys, in a direct room double_ratchet. Cannot change later."`
	PrivateMessages string `enum:"allowed,refused" default:"allowed" help:"Whether agents may send each other private messages: allowed or refused. Cannot change later."`
	Kind            string `enum:"group,direct" default:"group" help:"group, or direct for one owner and one agent."`
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
		if room.Scheme == string(store.SchemeMLS) {
			fmt.Fprintln(w, "It takes messages while the relay runs with --mls on.")
		}
		next(w, globals, con,
			"participant add --room "+room.ID+" --role owner",
			"participant add --room "+room.ID+" --role agent",
			"participant list --room "+room.ID)
	})
}
