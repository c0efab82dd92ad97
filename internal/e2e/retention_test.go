package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// A restart does not make rows live longer, and what has expired is a gap for the
// cursors before it (FAULTS C03, D02 b).
func TestExpiryAcrossARestart(t *testing.T) {
	t.Parallel()
	const age = 3 * time.Second
	s := unlimited(t, testkit.InboxAge(age))
	who := room(t, s, "agent", "agent")
	filling := time.Now()
	ids, _ := fill(connect(t, s, who[0]), who[1], 3)
	stored := time.Now()
	require.Eventually(t, func() bool { return time.Since(stored) > age/2 }, patience, poll)
	s.Restart(t)
	rows := resumeOnce(t, s, who[1], ids[0]).rows
	if time.Since(filling) < age {
		require.Len(t, rows, 2)
	}
	require.Eventually(t, func() bool { return time.Since(stored) > age+50*time.Millisecond }, patience, poll)
	got := resumeOnce(t, s, who[1], ids[0])
	require.Empty(t, got.rows)
	// The server drops what has expired a little later; until then nothing tells the
	// cursor from one whose rows were read.
	require.Eventually(t, func() bool { return resumeOnce(t, s, who[1], ids[0]).resync }, patience, poll)
	for kept := false; !kept; { // on a slow machine it may expire before it is read
		began := time.Now()
		more, _ := fill(connect(t, s, who[0]), who[1], 1)
		got = resumeOnce(t, s, who[1], ids[0])
		newer := resumeOnce(t, s, who[1], ids[2])
		if kept = time.Since(began) < age; kept {
			require.True(t, got.resync)
			require.Equal(t, more[0], got.oldest)
			require.Len(t, got.rows, 1)
			require.True(t, newer.resync, "older than the oldest row, though nothing was lost (DESIGN section 6)")
		}
	}
}

// A new inbox has nothing, and that is no gap (FAULTS D02 f).
func TestEmptyInbox(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	for _, cursor := range []string{"$", "0", "$"} {
		got := resumeOnce(t, s, who[0], cursor)
		require.False(t, got.resync)
		require.Empty(t, got.rows)
	}
	fill(connect(t, s, who[0]), who[1], 2) // others in the same stream
	require.False(t, resumeOnce(t, s, who[0], "0").resync)
}

// One bit of a stored block is flipped while the relay is down. Where the server cuts
// the block there, the rest is lost and that is said: every cursor from before is a
// gap. It never delivers other bytes and never uses an id again for something else
// (FAULTS C05 c).
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		memory int64
		index  bool // the stream's index is there, so the server does not look at every row
		row    int
	}{
		"with index, rows in memory":      {8 << 20, true, 20},
		"with index, rows from stream":    {-1, true, 20},
		"without index, rows in memory":   {8 << 20, false, 20},
		"without index, rows from stream": {-1, false, 20},
		"without index, newest row":       {8 << 20, false, 39},
		"without index, oldest row":       {8 << 20, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unlimited(t, testkit.RecentBytes(c.memory), testkit.InboxTimeout(time.Second))
			who := room(t, s, "agent", "agent")
			ids, envelopes := fill(connect(t, s, who[0]), who[1], 40)
			s.Stop(t)
			flipBit(t, s.Data(), envelopes[c.row], c.index)
			s.StartAgain(t)

			meant, order := make(map[string]string), make(map[string]int)
			for i, id := range ids {
				meant[id], order[envelopes[i]] = envelopes[i], i
			}
			check := func(cursor string, from int) {
				rows, gap := read(t, s, who[1], cursor)
				before := -1
				for _, row := range rows {
					place, known := order[string(row.Envelope)]
					require.True(t, known, "other bytes than were sent: %s", row.Raw)
					require.Greater(t, place, before)
					before = place
					if meant[row.StreamID] == "" { // of the new incarnation
						meant[row.StreamID] = string(row.Envelope)
					}
					require.Equal(t, meant[row.StreamID], string(row.Envelope), "id %s means another row now", row.StreamID)
				}
				t.Logf("cursor %s: %d of %d rows, gap %t", cursor, len(rows), len(order)-from, gap)
				if !c.index && cursor != "0" {
					require.True(t, gap, "rows are lost, and nobody says so")
				}
			}
			check("0", 0)
			check(ids[4], 5)
			more, frames := fill(connect(t, s, who[0]), who[1], 3)
			for i, id := range more {
				require.NotContains(t, meant, id, "an id is used again")
				meant[id], order[frames[i]] = frames[i], 40+i
			}
			check("0", 0)
			check(ids[4], 5)
			check(ids[39], 40)
			s.Restart(t) // said once, not at every start
			require.False(t, resumeOnce(t, s, who[1], more[1]).resync)
		})
	}
}

// read resumes and returns the rows, and whether rows may be missing: it was said, or
// the replay did not complete.
func read(t *testing.T, s *testkit.Relay, who testkit.Participant, cursor string) (rows []wire.ServerFrame, gap bool) {
	t.Helper()
	p := connect(t, s, who)
	defer func() { _ = p.conn.Close() }()
	require.NoError(t, p.conn.Resume(t.Context(), cursor, 0))
	for {
		frame, err := p.receive()
		if err != nil {
			requireClose(t, err, wire.CloseGoingAway)
			return rows, true
		}
		switch frame.Type {
		case wire.ServerResyncRequired:
			gap = true
		case wire.ServerDeliver:
			rows = append(rows, frame)
		case wire.ServerResumeComplete:
			require.Equal(t, len(rows)+len(p.events), frame.Replayed)
			return rows, gap
		default:
			require.Fail(t, "unexpected frame", "%s", frame.Raw)
		}
	}
}

// flipBit changes one bit of a row in its stream's block file.
func flipBit(t *testing.T, data, envelope string, keepIndex bool) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/INBOX_*/msgs/*.blk"))
	require.NoError(t, err)
	for _, path := range blocks {
		block, err := os.ReadFile(path)
		require.NoError(t, err)
		at := bytes.Index(block, []byte(envelope))
		if at < 0 {
			continue
		}
		block[at+len(envelope)/2] ^= 1
		require.NoError(t, os.WriteFile(path, block, 0o600))
		if !keepIndex {
			require.NoError(t, os.Remove(filepath.Join(filepath.Dir(path), "index.db")))
		}
		return
	}
	require.Fail(t, "the row is in no block", fmt.Sprint(blocks))
}
