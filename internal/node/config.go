// Package node wires one relay process together: database, NATS, inboxes,
// cluster, protocol core, HTTP and the WebSocket front, brought up in that order
// and ended in reverse (DESIGN sections 2 and 7). It is the only place that knows
// all of them; cmd/relay gives it flags and internal/testkit runs it in tests.
package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/peerrelay/peerrelay/api"
)

// Roles of a process (DESIGN section 2).
const (
	RoleAll  = "all"  // the default
	RoleAPI  = "api"  // the HTTP API without the front
	RoleEdge = "edge" // the front alone: it asks an API node instead of a database
)

// Promises of --inbox-sync.
const (
	SyncEverySecond = "1s"     // a killed process loses nothing, a power cut at most the last second
	SyncAlways      = "always" // nothing is acknowledged before it is on disk
)

// Config of one process. Empty strings and zeros mean the defaults named here.
type Config struct {
	Role    string // default RoleAll
	Version string
	NodeID  string // default: the host's name and a random part, or the data folder's
	Data    string // required

	Listen        string // default 127.0.0.1:8787
	MetricsListen string // default 127.0.0.1:8788; "off" for none
	TLSCert       string // file; with TLSKey the public listener speaks TLS
	TLSKey        string
	Origins       []string // web origins that may open the WebSocket; none by default

	DatabaseURL string // empty: a managed PostgreSQL in Data
	NATSURL     string // empty: the embedded NATS in Data
	NATSListen  string // of the embedded NATS, for the nats command line and edges; default 127.0.0.1:0
	NATSCreds   string // credentials file for NATSURL
	NATSContext string // file with address and credentials of an external NATS, as of the nats program
	MLS         bool   // whether MLS rooms take messages; the API's business

	APIURL           string // RoleEdge: the node that has the database
	ServiceToken     string `json:"-"` // RoleEdge: proves this node to it
	ServiceTokenFile string // file with it; RoleAPI and RoleAll take the token they ask for from it

	InboxShards   int           // default inbox.DefaultShards
	InboxSync     string        // default SyncEverySecond
	InboxReplicas int           // default 1
	RecentBytes   int64         // default 256 MiB; negative: none
	InboxAge      time.Duration // rows older than this are gone; default 24 h
	InboxTimeout  time.Duration // of one write, and of one step of a replay; default 5 s

	HTTPLimits api.Limits    // of the public listener
	LeaseTTL   time.Duration // of this node; default that of cluster.Config

	AllowDevelopment   bool
	EnvelopesPerSecond int // of one participant; default 20
	FramesPerSecond    int // of one connection, other than envelopes; default 20
	ParticipantConns   int
	TenantConns        int
	NodeConns          int // default: from the open-files limit
	AddressConns       int // sockets of one address before hello; default 256
	HistoryRows        int // retained per room; default 10,000
	HistoryAge         time.Duration
	StoreTimeout       time.Duration // of one database call; default 5 s
	PingInterval       time.Duration
	HelloTimeout       time.Duration // from the upgrade to the hello; default 10 s
	MessageTimeout     time.Duration // from a message's first byte to its last; default 10 s

	Logger *slog.Logger `json:"-"`
}

func (c Config) withDefaults() Config {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&c.Role, RoleAll)
	set(&c.Version, "dev")
	set(&c.Listen, "127.0.0.1:8787")
	set(&c.MetricsListen, "127.0.0.1:8788")
	set(&c.NATSListen, "127.0.0.1:0")
	set(&c.InboxSync, SyncEverySecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// external reports whether NATS is another process.
func (c Config) external() bool { return c.NATSURL != "" || c.NATSContext != "" }

// ErrConfig is a configuration that cannot be meant.
var ErrConfig = errors.New("wrong configuration")

// Validate says what is wrong with the configuration, before anything is started. The
// error wraps ErrConfig and names flags.
func (c Config) Validate() error {
	if fault := c.withDefaults().fault(); fault != "" {
		return &configError{fault}
	}
	return nil
}

type configError struct{ text string }

func (e *configError) Error() string { return e.text }
func (e *configError) Unwrap() error { return ErrConfig }

func (c Config) fault() string {
	switch {
	case c.Data == "":
		return "the data folder is missing"
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return "--tls-cert and --tls-key go together"
	case c.InboxSync != SyncEverySecond && c.InboxSync != SyncAlways:
		return fmt.Sprintf("--inbox-sync %q: use %q or %q", c.InboxSync, SyncEverySecond, SyncAlways)
	case c.InboxReplicas > 1 && !c.external():
		return "--nats-replicas needs an external cluster (--nats-url)"
	case c.ServiceToken != "" && c.ServiceTokenFile != "":
		return "RELAY_SERVICE_TOKEN and --service-token-file are two ways to say one thing: use one of them"
	}
	switch c.Role {
	case RoleAll, RoleAPI:
		return ""
	case RoleEdge:
		return c.edgeFault()
	}
	return fmt.Sprintf("--role %q: use %q, %q or %q", c.Role, RoleAll, RoleAPI, RoleEdge)
}

func (c Config) edgeFault() string {
	switch {
	case c.DatabaseURL != "":
		return "--role edge has no database: --database-url belongs to the api node"
	case c.APIURL == "":
		return "--role edge needs --api-url, the address of the api node"
	case !isAPIAddress(c.APIURL):
		return "--api-url must be an http or https address, without user, path or query"
	case !c.external():
		return "--role edge needs --nats-url or --nats-context, the NATS of the api node"
	case c.ServiceToken == "" && c.ServiceTokenFile == "":
		return "--role edge needs the service token: --service-token-file or RELAY_SERVICE_TOKEN " +
			"(on the api node it is keys/service.token in the data folder)"
	}
	return ""
}

func isAPIAddress(text string) bool {
	address, err := url.Parse(text)
	return err == nil && (address.Scheme == "http" || address.Scheme == "https") && address.Host != "" &&
		address.User == nil && address.RawQuery == "" && address.Fragment == "" && (address.Path == "" || address.Path == "/")
}
