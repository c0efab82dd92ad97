package front

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/relay"
)

// Front is an http.Handler that upgrades requests to WebSocket connections and
// serves them. Make it with New, end it with Shutdown.
type Front struct {
	handler relay.Handler
	log     *slog.Logger
	limits  Limits
	origins map[string]bool

	metrics   *metrics
	buffers   buffers
	decoders  decoders
	workers   workers
	wheel     *wheel
	flusher   *flusher
	poller    *poller
	admission admission

	mu       sync.Mutex
	draining bool               // guarded by mu
	blocking map[*conn]struct{} // connections with a goroutine; guarded by mu
	open     sync.WaitGroup     // one for each connection
	writers  sync.WaitGroup     // write goroutines of blocking connections
	refusing chan struct{}      // one for each that is told of the node's limit

	stopSweep chan struct{}
	sweeping  sync.WaitGroup
	stopOnce  sync.Once
}

// maxRefusing bounds the connections over the node's limit that are upgraded to be
// told so; maxDiscard the bytes read and thrown away while a connection closes.
const (
	maxRefusing = 64
	maxDiscard  = 256 << 10
)

// New starts a Front. It has no connections until ServeHTTP upgrades one.
func New(config Config) (*Front, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("front config: %w", err)
	}
	origins, err := parseOrigins(config.Origins)
	if err != nil {
		return nil, fmt.Errorf("front config: %w", err)
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	f := &Front{
		handler:   config.Handler,
		log:       logger.With("component", "front"),
		limits:    config.Limits.withDefaults(),
		origins:   origins,
		metrics:   newMetrics(),
		wheel:     newWheel(),
		blocking:  make(map[*conn]struct{}),
		refusing:  make(chan struct{}, maxRefusing),
		stopSweep: make(chan struct{}),
	}
	f.decoders.buffers = &f.buffers
	f.workers.limit, f.workers.now = f.limits.Workers, f.wheel.now
	f.admission = admission{
		maxConns: f.limits.Conns, maxPreAuth: f.limits.PreAuthPerAddr,
		preAuth: make(map[netip.Addr]int),
	}
	if config.Registerer != nil {
		if err := f.metrics.register(config.Registerer, f); err != nil {
			return nil, err
		}
	}
	if f.poller, err = startPoller(f); err != nil {
		return nil, fmt.Errorf("start poller: %w", err)
	}
	f.flusher = startFlusher(runtime.GOMAXPROCS(0))
	f.sweeping.Go(f.sweep)
	return f, nil
}

// sweep runs deadlines, and ends workers that were idle for a second or two.
func (f *Front) sweep() {
	ticker := time.NewTicker(tickLength)
	defer ticker.Stop()
	for {
		select {
		case <-f.stopSweep:
			return
		case <-ticker.C:
			f.wheel.sweep()
			if now := f.wheel.now(); now%ticksPerSecond == 0 {
				f.workers.trim(now - ticksPerSecond)
			}
		}
	}
}

// Shutdown refuses new connections, lets the messages that are being handled
// finish, closes every connection with 1001, and waits until all are gone. When ctx
// ends first it frees all sockets at once and returns ctx's error; handlers that
// still run keep the Front's goroutines, and Shutdown may be called again.
func (f *Front) Shutdown(ctx context.Context) error {
	f.mu.Lock()
	f.draining = true
	f.mu.Unlock()
	f.each((*conn).leave)

	gone := make(chan struct{})
	go func() {
		f.open.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
		f.each((*conn).abort)
		// Only connections whose handler still runs are left after this.
		select {
		case <-gone:
		case <-time.After(tickLength):
			return ctx.Err()
		}
	}
	f.stopOnce.Do(f.stop)
	return nil
}

// stop ends the goroutines of the Front, which has no connections any more.
func (f *Front) stop() {
	close(f.stopSweep)
	f.sweeping.Wait()
	f.writers.Wait()
	f.poller.stop()
	f.workers.stop()
	f.flusher.stop()
}

// each calls do for all connections there are.
func (f *Front) each(do func(*conn)) {
	for _, c := range f.poller.conns() {
		do(c)
	}
	f.mu.Lock()
	conns := make([]*conn, 0, len(f.blocking))
	for c := range f.blocking {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// begin counts a new connection, unless the Front is shutting down. (A WaitGroup
// must not grow while it is waited for at zero.)
func (f *Front) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	f.open.Add(1)
	return true
}

func (f *Front) isDraining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.draining
}
