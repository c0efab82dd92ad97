package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	pollEvery    = 20 * time.Millisecond
	logTail      = 4 << 10 // bytes of the server's log that are shown when the demo fails
)

// server is one relay process at a time, always on the same data and addresses.
type server struct {
	program string
	data    string
	log     string
	listen  string
	metrics string

	process *exec.Cmd
	exited  chan struct{} // closed when process has ended
}

func newServer(program, folder string) (*server, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &server{
		program: program,
		data:    filepath.Join(folder, "data"),
		log:     filepath.Join(folder, "relay.log"),
		listen:  listen,
		metrics: metrics,
	}, nil
}

// freeAddress returns a loopback address that nobody listens on at the moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

func (s *server) url() string { return "http://" + s.listen }

// start starts the relay and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()                            // the process has its own
	s.process = exec.Command(s.program, "serve", //nolint:noctx // ended by stop, not by a context's SIGKILL
		"--data", s.data, "--listen", s.listen, "--metrics-listen", s.metrics)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.process = nil
		return fmt.Errorf("start the relay: %w", err)
	}
	process, exited := s.process, make(chan struct{})
	s.exited = exited
	go func() {
		_ = process.Wait() // how it ended is in its log
		close(exited)
	}()
	return s.waitReady(ctx)
}

func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if s.ready(ctx) {
			return nil
		}
		select {
		case <-poll.C:
		case <-s.exited:
			return fmt.Errorf("the relay ended before it was ready: %s", s.process.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("wait for /readyz: %w", ctx.Err())
		}
	}
}

func (s *server) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.listen+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (s *server) pid() int { return s.process.Process.Pid }

// kill is kill -9: the server gets no chance to finish anything.
func (s *server) kill() error {
	if err := s.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill the relay: %w", err)
	}
	<-s.exited
	return nil
}

// stop asks the server to end, and makes it end when it does not.
func (s *server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM) // fails when it has ended
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.process.Process.Kill()
		<-s.exited
	}
}

// operate runs an operator command and decodes what it prints.
func (s *server) operate(ctx context.Context, into any, args ...string) error {
	args = append(args, "--data", s.data, "--json")
	command := exec.CommandContext(ctx, s.program, args...)
	var refusal bytes.Buffer
	command.Stderr = &refusal
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("relay %s %s: %w: %s", args[0], args[1], err, bytes.TrimSpace(refusal.Bytes()))
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("relay %s %s printed %q: %w", args[0], args[1], out, err)
	}
	return nil
}

// printLog shows the end of the server's log.
func (s *server) printLog(to io.Writer) {
	log, err := os.ReadFile(s.log)
	if err != nil || len(log) == 0 {
		return
	}
	log = log[max(0, len(log)-logTail):]
	fmt.Fprintf(to, "the end of the relay's log:\n%s\n", log)
}
