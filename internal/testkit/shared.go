package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
)

// What the tests of a binary share. It is package state because testing has no other place
// for what several tests share.
var (
	common     = newShared() //nolint:gochecknoglobals // see above
	commonPair = newShared() //nolint:gochecknoglobals // see above
)

type shared struct {
	start   sync.Once
	broker  *Broker // of a pair
	relays  []*Relay
	err     error
	log     outputs
	tenants atomic.Int64
}

func newShared() *shared { return &shared{log: outputs{of: make(map[testing.TB]io.Writer)}} }

// Shared is a relay that all tests of the binary share, in a tenant of the test's own: one
// that is started for a test costs more than most tests do. It starts with the first test that
// asks for it and ends in pgtest.Main, after the last one. A test that stops, configures or
// faults its relay, or reads what a whole node counts, starts its own. All tests of a binary
// give the same options.
func Shared(t testing.TB, options ...Option) *Relay {
	t.Helper()
	return common.in(t, func(binary *lifetime) {
		common.relays = []*Relay{Start(binary, common.with(options)...)}
	})[0]
}

// SharedPair is Shared for two nodes, "one" and "two", on one external NATS and one database.
func SharedPair(t testing.TB, options ...Option) (broker *Broker, one, two *Relay) {
	t.Helper()
	both := commonPair.in(t, func(binary *lifetime) {
		commonPair.broker = StartBroker(binary)
		all := append(commonPair.with(options), NATSURL(commonPair.broker.URL()), Database(pgtest.URL(binary)))
		for _, id := range []string{"one", "two"} {
			commonPair.relays = append(commonPair.relays, Start(binary, append(slices.Clone(all), NodeID(id))...))
		}
	})
	return commonPair.broker, both[0], both[1]
}

// in returns the relays, in a tenant of the test's own.
func (s *shared) in(t testing.TB, start func(*lifetime)) []*Relay {
	t.Helper()
	s.log.add(t)
	s.start.Do(func() { s.run(start) })
	require.NoError(t, s.err, "start what the tests share")
	tenant := fmt.Sprintf("test-%d", s.tenants.Add(1))
	s.relays[0].Call(t, http.MethodPost, "/v1/tenants", map[string]string{"name": tenant}, nil)
	relays := make([]*Relay, len(s.relays))
	for i, relay := range s.relays {
		relays[i] = relay.In(tenant)
	}
	return relays
}

func (s *shared) run(start func(*lifetime)) {
	binary := &lifetime{log: &s.log}
	pgtest.AtEnd(binary.end)
	if binary.dir, s.err = os.MkdirTemp("", "testkit-"); s.err != nil {
		return
	}
	s.err = binary.do(func() { start(binary) })
}

// with puts what each of them has before the options of the tests.
func (s *shared) with(options []Option) []Option {
	return append([]Option{Logger(slog.New(slog.NewTextHandler(&s.log, nil))), oneAddress(), longLease()}, options...)
}

// oneAddress lifts what one address may do: all tests have the same one.
func oneAddress() Option {
	return func(c *node.Config) {
		c.HTTPLimits = api.Limits{AddressPerSecond: -1, FailuresPerSecond: -1, EnrollPerSecond: -1}
	}
}

// longLease keeps the nodes serving while the machine has other work: no test here loses them.
func longLease() Option { return func(c *node.Config) { c.LeaseTTL = 30 * time.Second } }

// lifetime stands for the test in what lasts until the binary's tests are over. What is not
// here is not used.
type lifetime struct {
	testing.TB

	dir      string
	log      *outputs
	cleanups []func()
	err      error
}

func (l *lifetime) Helper()                  {}
func (l *lifetime) Context() context.Context { return context.Background() }
func (l *lifetime) Output() io.Writer        { return l.log }
func (l *lifetime) Cleanup(f func())         { l.cleanups = append(l.cleanups, f) }
func (l *lifetime) FailNow()                 { runtime.Goexit() }

func (l *lifetime) Errorf(format string, values ...any) {
	l.err = errors.Join(l.err, fmt.Errorf(format, values...))
}

func (l *lifetime) TempDir() string {
	dir, err := os.MkdirTemp(l.dir, "")
	require.NoError(l, err)
	return dir
}

// do runs a function that may call FailNow.
func (l *lifetime) do(f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	return l.err
}

func (l *lifetime) end() error {
	for _, cleanup := range slices.Backward(l.cleanups) {
		_ = l.do(cleanup)
	}
	if l.dir == "" {
		return l.err
	}
	return errors.Join(l.err, os.RemoveAll(l.dir))
}

// outputs are those of the tests that use the shared relay now.
type outputs struct {
	mu sync.Mutex // guards the following field
	of map[testing.TB]io.Writer
}

// add is for one test, until it ends.
func (o *outputs) add(t testing.TB) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[t] = t.Output()
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.of, t)
	})
}

func (o *outputs) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, output := range o.of {
		if _, err := output.Write(text); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}
