package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// dialMany opens n connections, some at a time.
func dialMany(t *testing.T, n int, dial func(i int) *tcp) []*tcp {
	t.Helper()
	conns := make([]*tcp, n)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < n; i += 4 {
				conns[i] = dial(i)
			}
		})
	}
	workers.Wait()
	return conns
}

// 500 clients that send an envelope byte by byte, and 100 that sent a ping and went
// silent, do not hold up a healthy pair, cost no goroutine each, and the dribblers
// are closed in time (FAULTS A02).
func TestDribblersBesideAHealthyPair(t *testing.T) {
	t.Parallel()
	const slow, silent = 500, 100
	// Long enough for the slowest machine to do below what must be done before it is over.
	s := testkit.StartApart(t, testkit.EnvelopesPerSecond(1000), testkit.MessageTimeout(20*time.Second),
		testkit.ParticipantConns(slow+silent), testkit.AddressConns(slow+silent))
	who := room(t, s, "agent", "agent", "agent")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	goroutines := s.Metric(t, "go_goroutines")
	conns := dialMany(t, slow+silent, func(int) *tcp { return upgraded(t, s, who[2].Credential) })
	whole := text((&peer{t: t, who: who[2]}).envelope("control", who[0].ID, "dribble"))
	dribble := func(n int) { // one byte of the envelope to each
		for _, c := range conns[:slow] {
			c.write(whole[n : n+1])
		}
	}
	for _, c := range conns[slow:] {
		c.write(ws.MustCompileFrame(ws.MaskFrame(ws.NewPingFrame([]byte("x")))))
	}
	for n := range 20 {
		if n < 10 {
			dribble(n)
		}
		alive(t, a, b)
	}
	require.Equal(t, slow+silent+2, s.Connections(t), "the pair did not wait for anybody's time-out")
	require.Eventually(t, func() bool { return s.Metric(t, "go_goroutines") < goroutines+50 }, patience, poll, "workers that wait for one client each")
	require.Equal(t, slow+silent+2, s.Connections(t))
	for _, c := range conns[:slow] {
		c.closed(wire.ClosePolicy)
	}
	s.RequireConnections(t, silent+2)
	alive(t, b, a)
}

// Clients with a bad token that neither read nor close are gone soon, and a valid one
// gets in meanwhile; the same for silent ones, which cost nobody's quota and which no
// noise keeps alive (FAULTS B01, B02).
func TestStrangersDoNotStay(t *testing.T) {
	t.Parallel()
	const n = 400
	s := testkit.StartApart(t, testkit.HelloTimeout(5*time.Second), testkit.AddressConns(2*n), testkit.TenantConns(2))
	who := room(t, s, "agent", "agent")
	bad, _ := store.NewToken()
	stranger := func(i int) *tcp {
		c := upgraded(t, s, "")
		c.write(hello(bad))
		if i%100 == 0 {
			connect(t, s, who[0]).leave()
		}
		return c
	}
	for _, c := range dialMany(t, 40, stranger) { // fills the pools
		c.closed(wire.CloseAuth)
	}
	s.RequireConnections(t, 0)
	// Connections to the database come and go; those of strangers are ten times as many.
	files := s.Metric(t, "process_open_fds") + n/10
	refused := dialMany(t, n, stranger)
	require.Eventually(t, func() bool { return s.Metric(t, "process_open_fds") <= files }, patience, 50*time.Millisecond)
	for _, c := range refused {
		c.closed(wire.CloseAuth)
	}

	noises := [][]byte{nil, ws.MustCompileFrame(ws.MaskFrame(ws.NewPingFrame(nil))), ws.MustCompileFrame(ws.MaskFrame(ws.NewPongFrame(nil)))}
	began := time.Now()
	silent := dialMany(t, 4*len(noises), func(int) *tcp { return upgraded(t, s, "") })
	var noise sync.WaitGroup
	for i, c := range silent {
		noise.Go(func() {
			for _, err := c.Write(noises[i%len(noises)]); err == nil; _, err = c.Write(noises[i%len(noises)]) {
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // paces noise, waits for nothing
			}
		})
	}
	first, second := connect(t, s, who[0]), connect(t, s, who[1])
	refusedHello(t, s, client.Options{Token: who[0].Credential}, wire.CloseQuota)
	for _, c := range silent {
		c.closed(wire.CloseAuth)
		require.NoError(t, c.Close())
	}
	require.Greater(t, time.Since(began), 4500*time.Millisecond, "they were there while the others were admitted")
	noise.Wait()
	first.leave()
	second.leave()
	for name, first := range map[string]string{"pong": `{"type":"pong","id":"1"}`, "unknown": `{"type":"x"}`, "junk": strings.Repeat("x", wire.MaxMessage)} {
		c := upgraded(t, s, "")
		c.write(text([]byte(first)))
		t.Log(name)
		c.closed(wire.CloseAuth)
	}
	require.Eventually(t, func() bool { return s.Metric(t, "process_open_fds") <= files }, patience, 50*time.Millisecond)
}

// A replay, live rows from 20 senders and pings at once on one connection that reads
// with pauses: every frame is whole, and each row comes once (FAULTS A09).
func TestEverythingAtOnceOnOneConnection(t *testing.T) {
	t.Parallel()
	const old, senders, each, pings = 150, 20, 5, 3
	// A connection is closed that leaves two pings unanswered: a machine may stand still for so long.
	s := unlimited(t, testkit.PingInterval(2*time.Second), testkit.ParticipantConns(senders))
	who := room(t, s, "agent", "agent", "owner")
	filler := connect(t, s, who[0])
	expected := make(map[string]bool)
	for n := range old {
		frame := filler.envelopeWith("control", who[1].ID, fmt.Sprintf("old-%d", n), padding(100*n))
		filler.queued(frame, 1)
		expected[string(frame)] = true
	}
	filler.leave()
	reader := upgraded(t, s, who[1].Credential)
	var mu sync.Mutex
	var sending sync.WaitGroup
	// Some of what they send comes at once, and some with each ping.
	var pinged [pings]chan struct{}
	for i := range pinged {
		pinged[i] = make(chan struct{})
	}
	for i := range senders {
		p := connect(t, s, who[i%2*2])
		sending.Go(func() {
			for n := range each * (pings + 1) {
				if n%each == 0 && n > 0 {
					<-pinged[n/each-1]
				}
				frame := p.envelopeWith("message", p.who.Room, fmt.Sprintf("live-%d-%d", i, n), padding(n*40))
				mu.Lock()
				expected[string(frame)] = true
				mu.Unlock()
				p.queued(frame, 2)
			}
		})
	}
	reader.write(text([]byte(`{"type":"resume","last_id":"0"}`)))
	var last wire.StreamID
	heard, complete, seen := 0, 0, make(map[string]bool)
	for len(seen) < old+senders*each*(pings+1) || complete == 0 {
		f := reader.frame() // one whole frame, not masked, no reserved bit
		require.Equal(t, ws.Header{Fin: true, OpCode: ws.OpText, Length: int64(len(f.Payload))}, f.Header)
		got, err := wire.ParseServer(f.Payload)
		require.NoError(t, err)
		switch got.Type {
		case wire.ServerPing:
			if heard < pings {
				close(pinged[heard])
			}
			heard++
			reader.write(text(fmt.Appendf(nil, `{"type":"pong","id":%q}`, got.ID)))
		case wire.ServerDeliver:
			mu.Lock()
			require.True(t, expected[string(got.Envelope)], "changed: %.200s", got.Raw)
			mu.Unlock()
			require.False(t, seen[string(got.Envelope)], "twice: %.200s", got.Raw)
			seen[string(got.Envelope)] = true
			if got.Replay == wire.ReplayStored {
				require.Zero(t, complete)
				require.Positive(t, streamID(t, got.StreamID).Compare(last))
				last = streamID(t, got.StreamID)
			}
		case wire.ServerRoomEvent: // of those who joined
		case wire.ServerResumeComplete:
			complete++
		default:
			require.Fail(t, "unexpected frame", "%s", got.Raw)
		}
	}
	sending.Wait()
	require.Equal(t, 1, complete)
}

// Connections that begin in the middle of traffic get each row once, from the scan or
// live (FAULTS D05, D08).
func TestEachRowOnceOnEveryConnection(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func() []testkit.Option{
		"embedded": func() []testkit.Option { return nil },
		"external": func() []testkit.Option { return []testkit.Option{testkit.NATSURL(testkit.StartBroker(t).URL())} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unlimited(t, options()...)
			who := room(t, s, "agent", "agent")
			stop := make(chan struct{})
			var traffic sync.WaitGroup
			for range 3 {
				p := connect(t, s, who[0])
				traffic.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
							p.queued(p.envelope("control", who[1].ID, fmt.Sprint(n)), 1)
						}
					}
				})
			}
			cursor := "$"
			for range 60 {
				p := connect(t, s, who[1])
				got := p.resume(cursor, 0)
				seen := make(map[string]bool)
				rows := append(got.rows, got.live...)
				for range 3 {
					rows = append(rows, p.delivered())
				}
				for _, row := range rows {
					require.False(t, seen[row.StreamID], "twice: %s", row.StreamID)
					seen[row.StreamID] = true
				}
				if len(got.rows) > 0 {
					cursor = got.rows[len(got.rows)-1].StreamID
				} else {
					cursor = rows[0].StreamID
				}
				p.leave()
			}
			close(stop)
			traffic.Wait()
		})
	}
}

// Participants who came, resumed and left leave nothing behind: no goroutine, no open
// file, no consumer (FAULTS C12, in small).
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	broker, database := testkit.StartBroker(t), pgtest.URL(t)
	s := testkit.StartApart(t, testkit.NATSURL(broker.URL()), testkit.Database(database), testkit.EnvelopesPerSecond(1000))
	const waves, each = 5, 20
	who := room(t, s, "agent")
	who = append(who, crowd(t, databaseOwner(t, database), who[0].Room, waves*each-1)...)
	who = append(who, s.Join(t, who[0].Room, "agent"))
	s.Told(t, who[0].Room) // the relay is at rest when it is measured
	for i := range who[1 : waves*each] {
		who[1+i].Credential = s.Mint(t, who[1+i], "session", time.Hour)
	}
	sender := connect(t, s, who[0])
	sender.queued(sender.envelope("message", sender.who.Room, "for-all"), waves*each)
	wave := func(participants []testkit.Participant) {
		var peers []*peer
		for _, p := range participants {
			one := connect(t, s, p)
			require.Len(t, one.resume("0", 0).rows, 1)
			peers = append(peers, one)
		}
		for _, one := range peers {
			one.leave()
		}
		s.RequireConnections(t, 1)
	}
	wave(who[1 : 1+each])
	goroutines, files, held := s.Metric(t, "go_goroutines"), s.Metric(t, "process_open_fds"), consumers(t, broker)
	for n := range waves {
		wave(who[1+each*n : 1+each*(n+1)])
	}
	// One of each participant would be 100 more. Idle connections to the database come and go.
	const others = each
	require.Eventually(t, func() bool {
		return s.Metric(t, "go_goroutines") <= goroutines+others && s.Metric(t, "process_open_fds") <= files+others
	}, patience, 50*time.Millisecond)
	require.Equal(t, held, consumers(t, broker))
}

func consumers(t *testing.T, broker *testkit.Broker) int {
	t.Helper()
	conn, err := nats.Connect(broker.URL())
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	account, err := js.AccountInfo(t.Context())
	require.NoError(t, err)
	return account.Consumers
}

// A recipient whose inbox is full and who does not read costs the others nothing, and
// later gets what the window holds (FAULTS B04, second variant).
func TestFullInboxHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent", "agent")
	sender, healthy := connect(t, s, who[0]), online(t, s, who[1])
	first, _ := fill(sender, who[2], 500)
	stuck := upgraded(t, s, who[2].Credential)
	stuck.write(text([]byte(`{"type":"resume","last_id":"$"}`)))
	var sent []string
	for n := range 100 {
		frame := sender.envelope("message", sender.who.Room, fmt.Sprintf("m-%d", n))
		sent = append(sent, string(frame))
		sender.queued(frame, 2)
		require.Equal(t, string(frame), string(healthy.delivered().Envelope))
	}
	got := resumeOnce(t, s, who[2], first[0])
	require.True(t, got.resync)
	require.Len(t, got.rows, 500)
	require.Equal(t, sent, got.envelopes()[400:])
}

// A participant is revoked in the middle of its replay: the replay does not complete
// (FAULTS H06 b).
func TestRevokedDuringReplay(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	for n := range 300 {
		sender.queued(sender.envelopeWith("control", who[1].ID, fmt.Sprintf("big-%d", n), padding(40_000)), 1)
	}
	victim := upgraded(t, s, who[1].Credential)
	victim.write(text([]byte(`{"type":"resume","last_id":"0"}`)))
	for victim.next().Type != wire.ServerDeliver { // room events come first
	}
	s.RevokeParticipant(t, who[1])
	sender.queued(sender.envelope("control", who[1].ID, "after"), 1)
	for {
		f := victim.frame()
		if f.Header.OpCode == ws.OpClose {
			code, _ := ws.ParseCloseFrameData(f.Payload)
			require.Equal(t, wire.CloseAuth, wire.CloseCode(code))
			return
		}
		require.NotContains(t, string(f.Payload), string(wire.ServerResumeComplete))
		require.NotContains(t, string(f.Payload), `"after"`)
	}
}
