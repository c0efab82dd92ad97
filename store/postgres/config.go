package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says how to reach the database and how to use it. Only URL is required.
type Config struct {
	// URL of a user that is a member of schema.ServiceRole, or is that role.
	URL string
	// MaxConns bounds the pool; default 10.
	MaxConns int
	// Timeout bounds every call, waiting for a connection included; default 5 s.
	Timeout time.Duration
	Logger  *slog.Logger // nil discards
	// Registerer gets the metrics; nil: they are counted and shown nowhere.
	Registerer prometheus.Registerer
	// MLS lets rooms of scheme mls be used; off, they refuse every message.
	MLS     bool
	History HistoryConfig
}

// HistoryConfig says how history and traces are written, each by flushers and queues of
// its own, and how much of history is kept. Traces are an audit: they are kept for ever.
type HistoryConfig struct {
	Flushers   int // concurrent commits; default 2
	BatchRows  int // most rows of one commit; default 512
	BatchBytes int // envelope bytes after which a commit takes no more rows; default 4 MiB
	// Queue bounds the rows waiting for each flusher; default 4096. A call waits for
	// room in it until its deadline.
	Queue int

	// KeepRows and KeepFor are the window of a room (DESIGN section 7): rows beyond
	// either are deleted; defaults 10,000 and 30 days. A notice is kept for KeepFor after
	// it has expired.
	KeepRows int
	KeepFor  time.Duration
	// PruneEvery is the pause between two passes over all rooms; default 10 min, negative: never.
	PruneEvery time.Duration
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxConns, 10)
	setDefault(&c.Timeout, 5*time.Second)
	setDefault(&c.History.Flushers, 2)
	setDefault(&c.History.BatchRows, 512)
	setDefault(&c.History.BatchBytes, 4<<20)
	setDefault(&c.History.Queue, 4096)
	setDefault(&c.History.KeepRows, 10_000)
	setDefault(&c.History.KeepFor, 30*24*time.Hour)
	setDefault(&c.History.PruneEvery, 10*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "store")
	return c
}

func setDefault[T comparable](value *T, to T) {
	var zero T
	if *value == zero {
		*value = to
	}
}

func (c Config) validate() error {
	if c.URL == "" {
		return errors.New("no database URL given")
	}
	for name, v := range map[string]int{
		"max conns": c.MaxConns, "timeout": int(c.Timeout), "flushers": c.History.Flushers,
		"batch rows": c.History.BatchRows, "batch bytes": c.History.BatchBytes, "queue": c.History.Queue,
		"keep rows": c.History.KeepRows, "keep for": int(c.History.KeepFor),
	} {
		if v < 0 {
			return fmt.Errorf("%s is negative", name)
		}
	}
	return nil
}
