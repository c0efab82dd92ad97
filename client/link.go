package client

import (
	"context"

	"github.com/jonboulle/clockwork"
)

// link is the one connection manager of a room: it dials, hands the connection over, and
// dials again after a pause that grows, is spread, and is bounded, until that would end the
// same way (Retryable: 4403 and 1008 policy closes stop; 1012 and 1013 wait longer; see
// docs/protocol.md). It starts no goroutine that outlives run.
type link struct {
	dial      func(ctx context.Context) (*Conn, error)
	retryable func(err error) bool
	clock     clockwork.Clock
}

func newLink(dial func(ctx context.Context) (*Conn, error), retryable func(err error) bool, clock clockwork.Clock) *link {
	return &link{dial: dial, retryable: retryable, clock: clock}
}

// run keeps a connection until ctx ends (nil) or there is no point in trying again (why): it
// calls use for each connection, whose end ends use. lost is told of each end and how long
// the pause is.
func (l *link) run(ctx context.Context, use func(ctx context.Context, conn *Conn) error, lost func(err error, pause any)) error {
	panic("contract")
}

// with calls do with the connection that run has at the moment, or with one of its own that it
// dials, once, and closes.
func (l *link) with(ctx context.Context, do func(conn *Conn) error) error { panic("contract") }
