package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	readyTimeout = 5 * time.Minute
	stopTimeout  = 60 * time.Second
	logTail      = 4 << 10 // bytes of the relay's log that are shown when it fails
)

// relay is the server under test: one process at a time, always on the same data
// and addresses, or one that somebody else runs.
type relay struct {
	name    string // of its files with profiles
	program string
	folder  string // temporary; empty for a relay of somebody else
	data    string
	listen  string // host:port
	metrics string // host:port
	flags   []string
	client  *http.Client // of the public and the metrics listener

	pid    int
	exited chan struct{} // closed when the process has ended
}

// newRelay prepares a relay in a temporary folder.
func newRelay(program string, flags []string) (*relay, error) {
	folder, err := os.MkdirTemp("", "relaybench-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	r := &relay{name: "relay", program: program, folder: folder, data: filepath.Join(folder, "data"), flags: flags, client: newClient()}
	if r.listen, err = freeAddress(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if r.metrics, err = freeAddress(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return r, nil
}

// newClient keeps no connections, which a restart would break.
func newClient() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

// freeAddress returns a loopback address that nobody listens on at the moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// start starts the relay and returns how long it took until it was ready.
func (r *relay) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(r.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the relay's log: %w", err)
	}
	defer log.Close() // the process has its own
	began := time.Now()
	args := append([]string{"serve", "--data", r.data, "--listen", r.listen, "--metrics-listen", r.metrics}, r.flags...)
	command := exec.Command(r.program, args...) //nolint:noctx // ended by stop, not by a context's SIGKILL
	command.Stdout, command.Stderr = log, log
	if err := r.launch(command); err != nil {
		return 0, fmt.Errorf("start the relay: %w", err)
	}
	if err := r.waitReady(ctx); err != nil {
		r.stop()
		return 0, err
	}
	return time.Since(began), nil
}

// launch starts a process that ends with this one. The kernel ties that to the
// thread that started it, so a goroutine stays on it.
func (r *relay) launch(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // Ctrl-C reaches this process only, which then ends the other
		Pdeathsig: syscall.SIGTERM,
	}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	r.pid, r.exited = command.Process.Pid, exited
	return nil
}

func (r *relay) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if r.ready(ctx) {
			return nil
		}
		select {
		case <-poll.C:
		case <-r.exited:
			return fmt.Errorf("the relay ended before it was ready; the end of its log:\n%s", r.logEnd())
		case <-ctx.Done():
			return fmt.Errorf("wait for /readyz: %w", ctx.Err())
		}
	}
}

func (r *relay) ready(ctx context.Context) bool {
	_, err := r.get(ctx, "http://"+r.listen+"/readyz")
	return err == nil
}

func (r *relay) get(ctx context.Context, url string) ([]byte, error) {
	return getFrom(ctx, r.client, url)
}

// getFrom returns the body of a 200 answer.
func getFrom(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return body.Bytes(), nil
}

func (r *relay) own() bool { return r.folder != "" }

// kill is kill -9: the server gets no chance to finish anything.
func (r *relay) kill() error {
	if err := syscall.Kill(r.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the relay: %w", err)
	}
	<-r.exited
	return nil
}

// stop asks the server to end, and makes it end when it does not.
func (r *relay) stop() {
	if r.exited == nil {
		return
	}
	select {
	case <-r.exited:
		return
	default:
	}
	_ = syscall.Kill(r.pid, syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-r.exited:
	case <-timer.C:
		_ = syscall.Kill(r.pid, syscall.SIGKILL)
		<-r.exited
	}
}

// remove ends the server and removes its folder.
func (r *relay) remove() {
	if !r.own() {
		return
	}
	r.stop()
	_ = os.RemoveAll(r.folder)
}

func (r *relay) logFile() string { return filepath.Join(r.folder, "relay.log") }

func (r *relay) logEnd() string {
	log := readText(r.logFile())
	return log[max(0, len(log)-logTail):]
}

// residentKiB is the memory of the server's process.
func (r *relay) residentKiB() int64 { return procKiB(fmt.Sprintf("/proc/%d/status", r.pid), "VmRSS") }

// metric returns the value of an unlabelled metric, 0 when it can't be read.
func (r *relay) metric(ctx context.Context, name string) float64 {
	body, err := r.get(ctx, "http://"+r.metrics+"/metrics")
	if err != nil {
		return 0
	}
	return parseMetrics(string(body))[name]
}

// processTree is all processes of the machine.
type processTree struct {
	children map[int][]int
	used     map[int]time.Duration // CPU time, that of children that have ended too
}

// usedBelow is what the processes below one (PostgreSQL) have used.
func (t *processTree) usedBelow(pid int) time.Duration {
	var total time.Duration
	for _, child := range t.children[pid] {
		total += t.used[child] + t.usedBelow(child)
	}
	return total
}

func readProcessTree() processTree {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	tree := processTree{make(map[int][]int), make(map[int]time.Duration)}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		// The name in parentheses may hold anything; fields are counted after it.
		_, rest, found := strings.Cut(readText(file), ") ")
		fields := strings.Fields(rest)
		if !found || len(fields) < 15 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, _ := strconv.Atoi(fields[1])
		var ticks int64
		for _, field := range fields[11:15] { // own and reaped children's, user and system
			n, _ := strconv.ParseInt(field, 10, 64)
			ticks += n
		}
		tree.children[parent] = append(tree.children[parent], pid)
		tree.used[pid] = time.Duration(ticks) * tick
	}
	return tree
}
