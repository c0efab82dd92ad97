package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// serving is this program again, as a server that is no relay: a floor, or what
// relays need. It ends when its standard input does.
type serving struct {
	address  string // host:port
	profiles string // the same, of what net/http/pprof serves; empty for none
	pid      int
	input    io.Closer
	output   io.Closer
	exited   chan struct{}
}

// servingAddress is what such a process prints when it serves.
type servingAddress struct {
	Address  string `json:"address"`
	Profiles string `json:"profiles,omitempty"`
}

// untilEnd returns a context that ends when input does.
func untilEnd(ctx context.Context, input io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input)
	}()
	return ctx, cancel
}

// startServing returns when the process serves.
func startServing(ctx context.Context, args ...string) (*serving, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, args...) //nolint:noctx // ended by its input
	command.Env = append(os.Environ(), childVariable+"=1")
	command.Stderr = os.Stderr
	command.SysProcAttr = childAttributes()
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel ties the child to this thread
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := command.Start()
		started <- err
		if err == nil {
			_, _ = command.Process.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	s := &serving{pid: command.Process.Pid, input: input, output: output, exited: exited}
	var said servingAddress
	if err := json.NewDecoder(output).Decode(&said); err != nil {
		s.stop()
		return nil, err
	}
	s.address, s.profiles = said.Address, said.Profiles
	return s, ctx.Err()
}

func (s *serving) stop() {
	_ = s.input.Close()
	<-s.exited
	_ = s.output.Close()
}
