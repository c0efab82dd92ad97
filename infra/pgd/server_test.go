package pgd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

const helperEnv = "PGD_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		runHelper(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg pgd.Config) *pgd.Server {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := pgd.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, closeServer(s))
		requireNoProcesses(t, cfg.Dir)
	})
	return s
}

func closeServer(s *pgd.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Close(ctx)
}

func requireNoProcesses(t *testing.T, dir string) {
	t.Helper()
	pids, err := pgd.ServerProcesses(dir)
	require.NoError(t, err)
	require.Empty(t, pids)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestSecondStartFindsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, pgd.Config{Dir: dir})
	exec1(t, connect(t, first.URL()), "CREATE TABLE kept AS SELECT 42 AS v")
	require.NoError(t, closeServer(first))
	requireNoProcesses(t, dir)

	second := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 42, query[int](t, connect(t, second.URL()), "SELECT v FROM kept"))
}

func TestServerIsAsAgreed(t *testing.T) {
	t.Parallel()
	s := start(t, pgd.Config{Dir: t.TempDir(), Settings: map[string]string{"work_mem": "12MB"}})
	conn := connect(t, s.URL())
	for name, want := range map[string]string{
		"data_checksums": "on", "server_encoding": "UTF8", "lc_collate": "C", "listen_addresses": "",
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "jit": "off",
		"log_statement": "none", "log_error_verbosity": "terse", "max_connections": "60", "work_mem": "12MB",
	} {
		if name == "lc_collate" {
			require.Equal(t, want, query[string](t, conn, "SELECT datcollate FROM pg_database WHERE datname = 'relay'"))
			continue
		}
		require.Equal(t, want, query[string](t, conn, "SHOW "+name), name)
	}
	require.Equal(t, pgd.OwnerRole, query[string](t, conn, "SELECT session_user"))
	require.Equal(t, s.Version(), query[int](t, conn, "SELECT current_setting('server_version_num')::int / 10000"))
}

// The server's processes never run as root, and its data is closed to everybody else.
func TestServerUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, pgd.Config{Dir: dir})
	want := os.Geteuid()
	if want == 0 {
		u, err := user.Lookup("postgres")
		require.NoError(t, err)
		want, err = strconv.Atoi(u.Uid)
		require.NoError(t, err)
	}
	require.NotZero(t, want)
	pids, err := pgd.ServerProcesses(dir)
	require.NoError(t, err)
	require.Contains(t, pids, postmasterPID(t, dir))
	for _, pid := range pids {
		info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if errors.Is(err, fs.ErrNotExist) {
			continue // that of a connection, which has ended
		}
		require.NoError(t, err)
		require.Equal(t, want, ownerOf(t, info))
	}
	for name, mode := range map[string]os.FileMode{"data": 0o700, "run": 0o700, "log": 0o700} {
		info, err := os.Stat(filepath.Join(dir, "postgres", name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	require.Equal(t, want, owner(t, filepath.Join(dir, "postgres", "data")))
	require.Equal(t, os.Geteuid(), owner(t, filepath.Join(dir, "postgres", "conf")))
}

// A server set up while there was no user postgres goes on as the user it began with.
func TestServerUserStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, pgd.Config{Dir: dir, RunAs: []string{"no-such-user", "nobody"}})
	require.NoError(t, closeServer(first))
	before := owner(t, filepath.Join(dir, "postgres", "data"))
	second := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 1, query[int](t, connect(t, second.URL()), "SELECT 1"))
	require.Equal(t, before, owner(t, filepath.Join(dir, "postgres", "data")))
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return ownerOf(t, info)
}

func ownerOf(t *testing.T, info os.FileInfo) int {
	t.Helper()
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return int(st.Uid)
}

// As below /root: the server's user can't walk to the folder by its path.
func TestFolderBelowClosedParent(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(parent, 0o700))
	dir := filepath.Join(parent, "data")
	first := start(t, pgd.Config{Dir: dir})
	conn := connect(t, first.URL())
	exec1(t, conn, "CREATE TABLE kept AS SELECT 42 AS v")
	exec1(t, conn, "CHECKPOINT")
	require.True(t, query[bool](t, conn, "SELECT pg_reload_conf()"))
	require.NoError(t, closeServer(first))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	start(t, pgd.Config{Dir: dir})
}

func TestLongPath(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), strings.Repeat("long-", 30))
	s := start(t, pgd.Config{Dir: dir})
	require.NotContains(t, s.SocketDir(), "long-")
	require.Equal(t, 1, query[int](t, connect(t, s.URL()), "SELECT 1"))
	info, err := os.Stat(filepath.Dir(s.SocketDir()))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, closeServer(s))
	require.NoDirExists(t, filepath.Dir(s.SocketDir()))
}

func TestNamesThatNeedQuoting(t *testing.T) {
	t.Parallel()
	s := start(t, pgd.Config{Dir: filepath.Join(t.TempDir(), `a b,c'd"e%2f?&=ü`)})
	require.Equal(t, 1, query[int](t, connect(t, s.URL()), "SELECT 1"))
}

func TestRoles(t *testing.T) {
	t.Parallel()
	s := start(t, pgd.Config{Dir: t.TempDir(), Roles: []string{"relay_service"}})
	exec1(t, connect(t, s.URL()), "CREATE ROLE relay_service LOGIN")
	exec1(t, connect(t, s.URL()), "CREATE ROLE relay_other LOGIN")
	require.Equal(t, "relay_service", query[string](t, connect(t, s.URLAs("relay_service")), "SELECT session_user"))
	_, err := pgx.Connect(t.Context(), s.URLAs("relay_other"))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "28000", pgErr.Code)
}

func TestOneRelayPerFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, pgd.Config{Dir: dir})
	_, err := pgd.Start(t.Context(), pgd.Config{Dir: dir})
	require.ErrorIs(t, err, pgd.ErrLocked)
	require.ErrorContains(t, err, "another relay uses this data folder")
	require.ErrorContains(t, err, strconv.Itoa(os.Getpid()))
	require.Equal(t, 1, query[int](t, connect(t, s.URL()), "SELECT 1"), "the first is not disturbed")
}

func TestClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, pgd.Config{Dir: dir})
	conn := connect(t, s.URL())
	exec1(t, conn, "CREATE TABLE kept AS SELECT 42 AS v")
	results := make(chan error, 4)
	for range cap(results) {
		go func() { results <- closeServer(s) }()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
	require.Error(t, conn.Ping(t.Context()), "connections are broken off")

	// Cut short: an immediate shutdown, after which what was committed is there.
	s, err := pgd.Start(t.Context(), pgd.Config{Dir: dir})
	require.NoError(t, err)
	exec1(t, connect(t, s.URL()), "UPDATE kept SET v = 43")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ended); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	requireNoProcesses(t, dir)
	again := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 43, query[int](t, connect(t, again.URL()), "SELECT v FROM kept"))
}

// A killed postmaster is started again, with all that was committed, and connections are
// made anew under the same address.
func TestPostmasterDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log logBuffer
	s := start(t, pgd.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	exec1(t, connect(t, s.URL()), "CREATE TABLE kept AS SELECT 42 AS v")
	for n := range 2 {
		first := query[time.Time](t, connect(t, s.URL()), "SELECT pg_postmaster_start_time()")
		require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
		log.awaitStartedAgain(t, n+1)
		conn := connect(t, s.URL())
		require.Equal(t, 42, query[int](t, conn, "SELECT v FROM kept"))
		require.True(t, query[time.Time](t, conn, "SELECT pg_postmaster_start_time()").After(first))
	}
	require.NoError(t, closeServer(s))
	requireNoProcesses(t, dir)
}

// What keeps it from starting again may go away; Close does not wait for that.
func TestPostmasterCannotStartAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log logBuffer
	s, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	version := filepath.Join(dir, "postgres", "data", "PG_VERSION")
	away := filepath.Join(dir, "PG_VERSION")
	failed := func() bool { return strings.Contains(log.String(), "could not be started again") }

	require.NoError(t, os.Rename(version, away))
	require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
	require.Eventually(t, failed, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.Rename(away, version))
	log.awaitStartedAgain(t, 1)
	connect(t, s.URL())

	require.NoError(t, os.Rename(version, away))
	require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
	require.Eventually(t, func() bool { return strings.Count(log.String(), "ended by itself") == 2 }, time.Minute, 10*time.Millisecond)
	require.ErrorContains(t, closeServer(s), "ended by itself")
	requireNoProcesses(t, dir)
}

// A program that the server began, as to archive, may outlive it, and holds its log then: that
// keeps neither the next server from starting nor Close from ending.
func TestProgramThatOutlivesTheServer(t *testing.T) {
	t.Parallel()
	programs, _, err := pgd.Programs(t.Context(), "")
	require.NoError(t, err)
	bin, dir := t.TempDir(), t.TempDir()
	require.NoError(t, errors.Join(os.Chmod(filepath.Dir(bin), 0o755), os.Chmod(bin, 0o777))) // for whom the server runs as
	require.NoError(t, os.Symlink(filepath.Join(programs, "initdb"), filepath.Join(bin, "initdb")))
	script := fmt.Sprintf(`#!/bin/sh
if test "$1" = -D; then
	test -e '%[1]s/leave' && { sleep 600 & echo $! >>'%[1]s/left'; }
	test -e '%[1]s/refuse' && exit 1
fi
exec '%[2]s/postgres' "$@"
`, bin, programs)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "postgres"), []byte(script), 0o755))
	t.Cleanup(func() {
		left, err := os.ReadFile(filepath.Join(bin, "left"))
		require.NoError(t, err)
		for pid := range strings.FieldsSeq(string(left)) {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
		}
	})
	leave, refuse := filepath.Join(bin, "leave"), filepath.Join(bin, "refuse")
	require.NoError(t, os.WriteFile(leave, nil, 0o644))
	var log logBuffer
	s, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, BinDir: bin, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(refuse, nil, 0o644))
	require.NoError(t, syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL))
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), "could not be started again") && strings.Contains(log.String(), "ended while it started")
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, errors.Join(os.Remove(leave), os.Remove(refuse)))
	log.awaitStartedAgain(t, 1)
	connect(t, s.URL())
	require.NoError(t, closeServer(s))
	requireNoProcesses(t, dir)
}

// awaitStartedAgain waits until the Server knows that its postmaster was started again so often: that one
// answers a moment before.
func (b *logBuffer) awaitStartedAgain(t *testing.T, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(b.String(), `msg="started again"`) == times }, time.Minute, 20*time.Millisecond)
}

func postmasterPID(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}

// runHelper is a process to kill that owns a server. It ends when its input does.
func runHelper(dir string) {
	s, err := pgd.Start(context.Background(), pgd.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// helper starts a process that owns the server of dir, and returns the server's URL.
func helper(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { in.Close() })
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

func TestKilledRelay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, url := helper(t, dir)
	exec1(t, connect(t, url), "CREATE TABLE kept AS SELECT 42 AS v")
	kill(t, cmd)
	// At once: the server may still be writing its last checkpoint.
	s := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 42, query[int](t, connect(t, s.URL()), "SELECT v FROM kept"))
	require.NoError(t, closeServer(s))

	// The server goes without help of a next start.
	cmd, url = helper(t, dir)
	connect(t, url) // and does not wait for its clients
	kill(t, cmd)
	require.Eventually(t, func() bool {
		pids, err := pgd.ServerProcesses(dir)
		return err == nil && len(pids) == 0
	}, 30*time.Second, 10*time.Millisecond)
}

func TestKilledRelayWithLongPath(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30))
	cmd, _ := helper(t, dir)
	kill(t, cmd)
	s := start(t, pgd.Config{Dir: dir})
	require.NoError(t, closeServer(s))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "the killed one's socket folder is gone too")
}

// A server that hangs, here stopped, and its lock file don't keep the next from starting.
func TestStoppedServerIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, url := helper(t, dir)
	exec1(t, connect(t, url), "CREATE TABLE kept AS SELECT 42 AS v")
	postmaster := postmasterPID(t, dir)
	kill(t, cmd)
	_ = syscall.Kill(postmaster, syscall.SIGKILL) // its children are orphans now
	s := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 42, query[int](t, connect(t, s.URL()), "SELECT v FROM kept"))
}

// After a crash of the machine the process id in the lock file may be anybody's.
func TestLockFileOfReusedProcessID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, pgd.Config{Dir: dir})
	lock := filepath.Join(dir, "postgres", "data", "postmaster.pid")
	text, err := os.ReadFile(lock)
	require.NoError(t, err)
	st := owner(t, lock)
	require.NoError(t, closeServer(s))

	other := exec.CommandContext(t.Context(), "sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // of the server's user: then PostgreSQL believes the file
		other.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(st), Gid: uint32(st)}
	}
	require.NoError(t, other.Start())
	defer func() {
		require.NoError(t, other.Process.Kill())
		require.Error(t, other.Wait())
	}()
	_, rest, _ := strings.Cut(string(text), "\n")
	require.NoError(t, os.WriteFile(lock, fmt.Appendf(nil, "%d\n%s", other.Process.Pid, rest), 0o600))
	require.NoError(t, os.Chown(lock, st, -1))
	start(t, pgd.Config{Dir: dir})
	require.NoError(t, other.Process.Signal(syscall.Signal(0)), "nobody else's process is touched")
}

func TestContextEndsStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, after := range []int{0, 5, 50, 200, 500, 800, 1000} { // ms, at whatever step
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
		s, err := pgd.Start(ctx, pgd.Config{Dir: dir})
		cancel()
		if err == nil {
			require.NoError(t, closeServer(s))
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireNoProcesses(t, dir)
		require.NoDirExists(t, filepath.Join(dir, "postgres", "data.new"))
	}
	start(t, pgd.Config{Dir: dir})
}

// An initdb that was killed, and a half-made folder it left, are no database.
func TestUnfinishedInitdb(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	draft := filepath.Join(dir, "postgres", "data.new")
	require.NoError(t, os.MkdirAll(draft, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(draft, "PG_VERSION"), []byte("15\n"), 0o600))
	s := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 1, query[int](t, connect(t, s.URL()), "SELECT 1"))
	require.NoDirExists(t, draft)
}

func TestRelayKilledWhileInitdbRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "postgres", "data.new", "pg_wal"))
		return err == nil
	}, 30*time.Second, time.Millisecond)
	kill(t, cmd)
	s := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 1, query[int](t, connect(t, s.URL()), "SELECT 1"))
}

func TestFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, Settings: map[string]string{"shared_buffers": "much"}})
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers"`)
	requireNoProcesses(t, dir)
	start(t, pgd.Config{Dir: dir})
}

// What is in a row must not get into the log by an error about it.
func TestLogHoldsNoRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, pgd.Config{Dir: dir})
	conn := connect(t, s.URL())
	exec1(t, conn, "CREATE TABLE t (v text CONSTRAINT t_v_key UNIQUE, n int CONSTRAINT t_n_check CHECK (n > 0))")
	exec1(t, conn, "INSERT INTO t VALUES ('secret-1', 1)")
	for _, sql := range []string{"INSERT INTO t VALUES ('secret-1', 1)", "INSERT INTO t VALUES ('secret-2', 0)"} {
		_, err := conn.Exec(t.Context(), sql)
		require.Error(t, err)
	}
	require.NoError(t, closeServer(s))
	log, err := os.ReadFile(filepath.Join(dir, "postgres", "log", "postgres.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "t_v_key")
	require.Contains(t, string(log), "t_n_check")
	require.NotContains(t, string(log), "secret")
}

// logBuffer takes log lines of several goroutines.
type logBuffer struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.String()
}
