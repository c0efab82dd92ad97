// Command relay is the server and its operator commands (DESIGN section 8).
//
// Operator commands talk HTTP to the running server, over the socket in its data folder
// or to --api-url with a token.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/peerrelay/peerrelay/inbox"

	"github.com/alecthomas/kong"
)

// version is set when the program is linked.
var version = "devel"

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// CLI is the command line.
type CLI struct {
	Globals

	Serve       ServeCmd       `cmd:"" help:"Run the relay."`
	Room        RoomCmd        `cmd:"" help:"Make, list, show, archive and reset rooms."`
	Participant ParticipantCmd `cmd:"" help:"Add, remove and list the participants of a room."`
	Credential  CredentialCmd  `cmd:"" help:"Mint and revoke credentials."`
	Invite      InviteCmd      `cmd:"" help:"Make and revoke invites, with which devices enroll."`
	Device      DeviceCmd      `cmd:"" help:"List, approve, suspend, reinstate and revoke devices."`
	Tenant      TenantCmd      `cmd:"" help:"Make and list tenants, who share the relay and see nothing of each other."`
	Freeze      FreezeCmd      `cmd:"" help:"Freeze the network: close every connection and accept none, or end that (--off)."`
	Inbox       InboxCmd       `cmd:"" help:"Show what waits for a participant, and where."`
	Doctor      DoctorCmd      `cmd:"" help:"Check this machine, the data folder and the running relay."`
	Migrate     MigrateCmd     `cmd:"" help:"Bring the database up to date. The server does it by itself when it starts."`
	Version     VersionCmd     `cmd:"" help:"Print the version."`
}

// Globals are the flags that every command has.
type Globals struct {
	Data      string          `default:"./relay-data" env:"RELAY_DATA" placeholder:"DIR" help:"The data folder, by default ./relay-data; operator commands find the running relay through the socket in it."`
	APIURL    string          `name:"api-url" env:"RELAY_API_URL" placeholder:"URL" help:"Talk to the relay at this address instead of the socket, for example https://relay.example."`
	Token     string          `env:"RELAY_TOKEN" placeholder:"TOKEN" help:"Operator token for --api-url. Others on this machine can read command lines: prefer the environment or --token-file."`
	TokenFile string          `env:"RELAY_TOKEN_FILE" placeholder:"FILE" help:"File that holds the operator token (on the server: keys/operator.token in the data folder)."`
	Tenant    string          `env:"RELAY_TENANT" placeholder:"NAME" help:"The tenant that an operator command is for; without it, default."`
	JSON      bool            `help:"Print one JSON object."`
	Config    kong.ConfigFlag `placeholder:"FILE" type:"path" help:"JSON file with values for flags, for example {\"listen\": \"127.0.0.1:9000\"}. Flags and RELAY_* variables come before it."`
}

const description = `Peer Relay: store and deliver end-to-end encrypted envelopes between agents and their owners.

Try it:
  relay serve
  relay room create
  relay participant add --room ROOM_ID --role agent

Values come from flags, then RELAY_* environment variables, then --config.`

// console is where a command reads and writes; tests replace it.
type console struct {
	out, err io.Writer
	program  string // how this program was called, for the commands it suggests
}

func (c console) notef(format string, values ...any) {
	fmt.Fprintf(c.err, "relay: "+format+"\n", values...)
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], console{os.Stdout, os.Stderr, os.Args[0]}))
}

func newParser(cli *CLI, con console, exit func(code int)) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("relay"),
		kong.Description(description),
		kong.Writers(con.out, con.err),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Configuration(configFile),
		kong.Vars{"inbox_shards": strconv.Itoa(inbox.DefaultShards)},
		kong.Bind(con),
	)
}

func run(ctx context.Context, args []string, con console) int {
	var cli CLI
	exited := -1
	parser, err := newParser(&cli, con, func(code int) { exited = code })
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
		con.notef("see relay %s--help", commandOf(err))
		return exitUsage
	}
	if err := cli.settle(); err != nil {
		con.notef("%v", err)
		return exitFailed
	}
	ctx, stop := interruptible(ctx, parsed)
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	return exitCode(parsed.Run(&cli.Globals), con)
}

// interruptible ends ctx with a signal, but not for the server, which has its own way to
// end: caught here as well, a second signal would not end the process.
func interruptible(ctx context.Context, parsed *kong.Context) (context.Context, context.CancelFunc) {
	if parsed.Command() == "serve" {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// settle makes the data folder absolute. An empty name, as of a variable that is set to
// nothing, is the default and not the current folder.
func (g *Globals) settle() (err error) {
	if g.Data == "" {
		g.Data = "relay-data"
	}
	if g.Data, err = filepath.Abs(g.Data); err != nil {
		return fmt.Errorf("find the data folder: %w", err)
	}
	return nil
}

// commandOf is the command that was being parsed, as far as it is known, and a space.
func commandOf(err error) string {
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil {
		return ""
	}
	words := strings.Fields(wrong.Context.Command())
	return strings.Join(append(words, ""), " ")
}

// usageError is wrong use that the flags' types could not catch.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// silentError fails the command without another line: it has said what is wrong.
type silentError struct{}

func (silentError) Error() string { return "failed" }

func exitCode(err error, con console) int {
	if err == nil {
		return exitOK
	}
	if _, said := errors.AsType[silentError](err); said {
		return exitFailed
	}
	con.notef("%v", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}

// VersionCmd prints the version.
type VersionCmd struct{}

// Help is shown by relay version --help.
func (*VersionCmd) Help() string { return "Example:\n\n  relay version --json" }

// Run prints it.
func (*VersionCmd) Run(globals *Globals, con console) error {
	answer := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}{version, runtime.Version()}
	return show(globals, con, answer, func(w io.Writer) {
		fmt.Fprintf(w, "relay %s (%s)\n", answer.Version, answer.Go)
	})
}
