// Package node wires one relay process together: database, NATS, inboxes,
// cluster, protocol core, HTTP and the WebSocket front, brought up in that order
// and ended in reverse (DESIGN sections 2 and 7). It is the only place that knows
// all of them; cmd/relay gives it flags and internal/testkit runs it in tests.
package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Roles of a process (DESIGN section 2).
const (
	RoleAll = "all"
)

// Promises of --inbox-sync.
const (
	SyncEverySecond = "1s"     // a killed process loses nothing, a power cut at most the last second
	SyncAlways      = "always" // nothing is acknowledged before it is on disk
)

// Config of one process. Empty strings and zeros mean the defaults named here.
type Config struct {
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
	NATSListen  string // of the embedded NATS, for the nats command line; default 127.0.0.1:0
	NATSCreds   string // credentials file for NATSURL

	InboxShards   int           // default inbox.DefaultShards
	InboxSync     string        // default SyncEverySecond
	InboxReplicas int           // default 1
	RecentBytes   int64         // default 256 MiB; negative: none
	InboxAge      time.Duration // rows older than this are gone; default 24 h
	InboxTimeout  time.Duration // of one write, and of one step of a replay; default 5 s

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

func (c Config) validate() error {
	switch {
	case c.Data == "":
		return errors.New("the data folder is missing")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case c.InboxSync != SyncEverySecond && c.InboxSync != SyncAlways:
		return fmt.Errorf("--inbox-sync %q: use %q or %q", c.InboxSync, SyncEverySecond, SyncAlways)
	case c.InboxReplicas > 1 && c.NATSURL == "":
		return errors.New("--nats-replicas needs an external cluster (--nats-url)")
	}
	return nil
}
