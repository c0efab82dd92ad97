package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// account is every envelope that was sent and every verdict that came back.
type account struct {
	t  *testing.T
	mu sync.Mutex
	// sent, queued and nacked are by envelope id; queued holds stream ids by recipient.
	sent    map[string]string
	senders map[string][]string // ids in the order they were sent
	rooms   map[string]bool     // sent to the room, not to one
	queued  map[string]map[string]string
	nacked  map[string]wire.Code
	used    map[string]string // envelope ids by recipient and stream id
	total   atomic.Int64      // verdict frames
}

func newAccount(t *testing.T) *account {
	return &account{
		t: t, sent: make(map[string]string), senders: make(map[string][]string), rooms: make(map[string]bool),
		queued: make(map[string]map[string]string), nacked: make(map[string]wire.Code), used: make(map[string]string),
	}
}

// load sends n envelopes without waiting for verdicts, every other one to the room,
// and collects what comes back until all are answered or the connection ends, whose
// error it returns.
func (a *account) load(p *peer, name string, n, others int, one testkit.Participant) error {
	go func() {
		for i := range n {
			id, kind, to := fmt.Sprintf("%s-%d", name, i), "control", one.ID
			if i%2 == 0 {
				kind, to = "message", p.who.Room
			}
			frame := p.envelope(kind, to, id)
			a.mu.Lock()
			a.sent[id], a.rooms[id] = string(frame), i%2 == 0
			a.senders[name] = append(a.senders[name], id)
			a.mu.Unlock()
			if p.conn.SendRaw(context.Background(), frame) != nil {
				return
			}
		}
	}()
	for answered := 0; answered < n/2*others+n/2; answered++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		frame, err := p.conn.Receive(ctx)
		cancel()
		if err != nil {
			return err
		}
		if a.verdict(frame) {
			answered += others - 1 // one nack for the whole envelope
		}
	}
	return nil
}

// verdict notes one frame and reports whether it refuses a room message.
func (a *account) verdict(frame wire.ServerFrame) (refusedRoom bool) {
	a.total.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch frame.Type {
	case wire.ServerQueued:
		if _, refused := a.nacked[frame.ID]; refused {
			a.t.Errorf("%s: queued after a nack", frame.ID)
		}
		if a.queued[frame.ID] == nil {
			a.queued[frame.ID] = make(map[string]string)
		}
		if before, again := a.queued[frame.ID][frame.To]; again {
			a.t.Errorf("%s: queued twice for %s: %s, %s", frame.ID, frame.To, before, frame.StreamID)
		}
		a.queued[frame.ID][frame.To] = frame.StreamID
		place := frame.To + " " + frame.StreamID
		if other, reused := a.used[place]; reused {
			a.t.Errorf("stream id %s of %s and of %s", place, other, frame.ID)
		}
		a.used[place] = frame.ID
	case wire.ServerNack:
		if a.queued[frame.ID] != nil || a.nacked[frame.ID] != "" {
			a.t.Errorf("%s: nack %s after another verdict", frame.ID, frame.Reason)
		}
		a.nacked[frame.ID] = frame.Reason
		return a.rooms[frame.ID]
	default:
		a.t.Errorf("unexpected frame %s", frame.Raw)
	}
	return false
}

// resend sends the same bytes of every room message without a whole verdict again, on
// a new connection for each sender, and demands that each is queued now.
func (a *account) resend(s *testkit.Relay, who testkit.Participant, others int) {
	a.t.Helper()
	for _, ids := range a.senders {
		var again *peer
		for _, id := range ids { // in the order of their seq
			if !a.rooms[id] || a.nacked[id] != "" || len(a.queued[id]) == others {
				continue
			}
			if again == nil {
				again = connect(a.t, s, who)
			}
			again.queued([]byte(a.sent[id]), others)
		}
		if again != nil {
			again.leave()
		}
	}
}

// check compares an inbox with what was promised to it.
func (a *account) check(who testkit.Participant, rows []wire.ServerFrame) {
	a.t.Helper()
	require.LessOrEqual(a.t, len(rows), 510, "about 500 rows")
	found := make(map[string]string, len(rows))
	seen := make(map[string]bool, len(rows))
	for _, row := range rows {
		require.False(a.t, seen[string(row.Envelope)], "twice in one inbox: %s", row.Envelope)
		seen[string(row.Envelope)] = true
		found[row.StreamID] = string(row.Envelope)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, places := range a.queued {
		place, mine := places[who.ID]
		if !mine || len(rows) >= 490 && streamID(a.t, place).Compare(streamID(a.t, rows[0].StreamID)) < 0 {
			continue // older than the window
		}
		require.Equal(a.t, a.sent[id], found[place], "%s was queued as %s; %d rows", id, place, len(rows))
	}
}

// The whole relay is killed under load, at random moments: every queued row of the
// window is there with its bytes and its id, no id is used twice, an old cursor is a
// gap, and the same bytes sent again make no second row (FAULTS C01, C05 a).
func TestKilledRelay(t *testing.T) {
	t.Parallel()
	s := testkit.StartApart(t, testkit.EnvelopesPerSecond(100_000), testkit.FramesPerSecond(1000))
	who := room(t, s, "agent", "agent", "owner")
	a := newAccount(t)
	random := rand.New(rand.NewPCG(3, 4))
	first, _ := fill(connect(t, s, who[0]), who[1], 1)
	for round := range 3 {
		killAfter := a.total.Load() + 50 + random.Int64N(500)
		var senders sync.WaitGroup
		for i := range 4 {
			p := connect(t, s, who[0])
			senders.Go(func() { _ = a.load(p, fmt.Sprintf("round%d-sender%d", round, i), 120, 2, who[1]) })
		}
		require.Eventually(t, func() bool { return a.total.Load() >= killAfter }, patience, poll)
		s.Kill()
		senders.Wait()
		s.StartAgain(t)
		for _, p := range who[1:] {
			a.check(p, resumeOnce(t, s, p, "0").rows)
		}
		a.resend(s, who[0], 2)
		for _, p := range who[1:] {
			a.check(p, resumeOnce(t, s, p, "0").rows)
		}
	}
	rows := resumeOnce(t, s, who[1], "0").rows
	if len(rows) >= 500 {
		require.True(t, resumeOnce(t, s, who[1], first[0]).resync, "a cursor older than the oldest row")
	}
}

// The stop signal with envelopes in flight and a replay under way: the process ends
// by itself, sockets get their close frame, every queued row is there, no envelope
// has two verdicts, and the same bytes sent again make no second row (FAULTS E08).
func TestStopSignalUnderLoad(t *testing.T) {
	t.Parallel()
	s := testkit.StartApart(t, testkit.EnvelopesPerSecond(100_000), testkit.FramesPerSecond(1000))
	who, apart := room(t, s, "agent", "agent", "owner"), room(t, s, "agent", "agent")
	filler := connect(t, s, apart[0])
	for n := range 200 {
		filler.queued(filler.envelopeWith("control", apart[1].ID, fmt.Sprintf("big-%d", n), padding(30_000)), 1)
	}
	filler.leave()
	for round := range 3 {
		a := newAccount(t)
		replaying := s.RawDial(t)
		replaying.Send(t, fmt.Sprintf(`{"type":"hello","token":%q}`, apart[1].Credential))
		replaying.Send(t, `{"type":"resume","last_id":"0"}`)
		replaying.Until(t, wire.ServerDeliver)

		var senders sync.WaitGroup
		for i := range 4 {
			p := connect(t, s, who[0])
			senders.Go(func() {
				err := a.load(p, fmt.Sprintf("round%d-sender%d", round, i), 200, 2, who[1])
				if err == nil {
					return // all were answered before the signal
				}
				requireClose(t, err, wire.CloseGoingAway)
				if s.Ready(t) == http.StatusOK {
					t.Error("ready, though sockets are closed")
				}
			})
		}
		want := int64(20 + 60*round)
		require.Eventually(t, func() bool { return a.total.Load() >= want }, patience, poll)
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.Stop(t) }()
		rows := 1
		for {
			frame, code := replaying.Next(t)
			if code != 0 {
				require.Equal(t, wire.CloseGoingAway, code)
				break
			}
			if frame.Type == wire.ServerResumeComplete {
				require.Equal(t, 200, rows)
			} else if frame.Replay == wire.ReplayStored {
				rows++
			}
		}
		<-stopped
		senders.Wait()
		s.StartAgain(t)
		for _, p := range who[1:] {
			a.check(p, resumeOnce(t, s, p, "0").rows)
		}
		a.resend(s, who[0], 2)
		for _, p := range who[1:] {
			a.check(p, resumeOnce(t, s, p, "0").rows)
		}
	}
}
