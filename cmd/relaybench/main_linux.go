// Command relaybench measures a relay: memory per connection, envelopes a second,
// latency, reconnection storms, replays, many inboxes, what a killed server loses, edge
// nodes, private messages, notices, the Board, history pages, devices, members, commits
// and clients that encrypt. It starts relays of its own in a temporary folder, or takes one that runs, and
// drives them from its own process over loopback.
//
// Beside each figure it measures, in the same run, the floor: what the machine
// does without a relay.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	exitOK     = 0 // it measured, whatever it measured
	exitFailed = 1
	exitUsage  = 2
)

type commands struct {
	Idle      idleCommand      `cmd:"" help:"Memory per idle, authenticated, resumed connection."`
	Pairwise  pairwiseCommand  `cmd:"" help:"Envelopes a second from one participant to another."`
	Room      roomCommand      `cmd:"" help:"Inbox writes a second of room messages."`
	Latency   latencyCommand   `cmd:"" help:"Send-to-deliver time of room messages without load."`
	Reconnect reconnectCommand `cmd:"" help:"Many clients that missed rows come back at once."`
	Replay    replayCommand    `cmd:"" help:"Replays a second for several numbers of shards."`
	Inboxes   inboxesCommand   `cmd:"" help:"Restart and cost per envelope with very many inboxes."`
	Kill      killCommand      `cmd:"" help:"SIGKILL of the server under load, and an account of every queued row."`
	Edge      edgeCommand      `cmd:"" help:"Inbox writes a second of room messages through an edge node."`
	Private   privateCommand   `cmd:"" help:"Private messages a second, each with its trace."`
	Notices   noticesCommand   `cmd:"" help:"Accepted notices a second."`
	Board     boardCommand     `cmd:"" help:"Board events a second through the API, with their hints."`
	History   historyCommand   `cmd:"" help:"Pages of session history a second through the API."`
	Enroll    enrollCommand    `cmd:"" help:"Enrollments a second."`
	SignIn    signInCommand    `cmd:"" name:"signin" help:"Sign-ins of devices a second."`
	Mint      mintCommand      `cmd:"" help:"Credentials that devices mint a second."`
	Members   membersCommand   `cmd:"" help:"Changes of members a second in a large room, all of it connected."`
	Revoke    revokeCommand    `cmd:"" help:"Revocation of a device that is in very many rooms."`
	Commits   commitsCommand   `cmd:"" help:"MLS commits of one epoch that race."`
	Seal      sealCommand      `cmd:"" help:"Sender-key seals and opens a second on one core, without a relay."`
	Talk      talkCommand      `cmd:"" help:"Send-to-shown time of messages that devices encrypt."`
	First     firstCommand     `cmd:"" help:"Time from starting peer to the first decrypted message."`

	FloorPublish floorPublishCommand `cmd:"" hidden:""`
	FloorCommit  floorCommitCommand  `cmd:"" hidden:""`
	FloorIdle    floorIdleCommand    `cmd:"" hidden:""`
	FloorBoard   floorBoardCommand   `cmd:"" hidden:""`
	ServeNATS    serveNATSCommand    `cmd:"" hidden:"" name:"serve-nats"`
}

// settings are the flags of every measurement.
type settings struct {
	RelayBin  string        `default:"bin/relay" placeholder:"FILE" help:"The relay program to start."`
	RelayFlag []string      `placeholder:"FLAG" sep:"none" help:"One more flag for relay serve, e.g. --relay-flag=--recent-bytes=-1; may be repeated."`
	Sync      string        `default:"1s" enum:"1s,always" help:"The relay's --inbox-sync, and the floor's."`
	Runs      int           `default:"5" help:"How often floor and figure are measured, in turn."`
	Time      time.Duration `default:"5s" help:"How long one measurement takes."`
	Size      int           `default:"1024" help:"Size of an envelope in bytes."`
	Profile   string        `placeholder:"DIR" help:"Write CPU and heap profiles of the relay's processes, taken while it measures, into this folder."`
	JSON      bool          `help:"Print one JSON object at the end instead of text."`
	Verbose   bool          `short:"v" help:"Say on the error output what is being done."`
}

// target is for measurements that can use a relay somebody else has started.
type target struct {
	URL     string `placeholder:"ws://127.0.0.1:PORT/v1/relay" help:"Measure a relay that runs, whose limits were raised; --data is needed, too."`
	Data    string `placeholder:"DIR" help:"Its data folder."`
	Metrics string `default:"127.0.0.1:8788" placeholder:"ADDR" help:"Its metrics listener."`
	PID     int    `placeholder:"PID" help:"Its process, for CPU time and memory."`
}

const description = `Load and comparison for Peer Relay.

Example:
  relaybench pairwise --runs 3 --json
  relaybench room --rate 2000
  relaybench kill --rounds 20 --seed 7`

// console is where a command writes; tests replace it.
type console struct {
	in       io.Reader
	out, err io.Writer
}

func (c console) notef(format string, values ...any) {
	fmt.Fprintf(c.err, "relaybench: "+format+"\n", values...)
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
		kong.Name("relaybench"),
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
		return exitUsage
	}
	err = parsed.Run()
	if err == nil {
		return exitOK
	}
	con.notef("%v", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}

// usageError is wrong use that the flags' types could not catch.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }
