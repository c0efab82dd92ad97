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

// inviteCommands are what an admin does with invites.
type inviteCommands struct {
	Create inviteCreateCommand `cmd:"" help:"Make an invite, with which one device enrolls."`
	Revoke inviteRevokeCommand `cmd:"" help:"Take back an invite that was not used yet."`
}

type inviteCreateCommand struct {
	deviceCommand
	Admin bool          `help:"The device becomes an admin, and is approved at once."`
	Agent bool          `help:"It is for the device of an agent, not of a person."`
	TTL   time.Duration `name:"ttl" default:"10m" help:"How long it can be used, at most 10m."`
	Out   string        `type:"path" placeholder:"FILE" help:"Write the token to a new file that only you may read, instead of showing it."`
}

// Help is kong's long text of the command.
func (*inviteCreateCommand) Help() string {
	return `Only admins may. The token goes to the device by a way that others do not read.

Examples:
  peer invite create --home alice --agent --out robot.invite
  peer invite create --home alice --json`
}

// maxInviteTTL is the longest life of an invite (STATE, "Invite Token States").
const maxInviteTTL = 10 * time.Minute

// shownInvite is an invite as it is printed: without the token where that is in a file.
type shownInvite struct {
	client.Invite
	Token string `json:"token,omitempty"`
	File  string `json:"file,omitempty"`
}

// Run makes it.
func (c *inviteCreateCommand) Run(ctx context.Context, con console) error {
	if c.TTL < time.Second || c.TTL > maxInviteTTL || c.TTL%time.Second != 0 {
		return usageError{"--ttl is whole seconds, at least one and at most 10m"}
	}
	kind := client.KindHuman
	if c.Agent {
		kind = client.KindAgent
	}
	file, err := secretfile.New(c.Out, "--out")
	if err != nil {
		return err
	}
	defer file.Close()
	return c.as(con, func(d *client.Device) error {
		made, err := d.CreateInvite(ctx, client.NewInvite{Kind: kind, Admin: c.Admin, TTL: c.TTL})
		if err != nil {
			return err
		}
		if err := file.Keep(made.Token); err != nil {
			return err
		}
		said := shownInvite{Invite: made, Token: made.Token, File: c.Out}
		if c.Out != "" {
			said.Token = ""
		}
		return c.show(con, said, func(w io.Writer) {
			kind := string(made.Kind)
			if made.Admin {
				kind += ", which becomes an admin and needs no approval"
			}
			fmt.Fprintf(w, "Invite %s is for one device of kind %s, until %s.\n", made.InviteID, kind, moment(made.ExpiresAt))
			if c.Out != "" {
				fmt.Fprintf(w, "Its token is in %s.\n", c.Out)
			} else {
				fmt.Fprintf(w, "Its token, shown only now:\n\n  %s\n", made.Token)
			}
			if !made.Admin {
				c.next(w, con, "device list --state PENDING")
			}
		})
	})
}

type inviteRevokeCommand struct {
	deviceCommand
	Invite string `arg:"" help:"The invite's id."`
}

// Help is kong's long text of the command.
func (*inviteRevokeCommand) Help() string {
	return "Revoking again is no error. A device that has enrolled with the invite stays: suspend or revoke the device.\n\nExample:\n  peer invite revoke --home alice INVITE_ID"
}

// Run revokes it.
func (c *inviteRevokeCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		if err := d.RevokeInvite(ctx, c.Invite); err != nil {
			return err
		}
		return c.show(con, map[string]string{"invite_id": c.Invite}, func(w io.Writer) {
			fmt.Fprintf(w, "Invite %s is revoked: no device enrolls with it.\n", c.Invite)
		})
	})
}

// deviceCommands are what an admin does with devices.
type deviceCommands struct {
	List      deviceListCommand      `cmd:"" help:"List the devices, with their states and fingerprints."`
	Approve   deviceApproveCommand   `cmd:"" help:"Approve a device that has enrolled, by the fingerprint it shows."`
	Suspend   deviceSuspendCommand   `cmd:"" help:"Suspend a device; its connections close everywhere before this returns."`
	Reinstate deviceReinstateCommand `cmd:"" help:"End the suspension of a device."`
	Revoke    deviceRevokeCommand    `cmd:"" help:"Revoke a device for ever; its connections close everywhere before this returns."`
}

type deviceListCommand struct {
	deviceCommand
	State string `enum:"PENDING,APPROVED,ACTIVE,SUSPENDED,REVOKED," default:"" placeholder:"STATE" help:"Only devices in this state: PENDING, APPROVED, ACTIVE, SUSPENDED or REVOKED."`
}

// Help is kong's long text of the command.
func (*deviceListCommand) Help() string {
	return "Only admins may.\n\nExample:\n  peer device list --home alice --state PENDING"
}

// Run lists them.
func (c *deviceListCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		found := []client.DeviceInfo{}
		for device, err := range d.Devices(ctx, client.DeviceState(c.State)) {
			if err != nil {
				return err
			}
			found = append(found, device)
		}
		return c.show(con, map[string]any{"devices": found}, func(w io.Writer) { c.tell(w, con, found) })
	})
}

func (c *deviceListCommand) tell(w io.Writer, con console, found []client.DeviceInfo) {
	if len(found) == 0 {
		fmt.Fprintln(w, "There is no such device.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEVICE\tSTATE\tKIND\tFINGERPRINT\tSINCE\tLABEL")
	pending := ""
	for _, device := range found {
		kind := string(device.Kind)
		if device.Admin {
			kind += " (admin)"
		}
		fingerprint := device.Fingerprint
		if fingerprint == "" {
			fingerprint = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%q\n", device.DeviceID, device.State, kind, fingerprint, moment(device.CreatedAt), device.Label)
		if device.State == client.DevicePending {
			pending = device.DeviceID
		}
	}
	_ = table.Flush() // into a buffer
	if pending != "" {
		c.next(w, con, "device approve "+pending+" FINGERPRINT_AS_THE_DEVICE_ITSELF_SHOWS_IT")
	}
}

// moveCommand is a command that changes a device's state.
type moveCommand struct {
	deviceCommand
	Device string `arg:"" help:"The device's id."`
}

type move func(ctx context.Context, d *client.Device) (client.DeviceInfo, error)

func (c *moveCommand) move(ctx context.Context, con console, do move, said string) error {
	return c.as(con, func(d *client.Device) error {
		moved, err := do(ctx, d)
		if err != nil {
			return err
		}
		return c.show(con, moved, func(w io.Writer) { fmt.Fprintf(w, "Device %s is %s.\n", moved.DeviceID, said) })
	})
}

type deviceApproveCommand struct {
	moveCommand
	Fingerprint string `arg:"" help:"As the device itself shows it: read there, or told by whoever has the device."`
}

// Help is kong's long text of the command.
func (*deviceApproveCommand) Help() string {
	return `Only admins may. The fingerprint must not come from the relay, so not from peer device list: that it shows the same one is what
this checks. Spaces, dashes and case do not matter. This device remembers it as compared (peer fingerprint).

Example:
  peer device approve --home alice DEVICE_ID K7QM-2XPD-9VWE-R4TN-BA3C`
}

// Run approves it.
func (c *deviceApproveCommand) Run(ctx context.Context, con console) error {
	return c.move(ctx, con, func(ctx context.Context, d *client.Device) (client.DeviceInfo, error) {
		return d.ApproveDevice(ctx, c.Device, c.Fingerprint)
	}, "approved. It is active as soon as it has published its keys (peer activate)")
}

type deviceSuspendCommand struct{ moveCommand }

// Help is kong's long text of the command.
func (*deviceSuspendCommand) Help() string {
	return "Only admins may. The device keeps its memberships. Suspending again is no error.\n\nExample:\n  peer device suspend --home alice DEVICE_ID"
}

// Run suspends it.
func (c *deviceSuspendCommand) Run(ctx context.Context, con console) error {
	return c.move(ctx, con, func(ctx context.Context, d *client.Device) (client.DeviceInfo, error) {
		return d.SuspendDevice(ctx, c.Device)
	}, "suspended, and its connections are closed")
}

type deviceReinstateCommand struct{ moveCommand }

// Help is kong's long text of the command.
func (*deviceReinstateCommand) Help() string {
	return "Only admins may. Reinstating again is no error.\n\nExample:\n  peer device reinstate --home alice DEVICE_ID"
}

// Run ends the suspension.
func (c *deviceReinstateCommand) Run(ctx context.Context, con console) error {
	return c.move(ctx, con, func(ctx context.Context, d *client.Device) (client.DeviceInfo, error) {
		return d.ReinstateDevice(ctx, c.Device)
	}, "active again")
}

type deviceRevokeCommand struct{ moveCommand }

// Help is kong's long text of the command.
func (*deviceRevokeCommand) Help() string {
	return `Only admins may. There is no way back: the device has to enroll with new keys. Only an ACTIVE device is revoked: reinstate a
suspended one first. Revoking again is no error.

Example:
  peer device revoke --home alice DEVICE_ID`
}

// Run revokes it.
func (c *deviceRevokeCommand) Run(ctx context.Context, con console) error {
	return c.move(ctx, con, func(ctx context.Context, d *client.Device) (client.DeviceInfo, error) {
		return d.RevokeDevice(ctx, c.Device)
	}, "revoked: it is in no room any more, and its connections are closed")
}
