package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/sethvargo/go-retry"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	firstPause = 500 * time.Millisecond // upper bound of the first pause; each failure doubles it
	maxPause   = time.Minute            // upper bound of every pause that the relay did not ask for
	// steady is how long a connection has to last for the pauses to begin anew.
	steady = time.Minute
	// frozenPause and fullPause are the least pauses after 1012 and 1013 (docs/protocol.md: "wait for
	// minutes, not seconds"); up to as much again is added.
	frozenPause = 2 * time.Minute
	fullPause   = 5 * time.Second
	// maxRetryAfter bounds how long a relay can ask a client to wait.
	maxRetryAfter = time.Hour
	// ownConns is how many connections with dials at a time: a participant has 8.
	ownConns = 4
)

// link is the one connection manager of a room: it dials, hands the connection over, and
// dials again after a pause that grows, is spread, and is bounded, until that would end the
// same way (Retryable: 4403 and 1008 policy closes stop; 1012 and 1013 wait longer; see
// docs/protocol.md). It starts no goroutine that outlives run and with.
//
// retryable decides whether run goes on after an error of dial or use. It may say yes to a
// 4403 when dial shows another credential next time; pauses grow all the same.
type link struct {
	dial      func(ctx context.Context) (*Conn, error)
	retryable func(err error) bool
	clock     clockwork.Clock
	own       chan struct{} // holds one value per connection that with has dialled

	mu      sync.Mutex // guards the following fields
	current *lease     // the connection of run; nil between two
}

func newLink(dial func(ctx context.Context) (*Conn, error), retryable func(err error) bool, clock clockwork.Clock) *link {
	return &link{dial: dial, retryable: retryable, clock: clock, own: make(chan struct{}, ownConns)}
}

// run keeps a connection until ctx ends (nil), use returns nil (nil), or there is no point in
// trying again (why): it calls use for each connection, whose end ends use. An error that
// use wraps with final ends run too, whatever retryable says, and comes back as it was.
// lost, which may be nil, is told of each end and how long the pause after it is.
//
// A connection that with still uses when use has returned is closed after that.
func (l *link) run(ctx context.Context, use func(ctx context.Context, conn *Conn) error, lost func(err error, pause time.Duration)) error {
	failures := newBackoff()
	for {
		lived, err := l.once(ctx, use)
		if stop, ok := errors.AsType[*finalError](err); ok {
			return stop.error
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // what ended with ctx is no error
		}
		if !l.retryable(err) {
			return err
		}
		if lived >= steady {
			failures = newBackoff()
		}
		pause := pauseAfter(err, failures)
		if lost != nil {
			lost(err, pause)
		}
		if sleep(ctx, l.clock, pause) != nil {
			return nil //nolint:nilerr // what ended with ctx is no error
		}
	}
}

// once is one connection, and how long it lasted.
func (l *link) once(ctx context.Context, use func(ctx context.Context, conn *Conn) error) (lived time.Duration, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return 0, err
	}
	began := l.clock.Now()
	held := &lease{conn: conn, users: 1}
	l.mu.Lock()
	l.current = held
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.current = nil
		l.mu.Unlock()
		l.release(held)
	}()
	err = use(ctx, conn)
	return l.clock.Since(began), err
}

func (l *link) connect(ctx context.Context) (*Conn, error) {
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	conn.clock = l.clock // nothing has used it yet
	return conn, nil
}

// with calls do with the connection that run has at the moment, or with one of its own that it
// dials, once, and closes. It does not try again: what do returns it returns. do sends, and
// receives nothing: that is run's.
func (l *link) with(ctx context.Context, do func(conn *Conn) error) error {
	if held := l.borrow(); held != nil {
		defer l.release(held)
		return do(held.conn)
	}
	return l.apart(ctx, do)
}

// apart is with over a connection of its own, whatever run has: for what cannot be sent again on
// that of run.
func (l *link) apart(ctx context.Context, do func(conn *Conn) error) error {
	select {
	case l.own <- struct{}{}:
		defer func() { <-l.own }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// lease is a connection that several use; the last of them closes it.
type lease struct {
	conn  *Conn
	users int // guarded by link.mu
}

func (l *link) borrow() *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.current.conn.over() {
		return nil
	}
	l.current.users++
	return l.current
}

func (l *link) release(held *lease) {
	l.mu.Lock()
	held.users--
	last := held.users == 0
	l.mu.Unlock()
	if last {
		_ = held.conn.Close()
	}
}

// finalError ends link.run.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// final marks an error of use that no other connection would mend: that of a caller's
// function, or of the key store. errors.Is and As see through it. final(nil) is nil.
func final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// newBackoff grows from firstPause to maxPause, with full jitter.
func newBackoff() retry.Backoff {
	return retry.WithFullJitter(retry.WithCappedDuration(maxPause, retry.NewExponential(firstPause)))
}

// pauseAfter is how long to wait after err: what failures says, and at least, spread upwards,
// what the relay asks for.
func pauseAfter(err error, failures retry.Backoff) time.Duration {
	pause, _ := failures.Next()
	least := leastPause(err)
	if least == 0 {
		return pause
	}
	return max(pause, least+rand.N(least))
}

func leastPause(err error) time.Duration {
	if closed, ok := errors.AsType[*CloseError](err); ok {
		switch closed.Code {
		case wire.CloseFrozen:
			return frozenPause
		case wire.CloseQuota:
			return fullPause
		default:
			return 0
		}
	}
	var asked time.Duration
	if refused, ok := errors.AsType[*APIError](err); ok {
		asked = refused.RetryAfter
	} else if later, ok := errors.AsType[*laterError](err); ok {
		asked = later.after
	}
	return min(asked, maxRetryAfter)
}

// laterError is a refused upgrade that says how long to wait.
type laterError struct {
	*UpgradeError

	after time.Duration
}

func (e *laterError) Unwrap() error { return e.UpgradeError }
