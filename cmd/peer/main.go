// Command peer is the client an agent or owner runs: it listens to an inbox and
// sends envelopes.
//
// This first version sends and shows raw envelopes; it encrypts nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
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
	Listen   listenCommand   `cmd:"" help:"Print what arrives, and go on after a lost connection."`
	Send     sendCommand     `cmd:"" help:"Send envelopes from a file or standard input, or test envelopes."`
	Template templateCommand `cmd:"" help:"Print one envelope of this participant, to edit and send."`
}

const description = `The client of Peer Relay.

Try it:
  peer listen --credential-file bob.cred
  peer send   --credential-file alice.cred --count 3 --to room
  peer template --credential-file alice.cred | peer send --credential-file alice.cred`

// console is where a command reads and writes; tests replace it.
type console struct {
	in       io.Reader
	out, err io.Writer
}

func (c console) notef(format string, values ...any) {
	fmt.Fprintf(c.err, "peer: "+format+"\n", values...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr})
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
	return parsed.Selected().Name + " "
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

// connection is the flags every command has.
type connection struct {
	URL            string `default:"ws://127.0.0.1:8787/v1/relay" env:"PEER_URL" help:"The relay's WebSocket address."`
	CredentialFile string `type:"path" env:"PEER_CREDENTIAL_FILE" placeholder:"FILE" help:"File that holds the credential; - is standard input."`
	Credential     string `env:"PEER_CREDENTIAL" placeholder:"TOKEN" help:"The credential itself. Others on this machine can see command lines: prefer the file or the environment."`
	Direct         bool   `help:"Ask for a development connection; the credential must be of that kind."`
}

// relayPath is where a relay answers; an address without a path means it.
const relayPath = "/v1/relay"

// address is the whole WebSocket address.
func (c connection) address() (string, error) {
	parsed, err := url.Parse(c.URL)
	if err != nil || parsed.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, parsed.Scheme) {
		return "", usageError{fmt.Sprintf("--url %q is not a WebSocket address such as ws://127.0.0.1:8787%s", c.URL, relayPath)}
	}
	if parsed.Path == "" || parsed.Path == "/" {
		parsed.Path = relayPath
	}
	return parsed.String(), nil
}

// maxCredential bounds a credential file; a token has 43 characters.
const maxCredential = 4096

func (c connection) token(con console) (string, error) {
	if c.CredentialFile == "" {
		if c.Credential == "" {
			return "", usageError{"a credential is needed: --credential-file FILE or PEER_CREDENTIAL"}
		}
		return strings.TrimSpace(c.Credential), nil
	}
	in := con.in
	if c.CredentialFile != "-" {
		file, err := os.Open(c.CredentialFile)
		if err != nil {
			return "", fmt.Errorf("read the credential: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCredential))
	if err != nil {
		return "", fmt.Errorf("read the credential: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s holds no credential", c.CredentialFile)
	}
	return token, nil
}
