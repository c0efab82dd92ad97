package natsd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/infra/natsd"
)

const (
	helperEnv   = "NATSD_TEST_HELPER_DIR"
	fullDiskEnv = "NATSD_TEST_FULL_DISK"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if os.Getenv(fullDiskEnv) != "" {
			fillDisk()
		}
		runHelper(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := natsd.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closeServer(s)) })
	return s
}

func closeServer(s *natsd.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Close(ctx)
}

// relayConn is an in-process connection of the full user.
func relayConn(t *testing.T, s *natsd.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := s.InProcess()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func makeStream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "INBOX_00", Subjects: []string{"inbox.00.>"}, AllowDirect: true, MaxMsgsPerSubject: 500,
	})
	require.NoError(t, err)
	return stream
}

func TestRestartKeepsMessages(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	nc, js := relayConn(t, first)
	makeStream(t, js)
	ack, err := js.Publish(t.Context(), "inbox.00.a.b", []byte("kept"))
	require.NoError(t, err)
	require.Equal(t, uint64(1), ack.Sequence)
	url := first.URL()
	nc.Close()
	require.NoError(t, closeServer(first))

	second := start(t, natsd.Config{Dir: dir})
	require.Equal(t, url, second.URL(), "the port is kept")
	_, js = relayConn(t, second)
	stream, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []byte("kept"), msg.Data)
}

func TestPortTakenMeanwhile(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	require.NoError(t, closeServer(first))
	l, err := net.Listen("tcp", strings.TrimPrefix(first.URL(), "nats://"))
	require.NoError(t, err)
	defer l.Close()
	second := start(t, natsd.Config{Dir: dir})
	require.NotEqual(t, first.URL(), second.URL())
	readContext(t, second) // names the new one

	_, err = natsd.Start(t.Context(), natsd.Config{Dir: t.TempDir(), ListenAddr: l.Addr().String()})
	require.ErrorContains(t, err, "address already in use", "a port that was asked for is not replaced")
}

func TestConfigRefused(t *testing.T) {
	for name, cfg := range map[string]natsd.Config{
		"no folder":       {},
		"address":         {Dir: t.TempDir(), ListenAddr: "localhost"},
		"port":            {Dir: t.TempDir(), ListenAddr: "127.0.0.1:nats"},
		"payload too big": {Dir: t.TempDir(), MaxPayload: 1 << 30},
	} {
		_, err := natsd.Start(t.Context(), cfg)
		require.Error(t, err, name)
	}
}

func TestMaxPayload(t *testing.T) {
	s := start(t, natsd.Config{Dir: t.TempDir(), MaxPayload: 2 << 20, SyncAlways: true})
	nc, js := relayConn(t, s)
	makeStream(t, js)
	require.Equal(t, int64(2<<20), nc.MaxPayload())
	_, err := js.Publish(t.Context(), "inbox.00.a.b", make([]byte, 2<<20))
	require.NoError(t, err)
	require.ErrorIs(t, nc.Publish("inbox.00.a.b", make([]byte, 2<<20+1)), nats.ErrMaxPayload)
}

// A store that can't be used is an error that names it: no panic, no exit, no store in
// memory instead.
func TestUnusableFolder(t *testing.T) {
	blocked := func(path ...string) string {
		dir := t.TempDir()
		file := filepath.Join(append([]string{dir}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte("in the way"), 0o600))
		return dir
	}
	for path, named := range map[string]string{
		"nats":                     "nats",
		"nats/jetstream":           "nats",
		"keys":                     "keys",
		"keys/nats-debug.password": "keys/nats-debug.password",
	} {
		dir := blocked(path)
		_, err := natsd.Start(t.Context(), natsd.Config{Dir: dir})
		require.ErrorContains(t, err, filepath.Join(dir, named))
	}
}

func TestDamagedStreamIsNotForgotten(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	nc, js := relayConn(t, first)
	makeStream(t, js)
	_, err := js.Publish(t.Context(), "inbox.00.a.b", []byte("kept"))
	require.NoError(t, err)
	nc.Close()
	require.NoError(t, closeServer(first))
	meta := filepath.Join(dir, "nats", "jetstream", "RELAY", "streams", "INBOX_00", "meta.inf")
	good, err := os.ReadFile(meta)
	require.NoError(t, err)

	for name, damage := range map[string]func() error{
		"changed": func() error { return os.WriteFile(meta, append([]byte(" "), good...), 0o600) },
		"cut":     func() error { return os.WriteFile(meta, good[:10], 0o600) },
		"removed": func() error { return os.Remove(meta) },
	} {
		require.NoError(t, damage(), name)
		_, err = natsd.Start(t.Context(), natsd.Config{Dir: dir})
		require.ErrorIs(t, err, natsd.ErrStore, name)
		require.ErrorContains(t, err, "INBOX_00", name)
	}
	require.NoError(t, os.WriteFile(meta, good, 0o600))
	again := start(t, natsd.Config{Dir: dir})
	_, js = relayConn(t, again)
	stream, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.Equal(t, uint64(1), messages(t, stream), "the refused starts changed nothing")
}

func TestContextEndsStart(t *testing.T) {
	dir := t.TempDir()
	for range 20 { // at whatever moment it hits
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		s, err := natsd.Start(ctx, natsd.Config{Dir: dir})
		if err == nil {
			require.NoError(t, closeServer(s))
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	start(t, natsd.Config{Dir: dir})
}

func TestClose(t *testing.T) {
	s := start(t, natsd.Config{Dir: t.TempDir()})
	require.NoError(t, s.Healthy())
	nc, _ := relayConn(t, s)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ended); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, closeServer(s), "waits for what the first began")
	require.NoError(t, closeServer(s))
	require.Error(t, s.Healthy())
	require.Eventually(t, func() bool { return !nc.IsConnected() }, 10*time.Second, time.Millisecond)
	_, err := s.InProcess(nats.MaxReconnects(0))
	require.Error(t, err)
}

// While the server is away a publish fails at once, and nothing of it comes later; the
// connection is back by itself.
func TestConnOptions(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsd.Config{Dir: dir})
	gone, back := make(chan error, 1), make(chan string, 1)
	nc, err := first.Loopback(natsd.ConnOptions("test", natsd.Handlers{
		Disconnected: func(_ *nats.Conn, err error) { gone <- err },
		Reconnected:  func(nc *nats.Conn) { back <- nc.ConnectedUrl() },
	})...)
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, closeServer(first))
	require.Error(t, <-gone)
	require.ErrorIs(t, nc.Publish("live.room", []byte("late")), nats.ErrReconnectBufExceeded)

	second := start(t, natsd.Config{Dir: dir})
	other, _ := relayConn(t, second)
	all, err := other.SubscribeSync("live.>")
	require.NoError(t, err)
	require.NoError(t, other.Flush())
	select {
	case <-back:
	case <-time.After(10 * time.Second):
		require.Fail(t, "not reconnected")
	}
	require.NoError(t, nc.Publish("live.room", []byte("after")))
	m, err := all.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "after", string(m.Data))
}

// runHelper is a process to kill: it publishes without end and prints each acknowledged
// sequence. It ends by itself when nobody reads.
func runHelper(dir string) {
	s, err := natsd.Start(context.Background(), natsd.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	nc, err := s.InProcess()
	if err != nil {
		panic(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		panic(err)
	}
	if _, err := js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: "INBOX_00", Subjects: []string{"inbox.00.>"},
	}); err != nil {
		panic(err)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		ack, err := js.Publish(ctx, "inbox.00.a.b", []byte("acknowledged"))
		cancel()
		if err != nil {
			fmt.Println("failed:", err, "healthy:", s.Healthy())
			freeDisk()
			fmt.Println("again:", publishAgain(js))
			return
		}
		if _, err := fmt.Println(ack.Sequence); err != nil {
			return
		}
	}
}

// publishAgain publishes until it is acknowledged, and returns the sequence.
func publishAgain(js jetstream.JetStream) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		ack, err := js.Publish(attempt, "inbox.00.a.b", []byte("acknowledged"))
		cancel()
		if err == nil {
			return ack.Sequence
		}
		if ctx.Err() != nil {
			panic(err)
		}
	}
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	last := uint64(0)
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), helperEnv+"="+dir)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var sequence uint64
			_, err := fmt.Sscan(lines.Text(), &sequence)
			require.NoError(t, err)
			require.Greater(t, sequence, last, "no sequence is used twice")
			last = sequence
			if n == 200+100*round {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait())

		s := start(t, natsd.Config{Dir: dir})
		nc, js := relayConn(t, s)
		stream, err := js.Stream(t.Context(), "INBOX_00")
		require.NoError(t, err)
		state := stream.CachedInfo().State
		require.Equal(t, uint64(1), state.FirstSeq)
		require.GreaterOrEqual(t, state.LastSeq, last)
		require.Equal(t, state.LastSeq, state.Msgs)
		nc.Close()
		require.NoError(t, closeServer(s))
	}
}

// fillDisk limits the size of files, which stands in for a full disk: writing beyond
// fails in the same way. freeDisk ends that.
func fillDisk() {
	signal.Ignore(syscall.SIGXFSZ)
	setFileSize(func(limit *syscall.Rlimit) { limit.Cur = 64 << 10 })
}

func freeDisk() { setFileSize(func(limit *syscall.Rlimit) { limit.Cur = limit.Max }) }

func setFileSize(change func(*syscall.Rlimit)) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	change(&limit)
	if err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)); err != nil {
		panic(err)
	}
}

// A stream whose write has failed is unhealthy, and stores again as soon as the disk
// takes data, without a restart of the process.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir, fullDiskEnv+"=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	failed, again := lines[len(lines)-2], lines[len(lines)-1]
	require.Contains(t, failed, "failed: ")
	require.Contains(t, failed, "healthy: NATS: JetStream stream 'RELAY > INBOX_00' write error")
	require.Greater(t, len(lines), 100)
	var sequence uint64
	_, err = fmt.Sscanf(again, "again: %d", &sequence)
	require.NoError(t, err)
	require.Greater(t, sequence, uint64(len(lines)-2), "a sequence was used twice")

	// What was acknowledged is there, and the stream takes rows again.
	s := start(t, natsd.Config{Dir: dir})
	_, js := relayConn(t, s)
	stream, err := js.Stream(t.Context(), "INBOX_00")
	require.NoError(t, err)
	require.GreaterOrEqual(t, stream.CachedInfo().State.LastSeq, sequence)
	require.Equal(t, stream.CachedInfo().State.LastSeq, stream.CachedInfo().State.Msgs)
	_, err = js.Publish(t.Context(), "inbox.00.a.b", []byte("more"))
	require.NoError(t, err)
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	dir := t.TempDir()
	start(t, natsd.Config{Dir: dir})
	err := filepath.WalkDir(filepath.Join(dir, "keys"), func(path string, d fs.DirEntry, err error) error {
		info, infoErr := d.Info()
		if err := errors.Join(err, infoErr); err != nil {
			return err
		}
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return nil
	})
	require.NoError(t, err)
}
