package client_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
)

// A child is this test program as a client of its own, which can be killed.
const (
	childVariable = "PEER_TEST_CHILD" // listen, poll or send
	childHome     = "PEER_TEST_HOME"
	childRoom     = "PEER_TEST_ROOM"
	childLog      = "PEER_TEST_LOG"

	killRounds = 20
	killSends  = 60 // messages of the sending child
)

// runChild is the main of a child.
func runChild(what string) {
	if err := child(what); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(what string) error {
	ctx := context.Background()
	device, err := client.OpenDevice(os.Getenv(childHome), client.DeviceOptions{})
	if err != nil {
		return err
	}
	defer device.Close()
	session, err := device.OpenSession(ctx, os.Getenv(childRoom))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(os.Getenv(childLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY|os.O_SYNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	take := func(item client.Item) error {
		switch {
		case item.Message != nil:
			_, err := fmt.Fprintf(log, "%s %s\n", item.Message.ID, item.Message.Text)
			return err
		case item.Failure != nil:
			_, err := fmt.Fprintf(log, "%s failed: %v\n", item.Failure.ID, item.Failure.Err)
			return err
		}
		return nil
	}
	switch what {
	case "listen":
		return session.Listen(ctx, take)
	case "poll":
		for more := true; more && err == nil; {
			more, err = session.Poll(ctx, 0, take)
		}
		return err
	default:
		return sendFrom(ctx, session, log)
	}
}

// sendFrom sends the messages that the log does not have yet.
func sendFrom(ctx context.Context, session *client.Session, log *os.File) error {
	done, err := os.ReadFile(log.Name())
	if err != nil {
		return err
	}
	for n := strings.Count(string(done), "\n"); n < killSends; n++ {
		if _, err := session.Send(ctx, client.Draft{Text: strconv.Itoa(n), ID: fmt.Sprintf("numbered-%d", n)}); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(log, "%d\n", n); err != nil {
			return err
		}
	}
	return nil
}

func startChild(t *testing.T, what, home, room, log string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program)
	command.Env = append(os.Environ(), childVariable+"="+what, childHome+"="+home, childRoom+"="+room, childLog+"="+log)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	return command
}

func linesOf(t *testing.T, path string) (lines []string) {
	t.Helper()
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return lines
}

// killOften starts a child over and over and kills it when it has got a little further: at
// another point of its work each time.
func killOften(t *testing.T, what, home, room, log string) {
	t.Helper()
	for round := range killRounds {
		before := len(linesOf(t, log))
		command := startChild(t, what, home, room, log)
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		deadline := time.After(sessionPatience)
		for waiting := true; waiting && len(linesOf(t, log)) <= before; {
			select {
			case <-time.After(time.Millisecond):
			case err := <-ended: // it had nothing to do any more
				ended <- err
				waiting = false
			case <-deadline:
				t.Fatalf("round %d: the child got nowhere", round)
			}
		}
		select { // somewhere within what it does next
		case <-time.After(time.Duration(rand.IntN(12_000)) * time.Microsecond):
			require.NoError(t, command.Process.Kill())
			require.Error(t, <-ended)
		case err := <-ended:
			require.NoError(t, err)
		}
	}
}

// FAULTS J08: a client that is killed at any of 20 points of receiving keeps each message exactly
// once. What it was just handing over comes once more, with the same id.
func TestKilledWhileReceiving(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	dir := t.TempDir()
	home, log := filepath.Join(dir, "device"), filepath.Join(dir, "log")
	robot := w.agentAt(t, w.relay.URL(), home, client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	require.NoError(t, robot.Close())
	alice := open(t, w.admin, room)
	var want []string
	sending := make(chan error, 1)
	const messages = 120
	for n := range messages {
		want = append(want, strconv.Itoa(n))
	}
	go func() {
		var err error
		for n := 0; n < messages && err == nil; n++ {
			_, err = alice.Send(context.WithoutCancel(t.Context()), client.Draft{Text: strconv.Itoa(n)})
		}
		sending <- err
	}()
	killOften(t, "listen", home, room, log)
	require.NoError(t, <-sending)
	last := startChild(t, "poll", home, room, log)
	require.NoError(t, last.Wait())

	var got []string
	repeats, previous := 0, ""
	for _, line := range linesOf(t, log) {
		if line == previous {
			repeats++
			continue
		}
		previous = line
		_, text, _ := strings.Cut(line, " ")
		got = append(got, text)
	}
	require.Equal(t, want, got, "each once and in order, but for the one in hand at a kill")
	require.LessOrEqual(t, repeats, killRounds)
}

// FAULTS J08: a client that is killed at any of 20 points of sending, and goes on with the same
// ids, has sent each message exactly once.
func TestKilledWhileSending(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	dir := t.TempDir()
	home, log := filepath.Join(dir, "device"), filepath.Join(dir, "log")
	robot := w.agentAt(t, w.relay.URL(), home, client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	require.NoError(t, robot.Close())
	killOften(t, "send", home, room, log)
	last := startChild(t, "send", home, room, log)
	require.NoError(t, last.Wait())

	var want []string
	for n := range killSends {
		want = append(want, strconv.Itoa(n))
	}
	alice := open(t, w.admin, room)
	alice.poll(t)
	require.Equal(t, want, alice.texts())
	require.Empty(t, alice.failures())
}
