package client

import (
	"context"
	"time"

	"github.com/jonboulle/clockwork"
)

// sleep waits by a clock, or until ctx ends, whose error it then returns.
func sleep(ctx context.Context, clock clockwork.Clock, pause time.Duration) error {
	if pause <= 0 {
		return ctx.Err()
	}
	timer := clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.Chan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free is a channel that holds one value while nobody has what it stands for: a lock that is
// waited for no longer than a context lasts.
func free() chan struct{} {
	made := make(chan struct{}, 1)
	made <- struct{}{}
	return made
}

func acquire(ctx context.Context, free chan struct{}) error {
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func release(free chan struct{}) { free <- struct{}{} }
