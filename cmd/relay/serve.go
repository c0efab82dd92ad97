package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/peerrelay/peerrelay/internal/node"
)

// ServeCmd runs the relay.
type ServeCmd struct {
	Role             string `default:"all" enum:"all,api,edge" env:"RELAY_ROLE" help:"What this process runs: all of it, the API without the front for clients (api), or the front alone (edge), which asks an api node (--api-url) and writes into its NATS."`
	ServiceTokenFile string `env:"RELAY_SERVICE_TOKEN_FILE" placeholder:"FILE" help:"Token that edges show the api node. An edge needs it, or the variable RELAY_SERVICE_TOKEN; other nodes make keys/service.token in the data folder unless they are given one to share."`

	Listen        string   `default:"127.0.0.1:8787" env:"RELAY_LISTEN" help:"Public listener: WebSocket at /v1/relay, API at /v1/, /healthz, /readyz."`
	MetricsListen string   `default:"127.0.0.1:8788" env:"RELAY_METRICS_LISTEN" help:"Metrics and profiles; 'off' for none. Never make it public."`
	TLSCert       string   `name:"tls-cert" env:"RELAY_TLS_CERT" placeholder:"FILE" help:"Certificate of the public listener (PEM)."`
	TLSKey        string   `name:"tls-key" env:"RELAY_TLS_KEY" placeholder:"FILE" help:"Its private key (PEM)."`
	Origin        []string `env:"RELAY_ORIGIN" placeholder:"URL" help:"Web origin that may open the WebSocket, for example https://app.example. None by default; agents send no Origin."`

	DatabaseURL string `env:"RELAY_DATABASE_URL" placeholder:"URL" help:"An external PostgreSQL 15 or newer, instead of the managed one."`
	NATSURL     string `name:"nats-url" env:"RELAY_NATS_URL" placeholder:"URL" help:"An external NATS with JetStream, instead of the embedded one."`
	NATSCreds   string `name:"nats-creds" env:"RELAY_NATS_CREDS" placeholder:"FILE" help:"Credentials file for --nats-url."`
	NATSContext string `name:"nats-context" env:"RELAY_NATS_CONTEXT" placeholder:"FILE" help:"Context file of the nats program with the address and the credentials of an external NATS; an api node writes one for its edges (nats/edge.json in its data folder). --nats-url comes before its address."`
	NATSListen  string `name:"nats-listen" default:"127.0.0.1:0" env:"RELAY_NATS_LISTEN" help:"Where the embedded NATS listens for the nats command line, and with --role api for edges; port 0 picks one and keeps it."`

	InboxShards  int    `env:"RELAY_INBOX_SHARDS" default:"${inbox_shards}" help:"Streams that hold the inboxes; fixed when they are first created."`
	InboxSync    string `env:"RELAY_INBOX_SYNC" default:"1s" enum:"1s,always" help:"When stored envelopes are on disk: within a second (1s), or before they are acknowledged (always)."`
	NATSReplicas int    `name:"nats-replicas" env:"RELAY_NATS_REPLICAS" default:"1" help:"Copies of each stream in an external cluster."`
	RecentBytes  int64  `env:"RELAY_RECENT_BYTES" default:"268435456" help:"Memory for the newest inbox rows; -1 for none."`

	MLS string `name:"mls" env:"RELAY_MLS" default:"on" enum:"on,off" help:"Whether rooms of scheme mls take messages and commits."`

	AllowDevelopment   bool          `env:"RELAY_ALLOW_DEVELOPMENT" help:"Accept development connections (hello with direct: true)."`
	EnvelopesPerSecond int           `env:"RELAY_ENVELOPES_PER_SECOND" default:"20" help:"Envelopes one participant may send a second."`
	ParticipantConns   int           `env:"RELAY_PARTICIPANT_CONNS" default:"8" help:"Connections of one participant."`
	TenantConns        int           `env:"RELAY_TENANT_CONNS" default:"1024" help:"Connections of one tenant."`
	NodeConns          int           `env:"RELAY_NODE_CONNS" default:"0" help:"Connections of this process; 0: as many as the open-files limit allows."`
	AddressConns       int           `env:"RELAY_ADDRESS_CONNS" default:"256" help:"Sockets of one address that have not said hello."`
	HistoryRows        int           `env:"RELAY_HISTORY_ROWS" default:"10000" help:"Session messages kept per room."`
	HistoryAge         time.Duration `env:"RELAY_HISTORY_AGE" default:"720h" help:"How long session messages are kept."`

	LogLevel  string `env:"RELAY_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Least level that is logged."`
	LogFormat string `env:"RELAY_LOG_FORMAT" default:"text" enum:"text,json" help:"Form of the log lines on standard error."`
}

// Help is shown by relay serve --help.
func (*ServeCmd) Help() string {
	return `Example:

  relay serve --data ./relay-data

With nothing set it runs everything it needs by itself: an embedded NATS and a PostgreSQL from the installed server programs.

Where many connections are held by nodes of their own:

  relay serve --role api --data ./relay-data --nats-listen 10.0.0.1:4222
  relay serve --role edge --data ./edge-data --api-url http://10.0.0.1:8787 --nats-context edge.json --service-token-file service.token`
}

// startTimeout bounds the bring-up, first initialisation and recovery of large
// streams included; stopTimeout the shutdown.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Run serves until SIGINT or SIGTERM.
func (c *ServeCmd) Run(globals *Globals) error {
	log := c.logger(os.Stderr)
	config := c.config(globals, log)
	if err := config.Validate(); err != nil {
		return usageError{err.Error()}
	}
	tuneMemory()
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(interrupted, stop) // a second signal ends the process at once

	starting, cancel := context.WithTimeout(interrupted, startTimeout)
	defer cancel()
	began := time.Now()
	n, err := node.Start(starting, config)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; another program listens there: choose other addresses with --listen and --metrics-listen", err)
	}
	if err != nil {
		return err
	}
	c.announce(os.Stdout, n, time.Since(began))
	c.inviteOwner(starting, os.Stdout, n, log)
	c.next(os.Stdout, n)

	var failure error
	select {
	case <-interrupted.Done():
		log.Info("shutting down")
	case failure = <-n.Failed():
		log.Error("shutting down", "error", failure)
	}
	closing, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(failure, n.Close(closing))
}

// tuneMemory trades a little CPU for a smaller process: most of it belongs to
// connections that do nothing. GOGC in the environment decides where it is set.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(75)
	}
}

func (c *ServeCmd) config(globals *Globals, log *slog.Logger) node.Config {
	return node.Config{
		Role:               c.Role,
		Version:            version,
		Data:               globals.Data,
		Listen:             c.Listen,
		MetricsListen:      c.MetricsListen,
		TLSCert:            c.TLSCert,
		TLSKey:             c.TLSKey,
		Origins:            c.Origin,
		DatabaseURL:        c.DatabaseURL,
		NATSURL:            c.NATSURL,
		NATSListen:         c.NATSListen,
		NATSCreds:          c.NATSCreds,
		NATSContext:        c.NATSContext,
		MLS:                c.MLS == "on",
		APIURL:             globals.APIURL,
		ServiceToken:       strings.TrimSpace(os.Getenv("RELAY_SERVICE_TOKEN")),
		ServiceTokenFile:   c.ServiceTokenFile,
		InboxShards:        c.InboxShards,
		InboxSync:          c.InboxSync,
		InboxReplicas:      c.NATSReplicas,
		RecentBytes:        c.RecentBytes,
		AllowDevelopment:   c.AllowDevelopment,
		EnvelopesPerSecond: c.EnvelopesPerSecond,
		ParticipantConns:   c.ParticipantConns,
		TenantConns:        c.TenantConns,
		NodeConns:          c.NodeConns,
		AddressConns:       c.AddressConns,
		HistoryRows:        c.HistoryRows,
		HistoryAge:         c.HistoryAge,
		Logger:             log,
	}
}

func (c *ServeCmd) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(c.LogLevel)) != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// announce says what runs, and where.
func (c *ServeCmd) announce(w io.Writer, n *node.Node, took time.Duration) {
	socket, web := c.schemes()
	address := from(n.Addr(), "127.0.0.1")
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "  %-10s %s\n", name, value) }
	fmt.Fprintf(&b, "Peer Relay %s %s after %s.\n\n", version, started[n.Role()], took.Round(10*time.Millisecond))
	if n.Role() != node.RoleAPI {
		line("WebSocket", (&url.URL{Scheme: socket, Host: address, Path: "/v1/relay"}).String())
	}
	if n.Role() != node.RoleEdge {
		line("API", (&url.URL{Scheme: web, Host: address, Path: "/v1/"}).String())
		line("Reference", (&url.URL{Scheme: web, Host: address, Path: "/docs"}).String())
	}
	if metrics := n.MetricsAddr(); metrics != nil {
		line("Metrics", (&url.URL{Scheme: "http", Host: metrics.String(), Path: "/metrics"}).String())
	}
	line("Data", n.Data())
	if file := n.ContextFile(); file != "" {
		line("NATS", "nats --context "+file+" sub 'live.>'")
	}
	b.WriteString("\n")
	_, _ = io.WriteString(w, b.String())
}

// inviteOwner shows the invite of the first admin, while there is none: it is what a new user
// begins with. The relay serves without one, too.
func (c *ServeCmd) inviteOwner(ctx context.Context, w io.Writer, n *node.Node, log *slog.Logger) {
	invite, made, err := n.OwnerInvite(ctx)
	if err != nil {
		log.Warn("the owner's invite was not made: make one with relay invite create --admin", "error", err)
	}
	if !made {
		return
	}
	_, web := c.schemes()
	const home = "--home devices/alice"
	_, _ = fmt.Fprintf(w, "No device is an admin yet. The owner's invite, shown only now and valid until %s, once:\n\n  %s\n\n"+
		"Begin with it, in another terminal: peer enroll asks for it, and makes a device of yours the first admin.\n\n"+
		"  bin/peer enroll %s --url %s://%s\n  bin/peer activate %s\n\nAnother invite:\n\n  %s%s invite create --admin\n\n",
		moment(invite.ExpiresAt), invite.Token, home, web, from(n.Addr(), "127.0.0.1"), home, program(), dataFlag(n))
}

// schemes of the public listener's addresses.
func (c *ServeCmd) schemes() (socket, web string) {
	if c.TLSCert != "" {
		return "wss", "https"
	}
	return "ws", "http"
}

// from is a listener's address as one connects to it: where it is every address of the
// machine, that is a name for the machine.
func from(listening net.Addr, machine string) string {
	tcp, ok := listening.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return listening.String()
	}
	return net.JoinHostPort(machine, strconv.Itoa(tcp.Port))
}

// started is what is true of a role when its process has come up: an edge may still wait
// for the node that it asks.
var started = map[string]string{
	node.RoleAll:  "is ready",
	node.RoleAPI:  "is ready (role api)",
	node.RoleEdge: "serves (role edge)",
}

// next says what else can be typed.
func (c *ServeCmd) next(w io.Writer, n *node.Node) {
	var b strings.Builder
	socket, web := c.schemes()
	switch n.Role() {
	case node.RoleAPI:
		c.edgeHints(&b, n, web)
	case node.RoleEdge:
		fmt.Fprintf(&b, "Next, in another terminal, whether it reaches the API and NATS:\n\n  %s --data %s doctor\n\n", program(), n.Data())
	default:
		data := dataFlag(n)
		fmt.Fprintf(&b, "To look at envelopes without a device, in another terminal (nothing of it is encrypted):\n\n")
		fmt.Fprintf(&b, "  %s%s room create\n", program(), data)
		fmt.Fprintf(&b, "  %s%s participant add --room ROOM_ID --role agent --credential-file bob.cred\n", program(), data)
		fmt.Fprintf(&b, "  bin/peer raw listen --url %s://%s/v1/relay --credential-file bob.cred\n\n", socket, from(n.Addr(), "127.0.0.1"))
	}
	_, _ = io.WriteString(w, b.String())
}

// edgeHints says how edges join.
func (c *ServeCmd) edgeHints(b *strings.Builder, n *node.Node, web string) {
	flags := "--nats-context " + n.EdgeContextFile()
	if n.EdgeContextFile() == "" { // as of this node, with a user of less rights
		flags = "--nats-context EDGE.json --nats-replicas " + strconv.Itoa(c.NATSReplicas)
	}
	fmt.Fprintf(b, "Edges join with (copy the files to where they run):\n\n")
	fmt.Fprintf(b, "  relay serve --role edge --data ./edge-data --api-url %s://%s %s --service-token-file %s\n",
		web, from(n.Addr(), "THIS_MACHINE"), flags, n.ServiceTokenFile())
	fmt.Fprintf(b, "\nOperator commands are typed here:\n\n  %s --data %s room create\n\n", program(), n.Data())
}

// program is this program as it is typed.
func program() string {
	const built = "bin/relay"
	if strings.HasSuffix(os.Args[0], built) {
		return built
	}
	return os.Args[0]
}

// dataFlag leads operator commands to this relay; empty where its data folder is the usual one.
func dataFlag(n *node.Node) string {
	if usual, err := filepath.Abs("relay-data"); err == nil && usual == n.Data() {
		return ""
	}
	return " --data " + n.Data()
}
