package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// ledger is the delivery history of a test: every envelope that was sent, every verdict
// that came back, and what must therefore be in whose inbox.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	// entries are by envelope id. Fewer than 500 rows may go to one inbox, so that all of
	// them are retained and can be accounted for.
	entries map[string]*entry
	faults  []string
	alives  atomic.Int64
}

type entry struct {
	from   string
	bytes  string
	room   bool
	to     map[string]bool   // participants it is meant for
	queued map[string]string // stream ids by participant
	nack   wire.Code
}

func newLedger(t *testing.T) *ledger { return &ledger{t: t, entries: make(map[string]*entry)} }

func (l *ledger) fault(format string, values ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, values...))
}

// write builds the next envelope of a connection and notes it: to the whole room where
// there is more than one recipient, else to that one.
func (l *ledger) write(p *peer, id string, to ...testkit.Participant) []byte {
	e := &entry{from: p.who.ID, room: len(to) > 1, to: make(map[string]bool), queued: make(map[string]string)}
	kind, address := "control", to[0].ID
	if e.room {
		kind, address = "message", p.who.Room
	}
	frame := p.envelope(kind, address, id)
	e.bytes = string(frame)
	for _, who := range to {
		e.to[who.ID] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = e
	return frame
}

// verdict notes a frame and returns the id of the envelope that it answers in full, if it
// does.
func (l *ledger) verdict(frame wire.ServerFrame) (answered string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[frame.ID]
	switch {
	case frame.Type != wire.ServerQueued && frame.Type != wire.ServerNack:
		return ""
	case e == nil:
		l.t.Errorf("a verdict for an envelope that was not sent: %s", frame.Raw)
	case frame.Type == wire.ServerNack:
		if e.nack != "" || len(e.queued) > 0 {
			l.fault("%s: a nack after another verdict", frame.ID)
		}
		e.nack = frame.Reason
		return frame.ID
	case e.nack != "" || !e.to[frame.To] || e.queued[frame.To] != "":
		l.fault("%s: queued for %s after %q, %v", frame.ID, frame.To, e.nack, e.queued)
	default:
		e.queued[frame.To] = frame.StreamID
		if len(e.queued) == len(e.to) {
			return frame.ID
		}
	}
	return ""
}

// send sends one envelope and waits for its whole verdict; false when the connection ended
// first or the verdict is a nack.
func (l *ledger) send(p *peer, id string, to ...testkit.Participant) bool {
	frame := l.write(p, id, to...)
	if p.conn.SendRaw(p.t.Context(), frame) != nil {
		return false
	}
	for {
		got, err := l.receive(p)
		if err != nil {
			return false
		}
		if l.verdict(got) == id {
			return got.Type == wire.ServerQueued
		}
	}
}

// receive is the next frame; a connection that stays open and silent is a fault.
func (l *ledger) receive(p *peer) (wire.ServerFrame, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	frame, err := p.conn.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fault("an envelope got no verdict and its connection stays open")
	}
	return frame, err
}

// load sends n envelopes, one after the other, every other one to the room, on a new
// connection whenever one has ended. The node may refuse connections for a while.
func (l *ledger) load(s *testkit.Relay, from testkit.Participant, name string, n int, to ...testkit.Participant) {
	var p *peer
	for i := 0; i < n && l.t.Context().Err() == nil; i++ {
		if p == nil {
			conn, err := client.Dial(l.t.Context(), s.RelayURL(), client.Options{Token: from.Credential})
			if err != nil {
				pause(l.t, poll)
				i--
				continue
			}
			p = &peer{t: l.t, conn: conn, who: from}
		}
		id, recipients := fmt.Sprintf("%s-%d", name, i), to
		if i%2 == 1 {
			recipients = to[i/2%len(to):][:1]
		}
		l.send(p, id, recipients...)
		if l.unanswered(id) {
			_ = p.conn.Close()
			p = nil
		}
	}
	if p != nil {
		_ = p.conn.Close()
	}
}

// pause waits a little before another attempt, unless the test has ended.
func pause(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

func (l *ledger) unanswered(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	return e.nack == "" && len(e.queued) < len(e.to)
}

// nackOf is the reason an envelope was refused for.
func (l *ledger) nackOf(id string) wire.Code {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[id].nack
}

// retry sends the bytes of a refused envelope again, on a new connection, and demands that
// they are queued now.
func (l *ledger) retry(s *testkit.Relay, from testkit.Participant, id string) {
	l.t.Helper()
	p := connect(l.t, s, from)
	defer p.leave()
	l.mu.Lock()
	e := l.entries[id]
	l.mu.Unlock()
	places := p.queued([]byte(e.bytes), len(e.to))
	l.mu.Lock()
	defer l.mu.Unlock()
	for who, before := range e.queued {
		if places[who] != before {
			l.fault("queued as %s for %s, and as %s when it was sent again", before, who, places[who])
		}
	}
	e.nack, e.queued = "", places
}

// count returns how many envelopes were queued for all their recipients, and how many got
// this nack.
func (l *ledger) count(nack wire.Code) (queued, nacked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		switch {
		case e.nack == "" && len(e.queued) == len(e.to):
			queued++
		case e.nack != "" && e.nack == nack:
			nacked++
		}
	}
	return queued, nacked
}

// complete sends the bytes of every session message that is partial, or has no whole
// verdict, once more, and demands that each recipient is queued now (RELAY: "only the SAME
// stored bytes are deduplicated").
func (l *ledger) complete(s *testkit.Relay, from testkit.Participant) {
	l.t.Helper()
	l.mu.Lock()
	var again []string
	for id, e := range l.entries {
		if e.room && e.from == from.ID && (e.nack == wire.Partial || e.nack == "" && len(e.queued) < len(e.to)) {
			again = append(again, id)
		}
	}
	l.mu.Unlock()
	for _, id := range again { // each on a connection of its own: their seqs do not rise
		l.retry(s, from, id)
	}
}

// check reads whole inboxes through a node and compares them with what was promised: every
// queued row is there once, at its place and with its bytes, in the order of replay;
// nothing is there that was refused before it was stored, and nothing else.
func (l *ledger) check(s *testkit.Relay, who ...testkit.Participant) {
	l.t.Helper()
	for _, participant := range who {
		rows := resumeOnce(l.t, s, participant, "0").rows // which checks their order
		l.mu.Lock()
		l.compare(participant.ID, rows)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.t, l.faults)
}

func (l *ledger) compare(who string, rows []wire.ServerFrame) {
	sent := make(map[string]string, len(l.entries)) // ids by bytes
	for id, e := range l.entries {
		sent[e.bytes] = id
	}
	places := make(map[string]string) // stream ids by envelope id
	for _, row := range rows {
		id, known := sent[string(row.Envelope)]
		e := l.entries[id]
		switch {
		case !known:
			l.fault("inbox of %s: a row that nobody sent: %s", who, row.Raw)
		case !e.to[who]:
			l.fault("%s: in the inbox of %s, whom it is not meant for", id, who)
		case places[id] != "":
			l.fault("%s: twice in the inbox of %s, as %s and %s", id, who, places[id], row.StreamID)
		case e.nack != "" && !mayBeStored(e):
			l.fault("%s: in the inbox of %s although it was refused: %s", id, who, e.nack)
		}
		places[id] = row.StreamID
	}
	for id, e := range l.entries {
		if want := e.queued[who]; want != "" && places[id] != want {
			l.fault("%s: queued for %s as %s, found as %q", id, who, want, places[id])
		}
	}
}

// mayBeStored reports whether a refused envelope may be in an inbox all the same: a session
// message that is partial, and a pairwise one whose write has an unknown end. A session
// message that is unavailable was not even stored in history.
func mayBeStored(e *entry) bool {
	return e.nack == wire.Partial || e.nack == wire.Unavailable && !e.room
}

// alive proves that an envelope gets from one connection to another.
func (l *ledger) alive(from, to *peer) {
	l.t.Helper()
	id := fmt.Sprintf("alive-%d", l.alives.Add(1))
	require.True(l.t, l.send(from, id, to.who), id)
	require.Equal(l.t, id, envelopeID(l.t, to.delivered()))
}

func envelopeID(t *testing.T, frame wire.ServerFrame) string {
	t.Helper()
	var envelope struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal(frame.Envelope, &envelope))
	return envelope.ID
}

// follower is a participant who stays connected while the ledger is filled: what is queued
// for it must come to it by itself, on the connection it has or by the resume after that
// one has ended.
type follower struct {
	l    *ledger
	s    *testkit.Relay
	who  testkit.Participant
	ends atomic.Int64 // connections that ended by themselves

	mu   sync.Mutex
	seen map[string]bool // stream ids
}

// follow starts one, which ends with the test.
func (l *ledger) follow(s *testkit.Relay, who testkit.Participant) *follower {
	l.t.Helper()
	f := &follower{l: l, s: s, who: who, seen: make(map[string]bool)}
	ctx, stop := context.WithCancel(context.WithoutCancel(l.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f.connection(ctx)
			pause(l.t, poll)
		}
	}()
	l.t.Cleanup(func() { stop(); <-done })
	return f
}

func (f *follower) connection(ctx context.Context) {
	conn, err := client.Dial(ctx, f.s.RelayURL(), client.Options{Token: f.who.Credential})
	if err != nil {
		return
	}
	defer conn.Close()
	if conn.Resume(ctx, "0", 0) != nil {
		return
	}
	here := make(map[string]bool)
	last := wire.StreamID{}
	for {
		frame, err := conn.Receive(ctx)
		if err != nil {
			f.ends.Add(1)
			return
		}
		if frame.Type != wire.ServerDeliver {
			continue
		}
		id, valid := wire.ParseStreamID([]byte(frame.StreamID))
		f.l.mu.Lock()
		if !valid || here[frame.StreamID] {
			f.l.fault("%s: twice on one connection of %s", frame.StreamID, f.who.ID)
		}
		if frame.Replay == wire.ReplayStored {
			if id.Compare(last) <= 0 {
				f.l.fault("replay row %s of %s after %s", id, f.who.ID, last)
			}
			last = id
		}
		f.l.mu.Unlock()
		here[frame.StreamID] = true
		f.mu.Lock()
		f.seen[frame.StreamID] = true
		f.mu.Unlock()
	}
}

// caughtUp waits until everything that is queued for it has come.
func (f *follower) caughtUp() {
	f.l.t.Helper()
	var missing []string
	require.Eventually(f.l.t, func() bool {
		missing = f.missing()
		return len(missing) == 0
	}, patience, poll, "a participant who stays connected gets all that is queued for it")
	require.Empty(f.l.t, missing)
}

func (f *follower) missing() (ids []string) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.l.entries {
		if id := e.queued[f.who.ID]; id != "" && !f.seen[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// holdsInbox waits until everything that is in its inbox has come, be it queued or not: what
// a killed node stored and did not announce, too.
func (f *follower) holdsInbox() {
	f.l.t.Helper()
	stored := resumeOnce(f.l.t, f.s, f.who, "0").rows
	require.Eventually(f.l.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, row := range stored {
			if !f.seen[row.StreamID] {
				return false
			}
		}
		return true
	}, patience, poll, "a participant who stays connected gets all that is stored for it")
}
