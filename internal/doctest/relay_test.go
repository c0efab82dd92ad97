package doctest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// place is a folder in which a reader types commands: bin/ has the programs, the
// relay's data is in relay-data/, and the relay runs.
type place struct {
	folder  string
	listen  string // the addresses stand for the documented ones
	metrics string
	env     []string
}

// startPlace starts a relay as `make run` does, on other ports.
func startPlace(t *testing.T) *place {
	t.Helper()
	p := &place{folder: t.TempDir(), listen: freeAddress(t), metrics: freeAddress(t)}
	require.NoError(t, os.Symlink(programFolder(t), filepath.Join(p.folder, "bin")))
	p.env = append(os.Environ(),
		"PATH="+natsFolder(t)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"XDG_CONFIG_HOME="+filepath.Join(p.folder, "config"), // no nats context of the person who runs the test
		"RELAY_LISTEN="+p.listen,
		"RELAY_METRICS_LISTEN="+p.metrics,
		"PEER_URL=ws://"+p.listen+"/v1/relay",
	)
	p.serve(t)
	return p
}

// serve starts the relay, waits for /readyz and stops it when the test ends.
func (p *place) serve(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(p.folder, "relay.log"))
	require.NoError(t, err)
	relay := exec.Command("bin/relay", "serve")
	relay.Dir, relay.Env, relay.Stdout, relay.Stderr = p.folder, p.env, log, log
	require.NoError(t, relay.Start())
	t.Cleanup(func() {
		_ = relay.Process.Signal(syscall.SIGTERM)
		_ = relay.Wait()
		log.Close()
		if t.Failed() {
			p.showLog(t)
		}
	})
	require.Eventually(t, func() bool { return p.status(t, p.listen, "/readyz") == http.StatusOK }, blockTimeout, 50*time.Millisecond,
		"the relay is not ready")
}

func (p *place) showLog(t *testing.T) {
	t.Helper()
	said, err := os.ReadFile(filepath.Join(p.folder, "relay.log"))
	require.NoError(t, err)
	t.Logf("the relay's log:\n%s", said)
}

// status is the HTTP status of a GET, or 0 while nobody answers.
func (p *place) status(t *testing.T, address, path string) int {
	t.Helper()
	status, _ := p.get(t, address, path)
	return status
}

func (p *place) get(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// operate runs an operator command with --json.
func (p *place) operate(t *testing.T, into any, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bin/relay", append(args, "--json")...)
	command.Dir, command.Env, command.Stderr = p.folder, p.env, t.Output()
	out, err := command.Output()
	require.NoError(t, err, "relay %s", strings.Join(args, " "))
	require.NoError(t, json.Unmarshal(out, into), "relay %s printed %q", strings.Join(args, " "), out)
}

// here puts the addresses of this relay where the documentation has the default ones.
func (p *place) here(text string) string {
	return strings.NewReplacer("127.0.0.1:8787", p.listen, "127.0.0.1:8788", p.metrics).Replace(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// natsFolder is where the pinned nats program is; `make test` has built it, and a plain
// `go test` builds it here.
func natsFolder(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, ".tools", "bin"))
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(folder, "nats")); err == nil {
		return folder
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=tools/nats/go.mod", "-o", folder+"/", "github.com/nats-io/natscli/nats")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "build the nats program: %s", out)
	return folder
}

// terminal is a shell in a place, in which blocks are typed one after the other.
type terminal struct {
	place  *place
	shell  *exec.Cmd
	input  io.WriteCloser
	blocks int
	groups []string // pid files of the blocks that go on
}

func (p *place) terminal(t *testing.T, variables ...string) *terminal {
	t.Helper()
	s := &terminal{place: p, shell: exec.CommandContext(t.Context(), "bash")}
	s.shell.Dir, s.shell.Env = p.folder, append(p.env, variables...)
	s.shell.Stdout, s.shell.Stderr = t.Output(), t.Output()
	var err error
	s.input, err = s.shell.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, s.shell.Start())
	s.enter(t, "set -m") // each background job can be ended with all it started
	t.Cleanup(func() {
		s.input.Close()
		_ = s.shell.Wait()
		for _, file := range s.groups {
			killGroup(t, file)
		}
	})
	return s
}

func (s *terminal) enter(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(s.input, line)
	require.NoError(t, err)
}

// typed is a block that was typed.
type typed struct {
	block  block
	page   string
	output string // file
	code   string // file, once it has ended
	pid    string // file
}

// enterBlock types a block; in the background when it does not end by itself.
func (s *terminal) enterBlock(t *testing.T, page string, b block, goesOn bool) typed {
	t.Helper()
	s.blocks++
	name := filepath.Join(s.place.folder, fmt.Sprintf("block-%d", s.blocks))
	run := typed{block: b, page: page, output: name + ".out", code: name + ".code", pid: name + ".pid"}
	group := "{\n" + s.place.here(b.text) + "}"
	if goesOn {
		s.groups = append(s.groups, run.pid)
		s.enter(t, fmt.Sprintf("%s </dev/null >%s 2>&1 & echo $! >%s", group, run.output, run.pid))
	} else {
		s.enter(t, fmt.Sprintf("%s </dev/null >%s 2>&1; echo $? >%s.new; mv %[3]s.new %[3]s", group, run.output, run.code))
	}
	return run
}

// killGroup ends whatever an interrupt did not end.
func killGroup(t *testing.T, pidFile string) {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return // it was never started
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	if err := syscall.Kill(-pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		require.NoError(t, err)
	}
}

// blockTimeout bounds every wait; none of them measures time.
const blockTimeout = 2 * time.Minute

// said is what a block has printed so far.
func (r typed) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(r.output)
	if err != nil && !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

func (r typed) where() string { return fmt.Sprintf("%s:%d", r.page, r.block.line) }

// end stops a block that goes on, with all it started.
func (s *terminal) end(t *testing.T, r typed) {
	t.Helper()
	s.enter(t, fmt.Sprintf("kill -INT -- -$(cat %s) 2>/dev/null", r.pid))
}
