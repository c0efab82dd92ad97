package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// AppendMessage implements store.History.
func (s *Store) AppendMessage(ctx context.Context, m store.Message) (store.Appended, error) {
	v := verdict{err: checkMessage(m)}
	if v.err == nil {
		v = s.history.append(ctx, m)
	}
	s.metrics.count(v)
	if v.err != nil {
		return store.Appended{}, fmt.Errorf("append message: %w", v.err)
	}
	return store.Appended{Duplicate: v.duplicate}, nil
}

// checkMessage refuses what the table's constraints would refuse, so that such a
// message never costs others their shared statement.
func checkMessage(m store.Message) error {
	switch {
	case !validID(m.ID), m.Kind == wire.KindNotice, m.Kind < wire.KindMessage, m.Kind > wire.KindKeyRequest,
		m.Gen > wire.MaxInteger, len(m.Bytes) == 0, len(m.Bytes) > wire.MaxMessage:
		return errMalformed
	}
	return nil
}

func validID(id string) bool {
	if len(id) == 0 || len(id) > wire.MaxIDLength {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

// verdict is what became of one message.
type verdict struct {
	duplicate bool
	err       error
}

// pending is a message on its way. Either its flusher takes it or, before that, its
// caller withdraws it; whoever comes first owns it from then on.
type pending struct {
	message store.Message
	owner   atomic.Uint32
	done    chan verdict // has room for the one verdict
	overdue *time.Timer  // the call's own deadline; cheaper than a context per message
}

func newPending() any {
	p := &pending{done: make(chan verdict, 1), overdue: time.NewTimer(time.Hour)}
	p.overdue.Stop()
	return p
}

const (
	waiting   uint32 = iota
	taken            // by the flusher, which will send a verdict
	withdrawn        // by the caller, who has returned: the message must not be read
)

func (p *pending) take() bool     { return p.owner.CompareAndSwap(waiting, taken) }
func (p *pending) withdraw() bool { return p.owner.CompareAndSwap(waiting, withdrawn) }

// historyWriter owns the flushers and their queues.
type historyWriter struct {
	store    *Store
	flushers []*flusher
	free     sync.Pool
	closing  chan struct{} // closed first: nothing new
	stopped  chan struct{} // closed last: no flusher runs
	once     sync.Once

	// ctx ends every flush, when closing takes too long.
	ctx    context.Context //nolint:containedctx // the flushers' own, not a caller's
	cancel context.CancelFunc
}

func newHistoryWriter(s *Store) *historyWriter {
	w := &historyWriter{
		store: s, closing: make(chan struct{}), stopped: make(chan struct{}),
		free: sync.Pool{New: newPending},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for range s.cfg.History.Flushers {
		w.flushers = append(w.flushers, newFlusher(w, make(chan *pending, s.cfg.History.Queue)))
	}
	return w
}

// start starts the flushers; close waits for them.
func (w *historyWriter) start() {
	var running sync.WaitGroup
	for _, f := range w.flushers {
		running.Go(f.run)
	}
	go func() {
		running.Wait()
		close(w.stopped)
	}()
}

// append returns when the message has its verdict, or ctx ends before a flusher took it.
func (w *historyWriter) append(ctx context.Context, m store.Message) verdict {
	select {
	case <-w.closing:
		return verdict{err: ErrClosed}
	default:
	}
	p := w.free.Get().(*pending) //nolint:errcheck // the pool holds nothing else
	p.message = m
	p.owner.Store(waiting)
	p.overdue.Reset(w.store.cfg.Timeout)
	room := binary.BigEndian.Uint64(m.Room[8:])
	f := w.flushers[room%uint64(len(w.flushers))]
	select {
	case f.queue <- p:
	case <-w.closing:
		return w.answer(p, verdict{err: ErrClosed})
	case <-ctx.Done():
		return w.answer(p, verdict{err: ctx.Err()})
	case <-p.overdue.C:
		return w.answer(p, verdict{err: context.DeadlineExceeded})
	}
	f.lead()
	select {
	case v := <-p.done:
		return w.answer(p, v)
	case <-ctx.Done():
		return w.endWait(p, ctx.Err())
	case <-p.overdue.C:
		return w.endWait(p, context.DeadlineExceeded)
	case <-w.stopped:
		return w.endWait(p, ErrClosed)
	}
}

// endWait withdraws a message that waits; one that is being written gets its true verdict,
// which comes within the timeout of a flush.
func (w *historyWriter) endWait(p *pending, err error) verdict {
	if p.withdraw() {
		return verdict{err: err}
	}
	return w.answer(p, <-p.done)
}

func (w *historyWriter) answer(p *pending, v verdict) verdict {
	w.recycle(p)
	return v
}

func (w *historyWriter) recycle(p *pending) {
	p.overdue.Stop()
	p.message = store.Message{}
	w.free.Put(p)
}

// depth is how many messages wait.
func (w *historyWriter) depth() (n int) {
	for _, f := range w.flushers {
		n += len(f.queue)
	}
	return n
}

// close finishes what is queued, for as long as the timeout of a call.
func (w *historyWriter) close() {
	w.once.Do(func() { close(w.closing) })
	overdue := time.NewTimer(w.store.cfg.Timeout)
	defer overdue.Stop()
	select {
	case <-w.stopped:
	case <-overdue.C:
		w.cancel()
		<-w.stopped
	}
	w.cancel()
}
