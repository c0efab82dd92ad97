package client

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/peerrelay/peerrelay/wire"
)

// What tests of connections see of the package.
const (
	FirstPause     = firstPause
	MaxPause       = maxPause
	Steady         = steady
	FrozenPause    = frozenPause
	FullPause      = fullPause
	MaxRetryAfter  = maxRetryAfter
	OwnConns       = ownConns
	RowBatch       = rowBatch
	SettleRows     = settleRows
	SettleTime     = settleTime
	ReplayTimeout  = replayTimeout
	ReceiptTimeout = receiptTimeout
	ReceiveQueue   = receiveQueue
	MaxHeldRows    = maxHeldRows
)

// Link is a link.
type Link struct{ *link }

// NewLink makes one.
func NewLink(dial func(ctx context.Context) (*Conn, error), retryable func(err error) bool, clock clockwork.Clock) Link {
	return Link{newLink(dial, retryable, clock)}
}

// Run is run.
func (l Link) Run(ctx context.Context, use func(ctx context.Context, conn *Conn) error, lost func(err error, pause time.Duration)) error {
	return l.run(ctx, use, lost)
}

// With is with.
func (l Link) With(ctx context.Context, do func(conn *Conn) error) error { return l.with(ctx, do) }

// Final is final.
func Final(err error) error { return final(err) }

// Row is a row.
type Row struct {
	Frame wire.ServerFrame
	Moves bool
}

func seen(rows func([]Row) error) func([]row) error {
	return func(batch []row) error {
		all := make([]Row, 0, len(batch))
		for _, r := range batch {
			all = append(all, Row{Frame: r.frame, Moves: r.moves})
		}
		return rows(all)
	}
}

// Page is page.
func (c *Conn) Page(ctx context.Context, cursor string, limit int, gap func(oldest string) error, rows func([]Row) error) (more bool, err error) {
	return c.page(ctx, cursor, limit, gap, seen(rows))
}

// Follow is follow.
func (c *Conn) Follow(ctx context.Context, cursor func() string, gap func(oldest string) error, caughtUp func() error, rows func([]Row) error) error {
	return c.follow(ctx, cursor, gap, caughtUp, seen(rows))
}

// Queued is how many frames wait to be received.
func (c *Conn) Queued() int { return len(c.frames) }
