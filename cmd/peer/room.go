package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/secretfile"
)

// roomCommands are what a device does with rooms.
type roomCommands struct {
	Create  roomCreateCommand  `cmd:"" help:"Make a room, which this device owns."`
	List    roomListCommand    `cmd:"" help:"List the rooms this device is in."`
	Show    roomShowCommand    `cmd:"" help:"Show a room and who is in it, with their fingerprints."`
	Add     roomAddCommand     `cmd:"" help:"Add an active device to a room."`
	Remove  roomRemoveCommand  `cmd:"" help:"Remove a participant; its connections close everywhere before this returns."`
	Leave   roomLeaveCommand   `cmd:"" help:"Leave a room."`
	Archive roomArchiveCommand `cmd:"" help:"Close a room for good; members may read on."`
	Reset   roomResetCommand   `cmd:"" help:"Begin all encryption of a room anew."`
}

type roomCreateCommand struct {
	deviceCommand
	Kind            string `enum:"group,direct," default:"" placeholder:"KIND" help:"group (default), or direct: a person (owner or controller) and an agent."`
	Scheme          string `enum:"sender_keys,mls,double_ratchet,none," default:"" placeholder:"SCHEME" help:"How it is encrypted: sender_keys (default), mls, or none; direct rooms: double_ratchet (default)."`
	PrivateMessages string `enum:"allowed,refused," default:"" placeholder:"POLICY" help:"Private messages between agents: allowed (default) or refused."`
}

// Help is kong's long text of the command.
func (*roomCreateCommand) Help() string {
	return "Devices of persons may, not those of agents.\n\nExamples:\n  peer room create --home alice\n  peer room create --home alice --kind direct --json"
}

// Run makes it.
func (c *roomCreateCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		made, err := d.CreateRoom(ctx, client.NewRoom{Kind: c.Kind, Scheme: c.Scheme, PrivateMessages: c.PrivateMessages})
		if err != nil {
			return err
		}
		if con.shared != nil {
			con.shared.enters()
		}
		return c.show(con, made, func(w io.Writer) {
			fmt.Fprintf(w, "Room %s is made, a %s room of scheme %s. This device owns it, as participant %s.\n",
				made.RoomID, made.Kind, made.Scheme, made.ParticipantID)
			c.next(w, con, "room add "+made.RoomID+" DEVICE_ID --role agent", "listen --room "+made.RoomID)
		})
	})
}

type roomListCommand struct{ deviceCommand }

// Help is kong's long text of the command.
func (*roomListCommand) Help() string { return "Example:\n  peer room list --home alice" }

// Run lists them.
func (c *roomListCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		found, err := roomsOf(ctx, d)
		if err != nil {
			return err
		}
		return c.show(con, map[string]any{"rooms": found}, func(w io.Writer) {
			if len(found) == 0 {
				fmt.Fprintln(w, "This device is in no room.")
				return
			}
			table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "ROOM\tSTATE\tKIND\tSCHEME\tSINCE")
			for i := range found {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", found[i].RoomID, found[i].State, found[i].Kind, found[i].Scheme, moment(found[i].CreatedAt))
			}
			_ = table.Flush() // into a buffer
		})
	})
}

// roomsOf are the rooms that a device is in.
func roomsOf(ctx context.Context, d *client.Device) ([]client.Room, error) {
	found := []client.Room{}
	for room, err := range d.Rooms(ctx) {
		if err != nil {
			return nil, err
		}
		found = append(found, room)
	}
	return found, nil
}

// roomsCommand is a shorter name of peer room list.
type roomsCommand struct{ roomListCommand }

// Help is kong's long text of the command.
func (*roomsCommand) Help() string { return "Example:\n  peer rooms --home alice" }

// oneRoom is a command on a room.
type oneRoom struct {
	deviceCommand
	Room string `arg:"" help:"The room's id."`
}

type roomShowCommand struct{ oneRoom }

// Help is kong's long text of the command.
func (*roomShowCommand) Help() string {
	return `The fingerprints are made here, of the keys the relay shows for each participant's device. Compared with what the devices show
themselves, they say whether the relay is right.

Example:
  peer room show --home alice ROOM_ID`
}

// Run shows it.
func (c *roomShowCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		room, err := d.Room(ctx, c.Room)
		if err != nil {
			return err
		}
		return c.show(con, room, func(w io.Writer) { tellRoom(w, &room) })
	})
}

func tellRoom(w io.Writer, room *client.Room) {
	fmt.Fprintf(w, "Room %s is %s, a %s room of scheme %s.\n\n", room.RoomID, room.State, room.Kind, room.Scheme)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PARTICIPANT\tROLE\tDEVICE\tFINGERPRINT\tSINCE")
	for i := range room.Participants {
		p := &room.Participants[i]
		fingerprint := "-" // a device that the operator made
		if keys, err := p.Keys(); err == nil {
			fingerprint = keys.Fingerprint()
		} else if p.IdentityKey != "" {
			fingerprint = "(keys that are no device's)"
		}
		role := string(p.Role)
		if p.ParticipantID == room.ParticipantID {
			role += " (this device)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.ParticipantID, role, p.DeviceID, fingerprint, moment(p.JoinedAt))
	}
	_ = table.Flush() // into a buffer
	tellRekeying(w, room)
}

// tellRekeying says what a room waits for, where somebody left it or it was reset.
func tellRekeying(w io.Writer, room *client.Room) {
	if room.State != client.RoomRekeying {
		return
	}
	todo := "each member that sends allocates a new generation (peer send does)"
	switch room.Scheme {
	case "mls":
		todo = "a member commits a change of the group, without those who left; after a reset it makes a new group"
	case "double_ratchet":
		todo = "the owner writes first, in a new session"
	}
	fmt.Fprintf(w, "\nThe keys of before are retired: %s.\n", todo)
}

type roomAddCommand struct {
	oneRoom
	Device string `arg:"" help:"The device's id; it has to be active."`
	Role   string `enum:"owner,controller,agent,viewer" default:"agent" help:"What it may do: owner, controller, agent or viewer."`
}

// Help is kong's long text of the command.
func (*roomAddCommand) Help() string {
	return "The room's owner and admins may.\n\nExample:\n  peer room add --home alice ROOM_ID DEVICE_ID --role agent"
}

// Run adds it.
func (c *roomAddCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		added, err := d.AddMember(ctx, c.Room, c.Device, client.Role(c.Role))
		if err != nil {
			return err
		}
		if added.Warning != "" {
			con.notef("%s", added.Warning)
		}
		return c.show(con, added, func(w io.Writer) {
			fmt.Fprintf(w, "Device %s is in the room as %s, participant %s.\n", added.DeviceID, added.Role, added.ParticipantID)
		})
	})
}

type roomRemoveCommand struct {
	oneRoom
	Participant string `arg:"" help:"The participant's id (peer room show)."`
}

// Help is kong's long text of the command.
func (*roomRemoveCommand) Help() string {
	return "The room's owner and admins may. Removing again is no error.\n\nExample:\n  peer room remove --home alice ROOM_ID PARTICIPANT_ID"
}

// Run removes it.
func (c *roomRemoveCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		if err := d.RemoveMember(ctx, c.Room, c.Participant); err != nil {
			return c.removing(ctx, d, err)
		}
		return c.show(con, map[string]string{"room_id": c.Room, "participant_id": c.Participant}, func(w io.Writer) {
			fmt.Fprintf(w, "Participant %s is in the room no more, and its connections are closed.\n", c.Participant)
		})
	})
}

// removing says what is wrong where the id is a device's, as peer room add takes it.
func (c *roomRemoveCommand) removing(ctx context.Context, d *client.Device, refused error) error {
	room, err := d.Room(ctx, c.Room)
	if err != nil {
		return refused
	}
	for i := range room.Participants {
		if p := &room.Participants[i]; p.DeviceID == c.Participant {
			return usageError{"that is the id of a device; in this room it is participant " + p.ParticipantID}
		}
	}
	return refused
}

type roomLeaveCommand struct{ oneRoom }

// Help is kong's long text of the command.
func (*roomLeaveCommand) Help() string { return "Example:\n  peer room leave --home robot ROOM_ID" }

// Run leaves.
func (c *roomLeaveCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		if err := d.LeaveRoom(ctx, c.Room); err != nil {
			return err
		}
		return c.show(con, map[string]string{"room_id": c.Room}, func(w io.Writer) {
			fmt.Fprintf(w, "This device is not in room %s any more.\n", c.Room)
		})
	})
}

type roomArchiveCommand struct{ oneRoom }

// Help is kong's long text of the command.
func (*roomArchiveCommand) Help() string {
	return "The room's owner and admins may. There is no way back. Archiving again is no error.\n\nExample:\n  peer room archive --home alice ROOM_ID"
}

// Run archives it.
func (c *roomArchiveCommand) Run(ctx context.Context, con console) error {
	return c.change(con, func(d *client.Device) (client.Room, error) { return d.ArchiveRoom(ctx, c.Room) })
}

type roomResetCommand struct{ oneRoom }

// Help is kong's long text of the command.
func (*roomResetCommand) Help() string {
	return `For encryption that is broken beyond repair: every key of before is over, and members make new ones. The room's owner and
admins may, in a direct room of the double ratchet both. What its members do next is printed.

Example:
  peer room reset --home alice ROOM_ID`
}

// Run resets it.
func (c *roomResetCommand) Run(ctx context.Context, con console) error {
	return c.change(con, func(d *client.Device) (client.Room, error) { return d.ResetRoom(ctx, c.Room) })
}

func (c *oneRoom) change(con console, do func(d *client.Device) (client.Room, error)) error {
	return c.as(con, func(d *client.Device) error {
		changed, err := do(d)
		if err != nil {
			return err
		}
		return c.show(con, changed, func(w io.Writer) {
			fmt.Fprintf(w, "Room %s is %s, version %d.\n", changed.RoomID, changed.State, changed.Version)
			tellRekeying(w, &changed)
		})
	})
}

// credentialCommand mints a credential for other programs.
type credentialCommand struct {
	oneRoom
	Out string        `type:"path" placeholder:"FILE" help:"Write it to a new file that only you may read, instead of printing it."`
	TTL time.Duration `name:"ttl" default:"24h" help:"How long it is valid."`
}

// Help is kong's long text of the command.
func (*credentialCommand) Help() string {
	return `Prints a credential of this device in a room, for programs that connect with one; peer raw listen --credential-file is one; peer listen and peer send need none.

Example:
  peer credential --home robot ROOM_ID --out robot.cred`
}

// shownCredential is a credential as it is printed: without the token where that is in a file.
type shownCredential struct {
	client.Credential
	Token string `json:"credential,omitempty"`
	File  string `json:"file,omitempty"`
}

// Run mints it.
func (c *credentialCommand) Run(ctx context.Context, con console) error {
	if c.TTL < time.Second || c.TTL%time.Second != 0 {
		return usageError{"--ttl is whole seconds, at least one"}
	}
	file, err := secretfile.New(c.Out, "--out")
	if err != nil {
		return err
	}
	defer file.Close()
	return c.as(con, func(d *client.Device) error {
		made, err := d.MintCredential(ctx, c.Room, c.TTL)
		if err != nil {
			return err
		}
		if err := file.Keep(made.Token); err != nil {
			return err
		}
		said := shownCredential{Credential: made, Token: made.Token, File: c.Out}
		if c.Out != "" {
			said.Token = ""
		}
		return c.show(con, said, func(w io.Writer) {
			if c.Out == "" {
				fmt.Fprintln(w, made.Token) // alone: it is for a pipe
				return
			}
			fmt.Fprintf(w, "A credential of participant %s is in %s, valid until %s.\n", made.ParticipantID, c.Out, moment(made.ExpiresAt))
		})
	})
}
