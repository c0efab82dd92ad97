package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// patience bounds every wait for something that happens at once.
const patience = 10 * time.Second

// serveAll runs script as the relay's side of each connection of a test, from the hello on.
// n counts them from 0. What a client that has left makes of a script is no failure.
func serveAll(t *testing.T, script func(n int, p peer)) (url string) {
	t.Helper()
	var count atomic.Int64
	var running sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(wire.MaxServerMessage)
		p := peer{t, ctx, ws}
		p.expect(`{"type":"hello","token":"secret","direct":false}`)
		script(int(count.Add(1)-1), p)
	}))
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func dialer(url string) func(ctx context.Context) (*client.Conn, error) {
	return func(ctx context.Context) (*client.Conn, error) {
		return client.Dial(ctx, url, client.Options{Token: "secret"})
	}
}

// pauses are what a link told of its connections' ends.
type pauses chan pause

type pause struct {
	err    error
	length time.Duration
}

func (p pauses) lost(err error, length time.Duration) { p <- pause{err, length} }

// aside runs a link until the test ends; the returned channel has its result.
func aside(t *testing.T, link client.Link, use func(ctx context.Context, conn *client.Conn) error, lost pauses) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- link.Run(ctx, use, lost.lost) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("the link does not end")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// elapse lets the pause that a link is in pass.
func elapse(t *testing.T, clock *clockwork.FakeClock, by time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, clock.BlockUntilContext(ctx, 1))
	clock.Advance(by)
}

var errDown = errors.New("nobody listens")

func always(error) bool { return true }

// Pauses grow to a bound, are spread over all of it, and begin anew after a connection that
// lasted (FAULTS K03: bounded back-off on reconnect).
func TestPausesGrowAreSpreadAndBounded(t *testing.T) {
	t.Parallel()
	const rounds, failures = 40, 12
	var short, long int
	for range rounds {
		clock := clockwork.NewFakeClock()
		lost := make(pauses)
		stop := aside(t, client.NewLink(func(context.Context) (*client.Conn, error) { return nil, errDown }, always, clock), nil, lost)
		bound := client.FirstPause
		for range failures {
			end := <-lost
			require.ErrorIs(t, end.err, errDown)
			require.Less(t, end.length, bound)
			require.GreaterOrEqual(t, end.length, time.Duration(0))
			if end.length < bound/4 {
				short++
			}
			if end.length > 3*bound/4 {
				long++
			}
			bound = min(2*bound, client.MaxPause)
			elapse(t, clock, end.length)
		}
		require.Equal(t, client.MaxPause, bound)
		<-lost
		require.NoError(t, stop())
	}
	// A quarter each of 480: the chance of fewer than 60 is below 1e-12.
	require.Greater(t, short, 60)
	require.Greater(t, long, 60)
}

func TestAConnectionThatLastedMakesThePausesShortAgain(t *testing.T) {
	t.Parallel()
	var lasts atomic.Int64
	clock := clockwork.NewFakeClock()
	url := serveAll(t, func(_ int, p peer) {
		p.send(welcome)
		p.gone()
	})
	lost := make(pauses)
	stop := aside(t, client.NewLink(dialer(url), always, clock), func(context.Context, *client.Conn) error {
		clock.Advance(time.Duration(lasts.Load()))
		return errDown
	}, lost)
	longest := func(rounds int) (longest time.Duration) {
		for range rounds {
			end := <-lost
			longest = max(longest, end.length)
			elapse(t, clock, end.length)
		}
		return longest
	}
	lasts.Store(int64(client.Steady - 1))
	require.Greater(t, longest(30), client.FirstPause)
	lasts.Store(int64(client.Steady))
	longest(2) // the ones that began before
	require.LessOrEqual(t, longest(30), client.FirstPause)
	<-lost
	require.NoError(t, stop())
}

// What the relay asks for is kept, and not by all clients at the same moment.
func TestPausesThatTheRelayAsksFor(t *testing.T) {
	t.Parallel()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "70")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer busy.Close()
	_, upgrade := client.Dial(t.Context(), busy.URL, client.Options{Token: "secret"})
	require.ErrorContains(t, upgrade, "429")
	for _, test := range []struct {
		err   error
		least time.Duration
		most  time.Duration
	}{
		{&client.CloseError{Code: wire.CloseFrozen, Reason: wire.ReasonFrozen}, client.FrozenPause, 2 * client.FrozenPause},
		{&client.CloseError{Code: wire.CloseQuota, Reason: wire.ReasonQuota}, client.FullPause, 2 * client.FullPause},
		{&client.CloseError{Code: wire.CloseGoingAway, Reason: wire.ReasonShutdown}, 0, client.FirstPause},
		{&client.APIError{Status: 429, RetryAfter: 40 * time.Second}, 40 * time.Second, 80 * time.Second},
		{&client.APIError{Status: 503, RetryAfter: 18 * time.Hour}, client.MaxRetryAfter, 2 * client.MaxRetryAfter},
		{upgrade, 70 * time.Second, 140 * time.Second},
	} {
		lost := make(pauses)
		refuse := func(context.Context) (*client.Conn, error) { return nil, fmt.Errorf("connect: %w", test.err) }
		stop := aside(t, client.NewLink(refuse, client.Retryable, clockwork.NewFakeClock()), nil, lost)
		end := <-lost
		require.GreaterOrEqual(t, end.length, test.least, "%v", test.err)
		require.LessOrEqual(t, end.length, test.most, "%v", test.err)
		require.NoError(t, stop())
	}
}

func TestHowALinkEnds(t *testing.T) {
	t.Parallel()
	url := serveAll(t, func(_ int, p peer) {
		p.send(welcome)
		p.gone()
	})
	run := func(err error) error {
		link := client.NewLink(dialer(url), client.Retryable, clockwork.NewFakeClock())
		return link.Run(t.Context(), func(context.Context, *client.Conn) error { return err }, nil)
	}
	require.NoError(t, run(nil), "use is done")
	policy := &client.CloseError{Code: wire.ClosePolicy, Reason: string(wire.WrongSender)}
	require.Equal(t, policy, run(policy))
	auth := &client.CloseError{Code: wire.CloseAuth, Reason: wire.ReasonAuth}
	require.Equal(t, auth, run(auth))
	require.Equal(t, errDown, run(client.Final(errDown)), "errDown alone would be tried again")
	wrapped := run(fmt.Errorf("the caller's: %w", client.Final(errDown)))
	require.ErrorIs(t, wrapped, errDown)
	require.NoError(t, client.Final(nil))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	link := client.NewLink(dialer(url), client.Retryable, clockwork.NewFakeClock())
	require.NoError(t, link.Run(ended, nil, nil))
}

// A fresh credential may mend a 4403: that is the owner's to say.
func TestTheOwnerOfALinkSaysWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClock()
	url := serveAll(t, func(n int, p peer) {
		if n == 0 {
			p.close(wire.CloseAuth, wire.ReasonAuth)
			return
		}
		p.send(welcome)
		p.gone()
	})
	lost := make(pauses, 1)
	up := make(chan struct{})
	stop := aside(t, client.NewLink(dialer(url), always, clock), func(ctx context.Context, _ *client.Conn) error {
		close(up)
		<-ctx.Done()
		return ctx.Err()
	}, lost)
	end := <-lost
	require.False(t, client.Retryable(end.err))
	elapse(t, clock, end.length)
	<-up
	require.NoError(t, stop())
}

func TestWithTakesTheRunningConnectionAndElseDialsOne(t *testing.T) {
	t.Parallel()
	var closes atomic.Int64
	url := serveAll(t, func(_ int, p peer) {
		p.send(welcome)
		p.gone()
		closes.Add(1)
	})
	var dials atomic.Int64
	link := client.NewLink(func(ctx context.Context) (*client.Conn, error) {
		dials.Add(1)
		return dialer(url)(ctx)
	}, always, clockwork.NewFakeClock())

	var own *client.Conn
	require.NoError(t, link.With(t.Context(), func(conn *client.Conn) error {
		own = conn
		return nil
	}))
	require.EqualValues(t, 1, dials.Load())
	_, err := own.Receive(t.Context())
	require.ErrorIs(t, err, client.ErrClosed)

	lost := make(pauses, 1)
	running := make(chan *client.Conn)
	stop := aside(t, link, func(ctx context.Context, conn *client.Conn) error {
		running <- conn
		<-ctx.Done()
		return ctx.Err()
	}, lost)
	listening := <-running
	borrowed, finish := make(chan *client.Conn), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- link.With(t.Context(), func(conn *client.Conn) error {
			borrowed <- conn
			<-finish
			return conn.SendRaw(t.Context(), []byte("{}"))
		})
	}()
	require.Same(t, listening, <-borrowed)
	require.NoError(t, stop(), "it does not wait for those who still send")
	close(finish)
	require.NoError(t, <-done, "the connection is closed after its last user")
	_, err = listening.Receive(t.Context())
	require.ErrorIs(t, err, client.ErrClosed)
	require.EqualValues(t, 2, dials.Load())

	require.ErrorIs(t, link.With(t.Context(), func(*client.Conn) error { return errDown }), errDown)
	require.EqualValues(t, 3, dials.Load())
	require.Eventually(t, func() bool { return closes.Load() == 3 }, patience, time.Millisecond)
}

// A participant has few connections: those who send at once do not take them all.
func TestWithDialsFewConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	url := serveAll(t, func(_ int, p peer) {
		p.send(welcome)
		p.gone()
	})
	var dials atomic.Int64
	link := client.NewLink(func(ctx context.Context) (*client.Conn, error) {
		dials.Add(1)
		return dialer(url)(ctx)
	}, always, clockwork.NewFakeClock())
	release := make(chan struct{})
	var held sync.WaitGroup
	started := make(chan struct{}, client.OwnConns)
	for range client.OwnConns {
		held.Go(func() {
			_ = link.With(t.Context(), func(*client.Conn) error {
				started <- struct{}{}
				<-release
				return nil
			})
		})
	}
	for range client.OwnConns {
		<-started
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, link.With(ended, func(*client.Conn) error { return nil }), context.Canceled)
	require.EqualValues(t, client.OwnConns, dials.Load())
	close(release)
	held.Wait()
	require.NoError(t, link.With(t.Context(), func(*client.Conn) error { return nil }))
}

func TestWithDoesNotTakeAConnectionThatHasEnded(t *testing.T) {
	t.Parallel()
	url := serveAll(t, func(n int, p peer) {
		p.send(welcome)
		if n > 0 {
			p.gone()
		}
	})
	link := client.NewLink(dialer(url), always, clockwork.NewFakeClock())
	over := make(chan *client.Conn)
	stop := aside(t, link, func(ctx context.Context, conn *client.Conn) error {
		_, err := conn.Receive(ctx)
		over <- conn
		<-ctx.Done() // use has not ended yet
		return err
	}, make(pauses, 1))
	ended := <-over
	require.NoError(t, link.With(t.Context(), func(conn *client.Conn) error {
		require.NotSame(t, ended, conn)
		return nil
	}))
	require.NoError(t, stop())
}
