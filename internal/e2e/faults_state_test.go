package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// FAULTS H06 (a) to (e) for devices: one that is suspended or revoked on another node is cut
// off in whatever it does: idle, in mid-replay, receiving, sending. Nothing that it sends
// after the answer is accepted, and nothing that others send then reaches it.
func TestADeviceIsCutOffWhateverItDoes(t *testing.T) {
	t.Parallel()
	for _, move := range []string{"suspend", "revoke"} {
		t.Run(move, func(t *testing.T) {
			t.Parallel()
			_, one, two := sharedPair(t)
			who := room(t, one, "agent", "agent")
			d := one.ActiveDevice(t, "agent", false)
			one.Call(t, http.MethodPost, "/v1/rooms/"+who[0].Room+"/members", map[string]string{"role": "agent", "device_id": d.ID}, nil)
			victim := selfMinted(t, two, d, who[0].Room)
			witness := connect(t, one, who[0])
			for n := range 50 { // more than a connection's queue holds
				witness.queued(witness.envelopeWith("control", victim.ID, fmt.Sprintf("big-%d", n), padding(40_000)), 1)
			}
			open := map[string]*peer{"idle": connect(t, two, victim), "receiving": online(t, two, victim), "replaying": connect(t, two, victim)}
			require.NoError(t, open["replaying"].conn.Resume(t.Context(), "0", 0))
			var answered atomic.Bool
			wait := keepsSending(connect(t, two, victim), who[0], &answered)

			moveDevice(t, one, d, move)
			answered.Store(true)
			witness.queued(witness.envelope("control", who[1].ID, "to-others-still"), 1)
			after := connect(t, one, who[1])
			after.send(after.envelope("control", who[0].Room, "after-the-answer"))
			after.verdict(map[string]int{"suspend": 2, "revoke": 1}[move]) // who is suspended stays a member
			for name, p := range open {
				for _, frame := range p.closed(wire.CloseAuth) {
					require.NotContains(t, string(frame.Raw), `"after-the-answer"`, name)
				}
			}
			wait()
			for _, row := range resumeOnce(t, one, who[0], "0").rows {
				require.NotContains(t, string(row.Envelope), `"late-`)
			}
			refusedHello(t, two, client.Options{Token: victim.Credential}, wire.CloseAuth)
		})
	}
}

// keepsSending sends one envelope after the other, of which the ids of those begin with
// "late" that are sent after answered is set. The returned function waits for the close of
// the connection, and demands that none of these was queued.
func keepsSending(p *peer, to testkit.Participant, answered *atomic.Bool) (wait func()) {
	started := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := 0; ; n++ {
			id := "early"
			if answered.Load() {
				id = "late"
			}
			frame := p.envelope("control", to.ID, fmt.Sprintf("%s-%d", id, n))
			if err := p.conn.SendRaw(p.t.Context(), frame); err != nil {
				break
			}
			got, err := p.other(p.t.Context())
			if err != nil {
				break
			}
			if strings.HasPrefix(got.ID, "late") && got.Type == wire.ServerQueued {
				p.t.Errorf("accepted after the answer: %s", got.Raw)
			}
			if n == 10 {
				close(started)
			}
		}
	})
	<-started
	return func() {
		sending.Wait()
		p.closed(wire.CloseAuth)
	}
}

// FAULTS H06 (f) for devices: the node that the device is on has no link at that moment. It
// delivers nothing after the answer, not even when the link is back.
func TestADeviceIsCutOffOnANodeWithoutALink(t *testing.T) {
	t.Parallel()
	for _, move := range []string{"suspend", "revoke"} {
		t.Run(move, func(t *testing.T) {
			t.Parallel()
			broker := testkit.StartBroker(t)
			link := testkit.Proxy(t, broker.URL())
			database := pgtest.URL(t)
			one := unlimited(t, testkit.NATSURL(broker.URL()), testkit.Database(database), testkit.NodeID("one"))
			two := unlimited(t, testkit.NATSURL(link.URL()), testkit.Database(database), testkit.NodeID("two"))
			who := room(t, one, "agent", "agent")
			d := one.ActiveDevice(t, "agent", false)
			one.Call(t, http.MethodPost, "/v1/rooms/"+who[0].Room+"/members", map[string]string{"role": "agent", "device_id": d.ID}, nil)
			victim := online(t, two, selfMinted(t, two, d, who[0].Room))
			sender := online(t, one, who[0])
			alive(t, sender, victim)
			link.Cut()
			moveDevice(t, one, d, move)
			sender.queued(sender.envelope("control", who[0].Room, "after"), map[string]int{"suspend": 2, "revoke": 1}[move])
			link.Restore()
			frame, err := victim.receive()
			require.Error(t, err, "after the answer: %s", frame.Raw)
			closed, ok := errors.AsType[*client.CloseError](err)
			require.True(t, ok, "%v", err)
			require.Contains(t, []wire.CloseCode{wire.CloseAuth, wire.CloseGoingAway}, closed.Code)
			requireReady(t, http.StatusOK, two)
			refusedHello(t, two, client.Options{Token: victim.who.Credential}, wire.CloseAuth)
		})
	}
}

// leavePath is a way in which the crew's second agent loses the room.
type leavePath struct {
	do    func(t *testing.T, s *testkit.Relay, c *crew, admin *testkit.Device)
	close wire.CloseCode // of its sockets; 0: it only reads from then on
	stays bool           // a member, whose inbox others still fill
}

var leavePaths = map[string]leavePath{
	"an admin removes it": {close: wire.CloseAuth, do: func(t *testing.T, s *testkit.Relay, c *crew, admin *testkit.Device) {
		t.Helper()
		removeFrom(t, s, admin, c.as[c.second]).Demand(t, http.StatusOK)
	}},
	"it leaves": {close: wire.CloseAuth, do: func(t *testing.T, s *testkit.Relay, c *crew, _ *testkit.Device) {
		t.Helper()
		removeFrom(t, s, c.second, c.as[c.second]).Demand(t, http.StatusOK)
	}},
	"its device is suspended": {close: wire.CloseAuth, stays: true, do: func(t *testing.T, s *testkit.Relay, c *crew, _ *testkit.Device) {
		t.Helper()
		moveDevice(t, s, c.second, "suspend")
	}},
	"its device is revoked": {close: wire.CloseAuth, do: func(t *testing.T, s *testkit.Relay, c *crew, _ *testkit.Device) {
		t.Helper()
		moveDevice(t, s, c.second, "revoke")
	}},
	"the room is archived": {do: func(t *testing.T, s *testkit.Relay, c *crew, _ *testkit.Device) {
		t.Helper()
		s.Public(t, http.MethodPost, "/v1/rooms/"+c.room()+"/archive", c.owner.AccessToken, nil).Demand(t, http.StatusOK)
	}},
	"the network is frozen": {close: wire.CloseFrozen, do: func(t *testing.T, s *testkit.Relay, _ *crew, _ *testkit.Device) {
		t.Helper()
		s.Freeze(t, true)
	}},
}

// FAULTS H08: on every way out of a room, with all caches warm, at the moment of the answer
// the one who left sends, others send to it, and something happens on the Board: nothing of
// it is accepted, and nothing reaches it, live or in its inbox.
func TestNoLeavePathForgetsTheCaches(t *testing.T) {
	t.Parallel()
	for name, path := range leavePaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, one, two := sharedPair(t)
			c, admin := newCrew(t, one, testkit.RoomOptions{Scheme: "none"}), one.ActiveDevice(t, "human", true)
			leaver, toIt, toAll := online(t, two, c.as[c.second]), online(t, one, c.as[c.owner]), online(t, two, c.as[c.first])
			alive(t, toIt, leaver)
			alive(t, leaver, toAll)
			card := newCard(t, one, c.as[c.owner], "task")
			hinted(t, leaver.next(), card, false)
			before := storedFor(t, broker, leaver.who)
			require.Positive(t, before)

			path.do(t, one, c, admin)
			at := make(chan struct{})
			var all sync.WaitGroup
			for _, act := range []func(){
				func() { _ = leaver.conn.SendRaw(t.Context(), leaver.envelope("control", c.room(), "after-by-it")) },
				func() { _ = toIt.conn.SendRaw(t.Context(), toIt.envelope("control", leaver.who.ID, "after-to-it")) },
				func() { _ = toAll.conn.SendRaw(t.Context(), toAll.envelope("control", c.room(), "after-to-all")) },
				func() {
					ask(t, one, c.as[c.viewer], http.MethodGet, "/v1/sessions/"+c.room()+"/board/cards", nil)
					ask(t, one, c.as[c.owner], http.MethodPost, "/v1/sessions/"+c.room()+"/board/cards/"+card.CardID+"/events",
						sealedMembers(map[string]any{"type": "comment"}))
				},
			} {
				all.Go(func() { <-at; act() })
			}
			close(at)
			all.Wait()
			path.check(t, leaver, toIt)
			switch {
			case path.close == 0: // and so that it is over
				awaitEvents(t, one, leaver.who, "room_archived ")
				require.Equal(t, before+1, storedFor(t, broker, leaver.who))
			case path.close == wire.CloseAuth && !path.stays:
				awaitEvents(t, one, c.as[c.viewer], "member_removed "+leaver.who.ID)
				require.Equal(t, before, storedFor(t, broker, leaver.who))
			}
		})
	}
}

// check looks at what those two sockets were told.
func (p leavePath) check(t *testing.T, leaver, toIt *peer) {
	t.Helper()
	switch p.close {
	case 0: // the room is archived: everybody reads on, nobody writes
		require.Equal(t, wire.RoomIsArchived, leaver.answerTo("after-by-it").Reason)
		require.Equal(t, wire.RoomIsArchived, toIt.answerTo("after-to-it").Reason)
		return
	case wire.CloseFrozen:
		toIt.closed(wire.CloseFrozen)
	default:
		want := wire.ServerNack
		if p.stays {
			want = wire.ServerQueued
		}
		got := toIt.answerTo("after-to-it")
		require.Equal(t, want, got.Type, "frame %s", got.Raw)
	}
	for _, frame := range leaver.closed(p.close) {
		require.NotEqual(t, wire.ServerQueued, frame.Type, "frame %s", frame.Raw)
		require.NotEqual(t, wire.ServerBoardUpdate, frame.Type, "frame %s", frame.Raw)
		require.NotContains(t, string(frame.Raw), `"after-`)
	}
}

// answerTo skips what others caused.
func (p *peer) answerTo(id string) wire.ServerFrame {
	p.t.Helper()
	for {
		got := p.next()
		if got.ID == id && (got.Type == wire.ServerQueued || got.Type == wire.ServerNack) {
			return got
		}
	}
}

// storedFor counts the rows of an inbox, as the broker has them: that of a former member is
// shown to nobody.
func storedFor(t *testing.T, broker *testkit.Broker, who testkit.Participant) (rows uint64) {
	t.Helper()
	conn, err := nats.Connect(broker.URL())
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for name := range js.StreamNames(t.Context()).Name() {
		stream, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("inbox.*."+who.Room+"."+who.ID))
		require.NoError(t, err)
		for _, n := range info.State.Subjects {
			rows += n
		}
	}
	return rows
}

// pages reports that the operation takes a limit.
func (o describedOperation) pages() bool {
	for _, p := range o.Parameters {
		if p.In == "query" && p.Name == "limit" {
			return true
		}
	}
	return false
}

// pagedList is a list with pages, and who reads it.
type pagedList struct{ path, token string }

// FAULTS G07: every list takes limits from 1 to 500, and refuses others by name. The document
// says which operations are lists.
func TestLimitsOfEveryList(t *testing.T) {
	t.Parallel()
	s := unlimited(t, testkit.MLS())
	c, admin := newCrew(t, s, testkit.RoomOptions{}), s.ActiveDevice(t, "human", true)
	group := opened(t, s, c.owner, testkit.RoomOptions{Scheme: "mls"})
	var document describedAPI
	s.Public(t, http.MethodGet, "/openapi.json", "", nil).Into(t, &document)
	lists := 0
	for path, methods := range document.Paths {
		if !methods["get"].pages() {
			continue
		}
		lists++
		list := pagedList{strings.ReplaceAll(path, "{id}", c.room()), admin.AccessToken}
		switch {
		case strings.HasSuffix(path, "/commits"):
			list = pagedList{strings.ReplaceAll(path, "{id}", group.Room), c.owner.AccessToken}
		case strings.Contains(path, "/sessions/"):
			list.token = c.as[c.owner].Credential
		case path == "/v1/tenants":
			list.token = operatorToken(t, s)
		}
		for _, limit := range []string{"0", "501", "2147483648", "-1", "1e2", ""} {
			s.Public(t, http.MethodGet, list.path+"?limit="+limit, list.token, nil).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
		}
		for _, limit := range []string{"1", "500"} {
			s.Public(t, http.MethodGet, list.path+"?limit="+limit, list.token, nil).Demand(t, http.StatusOK)
		}
	}
	require.GreaterOrEqual(t, lists, 9)
}

// FAULTS G07: where the other side of a join is not there, what is shown of it is empty or
// left out.
func TestWhatIsNotThereIsNoFailure(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var shown shownRoom
	s.Call(t, http.MethodGet, "/v1/rooms/"+s.Room(t, testkit.RoomOptions{}), nil, &shown)
	require.Empty(t, shown.Participants)

	pending := s.Enroll(t, "agent", false)
	var device map[string]any
	s.Call(t, http.MethodGet, "/v1/devices/"+pending.ID, nil, &device)
	require.NotContains(t, device, "approved_at")
	require.NotContains(t, device, "revoked_at")

	owner, agent := s.ActiveDevice(t, "human", false), s.ActiveDevice(t, "agent", false)
	group := opened(t, s, owner, testkit.RoomOptions{Scheme: "mls"})
	local := s.Join(t, group.Room, "agent") // of a device without keys
	added(t, s, owner, group.Room, agent, "agent")
	var room struct {
		Participants []map[string]any `json:"participants"`
	}
	askOf(t, s, owner, http.MethodGet, group.Room, "", nil).Into(t, &room)
	require.Len(t, room.Participants, 3)
	for _, p := range room.Participants {
		require.Equal(t, p["participant_id"] != local.ID, p["identity_key"] != nil, "%v", p)
	}
	var info map[string]any
	askOf(t, s, owner, http.MethodGet, group.Room, "/group-info", nil).Into(t, &info)
	require.EqualValues(t, 0, info["epoch"])
	require.Empty(t, info["members"])
	askOf(t, s, owner, http.MethodGet, group.Room, "/welcome", nil).Refused(t, http.StatusNotFound, wire.NotFound)
	var stock map[string]any
	s.Public(t, http.MethodGet, "/v1/devices/me/prekeys", agent.AccessToken, nil).Into(t, &stock)
	require.EqualValues(t, 0, stock["one_time_prekeys"])
	s.Public(t, http.MethodGet, "/v1/devices/"+agent.ID+"/prekey-bundle", owner.AccessToken, nil).Refused(t, http.StatusNotFound, wire.NotFound)

	newCard(t, s, group, "task") // and no comment
	for path, member := range map[string]string{
		"/history": "messages", "/notices": "notices", "/traces": "traces", "/presence": "presence", "/board/cards": "cards", "/participants": "participants",
	} {
		status, body := ask(t, s, group, http.MethodGet, "/v1/sessions/"+group.Room+path, nil)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
		require.Contains(t, string(body), `"`+member+`":[`, path)
	}
}
