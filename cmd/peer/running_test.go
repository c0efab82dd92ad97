package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary this program, for tests of several processes.
const asProgram = "PEER_TEST_PROGRAM"

func init() { //nolint:gochecknoinits // before the tests' own main
	if os.Getenv(asProgram) != "" {
		main()
	}
}

// program is a process of its own, started in some folder.
func (h household) program(t *testing.T, who, folder string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, append(args, "--home", h.home(who))...)
	command.Dir = folder
	command.Env = append(os.Environ(), asProgram+"=1")
	return command
}

// The key store can be open in one process only: what others do with the device runs in that
// one, with their arguments, working folder, input and outputs.
func TestCommandsRunInTheProcessThatListens(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	listen := h.starts(t, "robot", nil, "listen", "--room", h.room, "--json")
	listening := h.starts(t, "alice", nil, "listen", "--room", h.room)
	listening.until(t, "listening in room")
	info, err := os.Stat(filepath.Join(h.home("alice"), socketName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	// Arguments and exit codes.
	got := h.says(t, "alice", "", "send", "from", "a guest")
	require.Contains(t, got.out, "sent to 1 participant")
	listen.until(t, `"text":"from a guest"`)
	got = h.types(t, "alice", "", "send", "--room", h.room, "--to", "nobody-is-that", "hello")
	require.Equal(t, exitUsage, got.code)
	require.Equal(t, 1, strings.Count(got.err, "peer: see peer send --help\n"), got.err)
	got = h.types(t, "alice", "", "send", "--room", session, "hello", "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "not_found", errorLine(t, got).Error)

	// Standard input, and a large file by a relative path.
	h.says(t, "alice", strings.Repeat("long ", 5000), "send") // asked for by the process that listens
	listen.until(t, `"text":"(long )+","`)
	h.says(t, "robot", "back\n", "send", "-")
	listening.until(t, "  back\n")
	folder := t.TempDir()
	data := bytes.Repeat([]byte("0123456789"), 20_000)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "data.bin"), data, 0o600))
	program := h.program(t, "alice", folder, "send", "--file", "data.bin", "--json")
	program.Env = append(program.Env, "PEER_ROOM="+h.room) // the one that listens has no such variable
	sent, err := program.Output()
	require.NoError(t, err)
	require.Contains(t, string(sent), `"recipients":["`+h.ids["robot"]+`"]`)
	listen.until(t, `"name":"data.bin","mime_type":"[^"]*","size_bytes":200000`)

	// Anything else with the device, and one reader of each room.
	require.Equal(t, "ACTIVE", h.ok(t, "alice", "", "status")["state"])
	require.Contains(t, h.types(t, "alice", "", "rooms").out, h.room)
	got = h.types(t, "alice", "", "poll", "--room", h.room, "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "room_is_read", errorLine(t, got).Error)
	got = h.types(t, "alice", "", "listen", "--room", h.room)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "another command of this device, such as peer listen, reads the room already\n")

	// Ctrl-C of a guest ends the guest; that of the host ends all.
	other := text(t, h.ok(t, "alice", "", "room", "create"), "room_id")
	guest := h.starts(t, "alice", nil, "listen", "--room", other)
	guest.until(t, "listening in room "+other)
	require.Equal(t, exitOK, guest.stop(t).code)
	guest = h.starts(t, "alice", nil, "listen", "--room", other)
	waitsForInput := h.starts(t, "alice", neverEnding{t.Context().Done()}, "send", "--room", other)
	guest.until(t, "listening in room "+other)
	stopped := time.Now()
	require.Equal(t, exitOK, listening.stop(t).code)
	require.Less(t, time.Since(stopped), goodbye, "guests are told to end")
	ended := guest.ends(t)
	require.Equal(t, exitFailed, ended.code)
	require.Contains(t, ended.err, errHostEnded.Error())
	require.Equal(t, exitFailed, waitsForInput.ends(t).code)
	require.NoFileExists(t, filepath.Join(h.home("alice"), socketName))
	require.Equal(t, exitOK, listen.stop(t).code)
	h.says(t, "alice", "", "send", "alone again")
}

// neverEnding is a terminal where nobody types.
type neverEnding struct{ done <-chan struct{} }

func (n neverEnding) Read([]byte) (int, error) {
	<-n.done
	return 0, io.EOF
}

// A command that ends soon lets the next one wait, without guests.
func TestShortCommandsWaitForEachOther(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	const count = 6
	var started []*process
	for range count {
		started = append(started, h.starts(t, "alice", nil, "send", "--room", h.room, "at once"))
	}
	for _, p := range started {
		got := p.ends(t)
		require.Equal(t, exitOK, got.code, got.err)
	}
	require.Len(t, h.polled(t, "robot"), count)
}

// What guests ask for is bounded, and what is no order is refused.
func TestGuestsAreBounded(t *testing.T) {
	host := &host{running: newRunning(nil), ctx: t.Context(), free: make(chan struct{}, 1), guests: map[string]*guest{}}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(host.routes())
	server.Listener = listener
	server.Start()
	defer server.Close()
	var out, errs bytes.Buffer
	con := console{in: strings.NewReader(""), out: &out, err: &errs, program: "peer", json: true}
	code, done := handOver(t.Context(), dir, []string{"rooms", "--home"}, con)
	require.True(t, done)
	require.Equal(t, exitUsage, code, "it is parsed over there")
	require.Contains(t, errs.String(), "--home")

	host.free <- struct{}{}
	errs.Reset()
	code, done = handOver(t.Context(), dir, []string{"rooms"}, con)
	require.True(t, done)
	require.Equal(t, exitFailed, code)
	require.Equal(t, "device_in_use", errorLine(t, outcome{err: errs.String()}).Error)
	<-host.free

	for body, want := range map[string]int{
		"":            http.StatusBadRequest,
		`{"args":[]}`: http.StatusBadRequest,
		`{"args":["` + strings.Repeat("x", maxOrder) + `"]}`: http.StatusBadRequest,
	} {
		answer := httptest.NewRecorder()
		host.routes().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/run", strings.NewReader(body)))
		require.Equal(t, want, answer.Code)
	}
	for _, path := range []string{"/v1/input/nobody", "/v1/stop/nobody"} {
		answer := httptest.NewRecorder()
		host.routes().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, nil))
		require.Equal(t, http.StatusNotFound, answer.Code)
	}

	require.NoError(t, os.Chmod(dir, 0o755))
	_, done = handOver(t.Context(), dir, []string{"rooms"}, con)
	require.False(t, done, "anybody may have made a socket there")
}

// A socket that a killed process left is replaced, and one whose name is too long is elsewhere.
func TestSocketsThatAreLeftOverOrTooLong(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	long := filepath.Join(h.folder, strings.Repeat("long", 25))
	require.NoError(t, os.Rename(h.home("robot"), long))
	long = filepath.Base(long)
	for range 2 {
		listen := h.starts(t, long, nil, "listen", "--room", h.room)
		listen.until(t, "listening in room")
		link, err := os.Readlink(filepath.Join(h.home(long), socketName))
		require.NoError(t, err)
		h.says(t, long, "", "send", "hello")
		got := listen.stop(t)
		require.Equal(t, exitOK, got.code)
		require.NotContains(t, got.err, "wait")
		require.NoFileExists(t, filepath.Join(h.home(long), socketName))
		require.NoDirExists(t, filepath.Dir(link))

		// What kill -9 leaves.
		require.NoError(t, os.Mkdir(filepath.Dir(link), 0o700))
		require.NoError(t, os.WriteFile(link, nil, 0o600))
		require.NoError(t, os.Symlink(link, filepath.Join(h.home(long), socketName)))
		defer os.RemoveAll(filepath.Dir(link))
	}
	h.says(t, long, "", "send", "nobody listens")

	require.NoError(t, os.WriteFile(filepath.Join(h.home("alice"), socketName), nil, 0o600))
	h.says(t, "alice", "", "send", "nobody listens")
	listen := h.starts(t, "alice", nil, "listen", "--room", h.room)
	listen.until(t, "listening in room")
	h.says(t, "alice", "", "send", "to a listening one")
	require.Equal(t, exitOK, listen.stop(t).code)
}

// FAULTS D, kill -9 between printing and taking: that one message may be printed again, with
// the same id, and no other.
func TestAKilledListenRepeatsOneMessageAtMost(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	const count = 12
	for i := range count {
		h.says(t, "alice", "", "send", "message", strings.Repeat("i", i+1))
	}
	seen := map[string]int{}
	var order []string
	for round := 0; len(seen) < count; round++ {
		require.Less(t, round, 3*count, "it gets on")
		listen := h.program(t, "robot", h.folder, "listen", "--room", h.room, "--json")
		out, err := listen.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, listen.Start())
		repeated, decoder := 0, json.NewDecoder(out)
		for {
			var line printedLine
			if err := decoder.Decode(&line); err != nil {
				break
			}
			if line.Type != "message" {
				continue
			}
			require.NotEmpty(t, line.ID)
			seen[line.ID]++
			if seen[line.ID] > 1 {
				repeated++
			} else {
				order = append(order, line.Text)
			}
			if len(seen)%3 == round%3 || len(seen) == count { // at once, before or after it was taken
				require.NoError(t, listen.Process.Kill())
			}
		}
		require.LessOrEqual(t, repeated, 1)
		_ = listen.Wait()
	}
	for i, text := range order {
		require.Equal(t, "message "+strings.Repeat("i", i+1), text, "in order")
	}
	for _, m := range h.polled(t, "robot") { // the one that was printed as it was killed, perhaps
		require.Equal(t, order[count-1], m.Text)
	}
}
