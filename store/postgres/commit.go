package postgres

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// table is what a group commit must know of the rows it writes. Its methods are called
// by many flushers at once.
type table[R any] interface {
	tenant(row *R) uuid.UUID
	key(row *R) rowKey
	// size is about how many bytes the row takes.
	size(row *R) int
	// queueOne and queueMany queue the statement that stores a lone row, or several of
	// one tenant with distinct keys. The first answers with the number of rows it stored,
	// the second with a storedRows.
	queueOne(batch *pgx.Batch, row *R)
	queueMany(batch *pgx.Batch, rows []*pending[R])
	// explain says why each of a tenant's rows was not stored, by what the database holds now.
	explain(ctx context.Context, tenant uuid.UUID, refused []*pending[R]) ([]verdict, error)
}

// rowKey is unique within a tenant.
type rowKey struct {
	room uuid.UUID
	id   string
}

// lockKey is the room's number among the database's advisory locks (RoomsSerialize). The
// last eight bytes of a UUID begin with its variant, so it is negative: those of the
// relay's other locks are not.
func lockKey(room uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(room[8:])) }

// verdict is what became of one row.
type verdict struct {
	duplicate bool
	err       error
}

// pending is a row on its way. Either its flusher takes it or, before that, its caller
// withdraws it; whoever comes first owns it from then on.
type pending[R any] struct {
	row     R
	owner   atomic.Uint32
	done    chan verdict // has room for the one verdict
	overdue *time.Timer  // the call's own deadline; cheaper than a context per row
}

func newPending[R any]() any {
	p := &pending[R]{done: make(chan verdict, 1), overdue: time.NewTimer(time.Hour)}
	p.overdue.Stop()
	return p
}

const (
	waiting   uint32 = iota
	taken            // by the flusher, which will send a verdict
	withdrawn        // by the caller, who has returned: the row must not be read
)

func (p *pending[R]) take() bool     { return p.owner.CompareAndSwap(waiting, taken) }
func (p *pending[R]) withdraw() bool { return p.owner.CompareAndSwap(waiting, withdrawn) }

// groupCommit writes the rows of one table: those of concurrent callers share
// statements and commits. It owns the flushers and their queues; a room's rows all go
// through one of them.
type groupCommit[R any] struct {
	store    *Store
	table    table[R]
	metrics  *commitMetrics
	flushers []*flusher[R]
	free     sync.Pool
	closing  chan struct{} // closed first: nothing new
	stopped  chan struct{} // closed last: no flusher runs
	once     sync.Once

	// ctx ends every flush, when closing takes too long.
	ctx    context.Context //nolint:containedctx // the flushers' own, not a caller's
	cancel context.CancelFunc
}

func newGroupCommit[R any](s *Store, t table[R], name string) *groupCommit[R] {
	c := &groupCommit[R]{
		store: s, table: t, closing: make(chan struct{}), stopped: make(chan struct{}),
		free: sync.Pool{New: newPending[R]},
	}
	c.metrics = newCommitMetrics(name, c.depth)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for range s.cfg.History.Flushers {
		c.flushers = append(c.flushers, newFlusher(c, make(chan *pending[R], s.cfg.History.Queue)))
	}
	return c
}

// start starts the flushers; close waits for them.
func (c *groupCommit[R]) start() {
	var running sync.WaitGroup
	for _, f := range c.flushers {
		running.Go(f.run)
	}
	go func() {
		running.Wait()
		close(c.stopped)
	}()
}

// append returns when the row has its verdict, or ctx ends before a flusher took it.
func (c *groupCommit[R]) append(ctx context.Context, row R) verdict {
	select {
	case <-c.closing:
		return verdict{err: ErrClosed}
	default:
	}
	p := c.free.Get().(*pending[R]) //nolint:errcheck // the pool holds nothing else
	p.row = row
	p.owner.Store(waiting)
	p.overdue.Reset(c.store.cfg.Timeout)
	f := c.flushers[uint64(lockKey(c.table.key(&p.row).room))%uint64(len(c.flushers))]
	select {
	case f.queue <- p:
	case <-c.closing:
		return c.answer(p, verdict{err: ErrClosed})
	case <-ctx.Done():
		return c.answer(p, verdict{err: ctx.Err()})
	case <-p.overdue.C:
		return c.answer(p, verdict{err: context.DeadlineExceeded})
	}
	f.lead()
	select {
	case v := <-p.done:
		return c.answer(p, v)
	case <-ctx.Done():
		return c.endWait(p, ctx.Err())
	case <-p.overdue.C:
		return c.endWait(p, context.DeadlineExceeded)
	case <-c.stopped:
		return c.endWait(p, ErrClosed)
	}
}

// endWait withdraws a row that waits; one that is being written gets its true verdict,
// which comes within the timeout of a flush.
func (c *groupCommit[R]) endWait(p *pending[R], err error) verdict {
	if p.withdraw() {
		return verdict{err: err}
	}
	return c.answer(p, <-p.done)
}

func (c *groupCommit[R]) answer(p *pending[R], v verdict) verdict {
	c.recycle(p)
	return v
}

func (c *groupCommit[R]) recycle(p *pending[R]) {
	var none R
	p.overdue.Stop()
	p.row = none
	c.free.Put(p)
}

// depth is how many rows wait.
func (c *groupCommit[R]) depth() (n int) {
	for _, f := range c.flushers {
		n += len(f.queue)
	}
	return n
}

// refuse ends the taking of rows; close does so too.
func (c *groupCommit[R]) refuse() { c.once.Do(func() { close(c.closing) }) }

// close finishes what is queued, until overdue fires.
func (c *groupCommit[R]) close(overdue <-chan struct{}) {
	c.refuse()
	select {
	case <-c.stopped:
	case <-overdue:
		c.cancel()
		<-c.stopped
	}
	c.cancel()
}
