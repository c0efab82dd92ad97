package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// fill sends n pairwise envelopes and returns their stream ids and bytes.
func fill(sender *peer, to testkit.Participant, n int) (ids, envelopes []string) {
	sender.t.Helper()
	for range n {
		frame := sender.envelope("control", to.ID, fmt.Sprintf("fill-%d", sender.seq.Load()))
		ids = append(ids, sender.queued(frame, 1)[to.ID])
		envelopes = append(envelopes, string(frame))
	}
	return ids, envelopes
}

func unlimited(t *testing.T, options ...testkit.Option) *testkit.Relay {
	t.Helper()
	return testkit.Start(t, append(options, testkit.EnvelopesPerSecond(100_000), testkit.FramesPerSecond(1000))...)
}

// shared is unlimited, in a tenant of the test's own, for tests that leave their relay as it is.
func shared(t *testing.T) *testkit.Relay {
	t.Helper()
	return testkit.Shared(t, shareable()...)
}

// shareable are the options of the nodes that tests share.
func shareable() []testkit.Option {
	return append(slices.Clone(fast), testkit.MLS(), testkit.RecentBytes(64<<20))
}

// RELAY, "resume": from each cursor exactly what follows it.
func TestResumeFromEachPosition(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	ids, envelopes := fill(connect(t, s, who[0]), who[1], 20)

	require.Equal(t, envelopes, connect(t, s, who[1]).resume("0", 0).envelopes())
	require.Empty(t, connect(t, s, who[1]).resume("$", 0).rows)
	for i, id := range ids {
		got := resumeOnce(t, s, who[1], id)
		require.False(t, got.resync)
		require.Equal(t, envelopes[i+1:], append([]string{}, got.envelopes()...))
	}
}

// FAULTS D03: pages follow each other at once, each from the last row handled.
func TestResumeInPages(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	cursor := joined(t, s, who[1])
	_, envelopes := fill(connect(t, s, who[0]), who[1], 250)
	p := connect(t, s, who[1])
	var got []string
	began := cursor
	for _, want := range []struct {
		rows int
		more bool
	}{{100, true}, {100, true}, {50, false}} {
		page := p.resume(cursor, 100)
		require.Len(t, page.rows, want.rows)
		require.Equal(t, want.more, page.more)
		got = append(got, page.envelopes()...)
		cursor = page.rows[len(page.rows)-1].StreamID
	}
	require.Equal(t, envelopes, got)
	require.False(t, connect(t, s, who[1]).resume(began, 250).more, "more only when the limit cut the scan")
}

// FAULTS D02, C01: more than the window holds is announced.
func TestResumeBehindTheWindow(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	ids, envelopes := fill(sender, who[1], 600)

	got := connect(t, s, who[1]).resume(ids[0], 0)
	require.True(t, got.resync)
	require.Equal(t, envelopes[100:], got.envelopes(), "the newest 500")
	require.Equal(t, ids[100], got.oldest)

	require.False(t, connect(t, s, who[1]).resume(ids[100], 0).resync, "the oldest itself is no gap")
	require.True(t, connect(t, s, who[1]).resume(ids[99], 0).resync, "just before it is one")
	require.False(t, connect(t, s, who[1]).resume("0", 0).resync)
}

// FAULTS D02(e): an inbox that is idle while others fill is no gap.
func TestIdleInboxIsNoGap(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "agent")
	sender := connect(t, s, who[0])
	ids, _ := fill(sender, who[1], 1)
	fill(sender, who[2], 700)
	got := connect(t, s, who[1]).resume(ids[0], 0)
	require.False(t, got.resync)
	require.Empty(t, got.rows)
}

// FAULTS D09: cursors are numbers, not text; malformed ones get a named refusal and
// nothing is replayed.
func TestCursors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	oldest := resumeOnce(t, s, who[1], "0").events[0].StreamID // that somebody joined is its first row
	ids, _ := fill(connect(t, s, who[0]), who[1], 3)
	at := streamID(t, ids[0])
	for _, last := range []string{
		`"-1"`, `""`, `" 5"`, `"05"`, `"5e0"`, `"0x5"`, `null`, `5`, `"999"`, `"18446744073709551616"`,
		`"9007199254740993"`, `"1-"`, `"-5"`, `"1-2-3"`, `"01-2"`, `"1-18446744073709551616"`, `"$$"`, `"00"`,
		`"+1-2"`, `"1-2 "`, `{}`, `true`,
	} {
		p := connect(t, s, who[1])
		p.send(fmt.Appendf(nil, `{"type":"resume","last_id":%s}`, last))
		got := p.next()
		require.Equal(t, wire.ServerError, got.Type, "last_id %s: %s", last, got.Raw)
		require.Equal(t, wire.InvalidCursor, got.Reason)
		require.Len(t, p.resume("0", 0).rows, 3, "the connection stays")
		p.leave()
	}
	for _, gap := range []string{
		"1700000000000-0", fmt.Sprintf("%d-%d", at.Incarnation, at.Sequence+1<<40),
		fmt.Sprintf("%d-%d", at.Incarnation+1, at.Sequence), "0-0", "18446744073709551615-18446744073709551615",
	} {
		got := resumeOnce(t, s, who[1], gap)
		require.True(t, got.resync, "cursor %s", gap)
		require.Equal(t, oldest, got.oldest)
		require.Len(t, got.rows, 3, "the retained rows follow")
	}
	p := connect(t, s, who[1])
	for _, limit := range []string{"0", "501", "-1", "1.5", `"5"`, "null"} {
		p.send(fmt.Appendf(nil, `{"type":"resume","last_id":"0","limit":%s}`, limit))
		got := p.next()
		require.Equal(t, wire.ServerError, got.Type, "limit %s: %s", limit, got.Raw)
		require.Equal(t, wire.InvalidFrame, got.Reason)
	}
}

// FAULTS D05, D08: live traffic during a replay; one resume_complete, after the last
// replay row; every row once.
func TestReplayWithLiveTraffic(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	fill(sender, who[1], 450)
	const live = 300
	var wg sync.WaitGroup
	var sent []string
	wg.Go(func() { _, sent = fill(sender, who[1], live) })
	p := connect(t, s, who[1])
	got := p.resume("0", 0)
	wg.Wait()
	seen := make(map[string]bool)
	arrived := func(row wire.ServerFrame) {
		require.False(t, seen[string(row.Envelope)], "row %s came twice", row.StreamID)
		seen[string(row.Envelope)] = true
	}
	for _, row := range append(got.rows, got.live...) {
		arrived(row)
	}
	for !seen[sent[live-1]] {
		arrived(p.delivered())
	}
	for _, envelope := range sent {
		require.True(t, seen[envelope], "nothing that was sent meanwhile is missing")
	}
	require.GreaterOrEqual(t, len(seen), 500)
}

// FAULTS D08: quick reconnects leave no ghosts.
func TestQuickReconnects(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	done := make(chan struct{})
	var sent []string
	go func() {
		defer close(done)
		for range 100 {
			frame := sender.envelope("control", who[1].ID, fmt.Sprintf("live-%d", sender.seq.Load()))
			sender.queued(frame, 1)
			sent = append(sent, string(frame))
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // paces traffic, waits for nothing
		}
	}()
	for range 60 {
		p := connect(t, s, who[1])
		require.NoError(t, p.conn.Resume(t.Context(), "$", 0))
		require.NoError(t, p.conn.Close())
	}
	last := connect(t, s, who[1])
	got := last.resume("0", 0)
	<-done
	all := got.envelopes()
	for _, row := range got.live {
		all = append(all, string(row.Envelope))
	}
	for len(all) < len(sent) {
		all = append(all, string(last.delivered().Envelope))
	}
	require.Equal(t, sent, all, "every row once, in order")
	s.RequireConnections(t, 2)
}

func TestResumeInProgress(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	fill(connect(t, s, who[0]), who[1], 500)
	p := connect(t, s, who[1])
	for range 5 {
		require.NoError(t, p.conn.Resume(t.Context(), "0", 0))
	}
	complete, refused, rows := 0, 0, 0
	for complete+refused < 5 {
		switch got := p.next(); got.Type {
		case wire.ServerResumeComplete:
			require.Equal(t, rows, got.Replayed)
			rows = 0
			complete++
		case wire.ServerError:
			require.Equal(t, wire.ResumeInProgress, got.Reason)
			refused++
		case wire.ServerDeliver:
			rows++
		default:
			require.Fail(t, "unexpected frame", "%s", got.Raw)
		}
	}
	require.Positive(t, complete)
}

// The server is killed and started again on its data; everything queued is there.
func TestResumeAfterRestart(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	ids, envelopes := fill(connect(t, s, who[0]), who[1], 60)
	s.Restart(t)
	got := connect(t, s, who[1]).resume(ids[9], 0)
	require.False(t, got.resync)
	require.Equal(t, envelopes[10:], got.envelopes())
	more, _ := fill(connect(t, s, who[0]), who[1], 1)
	require.Positive(t, streamID(t, more[0]).Compare(streamID(t, ids[59])), "no stream id is used again")
}

// FAULTS C06: streams that are gone are never mistaken for the old ones.
func TestResumeAfterTheStoreWasLost(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	ids, _ := fill(sender, who[1], 5)
	kept := connect(t, s, who[0]).envelope("message", who[0].Room, "in-history")
	s.RestartWithout(t, "nats/jetstream")
	got := connect(t, s, who[1]).resume(ids[4], 0)
	require.True(t, got.resync)
	require.Empty(t, got.rows)
	require.Empty(t, got.oldest)
	connect(t, s, who[0]).queued(kept, 1)
}
