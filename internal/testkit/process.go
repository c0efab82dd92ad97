package testkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/node"
)

// A child is this test binary once more, told by its environment what to be. It
// reads commands from its input, one a line, answers each with one line of JSON,
// and ends with its input.
const (
	envChild  = "PEERRELAY_TESTKIT_CHILD"
	envConfig = "PEERRELAY_TESTKIT_CONFIG"

	childRelay  = "relay"
	childBroker = "broker"
	childMember = "member of a cluster"
)

// RunChild is the first call of the TestMain of a package that starts parts in
// processes of their own. It returns in the test itself only.
func RunChild() {
	kind := os.Getenv(envChild)
	if kind == "" {
		return
	}
	run := map[string]func([]byte) error{childRelay: runRelay, childBroker: runBroker, childMember: runMember}[kind]
	if err := run([]byte(os.Getenv(envConfig))); err != nil {
		fmt.Fprintln(os.Stderr, kind+":", err)
		os.Exit(1) //nolint:forbidigo // the main of a process
	}
	os.Exit(0) //nolint:forbidigo // the main of a process
}

type child struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	ready   childReady
}

// childReady is the first line of a child.
type childReady struct {
	Listen  string `json:"listen"`
	Metrics string `json:"metrics,omitempty"`
}

// startChild starts one. The caller ends it; it also ends with the test's process.
func startChild(t testing.TB, kind string, config any, attributes *syscall.SysProcAttr) *child {
	t.Helper()
	encoded, err := json.Marshal(config)
	require.NoError(t, err)
	c := &child{command: exec.CommandContext(context.Background(), os.Args[0])}
	c.command.Env = append(os.Environ(), envChild+"="+kind, envConfig+"="+string(encoded))
	c.command.Stderr = t.Output()
	c.command.SysProcAttr = attributes
	c.stdin, err = c.command.StdinPipe()
	require.NoError(t, err)
	stdout, err := c.command.StdoutPipe()
	require.NoError(t, err)
	c.stdout = bufio.NewReader(stdout)
	require.NoError(t, c.command.Start())
	c.answer(t, &c.ready)
	return c
}

// do sends a command and waits until it is done.
func (c *child) do(t testing.TB, command string) {
	t.Helper()
	_, err := fmt.Fprintln(c.stdin, command)
	require.NoError(t, err)
	var done struct{}
	c.answer(t, &done)
}

func (c *child) answer(t testing.TB, into any) {
	t.Helper()
	line, err := c.stdout.ReadBytes('\n')
	require.NoError(t, err, "the process has ended")
	require.NoError(t, json.Unmarshal(line, into))
}

func (c *child) kill() {
	_ = c.command.Process.Kill()
	_ = c.command.Wait() // says that it was killed
}

// terminate asks the process to end and demands that it ends well.
func (c *child) terminate(t testing.TB) {
	t.Helper()
	require.NoError(t, c.command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.command.Wait())
}

// runRelay is the main of a relay's process: it serves until SIGTERM.
func runRelay(config []byte) error {
	var cfg node.Config
	if err := json.Unmarshal(config, &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return err
	}
	say(childReady{Listen: n.Addr().String(), Metrics: n.MetricsAddr().String()})
	go func() { // the test is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	select {
	case <-ctx.Done():
	case err = <-n.Failed():
	}
	closing, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, n.Close(closing))
}

func say(answer any) {
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err) // the test is gone
	}
}

// commands runs f for each line of the input, cut into the command and the rest.
func commands(f func(command, argument string) error) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		if err := f(command, argument); err != nil {
			return err
		}
		say(struct{}{})
	}
	return lines.Err()
}
