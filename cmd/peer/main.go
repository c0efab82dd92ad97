// Command peer is the client an agent or owner runs: it enrolls a device and keeps its
// keys, manages devices and rooms, listens to an inbox and sends envelopes.
//
// It sends and shows raw envelopes yet; it encrypts nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Enroll   enrollCommand   `cmd:"" help:"Enroll a device with an invite, and show its fingerprint."`
	Activate activateCommand `cmd:"" help:"Publish the keys of a device that was approved: it is active then."`
	Status   statusCommand   `cmd:"" help:"Show the device: its state and its fingerprint."`

	Fingerprint fingerprintCommand `cmd:"" help:"Show the fingerprint of this device, or of another one as this one remembers it."`
	Passphrase  passphraseCommand  `cmd:"" help:"Change what opens the device's keys: a passphrase, or a key file."`
	Move        relocateCommand    `cmd:"" help:"Say that the relay has moved to another address."`

	Invite     inviteCommands    `cmd:"" help:"Make and revoke invites, as an admin."`
	Device     deviceCommands    `cmd:"" help:"Approve, suspend and revoke devices, as an admin."`
	Room       roomCommands      `cmd:"" help:"Make rooms, and say who is in them."`
	Credential credentialCommand `cmd:"" help:"Mint a credential of this device in a room."`

	Listen   listenCommand   `cmd:"" help:"Print what arrives, and go on after a lost connection."`
	Send     sendCommand     `cmd:"" help:"Send envelopes from a file or standard input, or test envelopes."`
	Template templateCommand `cmd:"" help:"Print one envelope of this participant, to edit and send."`
}

const description = `The client of Peer Relay.

Try it, as a device of your own:
  peer enroll --home alice
  peer activate --home alice
  peer room create --home alice
  peer listen --home alice --room ROOM_ID

Or with a credential that somebody gave you:
  peer listen --credential-file bob.cred
  peer send   --credential-file alice.cred --count 3 --to room
  peer template --credential-file alice.cred | peer send --credential-file alice.cred`

// console is where a command reads and writes; tests replace it.
type console struct {
	in       io.Reader
	out, err io.Writer
	program  string // how this program was called, for the commands it suggests
}

func (c console) notef(format string, values ...any) {
	fmt.Fprintf(c.err, "peer: "+format+"\n", values...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr, os.Args[0]})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, con console) int {
	var cmds commands
	exited := -1
	parser, err := kong.New(&cmds,
		kong.Name("peer"),
		kong.Description(description),
		kong.Writers(con.out, con.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(con),
	)
	if err != nil {
		con.notef("%v", err)
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	switch {
	case exited >= 0: // --help
		return exited
	case err != nil:
		con.notef("%v", err)
		command := ""
		if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
			command = commandOf(wrong.Context)
		}
		con.notef("see peer %s--help", command)
		return exitUsage
	}
	code := exitCode(parsed.Run(), con)
	if code == exitUsage {
		con.notef("see peer %s--help", commandOf(parsed))
	}
	return code
}

// commandOf is the command's name, as far as it is known, and a space.
func commandOf(parsed *kong.Context) string {
	if parsed == nil || parsed.Selected() == nil {
		return ""
	}
	node, path := parsed.Selected(), ""
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		path = node.Name + " " + path
	}
	return path
}

// usageError is wrong use that the flags' types could not catch.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func exitCode(err error, con console) int {
	if err == nil {
		return exitOK
	}
	con.notef("%v", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}
