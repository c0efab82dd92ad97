// Command peer is the client an agent or owner runs: it enrolls a device and keeps its
// keys, manages devices and rooms, and sends and shows messages that only the devices in
// a room can read.
//
// One process has a device's key store open at a time. While peer listen has it, other peer
// commands of the same device run inside of it (see running).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/peerrelay/peerrelay/client"
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
	Rooms      roomsCommand      `cmd:"" help:"List the rooms this device is in, as peer room list."`
	Credential credentialCommand `cmd:"" help:"Mint a credential of this device in a room."`

	Send   sendCommand    `cmd:"" help:"Send a text or a file to a room, or to one participant of it."`
	Listen listenCommand  `cmd:"" help:"Print the messages of a room, or of all rooms, as they come."`
	Poll   pollCommand    `cmd:"" help:"Print the messages that wait in a room, or in all rooms, and end."`
	Notice noticeCommands `cmd:"" help:"Send an alert to a room, as an agent, or list those that were sent."`
	Board  boardCommands  `cmd:"" help:"Cards that everybody in a room sees: ideas, tasks, questions, decisions."`
	Export exportCommand  `cmd:"" help:"Write the history of a room, as the relay keeps it: signed and sealed."`

	Raw rawCommands `cmd:"" help:"For debugging, and for participants without a device: envelopes as they are on the wire."`
}

const description = `The client of Peer Relay: messages that only the devices in a room can read.

  peer enroll --home alice
  peer activate --home alice
  peer room create --home alice
  peer send --home alice --room ROOM_ID "good morning"
  peer listen --home alice

Exit code 0 says that it was done, 1 that it was not, and 2 that the command was typed wrongly. With --json, the last line of the
error output of a command that was not done is a JSON object {"error":CODE,"detail":TEXT}.`

// console is where a command reads and writes; tests replace it.
type console struct {
	in       io.Reader
	out, err io.Writer
	program  string // how this program was called, for the commands it suggests

	look     look           // what the outputs can show
	json     bool           // an error is one line of JSON
	patience time.Duration  // how long to wait for a device that another command has open; 0: 30 s
	guest    *circumstances // of a command that another process called; nil: this one's own
	shared   *running       // the device that this process has open already; nil where the command opens it
}

// look is what the outputs of a command can show.
type look struct {
	Colours  bool `json:"colours"`  // standard output
	Progress bool `json:"progress"` // error output
}

// looks finds out what the outputs of this process can show (https://no-color.org).
func looks() look {
	colours := term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return look{Colours: colours, Progress: term.IsTerminal(int(os.Stderr.Fd()))}
}

// notef says something on the error output. Parts of it may be others' words.
func (c console) notef(format string, values ...any) {
	fmt.Fprintf(c.err, "peer: %s\n", strings.Map(shown, fmt.Sprintf(format, values...)))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE) // where nobody takes what is printed, that is an error: other commands may run in this one
	code := run(ctx, os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr, program: os.Args[0], look: looks()})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, con console) int {
	exited := -1
	options := []kong.Option{
		kong.Name("peer"),
		kong.Description(description),
		kong.Writers(con.out, con.err),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
	}
	parser, err := kong.New(grammar(args), append(options, con.guest.options()...)...)
	if err != nil {
		con.notef("%v", err)
		return exitUsage
	}
	parsed, err := parser.Parse(inviteLast(args))
	switch {
	case exited >= 0: // --help
		return exited
	case err != nil:
		return unparsed(err, args, con)
	}
	con.json = printsJSON(parsed)
	var code int
	if flag := givenTwice(parsed); flag != "" {
		code = exitCode(usageError{"--" + flag + " is given twice, and takes one value"}, con)
	} else {
		code = execute(ctx, parsed, args, con)
	}
	if code == exitUsage && !con.json && con.guest == nil { // else the one that called says so
		con.notef("see peer %s--help", commandOf(parsed))
	}
	return code
}

// grammar is all commands, or that one alone which a command line begins with: to prepare for all
// of them takes longer than most commands do.
func grammar(args []string) any {
	for field := range reflect.TypeFor[commands]().Fields() {
		if len(args) > 0 && args[0] == strings.ToLower(field.Name) {
			return reflect.New(reflect.StructOf([]reflect.StructField{field})).Interface()
		}
	}
	return new(commands)
}

// inviteLast puts the invite of peer enroll after all flags where it begins with a hyphen, as one of
// 64 does: it would be taken for a flag, and shown as one that is not known.
func inviteLast(args []string) []string {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") && client.IsInvite(arg) })
	if at < 1 || args[0] != "enroll" || slices.Contains(args[:at], "--") {
		return args
	}
	return append(slices.Delete(slices.Clone(args), at, at+1), "--", args[at])
}

// unparsed says what is wrong with a command line.
func unparsed(err error, args []string, con console) int {
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "--json" && args[0] != "raw" {
			con.json = true
			return exitCode(usageError{err.Error()}, con)
		}
	}
	con.notef("%v", err)
	command := ""
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		command = commandOf(wrong.Context)
	}
	con.notef("see peer %s--help", command)
	return exitUsage
}

// printsJSON reports whether a command was given --json. Those below raw print their errors as
// text all the same.
func printsJSON(parsed *kong.Context) bool {
	if strings.HasPrefix(commandOf(parsed), "raw ") {
		return false
	}
	for _, flag := range parsed.Flags() {
		if flag.Name == "json" {
			given, ok := parsed.FlagValue(flag).(bool)
			return ok && given
		}
	}
	return false
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

// givenTwice names a flag that says what is sent, or to whom, where it has two values: the last one
// would count, and the first of two files were not sent, in silence.
func givenTwice(parsed *kong.Context) string {
	seen := make(map[*kong.Flag]bool)
	for _, part := range parsed.Path {
		switch flag := part.Flag; {
		case flag == nil || flag.Name != "file" && flag.Name != "to":
		case seen[flag]:
			return flag.Name
		default:
			seen[flag] = true
		}
	}
	return ""
}

// usageError is wrong use that the flags' types could not catch.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// exitCode tells an error, and returns what the process ends with.
func exitCode(err error, con console) int {
	if err == nil {
		return exitOK
	}
	if con.json {
		_ = writeJSON(con.err, failureLine{Error: errorCode(err), Detail: err.Error()})
	} else {
		con.notef("%v", err)
	}
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}
