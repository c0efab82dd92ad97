package pgd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// startBound starts cmd and returns a channel that gives the result of its end, once.
//
// The goroutine that starts it keeps its thread until the end, because the parent death
// signal comes with the end of the thread that started a process, and Go ends threads.
// It ends with the process; whoever calls startBound sees to that.
func startBound(cmd *exec.Cmd) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// stopLeftover ends a server of an earlier relay in folder data, and removes its lock
// file: PostgreSQL would refuse to start when the process id in there lives again as
// some other process. The caller holds the folder's lock.
func stopLeftover(ctx context.Context, data string) (found bool, err error) {
	if !canSeeProcesses {
		return false, nil
	}
	steps := []struct {
		sig  syscall.Signal
		wait time.Duration
	}{
		{syscall.SIGINT, 20 * time.Second}, // fast shutdown, with a checkpoint
		{syscall.SIGQUIT, 5 * time.Second}, // immediate
		{syscall.SIGKILL, 5 * time.Second},
	}
	for _, step := range steps {
		pids, err := serverProcesses(data)
		if err != nil {
			return found, fmt.Errorf("look for an earlier server: %w", err)
		}
		if len(pids) == 0 {
			return found, nil
		}
		found = true
		if err := signalAndWait(ctx, data, step.sig, step.wait); err != nil {
			return found, err
		}
	}
	pids, err := serverProcesses(data)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("an earlier PostgreSQL server still runs in the data folder and can't be ended: processes %v", pids)
	}
	return found, err
}

// signalAndWait sends sig to the server processes of folder data and waits until all are
// gone or wait is over. Backends without their postmaster take the signal as well.
func signalAndWait(ctx context.Context, data string, sig syscall.Signal, wait time.Duration) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	sent := map[int]bool{}
	for {
		pids, err := serverProcesses(data)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			// To each once: a second SIGINT means nothing new to a postmaster.
			if sent[pid] {
				continue
			}
			sent[pid] = true
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end an earlier PostgreSQL server (process %d): %w", pid, err)
			}
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of an earlier PostgreSQL server: %w", ctx.Err())
		}
	}
}
