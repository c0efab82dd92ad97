package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// Mode says who writes the streams.
type Mode uint8

// The modes.
const (
	// Embedded: this process is the only writer of every stream (embedded NATS).
	// Rows are counted instead of acknowledged one by one, and the newest ones stay
	// in memory.
	Embedded Mode = iota
	// Shared: other nodes write the same streams (external NATS). A group of
	// envelopes is one atomic batch, and nothing is kept in memory.
	Shared
)

// MaxRecipients is the largest fan-out of one Message: with atomic batches it has
// to fit into one batch of the server (1,000 messages).
const MaxRecipients = 1000

// DefaultShards is how many streams hold the inboxes unless told otherwise: larger groups
// to write with fewer, quicker replays from disk with more (docs/performance.md).
const DefaultShards = 8

// Config of Open. Only Dial and Sink are required.
type Config struct {
	// Dial opens one connection to NATS with the options added to its own. Open
	// makes 2 + Readers of them and closes them again.
	Dial func(name string, options ...nats.Option) (*nats.Conn, error)
	// Sink receives the live feed. It is called before Open returns only if a
	// connection is lost meanwhile.
	Sink Sink

	Mode       Mode
	SyncAlways bool // the server flushes every write: groups become atomic batches, which share one flush

	Shards   int           // streams; 0 means DefaultShards. Fixed by the first Open of a store
	Replicas int           // of each stream; 0 means 1
	MaxRows  int           // newest rows kept per inbox; 0 means 500
	MaxAge   time.Duration // rows older than this are gone; 0 means 24 h

	// TailsFile is where the last sequences of the streams are noted, in a folder that
	// exists, so that the next Open sees when a stream has lost its newest rows; only where
	// the NATS server runs on this machine and for this process. Empty for none.
	TailsFile string

	RecentBytes  int64 // memory for recent rows over all shards; 0 means 256 MiB, negative none
	Readers      int   // connections for replays; 0 means 8
	QueueLength  int   // messages waiting per shard before Write waits too; 0 means 4096
	WriteTimeout time.Duration
	ReadTimeout  time.Duration // of one request of a replay; 0 means 5 s
	ProbeEvery   time.Duration // pause between probes of a shard that could not store; 0 means 500 ms

	Now        func() time.Time      // nil means time.Now
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nowhere
}

func (c Config) withDefaults() Config {
	setDefault(&c.Shards, DefaultShards)
	setDefault(&c.Replicas, 1)
	setDefault(&c.MaxRows, 500)
	setDefault(&c.MaxAge, 24*time.Hour)
	setDefault(&c.RecentBytes, 256<<20)
	setDefault(&c.Readers, 8)
	setDefault(&c.QueueLength, 4096)
	setDefault(&c.WriteTimeout, 5*time.Second)
	setDefault(&c.ReadTimeout, 5*time.Second)
	setDefault(&c.ProbeEvery, 500*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "inbox")
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func setDefault[T int | int64 | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

func (c Config) validate() error {
	switch {
	case c.Dial == nil:
		return errors.New("dial function is missing")
	case c.Sink == nil:
		return errors.New("sink is missing")
	case c.Shards < 1 || c.Shards > 1024:
		return fmt.Errorf("%d shards: must be 1 to 1024", c.Shards)
	case c.Replicas < 1 || c.Replicas > 5:
		return fmt.Errorf("%d replicas: must be 1 to 5", c.Replicas)
	case c.MaxRows < 1 || c.MaxAge < time.Second || c.Readers < 1 || c.QueueLength < 1:
		return errors.New("a limit is out of range")
	}
	return nil
}

// atomic reports whether groups are written as atomic batches.
func (c Config) atomic() bool { return c.Mode == Shared || c.SyncAlways }

// keepsRecent reports whether recent rows are held in memory: only where this
// process knows every write.
func (c Config) keepsRecent() bool { return c.Mode == Embedded && c.RecentBytes > 0 }
