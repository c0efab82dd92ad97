package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// printedLine is a line of listen, poll and the like, with --json.
type printedLine struct {
	Type     string
	ID       string
	From     string
	Role     string
	To       string
	Private  bool
	Kind     string
	Text     string
	Files    []fileLine
	More     bool
	Messages int
	Error    string
	Event    string

	RoomID    string    `json:"room_id"`
	DeviceID  string    `json:"device_id"`
	StreamID  string    `json:"stream_id"`
	SentAt    time.Time `json:"sent_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func printedLines(t *testing.T, text string) (all []printedLine) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var line printedLine
		require.NoError(t, decoder.Decode(&line), text)
		all = append(all, line)
	}
	return all
}

// ofType are the lines of one type.
func ofType(all []printedLine, kind string) (found []printedLine) {
	for _, line := range all {
		if line.Type == kind {
			found = append(found, line)
		}
	}
	return found
}

// talk is a household whose devices are in one room.
type talk struct {
	household

	room string
	ids  map[string]string // participants
}

// newTalk makes an owner, alice, and agents that are in a room with her.
func newTalk(t *testing.T, agents ...string) talk {
	t.Helper()
	h := talk{newHousehold(t), "", map[string]string{}}
	h.owner(t, "alice")
	made := h.ok(t, "alice", "", "room", "create")
	h.room, h.ids["alice"] = text(t, made, "room_id"), text(t, made, "participant_id")
	for _, agent := range agents {
		id := h.agent(t, "alice", agent)
		h.ids[agent] = text(t, h.ok(t, "alice", "", "room", "add", h.room, id), "participant_id")
	}
	return h
}

// says runs a command in the room, which has to be done.
func (h talk) says(t *testing.T, who, stdin string, args ...string) outcome {
	t.Helper()
	got := h.types(t, who, stdin, append(args, "--room", h.room)...)
	require.Equal(t, exitOK, got.code, "%v: %s", args, got.err)
	return got
}

// polled are the messages that wait for somebody.
func (h talk) polled(t *testing.T, who string, args ...string) []printedLine {
	t.Helper()
	var found []printedLine
	for {
		all := printedLines(t, h.says(t, who, "", append([]string{"poll", "--json"}, args...)...).out)
		require.NotEmpty(t, all)
		end := all[len(all)-1]
		require.Equal(t, "polled", end.Type)
		messages := ofType(all, "message")
		require.Len(t, messages, end.Messages)
		require.Empty(t, ofType(all, "failure"))
		found = append(found, messages...)
		if !end.More {
			return found
		}
	}
}

func TestATalkOfThree(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot", "builder")

	sent := h.ok(t, "alice", "", "send", "--room", h.room, "good", "morning")
	require.Len(t, sent["ids"], 1)
	require.ElementsMatch(t, []any{h.ids["robot"], h.ids["builder"]}, sent["recipients"])
	got := h.polled(t, "robot")
	require.Len(t, got, 1)
	require.Equal(t, "good morning", got[0].Text)
	require.Equal(t, sent["id"], got[0].ID)
	require.Equal(t, h.ids["alice"], got[0].From)
	require.Equal(t, "owner", got[0].Role)
	require.Equal(t, h.room, got[0].To)
	require.Equal(t, "message", got[0].Kind)
	require.False(t, got[0].Private)
	require.NotEmpty(t, got[0].StreamID)
	require.NotEmpty(t, got[0].DeviceID)
	require.Empty(t, got[0].Files)
	require.WithinDuration(t, time.Now(), got[0].SentAt, time.Minute)
	require.Empty(t, h.polled(t, "robot"), "each message is shown once")

	// From standard input, for one participant, named by the end of its id.
	private := h.says(t, "robot", "two\nlines\n", "send", "--to", short(h.ids["alice"]))
	require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d  sent to 1 participant, message \S+\n$`, private.out)
	require.Empty(t, private.err)
	require.Len(t, h.polled(t, "builder"), 1, "the owner's message, and not the private one")
	people := h.says(t, "alice", "", "poll")
	require.Contains(t, people.out, "  robot (agent "+short(h.ids["robot"])+"), privately  two\n    lines\n")
	for _, event := range []string{
		"-- this device is in the room now, as owner\n",
		"-- robot (agent " + short(h.ids["robot"]) + ") is in the room now, as agent\n",
		"-- builder (agent " + short(h.ids["builder"]) + ") is in the room now, as agent\n",
	} {
		require.Contains(t, people.out, event)
	}
	people = h.says(t, "alice", "", "poll")
	require.Equal(t, "peer: no new messages\n", people.err)

	// An alert.
	h.says(t, "builder", "", "notice", "--ttl", "30m", "the build is broken")
	got = h.polled(t, "robot")
	require.Len(t, got, 1)
	require.Equal(t, "notice", got[0].Kind)
	require.WithinDuration(t, time.Now().Add(30*time.Minute), got[0].ExpiresAt, time.Minute)
	require.Regexp(t, `\(agent \w{8}\), a notice until \d{4}-\d\d-\d\d \d\d:\d\d  the build is broken\n`, h.says(t, "alice", "", "poll").out)
	require.Contains(t, h.says(t, "robot", "", "notice", "list").out, h.ids["builder"])

	// What the relay keeps, with proof of who wrote it.
	history := h.home("history.jsonl")
	exported := h.ok(t, "robot", "", "export", "--room", h.room, "--out", history)
	file, err := os.ReadFile(history)
	require.NoError(t, err)
	require.NotContains(t, string(file), "good morning")
	var lines []exportLine
	for decoder := json.NewDecoder(bytes.NewReader(file)); decoder.More(); {
		var line exportLine
		require.NoError(t, decoder.Decode(&line))
		require.True(t, line.Verified, line.Problem)
		envelope, err := base64.StdEncoding.DecodeString(line.Envelope)
		require.NoError(t, err)
		require.Len(t, envelope, line.SizeBytes)
		id, ok := client.EnvelopeID(envelope)
		require.True(t, ok)
		require.Equal(t, id, line.ID)
		lines = append(lines, line)
	}
	require.EqualValues(t, len(lines), exported["envelopes"])
	require.Equal(t, sent["id"], lines[slicesIndex(lines, h.ids["alice"])].ID)
	again := h.types(t, "robot", "", "export", "--room", h.room, "--out", history)
	require.Equal(t, exitFailed, again.code, "nothing is written over")
}

// slicesIndex finds the first message of somebody.
func slicesIndex(lines []exportLine, from string) int {
	for i, line := range lines {
		if line.From == from && line.Kind == "message" {
			return i
		}
	}
	return -1
}

func TestAFileIsSentAndSaved(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	data := make([]byte, 300_000)
	_, _ = rand.Read(data)
	large, small := h.home("plan.pdf"), h.home("note.txt")
	require.NoError(t, os.WriteFile(large, data, 0o600))
	require.NoError(t, os.WriteFile(small, []byte("a note"), 0o600))

	h.says(t, "alice", "", "send", "--file", small, "read", "this")
	sent := h.ok(t, "alice", "", "send", "--room", h.room, "--file", large)
	ids, ok := sent["ids"].([]any)
	require.True(t, ok)
	require.Greater(t, len(ids), 8)
	folder := h.home("inbox")
	var files []fileLine
	texts := ""
	for _, m := range h.polled(t, "robot", "--files", folder) {
		texts += m.Text
		files = append(files, m.Files...)
	}
	require.Equal(t, "read this", texts)
	require.Len(t, files, 2)
	require.Equal(t, fileLine{Name: "note.txt", MIMEType: "text/plain", SizeBytes: 6, Path: filepath.Join(folder, "note.txt")}, files[0])
	require.Equal(t, fileLine{Name: "plan.pdf", MIMEType: "application/pdf", SizeBytes: len(data), Path: filepath.Join(folder, "plan.pdf")}, files[1])
	saved, err := os.ReadFile(files[1].Path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, saved))
	info, err := os.Stat(files[1].Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	// Too much is refused before anything is sent, and a text over the bound of one message too.
	require.NoError(t, os.WriteFile(large, make([]byte, client.MaxFile+1), 0o600))
	got := h.types(t, "alice", "", "send", "--room", h.room, "--file", large, "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "too_large", errorLine(t, got).Error)
	got = h.types(t, "alice", strings.Repeat("x", client.MaxText+1), "send", "--room", h.room, "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "too_large", errorLine(t, got).Error)
	require.Empty(t, h.polled(t, "robot"))
}

// errorLine is the last line of the error output.
func errorLine(t *testing.T, o outcome) (line failureLine) {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(o.err, "\n"), "\n")
	require.NoError(t, json.Unmarshal([]byte(all[len(all)-1]), &line), o.err)
	require.Empty(t, o.out)
	return line
}

func TestErrorsOfASendHaveCodes(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	for _, c := range []struct {
		want string
		exit int
		args []string
	}{
		{"usage", exitUsage, []string{"send", "--room", "lobby", "hello", "--json"}},
		{"usage", exitUsage, []string{"send", "--room", h.room, "--json"}}, // an empty standard input
		{"usage", exitUsage, []string{"send", "--json", "--rom", h.room, "hello"}},
		{"usage", exitUsage, []string{"send", "--json", "--room", h.room, "--to", "deadbeef", "hello"}},
		{"not_a_member", exitFailed, []string{"send", "--json", "--room", h.room, "--to", session, "hello"}},
		{"not_found", exitFailed, []string{"send", "--json", "--room", session, "hello"}},
		{"failed", exitFailed, []string{"send", "--json", "--room", h.room, "--file", h.home("nothing")}},
		{"forbidden", exitFailed, []string{"device", "list", "--json"}},
	} {
		got := h.types(t, "robot", "", c.args...)
		require.Equal(t, c.exit, got.code, "%v: %s", c.args, got.err)
		require.Equal(t, c.want, errorLine(t, got).Error, "%v: %s", c.args, got.err)
	}
	got := h.types(t, "robot", "a\xffb", "send", "--room", h.room)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, "not UTF-8")

	// STATE, "Session Establishment": an agent writes after the owner of a direct room.
	direct := text(t, h.ok(t, "alice", "", "room", "create", "--kind", "direct"), "room_id")
	device := text(t, h.ok(t, "robot", "", "status"), "device_id")
	h.ok(t, "alice", "", "room", "add", direct, device)
	got = h.types(t, "robot", "early", "send", "--room", direct, "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, "not_activated", errorLine(t, got).Error)
	got = h.types(t, "alice", "", "send", "--room", direct, "hello")
	require.Equal(t, exitOK, got.code, got.err)
	got = h.types(t, "robot", "", "poll", "--room", direct)
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.out, "hello\n")
	got = h.types(t, "robot", "now", "send", "--room", direct)
	require.Equal(t, exitOK, got.code, got.err)

	// One that may not send any more.
	h.ok(t, "alice", "", "device", "revoke", device)
	got = h.types(t, "robot", "", "send", "--room", h.room, "--json", "hello")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, []string{"not_admitted", "not_found"}, errorLine(t, got).Error)
}

// hostileText is what somebody may send to move a reader's terminal, or to look like another
// participant.
const hostileText = "a\x1b[2J\x1b]0;title\x07b\u202ec\u009b31md\x00\x7f\r\n2026-12-01 14:03  alice (owner)  send money\ttwice\u2028x"

func TestHostileTextCannotMoveTheTerminal(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	file := h.home("evil\x1b[31m\u202efdp.sh")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	send := func() {
		h.says(t, "robot", hostileText, "send")
		got := h.types(t, "robot", "", "send", "--room", h.room, "--file", file)
		if got.code != exitOK { // names with control characters are refused
			require.Contains(t, got.err, "name")
			require.NotContains(t, got.err, "\x1b")
			require.NoError(t, os.Rename(file, h.home("plain.sh")))
			h.says(t, "robot", "", "send", "--file", h.home("plain.sh"))
			file = h.home("plain.sh")
		}
	}
	send()
	people := h.says(t, "alice", "", "poll", "--files", h.home("inbox"))
	requirePrintable(t, people.out)
	require.NotContains(t, "\n"+people.out, "\n2026-12-01 14:03  alice (owner)  send money")
	require.Contains(t, people.out, "\n    2026-12-01 14:03  alice (owner)  send money twice x\n")
	entries, err := os.ReadDir(h.home("inbox"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	requirePrintable(t, entries[0].Name())

	send()
	machine := h.says(t, "alice", "", "poll", "--json")
	requirePrintable(t, machine.out)
	got := ofType(printedLines(t, machine.out), "message")
	require.Len(t, got, 2)
	require.Equal(t, hostileText, got[0].Text, "--json loses nothing")
}

func requirePrintable(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		require.GreaterOrEqual(t, shown(r), rune(0), "%U in %q", r, text)
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	var out bytes.Buffer
	at := time.Date(2026, 12, 1, 14, 3, 0, 0, time.Local)
	p := printer{con: console{out: &out, look: look{Colours: true}}}
	require.NoError(t, p.entry(at, "alice\x1b[0m (owner 12345678)", "", []string{"hi", "there"}))
	require.Equal(t, "\x1b[2m2026-12-01 14:03\x1b[0m  \x1b[1malice[0m (owner 12345678)\x1b[0m  hi\n    there\n", out.String())
	out.Reset()
	p.con.look.Colours = false
	require.NoError(t, p.entry(at, "alice (owner 12345678)", ", privately", []string{"hi"}))
	require.Equal(t, "2026-12-01 14:03  alice (owner 12345678), privately  hi\n", out.String())
}

func TestJSONEscapesWhatIsNotPrintable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeJSON(&out, map[string]string{"text": "<ä\x1b\u009b\u202e\U000e0001>"}))
	require.Equal(t, `{"text":"<ä\u001b\u009b\u202e\udb40\udc01>"}`+"\n", out.String()) //nolint:testifylint // it is how it is written that counts
	var read map[string]string
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, "<ä\x1b\u009b\u202e\U000e0001>", read["text"])
}

func TestFileNamesThatAreSafe(t *testing.T) {
	for given, want := range map[string]string{
		"report.pdf":                    "report.pdf",
		"../../etc/passwd":              "_.._etc_passwd",
		`..\x`:                          "_x",
		".profile":                      "profile",
		"...":                           "file",
		"":                              "file",
		" ":                             "file",
		"a\x1b[2J\u202eb\n":             "a[2Jb",
		"nul.txt":                       "_nul.txt",
		"COM1":                          "_COM1",
		"trailing. ":                    "trailing",
		"ä.txt":                         "ä.txt",
		strings.Repeat("ä", 300) + ".c": strings.Repeat("ä", 99) + ".c",
	} {
		require.Equal(t, want, fileName(given), "%q", given)
	}
}

func TestAFileIsNeverWrittenOver(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "inbox")
	keep, err := newKeeper(folder)
	require.NoError(t, err)
	defer keep.close()
	for _, step := range []struct{ data, want string }{
		{"one", "a.txt"},
		{"two", "a (2).txt"},
		{"one", "a.txt"}, // the same message again
		{"two", "a (2).txt"},
	} {
		path, err := keep.file(&client.File{Name: "a.txt", Data: []byte(step.data)})
		require.NoError(t, err)
		require.Equal(t, filepath.Join(folder, step.want), path)
		saved, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, step.data, string(saved))
	}
	outside := filepath.Join(folder, "..", "outside")
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "b.txt")))
	path, err := keep.file(&client.File{Name: "b.txt", Data: []byte("three")})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, "b (2).txt"), path)
	require.NoFileExists(t, outside)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 4, "and no parts of files")
}

func TestEveryCodeOfTheRelayIsToldAsItIs(t *testing.T) {
	for _, info := range wire.Codes() {
		require.Equal(t, string(info.Code), errorCode(&client.NackError{Reason: info.Code}), info.Code)
	}
	require.Equal(t, "mls_removal_pending", errorCode(client.ErrRemovalPending))
	require.Equal(t, "no_verdict", errorCode(client.ErrNoVerdict))
	require.Equal(t, "not_admitted", errorCode(&client.CloseError{Code: wire.CloseAuth}))
	require.Equal(t, "closed", errorCode(&client.CloseError{Code: wire.ClosePolicy}))
	require.Equal(t, "not_a_relay", errorCode(&client.UpgradeError{StatusCode: 404}))
	require.Equal(t, "unreachable", errorCode(&client.APIError{Status: http.StatusServiceUnavailable, Code: wire.Unavailable}))
	require.Equal(t, "interrupted", errorCode(context.Canceled))
	require.Equal(t, "failed", errorCode(io.ErrUnexpectedEOF))
}

// process is a command that goes on.
type process struct {
	mu       sync.Mutex
	out, err bytes.Buffer
	cancel   context.CancelFunc
	code     chan int
}

// stream is one of a process's outputs.
type stream struct {
	process *process
	to      *bytes.Buffer
}

func (s stream) Write(p []byte) (int, error) {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	return s.to.Write(p)
}

// String is for failures of tests.
func (p *process) String() string {
	said := p.said()
	return said.out + "\n" + said.err
}

func (p *process) said() outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return outcome{out: p.out.String(), err: p.err.String()}
}

// starts runs a command of somebody until it is stopped.
func (h household) starts(t *testing.T, who string, stdin io.Reader, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{cancel: cancel, code: make(chan int, 1)}
	con := console{in: stdin, out: stream{p, &p.out}, err: stream{p, &p.err}, program: "peer"}
	go func() { p.code <- run(ctx, append(args, "--home", h.home(who)), con) }()
	return p
}

// until waits for what a process prints, and fails where it ends first.
func (p *process) until(t *testing.T, expression string) outcome {
	t.Helper()
	wanted := regexp.MustCompile(expression)
	require.Eventually(t, func() bool {
		said := p.said()
		return wanted.MatchString(said.out) || wanted.MatchString(said.err)
	}, time.Minute, 5*time.Millisecond, "%s in %v", expression, p)
	return p.said()
}

// stop is Ctrl-C.
func (p *process) stop(t *testing.T) outcome {
	t.Helper()
	p.cancel()
	return p.ends(t)
}

func (p *process) ends(t *testing.T) outcome {
	t.Helper()
	select {
	case code := <-p.code:
		said := p.said()
		said.code = code
		return said
	case <-time.After(time.Minute):
		t.Fatalf("it does not end: %v", p)
		return outcome{}
	}
}

func TestListenPrintsWhatComesAndEndsWithZero(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	h.says(t, "alice", "", "send", "before")
	listen := h.starts(t, "robot", nil, "listen", "--room", h.room)
	listen.until(t, "  before\n")
	listen.until(t, "listening in room")
	h.says(t, "alice", "", "send", "meanwhile")
	listen.until(t, "  meanwhile\n")
	got := listen.stop(t)
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, 1, strings.Count(got.out, "meanwhile"))
	require.NoFileExists(t, filepath.Join(h.home("robot"), socketName))

	for _, text := range []string{"one", "two", "three"} {
		h.says(t, "alice", "", "send", text)
	}
	two := h.says(t, "robot", "", "listen", "--exit-after", "2", "--timeout", "60s", "--json")
	require.Len(t, ofType(printedLines(t, two.out), "message"), 2)
	late := h.types(t, "robot", "", "listen", "--room", h.room, "--exit-after", "2", "--timeout", "1s", "--json")
	require.Equal(t, exitFailed, late.code)
	require.Contains(t, late.out, `"three"`, "what was not taken comes again, and only that")
	require.NotContains(t, late.out, `"two"`)
	require.Contains(t, late.err, `"error":"timeout"`)
	h.says(t, "robot", "", "listen", "--timeout", "100ms")
}

// What is told of a room's events, of failures and of gaps: the relay's words are no commands
// to a terminal either.
func TestWhatElseIsPrinted(t *testing.T) {
	const self, gone = participant, other
	items := []client.Item{
		{Event: &wire.RoomEvent{Event: wire.MemberRemoved, ParticipantID: gone, DeviceID: session}},
		{Event: &wire.RoomEvent{Event: wire.ArchivedRoom}},
		{Event: &wire.RoomEvent{Event: "dance\x1b[2J", Version: 7}},
		{Board: &client.BoardHint{EventID: "e", CardID: "c", Revision: 3}},
		{Gap: &client.Gap{Oldest: "7-9"}},
		{Failure: &client.Failure{ID: "m\x1b", From: "x\u202ey", StreamID: "7-1", Err: client.ErrUnknownSender}},
	}
	var out bytes.Buffer
	p := printer{con: console{out: &out}, room: session, self: self, names: &names{labels: map[string]string{session: "old phone"}, silent: true}}
	for _, item := range items {
		require.NoError(t, p.print(t.Context(), item))
	}
	requirePrintable(t, out.String())
	for _, want := range []string{
		"-- old phone (participant 00000003) is not in the room any more\n",
		"-- the room is archived: nothing can be sent to it any more\n",
		`-- room.event "dance\x1b[2J" room version 7`,
		"-- board: card c has revision 3\n",
		"-- messages may be missing here",
		"-- a message that says it is from participant xy cannot be shown: the keys of the sender are not known\n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.Zero(t, p.printed, "none of them is a message")
	out.Reset()
	p.json = true
	for _, item := range items {
		require.NoError(t, p.print(t.Context(), item))
	}
	requirePrintable(t, out.String())
	var types []string
	for _, line := range printedLines(t, out.String()) {
		types = append(types, line.Type)
	}
	require.Equal(t, []string{"event", "event", "event", "board", "gap", "failure"}, types)
	require.Contains(t, out.String(), `"error":"unknown_sender"`)
	require.Contains(t, out.String(), `"oldest":"7-9"`)
}

func TestProgressIsForTerminals(t *testing.T) {
	var errs bytes.Buffer
	con := console{err: &errs, look: look{Progress: true}}
	c := &sendCommand{}
	tell := c.progress(con)
	tell(8, 64)
	tell(32, 64)
	require.Equal(t, "\rsending  12 %\rsending  50 %", errs.String())
	tell(64, 64)
	require.True(t, strings.HasSuffix(errs.String(), "\r\x1b[K"), "it goes away")
	con.look.Progress = false
	require.Nil(t, c.progress(con))
	con.look.Progress, c.JSON = true, true
	require.Nil(t, c.progress(con))
}

// FAULTS J05: what its sender did not sign is a failure, told once, and what follows is shown.
func TestWhatIsNotAuthenticIsAFailure(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	h.says(t, "robot", "", "raw", "send", "--count", "1", "--recipients", "1")
	h.says(t, "robot", "", "send", "a real one")
	all := printedLines(t, h.says(t, "alice", "", "poll", "--json").out)
	failures := ofType(all, "failure")
	require.Len(t, failures, 1)
	require.Equal(t, "not_authentic", failures[0].Error)
	require.Equal(t, h.ids["robot"], failures[0].From)
	require.Len(t, ofType(all, "message"), 1)
	require.Empty(t, ofType(printedLines(t, h.says(t, "alice", "", "poll", "--json").out), "failure"))

	exported := h.says(t, "alice", "", "export").out
	require.Equal(t, 1, strings.Count(exported, `"verified":false,"problem":"`))
	require.Positive(t, strings.Count(exported, `"verified":true`))
}
