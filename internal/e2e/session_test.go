package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// DESIGN section 6, "Connecting"; FAULTS H04: any failure of hello is the same close.
func TestHelloFailsTheSameWay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent")[0]
	unknown, _ := store.NewToken()
	revoked := s.Join(t, who.Room, "agent")
	s.RevokeParticipant(t, revoked)
	removed := s.Join(t, who.Room, "agent")
	s.Remove(t, removed)
	development := s.Mint(t, who, "development", time.Hour)

	reasons := make(map[string]bool)
	for name, hello := range map[string]string{
		"unknown token":       fmt.Sprintf(`{"type":"hello","token":%q}`, unknown),
		"revoked":             fmt.Sprintf(`{"type":"hello","token":%q}`, revoked.Credential),
		"removed participant": fmt.Sprintf(`{"type":"hello","token":%q}`, removed.Credential),
		"token padded":        fmt.Sprintf(`{"type":"hello","token":%q}`, who.Credential+"="),
		"token with a blank":  fmt.Sprintf(`{"type":"hello","token":%q}`, " "+who.Credential),
		"token empty":         `{"type":"hello","token":""}`,
		"token missing":       `{"type":"hello"}`,
		"token a number":      `{"type":"hello","token":5}`,
		"token null":          `{"type":"hello","token":null}`,
		"direct a string":     fmt.Sprintf(`{"type":"hello","token":%q,"direct":"yes"}`, who.Credential),
		"direct not allowed":  fmt.Sprintf(`{"type":"hello","token":%q,"direct":true}`, development),
		"session not direct":  fmt.Sprintf(`{"type":"hello","token":%q,"direct":true}`, who.Credential),
		"token twice":         fmt.Sprintf(`{"type":"hello","token":%q,"token":%q}`, who.Credential, who.Credential),
		"Token":               fmt.Sprintf(`{"type":"hello","Token":%q}`, who.Credential),
		"resume first":        `{"type":"resume","last_id":"0"}`,
		"pong first":          `{"type":"pong","id":"1"}`,
		"unknown frame first": `{"type":"hi"}`,
		"envelope first":      `{"v":1,"id":"x"}`,
		"not JSON":            `hello`,
		"two values":          fmt.Sprintf(`{"type":"hello","token":%q} {}`, who.Credential),
	} {
		raw := s.RawDial(t)
		raw.Send(t, hello)
		code, reason := raw.CloseCode(t)
		require.Equal(t, wire.CloseAuth, code, name)
		reasons[reason] = true
	}
	require.Len(t, reasons, 1, "the reason does not tell which failure it was")
	require.NotNil(t, connect(t, s, who))
}

func TestDevelopmentConnections(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.AllowDevelopment())
	who := room(t, s, "agent", "agent")
	development := s.Mint(t, who[0], "development", time.Hour)
	conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: development, Direct: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t: t, conn: conn, who: who[0]}
	p.queued(p.envelope("control", who[1].ID, "x"), 1)
	p.nacked(p.envelopeWith("notice", p.who.Room, "n", `"ct":"QQ==","expires_at":1`), wire.NoticeNotPermitted)
	refusedHello(t, s, client.Options{Token: who[0].Credential, Direct: true}, wire.CloseAuth)
	refusedHello(t, s, client.Options{Token: development}, wire.CloseAuth)
}

func TestSecondHello(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	p.send(fmt.Appendf(nil, `{"type":"hello","token":%q}`, who[1].Credential))
	got := p.next()
	require.Equal(t, wire.ServerError, got.Type)
	require.Equal(t, wire.AlreadyAuthenticated, got.Reason)
	alive(t, p, other)
}

// RELAY: an unknown type is answered without closing; FAULTS K01.
func TestUnknownFrames(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.FramesPerSecond(1000))
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	for _, frameType := range []string{
		`"deliver"`, `"board.update"`, `"x\n[INFO] auth ok"`, `"\u001b[2J"`, `"\u2028"`, `""`,
		`"` + strings.Repeat("é", 30_000) + `"`, `5`, `null`, `{"a":1}`, `true`, `["hello"]`,
	} {
		p.send([]byte(`{"type":` + frameType + `,"x":1}`))
		got := p.next()
		require.Equal(t, wire.ServerError, got.Type, "type %.40s: %s", frameType, got.Raw)
		require.Equal(t, wire.UnknownFrame, got.Reason)
		require.LessOrEqual(t, len(got.FrameType), wire.MaxUnknownType)
		require.NotEmpty(t, got.Detail)
	}
	wrapped := fmt.Sprintf(`{"type":"deliver","envelope":%s}`, p.envelope("control", who[1].ID, "wrapped"))
	p.send([]byte(wrapped))
	require.Equal(t, wire.UnknownFrame, p.next().Reason)
	alive(t, p, other)
}

// FAULTS K01: noise counts against abuse limits.
func TestNoiseCloses(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	p := online(t, s, room(t, s, "agent")[0])
	began := time.Now()
	const most = 3000 // what a slow machine reads in many seconds
	for range most {
		if p.conn.SendRaw(t.Context(), []byte(`{"type":"x"}`)) != nil {
			break
		}
	}
	before := p.closed(wire.ClosePolicy)
	allowed := 200 + 20*time.Since(began).Seconds() + 1
	require.LessOrEqual(t, float64(len(before)), allowed)
	require.Greater(t, len(before), 100)
}

// FAULTS B06: the 21st in a second gets one nack; a pause forgives; going on closes.
func TestRate(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	p := online(t, s, who[0])
	refused := p.burst(who[1].ID, 300) // more than a slow machine is allowed while it reads them
	require.Equal(t, 2, refused, "one nack, then one more and the close")
	p.closed(wire.ClosePolicy)
}

// burst sends n envelopes at once and returns how many were rate limited before the
// connection ended or all had their verdict.
func (p *peer) burst(to string, n int) (refused int) {
	p.t.Helper()
	for i := range n {
		if p.conn.SendRaw(p.t.Context(), p.envelope("control", to, fmt.Sprintf("burst-%d-%d", p.seq.Load(), i))) != nil {
			break
		}
	}
	for range n {
		frame, err := p.conn.Receive(p.t.Context())
		if err != nil {
			return refused
		}
		if frame.Type == wire.ServerNack {
			require.Equal(p.t, wire.RateLimited, frame.Reason)
			refused++
		}
		if refused == 2 {
			return refused
		}
	}
	return refused
}

// FAULTS B06(c), (d): neither reconnecting nor more connections bring a new budget.
func TestRateIsPerParticipant(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	began := time.Now()
	accepted := 0
	for i := range 8 {
		p := connect(t, s, who[0])
		for n := range 20 {
			p.send(p.envelope("control", who[1].ID, fmt.Sprintf("c%d-%d", i, n)))
			frame, err := p.conn.Receive(t.Context())
			if err != nil {
				break
			}
			if frame.Type == wire.ServerQueued {
				accepted++
			}
			if frame.Type == wire.ServerNack {
				break
			}
		}
	}
	allowed := 20 + 20*time.Since(began).Seconds() + 1
	require.LessOrEqual(t, float64(accepted), allowed)
	require.GreaterOrEqual(t, accepted, 20)
}

// DESIGN section 6, "Quotas": 8 connections per participant, and one that ends makes room.
func TestConnectionQuota(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	var open []*peer
	for range 8 {
		open = append(open, connect(t, s, who[0]))
	}
	refusedHello(t, s, client.Options{Token: who[0].Credential}, wire.CloseQuota)
	require.NotNil(t, connect(t, s, who[1]), "others are not concerned")
	require.NoError(t, open[0].conn.Close())
	s.RequireConnections(t, 8)
	require.NotNil(t, connect(t, s, who[0]))
}

func TestTenantQuota(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.TenantConns(3))
	who := room(t, s, "agent", "agent")
	connect(t, s, who[0])
	connect(t, s, who[0])
	connect(t, s, who[1])
	refusedHello(t, s, client.Options{Token: who[1].Credential}, wire.CloseQuota)
}

// FAULTS H06: an open socket never outlives its credential.
func TestRevocationClosesAndStops(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*testing.T, *testkit.Relay, testkit.Participant){
		"credential revoked":  func(t *testing.T, s *testkit.Relay, p testkit.Participant) { s.RevokeParticipant(t, p) },
		"participant removed": func(t *testing.T, s *testkit.Relay, p testkit.Participant) { s.Remove(t, p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			who := room(t, s, "agent", "agent", "agent")
			victim, sender, third := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
			idle := connect(t, s, who[0])
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						if sender.conn.SendRaw(t.Context(), sender.envelope("message", sender.who.Room, fmt.Sprintf("t%d", n))) != nil {
							return
						}
						_, _ = sender.conn.Receive(t.Context())
					}
				}
			}()
			require.Equal(t, wire.ServerDeliver, victim.next().Type)
			revoke(t, s, who[0])
			// From here on nothing is accepted from it, and nothing new delivered to it.
			require.NoError(t, third.conn.SendRaw(t.Context(), third.envelope("message", third.who.Room, "after")))
			_ = victim.conn.SendRaw(t.Context(), victim.envelope("message", victim.who.Room, "from-the-removed"))
			for _, frame := range victim.closed(wire.CloseAuth) {
				require.NotContains(t, string(frame.Raw), `"after"`)
				require.NotEqual(t, wire.ServerQueued, frame.Type)
			}
			idle.closed(wire.CloseAuth)
			close(stop)
			<-stopped
			refusedHello(t, s, client.Options{Token: who[0].Credential}, wire.CloseAuth)
			for _, row := range connect(t, s, who[1]).resume("0", 0).rows {
				require.NotContains(t, string(row.Envelope), "from-the-removed")
			}
		})
	}
}

// One credential of several is revoked: only its connections close.
func TestRevokeOneCredential(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	second := who[0]
	second.Credential, second.CredentialID = s.MintID(t, who[0], "session", time.Hour)
	kept, closed, other := online(t, s, who[0]), online(t, s, second), online(t, s, who[1])
	s.RevokeCredential(t, second.CredentialID)
	closed.closed(wire.CloseAuth)
	alive(t, other, kept)
}

func TestCredentialExpires(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent")[0]
	var conn *client.Conn
	for ttl := 2 * time.Second; conn == nil; ttl *= 2 { // a slow machine says hello too late
		require.Less(t, ttl, patience)
		who.Credential = s.Mint(t, who, "session", ttl)
		conn, _ = client.Dial(t.Context(), s.RelayURL(), client.Options{Token: who.Credential})
	}
	t.Cleanup(func() { _ = conn.Close() })
	(&peer{t: t, conn: conn, who: who}).closed(wire.CloseAuth)
	refusedHello(t, s, client.Options{Token: who.Credential}, wire.CloseAuth)
}

// FAULTS H08: the roster a sender is checked against is the current one.
func TestRemovedParticipantIsNoRecipient(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "agent")
	p := online(t, s, who[0])
	p.queued(p.envelope("message", p.who.Room, "warm"), 2)
	s.Remove(t, who[1])
	generation(t, s, who[0], 1) // somebody left, who knows the keys of before
	require.NotContains(t, p.queued(p.envelope("message", p.who.Room, "two-left"), 1), who[1].ID)
	p.nacked(p.envelope("control", who[1].ID, "x"), wire.NotAMember)
	p.closed(wire.ClosePolicy)

	again := connect(t, s, who[0])
	added := s.Join(t, who[0].Room, "agent")
	require.Contains(t, again.queued(again.envelope("message", again.who.Room, "one-more"), 2), added.ID)
}

// Revocation races with hello: once it has been answered, no connection is left.
func TestRevokeDuringHello(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	for range 10 {
		victim := s.Join(t, who[0].Room, "agent")
		var wg sync.WaitGroup
		conns := make([]*client.Conn, 6)
		for i := range conns {
			wg.Go(func() {
				conns[i], _ = client.Dial(t.Context(), s.RelayURL(), client.Options{Token: victim.Credential})
			})
		}
		s.RevokeParticipant(t, victim)
		wg.Wait()
		for _, conn := range conns {
			if conn == nil {
				continue
			}
			_, err := conn.Receive(t.Context())
			requireClose(t, err, wire.CloseAuth)
			_ = conn.Close()
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	a := online(t, s, who[0])
	s.Freeze(t, true)
	a.closed(wire.CloseFrozen)
	refusedHello(t, s, client.Options{Token: who[1].Credential}, wire.CloseFrozen)
	s.Restart(t)
	refusedHello(t, s, client.Options{Token: who[1].Credential}, wire.CloseFrozen)
	s.Freeze(t, false)
	alive(t, online(t, s, who[0]), online(t, s, who[1]))
}

// DESIGN section 6, "Heartbeat"; FAULTS B05.
func TestSilentPeerIsClosed(t *testing.T) {
	t.Parallel()
	// Long enough for a machine that stands still to answer one of two in time.
	s := testkit.Start(t, testkit.PingInterval(2*time.Second))
	who := room(t, s, "agent", "agent")
	answering := online(t, s, who[0])
	silent := s.RawDial(t)
	silent.Send(t, fmt.Sprintf(`{"type":"hello","token":%q}`, who[1].Credential))
	pings := 0
	for {
		frame, code := silent.Next(t)
		if code != 0 {
			require.Equal(t, wire.CloseGoingAway, code)
			break
		}
		if frame.Type == wire.ServerPing {
			pings++
		}
	}
	require.Equal(t, 2, pings)
	require.Eventually(t, func() bool {
		return s.Presence(t, who[0].ID) && !s.Presence(t, who[1].ID)
	}, patience, 20*time.Millisecond)
	s.RequireConnections(t, 1)
	answering.queued(answering.envelope("control", who[1].ID, "still-here"), 1)
}

// DESIGN section 7: sockets close with 1001, and what was queued is there afterwards.
func TestShutdownClosesSockets(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	p := online(t, s, who[0])
	id := p.queued(p.envelope("control", who[1].ID, "x"), 1)[who[1].ID]
	s.Stop(t)
	p.closed(wire.CloseGoingAway)
	s.StartAgain(t)
	require.Equal(t, id, connect(t, s, who[1]).resume("0", 0).rows[0].StreamID)
}

// FAULTS B04: a peer that stops reading is dropped after a bounded buffer, others
// never wait, and nothing it missed is lost.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent", "agent")
	sender, healthy := connect(t, s, who[0]), online(t, s, who[1])
	stuck := s.RawDial(t)
	stuck.Send(t, fmt.Sprintf(`{"type":"hello","token":%q}`, who[2].Credential))
	stuck.Send(t, `{"type":"resume","last_id":"$"}`)
	stuck.Until(t, wire.ServerResumeComplete)

	sent := 0
	dropped := func() bool { return sent%10 == 0 && s.Metric(t, "relay_front_queue_overflows_total") > 0 }
	for !dropped() && sent < 450 {
		frame := sender.envelopeWith("control", sender.who.Room, fmt.Sprintf("big-%d", sent), padding(60_000))
		sender.queued(frame, 2)
		require.Equal(t, string(frame), string(healthy.delivered().Envelope))
		sent++
	}
	require.Less(t, sent, 450, "the slow reader was dropped")
	s.RequireConnections(t, 2)
	require.Len(t, connect(t, s, who[2]).resume("0", 0).rows, sent)
}

// FAULTS D05, C08: a slow reader of a replay gets all of it, in order.
func TestSlowReplay(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	who := room(t, s, "agent", "agent")
	sender := connect(t, s, who[0])
	for n := range 120 {
		sender.queued(sender.envelopeWith("control", who[1].ID, fmt.Sprintf("big-%d", n), padding(60_000)), 1)
	}
	p := connect(t, s, who[1])
	require.NoError(t, p.conn.Resume(t.Context(), "0", 0))
	time.Sleep(300 * time.Millisecond) //nolint:forbidigo // a reader that stalls is the point
	require.Len(t, p.completed().rows, 120)
}
