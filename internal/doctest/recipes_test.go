package doctest_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// typePage types the marked blocks of a page, in order, and checks what they print.
// send is called whenever a block that watches something has begun, so that there is
// something to see.
func typePage(t *testing.T, page page, s *terminal, send func()) {
	t.Helper()
	var watching []typed
	count := 0
	for _, b := range page.shell() {
		expected, ends := strings.CutPrefix(b.comment, "run: ")
		until, goesOn := strings.CutPrefix(b.comment, "run until: ")
		switch {
		case ends:
			run := s.enterBlock(t, page.name, b, false)
			requireEnds(t, run)
			require.Regexp(t, expected, run.said(t), run.where())
		case goesOn:
			run := s.enterBlock(t, page.name, b, true)
			run.block.comment = until
			watching = append(watching, run)
			send()
		default:
			continue
		}
		count++
	}
	require.Positive(t, count, "%s has no block to run", page.name)
	for _, run := range watching {
		wanted := regexp.MustCompile(run.block.comment)
		if !waitFor(blockTimeout, func() bool { send(); return wanted.MatchString(run.said(t)) }) {
			t.Errorf("%s: what it printed does not match %q:\n%s", run.where(), run.block.comment, run.said(t))
		}
		s.end(t, run)
	}
}

func requireEnds(t *testing.T, run typed) {
	t.Helper()
	if !waitFor(blockTimeout, func() bool { _, err := os.Stat(run.code); return err == nil }) {
		t.Fatalf("%s: it does not end; so far:\n%s", run.where(), run.said(t))
	}
	code, err := os.ReadFile(run.code)
	require.NoError(t, err)
	require.Equal(t, "0", strings.TrimSpace(string(code)), "%s: exit code; it printed:\n%s", run.where(), run.said(t))
}

func waitFor(timeout time.Duration, reached func() bool) bool {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for !reached() {
		select {
		case <-poll.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// The README's session, typed by a new user.
func TestSessionOfTheReadme(t *testing.T) {
	t.Parallel()
	p := startPlace(t)
	typePage(t, readPage(t, filepath.Join(root, "README.md")), p.terminal(t), func() {})
}

// The guide to devices, from enrolling to a device that was stolen.
func TestDevicesPage(t *testing.T) {
	t.Parallel()
	p := startPlace(t)
	typePage(t, readPage(t, filepath.Join(root, "docs", "devices.md")), p.terminal(t), func() {})
}

func TestOperationsPage(t *testing.T) {
	t.Parallel()
	p := startPlace(t)
	page := readPage(t, filepath.Join(root, "docs", "operations.md"))

	t.Run("addresses", func(t *testing.T) {
		require.Equal(t, http.StatusOK, p.status(t, p.listen, "/healthz"))
		require.Equal(t, http.StatusOK, p.status(t, p.listen, "/readyz"))
		require.Equal(t, http.StatusOK, p.status(t, p.metrics, "/debug/pprof/"))
	})
	t.Run("table of metrics", func(t *testing.T) {
		status, served := p.get(t, p.metrics, "/metrics")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, all(servedMetric, served), all(tableMetric, page.section(t, "Metrics")))
	})
	// With the real nats program. The page says how a reader sets these variables.
	t.Run("recipes", func(t *testing.T) {
		alice, bob := p.twoParticipants(t)
		var inbox struct{ Stream, Subject string }
		p.operate(t, &inbox, "inbox", "--participant", bob.ParticipantID)
		s := p.terminal(t, "ROOM="+alice.Room, "BOB="+bob.ParticipantID, "STREAM="+inbox.Stream, "SUBJECT="+inbox.Subject)
		send := func() { alice.send(t, p) }
		send()
		typePage(t, page, s, send)
	})
}

type participant struct {
	Room          string `json:"-"`
	ParticipantID string `json:"participant_id"`
	Credential    string `json:"credential"`
}

func (p *place) twoParticipants(t *testing.T) (alice, bob participant) {
	t.Helper()
	var room struct {
		ID string `json:"room_id"`
	}
	p.operate(t, &room, "room", "create")
	for _, who := range []*participant{&alice, &bob} {
		p.operate(t, who, "participant", "add", "--room", room.ID, "--role", "agent")
		who.Room = room.ID
	}
	return alice, bob
}

// send sends one test envelope to the room.
func (who participant) send(t *testing.T, p *place) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bin/peer", "raw", "send", "--count", "1")
	command.Dir, command.Env = p.folder, append(p.env, "PEER_CREDENTIAL="+who.Credential)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "peer raw send: %s", out)
}
