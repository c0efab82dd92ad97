package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peerrelay/peerrelay/store"
)

// Bounds of one request; the API's are the same.
const (
	maxItems = 512
	// maxBytes leaves room for one more envelope below the API's 4 MiB, since a request is
	// full when it has reached the bound.
	maxBytes = 4<<20 - maxEnvelope
)

// outcome is what became of one item.
type outcome struct {
	appended store.Appended
	err      error
}

// item is one message or trace on its way. Either a sender takes it or, before that, its
// caller withdraws it; whoever comes first owns it from then on.
type item[T any] struct {
	value   T
	owner   atomic.Uint32
	done    chan outcome // has room for the one outcome
	overdue *time.Timer  // of waiting to be sent
}

const (
	waiting   uint32 = iota
	taken            // by a sender, which will tell the outcome
	withdrawn        // by the caller, who has returned: the value must not be read
)

func (i *item[T]) take() bool     { return i.owner.CompareAndSwap(waiting, taken) }
func (i *item[T]) withdraw() bool { return i.owner.CompareAndSwap(waiting, withdrawn) }

// batcher sends the items of concurrent callers together: each of a few senders takes
// what waits, sends it as one request and waits for the answer, so that a lone item goes
// at once, and the more requests are slow, the more share the next.
type batcher[T any] struct {
	// send gives each item its outcome, before ctx ends.
	send   func(ctx context.Context, items []*item[T])
	weigh  func(*T) int // bytes
	wait   time.Duration
	flight time.Duration

	senders int
	queue   chan *item[T]
	free    sync.Pool
	closing chan struct{} // closed first: nothing new
	stopped chan struct{} // closed last: no sender runs
	once    sync.Once
}

func newBatcher[T any](cfg Config, send func(context.Context, []*item[T]), weigh func(*T) int) *batcher[T] {
	return &batcher[T]{
		send: send, weigh: weigh, wait: cfg.Timeout / 2, flight: cfg.Timeout / 2, senders: cfg.InFlight,
		queue: make(chan *item[T], cfg.Queue), closing: make(chan struct{}), stopped: make(chan struct{}),
		free: sync.Pool{New: func() any {
			i := &item[T]{done: make(chan outcome, 1), overdue: time.NewTimer(time.Hour)}
			i.overdue.Stop()
			return i
		}},
	}
}

// start starts the senders; close waits for them.
func (b *batcher[T]) start() {
	var running sync.WaitGroup
	for range b.senders {
		running.Go(b.run)
	}
	go func() {
		running.Wait()
		close(b.stopped)
	}()
}

// close sends what is queued, which takes at most the time of one request for each
// sender's share of it that fits one.
func (b *batcher[T]) close() {
	b.once.Do(func() { close(b.closing) })
	<-b.stopped
}

// append returns when the value has its outcome, or when it was not sent in time or
// before ctx ended.
func (b *batcher[T]) append(ctx context.Context, value T) outcome {
	select {
	case <-b.closing:
		return outcome{err: ErrClosed}
	default:
	}
	i := b.free.Get().(*item[T]) //nolint:errcheck // the pool holds nothing else
	i.value = value
	i.owner.Store(waiting)
	i.overdue.Reset(b.wait)
	select {
	case b.queue <- i:
	case <-b.closing:
		return b.answer(i, outcome{err: ErrClosed})
	case <-ctx.Done():
		return b.answer(i, outcome{err: ctx.Err()})
	case <-i.overdue.C:
		return b.answer(i, outcome{err: context.DeadlineExceeded})
	}
	select {
	case o := <-i.done:
		return b.answer(i, o)
	case <-ctx.Done():
		return b.endWait(i, ctx.Err())
	case <-i.overdue.C:
		return b.endWait(i, context.DeadlineExceeded)
	case <-b.stopped:
		return b.endWait(i, ErrClosed)
	}
}

// endWait withdraws an item that waits; one that was sent gets its outcome, which comes
// within the time of a request.
func (b *batcher[T]) endWait(i *item[T], err error) outcome {
	if i.withdraw() {
		return outcome{err: err} // a sender finds it in the queue, and recycles it
	}
	return b.answer(i, <-i.done)
}

func (b *batcher[T]) answer(i *item[T], o outcome) outcome {
	b.recycle(i)
	return o
}

func (b *batcher[T]) recycle(i *item[T]) {
	var none T
	i.overdue.Stop()
	i.value = none
	b.free.Put(i)
}

// run is one sender.
func (b *batcher[T]) run() {
	var items []*item[T]
	for {
		select {
		case first := <-b.queue:
			items = b.gather(items[:0], first)
			b.flush(items)
		case <-b.closing:
			b.drain(items)
			return
		}
	}
}

// drain sends what was queued before closing.
func (b *batcher[T]) drain(items []*item[T]) {
	for {
		select {
		case first := <-b.queue:
			items = b.gather(items[:0], first)
			b.flush(items)
		default:
			return
		}
	}
}

// gather takes first and whatever else waits, up to the bounds of one request.
func (b *batcher[T]) gather(items []*item[T], first *item[T]) []*item[T] {
	for i, bytes := first, 0; ; {
		if i.take() {
			items = append(items, i)
			bytes += b.weigh(&i.value)
		} else {
			b.recycle(i)
		}
		if len(items) >= maxItems || bytes >= maxBytes {
			return items
		}
		select {
		case i = <-b.queue:
		default:
			return items
		}
	}
}

func (b *batcher[T]) flush(items []*item[T]) {
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.flight)
	defer cancel()
	b.send(ctx, items)
}
