package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/fault"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// requireReady waits until every node is.
func requireReady(t *testing.T, want int, nodes ...*testkit.Relay) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, s := range nodes {
			if s.Ready(t) != want {
				return false
			}
		}
		return true
	}, patience, poll)
}

// onlineAgain is online, as often as the node still closes its sockets for a link that
// it has lost.
func onlineAgain(t *testing.T, s *testkit.Relay, who testkit.Participant) (p *peer) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: who.Credential})
		if err != nil {
			return false
		}
		p = &peer{t: t, conn: conn, who: who}
		if conn.Resume(t.Context(), "$", 0) == nil {
			if frame, err := p.receive(); err == nil && frame.Type == wire.ServerResumeComplete {
				t.Cleanup(func() { _ = conn.Close() })
				return true
			}
		}
		_ = conn.Close()
		return false
	}, patience, poll)
	return p
}

// drained is what has come to a connection up to an envelope that arrives now, or up
// to its end; the envelope is not part of it.
func drained(t *testing.T, s *testkit.Relay, from testkit.Participant, p *peer, mark string) []wire.ServerFrame {
	t.Helper()
	sender := connect(t, s, from)
	defer sender.leave()
	sent := string(sender.envelope("control", p.who.ID, mark))
	sender.queued([]byte(sent), 1)
	var before []wire.ServerFrame
	for {
		frame, err := p.receive()
		if err != nil {
			requireClose(t, err, wire.CloseGoingAway)
			return before
		}
		if string(frame.Envelope) == sent {
			return before
		}
		before = append(before, frame)
	}
}

// A full disk under the broker: every envelope gets its one nack and none a queued,
// the relay is not ready, no socket hangs; with space again every queued row of the
// window is there (FAULTS C04).
func TestFullDisk(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBrokerOnDisk(t, 20<<20)
	s := unlimited(t, testkit.NATSURL(broker.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent", "agent")
	p, reader := connect(t, s, who[0]), online(t, s, who[1])
	broker.Fill(t, 10<<20)

	kept := make(map[string]string)
	for n := 0; ; n++ {
		require.Less(t, n, 500, "the disk never fills")
		frame := p.envelopeWith("message", p.who.Room, fmt.Sprintf("fill-%d", n), padding(30_000))
		p.send(frame)
		got := p.next()
		if got.Type == wire.ServerNack {
			require.Equal(t, wire.Partial, got.Reason)
			break
		}
		kept[got.StreamID+got.To] = string(frame)
		got = p.next()
		require.Equal(t, wire.ServerQueued, got.Type)
		kept[got.StreamID+got.To] = string(frame)
		require.Equal(t, string(frame), string(reader.delivered().Envelope))
	}
	require.Greater(t, len(kept), 20)
	requireReady(t, http.StatusServiceUnavailable, s)
	for n := range 50 { // as long as it has its lease, which it cannot renew either
		if p.nackedOrCut(p.envelopeWith("message", p.who.Room, fmt.Sprintf("full-%d", n), padding(30_000)), wire.Partial) ||
			p.nackedOrCut(p.envelopeWith("control", who[1].ID, fmt.Sprintf("full-one-%d", n), padding(30_000)), wire.Unavailable) {
			break
		}
		require.Equal(t, http.StatusServiceUnavailable, s.Ready(t))
	}
	broker.FreeDisk(t)
	broker.Restart(t)
	requireReady(t, http.StatusOK, s)

	for _, to := range who[1:] {
		found := make(map[string]string)
		for _, row := range resumeOnce(t, s, to, "0").rows {
			found[row.StreamID+to.ID] = string(row.Envelope)
			require.NotContains(t, string(row.Envelope), `"full-one-`, "refused as unavailable on a full disk")
		}
		for place, envelope := range kept {
			if place[len(place)-len(to.ID):] == to.ID {
				require.Equal(t, envelope, found[place], "a queued row is lost")
			}
		}
	}
	for _, frame := range drained(t, s, who[0], reader, "after") {
		require.Fail(t, "delivered live, though refused", "%.200s", frame.Raw)
	}
}

// The broker goes away for a moment, softly or by the link, under many clients that
// are connected: each is delivered to afterwards, or its socket was closed; nobody
// stays deaf (FAULTS C07).
func TestNobodyStaysDeaf(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(*testing.T, *testkit.Broker, testkit.Proxied, *testkit.Relay){
		"stopped": func(t *testing.T, broker *testkit.Broker, _ testkit.Proxied, s *testkit.Relay) {
			broker.Stop()
			requireReady(t, http.StatusServiceUnavailable, s)
			broker.Start(t)
		},
		"link cut": func(t *testing.T, _ *testkit.Broker, link testkit.Proxied, s *testkit.Relay) {
			link.Cut()
			requireReady(t, http.StatusServiceUnavailable, s)
			link.Restore()
		},
		"link cut for longer than a lease": func(t *testing.T, _ *testkit.Broker, link testkit.Proxied, s *testkit.Relay) {
			link.Cut()
			s.RequireConnections(t, 0)
			link.Restore()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := testkit.StartBroker(t)
			link := testkit.Proxy(t, broker.URL())
			s := unlimited(t, testkit.NATSURL(link.URL()))
			roles := make([]string, 11)
			for i := range roles {
				roles[i] = "agent"
			}
			who := room(t, s, roles...)
			var peers []*peer
			for _, p := range who[1:] {
				peers = append(peers, online(t, s, p))
			}
			outage(t, broker, link, s)
			requireReady(t, http.StatusOK, s)
			sender := connect(t, s, who[0])
			sent := sender.envelope("message", sender.who.Room, "after")
			sender.queued(sent, 10)
			for _, p := range peers {
				frame, err := p.receive()
				if err != nil {
					requireClose(t, err, wire.CloseGoingAway)
					rows := resumeOnce(t, s, p.who, "0").rows
					require.Len(t, rows, 1)
					frame = rows[0]
				}
				require.Equal(t, string(sent), string(frame.Envelope))
			}
		})
	}
}

// A node's link is cut while another stores rows for its clients: with the link back
// each client gets them, or its socket is closed (FAULTS C07).
func TestRowsOfAnotherNodeDuringACut(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	link := testkit.Proxy(t, broker.URL())
	database := pgtest.URL(t)
	one := unlimited(t, testkit.NATSURL(broker.URL()), testkit.Database(database), testkit.NodeID("one"))
	two := unlimited(t, testkit.NATSURL(link.URL()), testkit.Database(database), testkit.NodeID("two"))
	who := room(t, one, "agent", "agent", "agent")
	sender, reader := connect(t, one, who[0]), online(t, two, who[1])
	for round := range 3 {
		link.Cut()
		sent := make(map[string]bool)
		for n := range 20 {
			frame := sender.envelope("message", sender.who.Room, fmt.Sprintf("cut-%d-%d", round, n))
			sender.queued(frame, 2)
			sent[string(frame)] = true
		}
		link.Restore()
		for len(sent) > 0 {
			frame, err := reader.receive()
			if err != nil {
				requireClose(t, err, wire.CloseGoingAway)
				reader = onlineAgain(t, two, who[1])
				break
			}
			require.Equal(t, wire.ServerDeliver, frame.Type, "%s", frame.Raw)
			require.True(t, sent[string(frame.Envelope)], "twice, or of another round: %s", frame.Raw)
			delete(sent, string(frame.Envelope))
		}
		requireReady(t, http.StatusOK, two)
	}
	require.Len(t, resumeOnce(t, two, who[1], "0").rows, 60)
}

// While the broker is away every envelope of every kind gets one nack; afterwards
// there is no late queued and no live delivery of it, and at most one row
// (FAULTS E03).
func TestEveryKindWithoutBroker(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	s := unlimited(t, testkit.NATSURL(broker.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent", "owner")
	a, b, c := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	alive(t, a, b)
	broker.Stop()
	requireReady(t, http.StatusServiceUnavailable, s)
	refused, cut := make(map[string]int), false
	for n := range 4 {
		for _, kind := range []struct {
			kind, to string
			reason   wire.Code
		}{
			{"message", a.who.Room, wire.Partial},
			{"message", c.who.ID, wire.Unavailable},
			{"message", b.who.ID, wire.Unavailable},
			{"senderkey", b.who.ID, wire.Unavailable},
			{"control", c.who.ID, wire.Unavailable},
			{"key_request", b.who.ID, wire.Unavailable},
		} {
			frame := a.envelope(kind.kind, kind.to, fmt.Sprintf("lost-%s-%s-%d", kind.kind, kind.to, n))
			refused[string(frame)] = 0
			if cut = cut || a.nackedOrCut(frame, kind.reason); cut {
				break
			}
		}
	}
	broker.Start(t)
	requireReady(t, http.StatusOK, s)
	for _, p := range []*peer{a, b, c} {
		other := who[0]
		if p == a {
			other = who[1]
		}
		require.Empty(t, drained(t, s, other, p, "after"), "a late verdict or a late delivery")
	}
	for _, p := range who[1:] {
		for _, row := range resumeOnce(t, s, p, "0").rows {
			if _, was := refused[string(row.Envelope)]; was {
				refused[string(row.Envelope)+p.ID]++
				require.Equal(t, 1, refused[string(row.Envelope)+p.ID], "at most one row")
			}
		}
	}
}

// The broker stores but its answers do not come back: unavailable or partial; the
// same bytes sent again are queued, and what is queued is a row that exists, once
// (FAULTS E02, DESIGN section 7).
func TestAnswersOfTheBrokerAreLost(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	link := testkit.Proxy(t, broker.URL())
	s := unlimited(t, testkit.NATSURL(link.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent", "agent")
	a, b := connect(t, s, who[0]), online(t, s, who[1])
	alive(t, a, b)
	link.Hold(fault.Answers)
	toRoom := a.envelope("message", a.who.Room, "unheard-room")
	toOne := a.envelope("control", b.who.ID, "unheard-one")
	a.nacked(toRoom, wire.Partial)
	a.nacked(toOne, wire.Unavailable)
	link.Cut()
	link.Restore()
	requireReady(t, http.StatusOK, s)

	again := connect(t, s, who[0])
	ids := again.queued(toRoom, 2)
	one := again.queued(toOne, 1)
	for _, p := range who[1:] {
		count, places := 0, make(map[string]string)
		for _, row := range resumeOnce(t, s, p, "0").rows {
			places[row.StreamID] = string(row.Envelope)
			if string(row.Envelope) == string(toRoom) {
				count++
			}
		}
		require.Equal(t, 1, count, "one row of a session message")
		require.Equal(t, string(toRoom), places[ids[p.ID]])
		if p.ID == b.who.ID {
			require.Equal(t, string(toOne), places[one[p.ID]])
		}
	}
}

// The broker dies while an inbox is replayed to a slow reader: the rest follows in
// order, or the socket closes without resume_complete (FAULTS C08).
func TestBrokerDiesDuringReplay(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBrokerProcess(t)
	s := unlimited(t, testkit.NATSURL(broker.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	const total = 400
	for n := range total {
		sender.queued(sender.envelopeWith("control", who[1].ID, fmt.Sprintf("row-%d", n), padding(40_000)), 1)
	}
	for _, killAt := range []int{1, 150, 300} {
		reader := s.RawDial(t)
		reader.Send(t, fmt.Sprintf(`{"type":"hello","token":%q}`, who[1].Credential))
		reader.Send(t, `{"type":"resume","last_id":"0"}`)
		var last wire.StreamID
		for rows, events := 0, 0; ; {
			frame, code := reader.Next(t)
			if code != 0 {
				require.Equal(t, wire.CloseGoingAway, code)
				break
			}
			if frame.Type == wire.ServerResumeComplete {
				require.Equal(t, total+events, frame.Replayed)
				require.Equal(t, total, rows)
				break
			}
			if frame.Type == wire.ServerRoomEvent || frame.Type == wire.ServerDeliver {
				id := streamID(t, frame.StreamID)
				require.Positive(t, id.Compare(last))
				if rows > 0 {
					require.Equal(t, last.Sequence+1, id.Sequence, "a hole in the replay")
				}
				last = id
			}
			if frame.Type == wire.ServerRoomEvent {
				events++
			}
			if frame.Type == wire.ServerDeliver {
				if rows++; rows == killAt {
					broker.Kill()
					requireReady(t, http.StatusServiceUnavailable, s)
					broker.Start(t)
				}
			}
		}
		requireReady(t, http.StatusOK, s)
	}
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, total)
}

// A reader that stalls, a replay and live rows at once, and a link to the broker that is
// cut for 300 ms now and then: every row once, replay rows in order, live rows in order on
// each connection (of a node that alone writes the inbox), and the inbox in the order they
// were sent (FAULTS D07).
func TestNothingOvertakes(t *testing.T) {
	t.Parallel()
	const replayed, live = 400, 400
	broker := testkit.StartBroker(t)
	link := testkit.Proxy(t, broker.URL())
	s := unlimited(t, testkit.NATSURL(link.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	fill(sender, who[1], replayed)
	sink := stall(t, s, who[1])

	var order []string
	for n := 0; len(order) < live; n++ {
		require.Less(t, n, 20_000)
		if n > 0 && n%80 == 0 && n <= 240 {
			link.Cut()
			pause(t, 300*time.Millisecond)
			link.Restore()
			requireReady(t, http.StatusOK, s)
		}
		frame := sender.envelope("control", who[1].ID, fmt.Sprintf("live-%d", n))
		sender.send(frame)
		if got := sender.next(); got.Type == wire.ServerQueued {
			order = append(order, string(frame))
		} else {
			require.Equal(t, wire.Unavailable, got.Reason)
		}
	}
	sink.sees(order[live-1])
	require.Positive(t, sink.live, "rows came live")
	require.Positive(t, sink.stored, "and by replay")

	known := make(map[string]bool)
	for _, frame := range order {
		known[frame] = true
	}
	var stored []string
	for _, envelope := range resumeOnce(t, s, who[1], "0").envelopes() {
		if known[envelope] {
			stored = append(stored, envelope)
		}
	}
	require.Equal(t, order, stored, "the inbox keeps one sender's order")
}

// stalling reads an inbox over one connection after another and stands still now and then.
type stalling struct {
	t            *testing.T
	seen         chan string // envelopes, in the order they came; closed at the end
	live, stored int         // to be read when seen is closed
	stop         context.CancelFunc
}

// stall starts one, from the beginning of the inbox.
func stall(t *testing.T, s *testkit.Relay, who testkit.Participant) *stalling {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &stalling{t: t, seen: make(chan string, 10_000), stop: stop}
	go func() {
		defer close(r.seen)
		for ctx.Err() == nil {
			conn, err := client.Dial(ctx, s.RelayURL(), client.Options{Token: who.Credential})
			if err != nil {
				pause(t, poll)
				continue
			}
			if conn.Resume(ctx, "0", 0) == nil {
				r.connection(ctx, conn)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		stop()
		for range r.seen { // until it has ended
		}
	})
	return r
}

// connection reads one to its end: rows of each kind rise, and none comes both ways.
func (r *stalling) connection(ctx context.Context, conn *client.Conn) {
	var last [2]wire.StreamID
	here := make(map[string]bool)
	for n := 1; ; n++ {
		frame, err := conn.Receive(ctx)
		if err != nil {
			return
		}
		if n%20 == 0 {
			pause(r.t, 200*time.Millisecond)
		}
		if frame.Type != wire.ServerDeliver {
			continue
		}
		way, count := 0, &r.stored
		if frame.Replay == wire.ReplayLive {
			way, count = 1, &r.live
		}
		id, valid := wire.ParseStreamID([]byte(frame.StreamID))
		if !valid || id.Compare(last[way]) <= 0 || here[frame.StreamID] {
			r.t.Errorf("replay %v: %s after %s, or twice", way == 0, frame.StreamID, last[way])
		}
		last[way], here[frame.StreamID] = id, true
		*count++
		r.seen <- string(frame.Envelope)
	}
}

// sees waits for an envelope, and ends the reader.
func (r *stalling) sees(envelope string) {
	r.t.Helper()
	late := time.After(2 * patience)
	for {
		select {
		case got, open := <-r.seen:
			require.True(r.t, open)
			if got != envelope {
				continue
			}
		case <-late:
			require.Fail(r.t, "the last envelope does not come")
		}
		break
	}
	r.stop()
	for range r.seen { // until it has ended
	}
}

// A node is cut off from the broker while a participant connected to it is revoked on
// another: once that has been answered nothing is delivered to it (FAULTS H06 f).
func TestRevokedOnANodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	link := testkit.Proxy(t, broker.URL())
	database := pgtest.URL(t)
	one := unlimited(t, testkit.NATSURL(broker.URL()), testkit.Database(database), testkit.NodeID("one"))
	two := unlimited(t, testkit.NATSURL(link.URL()), testkit.Database(database), testkit.NodeID("two"))
	who := room(t, one, "agent", "agent")
	sender, victim := online(t, one, who[0]), online(t, two, who[1])
	alive(t, sender, victim)
	link.Cut()
	one.RevokeParticipant(t, who[1])
	sender.queued(sender.envelope("control", who[1].ID, "after"), 1)
	link.Restore()
	frame, err := victim.receive()
	require.Error(t, err, "after the revocation was answered: %s", frame.Raw)
	var closed *client.CloseError
	require.ErrorAs(t, err, &closed)
	require.Contains(t, []wire.CloseCode{wire.CloseAuth, wire.CloseGoingAway}, closed.Code)
	requireReady(t, http.StatusOK, two)
	refusedHello(t, two, client.Options{Token: who[1].Credential}, wire.CloseAuth)
}
