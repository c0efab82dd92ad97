package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// sentID is an id of the generator's form, sentBytes what was sent under it.
func sentID(n int) string { return fmt.Sprintf("0badcafe-%06d-%010d", n, firstSeq) }

func sentBytes(id string) []byte { return fmt.Appendf(nil, envelopePrefix+`%s","ct":"%s"}`, id, id) }

func row(sequence, n int) replayedRow {
	return replayedRow{fmt.Sprintf("7-%d", sequence), sentBytes(sentID(n))}
}

func TestAccount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows []replayedRow
		want accountCounts
	}{
		"all there":        {[]replayedRow{row(1, 1), row(2, 2)}, accountCounts{queued: 2, verified: 2}},
		"one missing":      {[]replayedRow{row(2, 2)}, accountCounts{queued: 2, verified: 1, missing: 1}},
		"all missing":      {nil, accountCounts{queued: 2, missing: 2}},
		"without receipt":  {[]replayedRow{row(1, 1), row(2, 2), row(3, 3)}, accountCounts{queued: 2, verified: 2, unasked: 1}},
		"other bytes":      {[]replayedRow{row(1, 1), {"7-2", append(sentBytes(sentID(2)), ' ')}}, accountCounts{queued: 2, verified: 1, changed: 1}},
		"foreign envelope": {[]replayedRow{row(1, 1), row(2, 2), {"7-3", []byte(`{}`)}}, accountCounts{queued: 2, verified: 2, changed: 1}},
		"id reused":        {[]replayedRow{row(1, 1), row(2, 9)}, accountCounts{queued: 2, verified: 1, reused: 1}},
		"other id":         {[]replayedRow{row(1, 1), row(5, 2)}, accountCounts{queued: 2, verified: 1, missing: 1, unasked: 1}},
	} {
		a := newAccount(sentBytes)
		a.promise("room", "alice", "7-1", sentID(1))
		a.promise("room", "alice", "7-2", sentID(2))
		a.check("room", "alice", c.rows)
		require.Equal(t, c.want, a.counts, name)
	}
}

func TestAccountFindsAnIDReusedForAnotherInbox(t *testing.T) {
	t.Parallel()
	a := newAccount(sentBytes)
	a.promise("room", "alice", "7-1", sentID(1))
	a.claim("room", "bob", "7-2", sentID(1))
	a.claim("another room", "carol", "7-1", sentID(3)) // another stream, perhaps
	require.Zero(t, a.counts.reused)
	a.claim("room", "bob", "7-1", sentID(1))
	require.Equal(t, 1, a.counts.reused)
}

func TestAccountAllowsWhatAFullWindowPushedOut(t *testing.T) {
	t.Parallel()
	a := newAccount(sentBytes)
	a.promise("room", "alice", "7-1", sentID(1))
	a.promise("room", "alice", "7-5", sentID(5))
	var rows []replayedRow
	for n := range wire.MaxInboxRows {
		rows = append(rows, row(6+n, 6+n))
	}
	a.check("room", "alice", rows)
	require.Zero(t, a.counts.missing)

	b := newAccount(sentBytes)
	b.promise("room", "alice", "7-1", sentID(1))
	b.promise("room", "alice", "7-8", sentID(8))
	b.check("room", "alice", append([]replayedRow{row(2, 2)}, rows[3:]...)[:wire.MaxInboxRows-3])
	require.Equal(t, 2, b.counts.missing, "the window was not full")
}
