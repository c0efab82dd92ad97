//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkInParallel(t *testing.T) {
	t.Parallel()
	b := &bench{relay: new(relay)}
	var r callsRate
	for r.pieces == 0 { // the machine may be busy for as long as it measures
		var done, begun, ended atomic.Int64
		var err error
		r, err = b.inParallel(t.Context(), 3, 0, 20*time.Millisecond, func(context.Context, int) error {
			done.Add(1)
			return nil
		}, func() { begun.Store(done.Load()) }, func() { ended.Store(done.Load()) })
		require.NoError(t, err)
		require.EqualValues(t, done.Load(), r.all, "what was under way is finished, and counted")
		require.LessOrEqual(t, int64(r.pieces), ended.Load()-begun.Load())
	}
	require.InDelta(t, float64(r.pieces)/r.seconds, r.perSecond, 1e-9)
	require.Contains(t, r.more("piece"), "generator_cpu_us_per_piece")
}

func TestWorkInParallelEndsWithItsFirstError(t *testing.T) {
	t.Parallel()
	b := &bench{relay: new(relay)}
	broken := errors.New("broken")
	_, err := b.inParallel(t.Context(), 3, time.Hour, time.Hour, func(ctx context.Context, worker int) error {
		if worker == 1 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	}, nil, nil)
	require.ErrorIs(t, err, broken)
}

// What somebody else's relay uses is not known, and what this machine uses is not its.
func TestUseOfAnUnknownProcess(t *testing.T) {
	t.Parallel()
	b := &bench{relay: &relay{name: "relay"}}
	require.Empty(t, b.usage().parts)
	b.relay.pid = os.Getpid()
	require.Contains(t, b.usage().parts, "relay")
}

func TestNextCursor(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", nextCursor([]byte(`{"messages":[{"envelope":"x"}],"next_cursor":"abc"}`)))
	require.Empty(t, nextCursor([]byte(`{"messages":[]}`)))
}

func TestRowsOfAGroup(t *testing.T) {
	t.Parallel()
	before := groups{rows: 10, count: 5}
	require.InDelta(t, 4.0, groups{rows: 30, count: 10}.rowsSince(before), 1e-9)
	require.Zero(t, before.rowsSince(before), "none since")
	require.Zero(t, groups{}.rowsSince(groups{}))
}
