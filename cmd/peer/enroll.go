package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// enrollCommand makes a device.
type enrollCommand struct {
	deviceCommand
	Invite     string        `arg:"" optional:"" help:"The invite's token, or the file that holds it. Others on this machine can see command lines: prefer a file, or standard input."`
	URL        string        `default:"http://127.0.0.1:8787" env:"PEER_URL" help:"The relay's address."`
	InviteFile string        `type:"path" placeholder:"FILE" help:"File that holds the invite's token; by default it is read from standard input."`
	Label      string        `placeholder:"TEXT" help:"What admins read of the device, at most 128 characters; by default the machine's name."`
	Agent      bool          `help:"It is the device of an agent, not of a person."`
	Passphrase bool          `help:"Ask for a passphrase, which opens the device's keys from then on. By default a key file does that is kept beside them."`
	Wait       bool          `help:"Wait until an admin has approved the device, and activate it."`
	Timeout    time.Duration `default:"10m" help:"How long to wait for the approval."`
}

// Help is kong's long text of the command.
func (*enrollCommand) Help() string {
	return `Makes the keys of a new device, enrolls it with an invite, and shows its fingerprint. Unless the invite is an admin's, an
admin then compares that fingerprint with the one the relay shows, and approves the device. Others on this machine can see command
lines, so give the token in a file or on standard input where there are others. Where a passphrase and the token both come from standard input, the passphrase is its
first line.

Examples:
  peer enroll --home alice --label "Alice's laptop" --passphrase
  peer enroll --home robot --agent robot.invite --wait`
}

// token reads the invite: an argument that has the form of a token is one, any other names a file.
func (c *enrollCommand) token(con console) (string, error) {
	file := c.InviteFile
	if c.Invite != "" {
		if file != "" {
			return "", usageError{"the invite is an argument or --invite-file, not both"}
		}
		if client.IsInvite(c.Invite) {
			return c.Invite, nil
		}
		if _, err := os.Stat(c.Invite); err != nil {
			return "", usageError{"the invite is neither a token nor a file"} // which may be a mistyped token
		}
		file = c.Invite
	}
	return secret(con, file, "invite's token")
}

// enrolled is what is printed of a device.
type enrolled struct {
	DeviceID    string             `json:"device_id"`
	Relay       string             `json:"relay"`
	Kind        client.DeviceKind  `json:"kind"`
	Label       string             `json:"label"`
	State       client.DeviceState `json:"state"`
	Fingerprint string             `json:"fingerprint"` // of the keys in the folder
	Admin       *bool              `json:"admin,omitempty"`
}

func describeDevice(d *client.Device) enrolled {
	return enrolled{
		DeviceID: d.ID(), Relay: d.RelayURL(), Kind: d.Kind(), Label: d.Label(), State: d.LastState(), Fingerprint: d.Fingerprint(),
	}
}

// Run enrolls.
func (c *enrollCommand) Run(ctx context.Context, con console) error {
	if c.Timeout <= 0 {
		return usageError{"--timeout is positive"}
	}
	dir, err := c.dir()
	if err != nil {
		return err
	}
	protection, err := c.protection(con)
	if err != nil {
		return err
	}
	token, err := c.token(con)
	if err != nil {
		return err
	}
	warnOfClear(con, c.URL)
	device, err := client.EnrollDevice(ctx, dir, client.Enrollment{
		RelayURL: c.URL, Invite: token, Kind: c.kind(), Label: c.label(),
	}, client.DeviceOptions{Secret: protection})
	if errors.Is(err, client.ErrRelayURL) {
		return usageError{"--url: " + err.Error()}
	}
	if err != nil {
		return c.explainOpening(con, err)
	}
	defer device.Close()
	if c.Wait {
		con.notef("its fingerprint is %s; waiting until an admin approves it", device.Fingerprint())
		r := newRunning(device)
		defer r.close()
		if err := activateServing(ctx, dir, con, r, c.Timeout); err != nil {
			return err
		}
	}
	return c.show(con, describeDevice(device), func(w io.Writer) { c.tell(w, con, device) })
}

// protection is what opens the device's keys from now on.
func (c *enrollCommand) protection(con console) (keystore.Secret, error) {
	if !c.Passphrase || c.PassphraseFile != "" {
		return c.secret(con)
	}
	made, err := askNewPassphrase(con)
	if errors.Is(err, errNoTerminal) {
		err = usageError{err.Error() + ": --passphrase-file FILE or PEER_PASSPHRASE_FILE names a file with it"}
	}
	return made, err
}

func (c *enrollCommand) kind() client.DeviceKind {
	if c.Agent {
		return client.KindAgent
	}
	return client.KindHuman
}

func (c *enrollCommand) label() string {
	if c.Label != "" {
		return c.Label
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "peer"
}

func (c *enrollCommand) tell(w io.Writer, con console, d *client.Device) {
	fmt.Fprintf(w, "Device %s is enrolled, and %s. Its fingerprint:\n\n  %s\n", d.ID(), d.LastState(), d.Fingerprint())
	switch d.LastState() {
	case client.DeviceActive:
		c.next(w, con, "room list")
	case client.DeviceApproved:
		c.next(w, con, "activate")
	default:
		fmt.Fprint(w, "\nTell an admin of the relay, by a way that others cannot change: it has to be the one the relay shows there.\n")
		c.next(w, con, "activate --wait")
	}
}

// activateCommand ends an enrollment.
type activateCommand struct {
	deviceCommand
	Wait    bool          `help:"Wait until an admin has approved the device."`
	Timeout time.Duration `default:"10m" help:"How long to wait for the approval."`
}

// Help is kong's long text of the command.
func (*activateCommand) Help() string {
	return `Signs in and publishes the device's keys: from then on it can be in rooms. Activating again is no error.

Examples:
  peer activate --home alice
  peer activate --home robot --wait`
}

// Run activates.
func (c *activateCommand) Run(ctx context.Context, con console) error {
	if c.Timeout <= 0 {
		return usageError{"--timeout is positive"}
	}
	dir, err := c.dir()
	if err != nil && con.shared == nil {
		return err
	}
	return c.with(con, func(r *running) error {
		d := r.device
		wait := func() error { return activate(ctx, d, 0) }
		if c.Wait {
			wait = func() error { return activateServing(ctx, dir, con, r, c.Timeout) }
		}
		if err := wait(); err != nil {
			return c.explain(err)
		}
		return c.show(con, describeDevice(d), func(w io.Writer) {
			fmt.Fprintf(w, "Device %s is active.\n", d.ID())
			c.next(w, con, "room list")
		})
	})
}

// activateServing waits as activate does. Other commands of the device run meanwhile, above all
// peer status, which shows the fingerprint that is waited for.
func activateServing(ctx context.Context, dir string, con console, r *running, wait time.Duration) error {
	if con.shared == nil {
		stop := r.serve(ctx, dir, con)
		defer stop()
	}
	return activate(ctx, r.device, wait)
}

// activate publishes the device's keys, for so long again until it is approved.
func activate(ctx context.Context, d *client.Device, wait time.Duration) error {
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err := d.AwaitApproval(waiting)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return told{fmt.Sprintf("device %s was not approved within %s; peer activate --wait goes on waiting", d.ID(), wait), errLate}
		}
		if err != nil {
			return err
		}
	}
	_, err := d.PublishKeys(ctx)
	if errors.Is(err, client.ErrNotAdmitted) && d.LastState() == client.DevicePending {
		return told{fmt.Sprintf("device %s is not approved yet: an admin compares its fingerprint, %s, and approves it", d.ID(), d.Fingerprint()), client.ErrNotAdmitted}
	}
	return err
}

// statusCommand shows the device.
type statusCommand struct {
	deviceCommand
}

// Help is kong's long text of the command.
func (*statusCommand) Help() string {
	return `Shows the device in the folder: its id, the fingerprint of its own keys, and its state. A relay does not tell a device that may not
sign in why; the state is then the last known one, or SUSPENDED_OR_REVOKED where the device was active before.

Example:
  peer status --home alice --json`
}

// suspendedOrRevoked is what is known of a device that was active and may not sign in.
const suspendedOrRevoked client.DeviceState = "SUSPENDED_OR_REVOKED"

// Run shows it.
func (c *statusCommand) Run(ctx context.Context, con console) error {
	return c.as(con, func(d *client.Device) error {
		said := describeDevice(d)
		switch info, err := d.Info(ctx); {
		case err == nil:
			said.State, said.Admin = info.State, &info.Admin
		case !errors.Is(err, client.ErrNotAdmitted):
			return err
		case said.State == client.DeviceActive:
			said.State = suspendedOrRevoked
		}
		return c.show(con, said, func(w io.Writer) { c.tell(w, con, said) })
	})
}

func (c *statusCommand) tell(w io.Writer, con console, said enrolled) {
	who := string(said.Kind)
	if said.Admin != nil && *said.Admin {
		who += ", admin"
	}
	fmt.Fprintf(w, "Device       %s (%s)\nLabel        %s\nRelay        %s\nState        %s\nFingerprint  %s\n",
		said.DeviceID, who, said.Label, said.Relay, said.State, said.Fingerprint)
	if said.State == client.DevicePending {
		c.next(w, con, "activate --wait")
	}
}
