package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// calls is work of which several goroutines each do one piece after another.
type calls struct {
	done    atomic.Int64 // pieces
	counted atomic.Bool  // how long they take is recorded
	over    atomic.Bool
	took    []*hdrhistogram.Histogram // by worker, which alone writes it until all have ended
}

// callsRate is what was measured of calls.
type callsRate struct {
	perSecond float64
	pieces    int
	all       int // pieces, those before and after the measurement too
	seconds   float64
	took      *hdrhistogram.Histogram
	before    usage
	after     usage
}

// inParallel lets workers do pieces of work for warm and then for d, and measures the
// latter. What is under way at the end is finished. atBegin and atEnd, when they are not
// nil, are called around the measurement.
func (b *bench) inParallel(ctx context.Context, workers int, warm, d time.Duration, do func(ctx context.Context, worker int) error,
	atBegin, atEnd func(),
) (callsRate, error) {
	c := new(calls)
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		c.took = append(c.took, newHistogram())
		group.Go(func() error { return c.work(ctx, worker, do) })
	}
	var r callsRate
	group.Go(func() error {
		defer c.over.Store(true)
		if err := wait(ctx, warm); err != nil {
			return err
		}
		if atBegin != nil {
			atBegin()
		}
		c.counted.Store(true)
		r.before = b.usage()
		first := c.done.Load()
		err := wait(ctx, d)
		r.after = b.usage()
		r.pieces = int(c.done.Load() - first)
		c.counted.Store(false)
		if atEnd != nil {
			atEnd()
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return r, err
	}
	r.seconds = r.after.at.Sub(r.before.at).Seconds()
	r.perSecond = float64(r.pieces) / r.seconds
	r.all = int(c.done.Load())
	r.took = newHistogram()
	for _, h := range c.took {
		r.took.Merge(h)
	}
	return r, nil
}

func (c *calls) work(ctx context.Context, worker int, do func(context.Context, int) error) error {
	for !c.over.Load() {
		began := time.Now()
		if err := do(ctx, worker); err != nil {
			return err
		}
		c.done.Add(1)
		if c.counted.Load() {
			record(c.took[worker], int64(time.Since(began)))
		}
	}
	return ctx.Err()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// more is what is known of the calls besides their number; unit is what one is.
func (r *callsRate) more(unit string) map[string]float64 {
	more := map[string]float64{"p50_ms": millis(r.took, 50), "p99_ms": millis(r.took, 99)}
	r.after.since(r.before, r.pieces, unit, more)
	return more
}
