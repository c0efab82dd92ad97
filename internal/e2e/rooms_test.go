package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// shownRoom is what a room tells of itself, as far as these tests look.
type shownRoom struct {
	ID            string `json:"room_id"`
	State         string `json:"state"`
	Version       int64  `json:"version"`
	Activated     *bool  `json:"activated"`
	ParticipantID string `json:"participant_id"`
	Participants  []struct {
		ParticipantID string `json:"participant_id"`
		DeviceID      string `json:"device_id"`
		Role          string `json:"role"`
	} `json:"participants"`
}

// opened is a room that the device makes, and its owner.
func opened(t *testing.T, s *testkit.Relay, by *testkit.Device, options testkit.RoomOptions) testkit.Participant {
	t.Helper()
	var made shownRoom
	s.Public(t, http.MethodPost, "/v1/rooms", by.AccessToken, options).Into(t, &made)
	who := selfMinted(t, s, by, made.ID)
	require.Equal(t, made.ParticipantID, who.ID)
	return who
}

// addTo asks for a membership.
func addTo(t *testing.T, s *testkit.Relay, by *testkit.Device, room string, d *testkit.Device, role string) testkit.Answer {
	t.Helper()
	return s.Public(t, http.MethodPost, "/v1/rooms/"+room+"/members", by.AccessToken, map[string]string{"device_id": d.ID, "role": role})
}

// added makes a device a member, which mints its own credential.
func added(t *testing.T, s *testkit.Relay, by *testkit.Device, room string, d *testkit.Device, role string) testkit.Participant {
	t.Helper()
	addTo(t, s, by, room, d, role).Demand(t, http.StatusCreated)
	return selfMinted(t, s, d, room)
}

func removeFrom(t *testing.T, s *testkit.Relay, by *testkit.Device, who testkit.Participant) testkit.Answer {
	t.Helper()
	return s.Public(t, http.MethodDelete, "/v1/rooms/"+who.Room+"/members/"+who.ID, by.AccessToken, nil)
}

func showRoom(t *testing.T, s *testkit.Relay, id string) (room shownRoom) {
	t.Helper()
	s.Call(t, http.MethodGet, "/v1/rooms/"+id, nil, &room)
	return room
}

// told demands that the next room event is this one. That somebody has joined may come late.
func (p *peer) told(want wire.RoomEventType) *wire.RoomEvent {
	p.t.Helper()
	got := p.event()
	for want != wire.RoomJoined && got.RoomEvent.Event == wire.RoomJoined {
		got = p.event()
	}
	require.Equal(p.t, want, got.RoomEvent.Event, "frame %s", got.Raw)
	require.Equal(p.t, p.who.Room, got.RoomEvent.RoomID)
	require.NotEmpty(p.t, got.RoomEvent.EventID)
	require.Positive(p.t, got.RoomEvent.Version)
	return got.RoomEvent
}

// eventsOf are the room events of a resume, each once: one may come again.
func (r resumed) eventsOf() []string {
	seen := make(map[string]bool)
	var all []string
	for _, frame := range r.events {
		e := frame.RoomEvent
		if !seen[e.EventID] {
			seen[e.EventID] = true
			all = append(all, string(e.Event)+" "+e.ParticipantID)
		}
	}
	return all
}

// awaitEvents resumes until the inbox has this event.
func awaitEvents(t *testing.T, s *testkit.Relay, who testkit.Participant, event string) (r resumed) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = resumeOnce(t, s, who, "0")
		return slices.Contains(r.eventsOf(), event)
	}, patience, poll, "%s is told", event)
	return r
}

// says sends and expects each of the connected others to get it; more may be in the room.
func (p *peer) says(frame []byte, recipients int, others ...*peer) {
	p.t.Helper()
	p.queued(frame, recipients)
	for _, other := range others {
		require.Equal(p.t, string(frame), string(other.delivered().Envelope))
	}
}

// under is an envelope with another gen.
func under(gen uint64, frame []byte) []byte {
	return bytes.Replace(frame, []byte(`"gen":1,`), fmt.Appendf(nil, `"gen":%d,`, gen), 1)
}

// crew is a room of devices: an owner, two agents and a viewer, all of them connected.
type crew struct {
	owner, first, second, viewer *testkit.Device
	as                           map[*testkit.Device]testkit.Participant
}

func newCrew(t *testing.T, s *testkit.Relay, options testkit.RoomOptions) *crew {
	t.Helper()
	c := &crew{
		owner: s.ActiveDevice(t, "human", false), first: s.ActiveDevice(t, "agent", false),
		second: s.ActiveDevice(t, "agent", false), viewer: s.ActiveDevice(t, "human", false),
		as: make(map[*testkit.Device]testkit.Participant),
	}
	c.as[c.owner] = opened(t, s, c.owner, options)
	for _, d := range []*testkit.Device{c.first, c.second} {
		c.as[d] = added(t, s, c.owner, c.room(), d, "agent")
	}
	c.as[c.viewer] = added(t, s, c.owner, c.room(), c.viewer, "viewer")
	awaitEvents(t, s, c.as[c.viewer], "room_joined "+c.as[c.viewer].ID) // and of the others before
	return c
}

func (c *crew) room() string { return c.as[c.owner].Room }

// STATE, "Create Room" and "Add Member": a device makes a room and adds others; they mint
// their own credentials and connect, and everybody hears of everybody, live and after having
// been away.
func TestDevicesMakeARoom(t *testing.T) {
	t.Parallel()
	s := shared(t)
	owner, first, second := s.ActiveDevice(t, "human", false), s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "agent", false)
	self := opened(t, s, owner, testkit.RoomOptions{})
	at := online(t, s, self)
	joined := func(p *peer, who testkit.Participant, d *testkit.Device, role string) {
		t.Helper()
		e := p.told(wire.RoomJoined)
		for e.ParticipantID == p.who.ID { // its own, which may come late
			e = p.told(wire.RoomJoined)
		}
		require.Equal(t, who.ID, e.ParticipantID)
		require.Equal(t, d.ID, e.DeviceID)
		require.Equal(t, role, e.Role)
	}

	a := added(t, s, owner, self.Room, first, "agent")
	joined(at, a, first, "agent")
	agent := online(t, s, a)
	alive(t, agent, at)
	at.leave()

	b := added(t, s, owner, self.Room, second, "agent")
	joined(agent, b, second, "agent")
	alive(t, online(t, s, b), agent)
	require.Equal(t, []string{"room_joined " + self.ID, "room_joined " + a.ID, "room_joined " + b.ID}, resumeOnce(t, s, self, "0").eventsOf())
	require.Equal(t, []string{"room_joined " + b.ID}, resumeOnce(t, s, b, "0").eventsOf(), "nothing from before it joined")
}

// STATE, "Remove Member": the removed one is cut off on every node, those who stay are told
// and nothing passes under keys that it knows; who has new keys goes on, whatever the others do.
func TestRemovalFromARoomOfDevices(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	c := newCrew(t, one, testkit.RoomOptions{})
	owner, first, second, viewer := online(t, one, c.as[c.owner]), online(t, two, c.as[c.first]), online(t, two, c.as[c.second]), online(t, two, c.as[c.viewer])
	all := []*peer{owner, first, second, viewer}
	for _, p := range all[:3] {
		require.EqualValues(t, 1, generation(t, one, p.who, 1))
		others := slices.DeleteFunc(slices.Clone(all), func(other *peer) bool { return other == p })
		p.says(p.envelope("message", c.room(), "before-"+p.who.ID), 3, others...)
	}

	removeFrom(t, one, c.owner, second.who).Demand(t, http.StatusOK)
	second.closed(wire.CloseAuth)
	refusedHello(t, one, client.Options{Token: second.who.Credential}, wire.CloseAuth)
	status, _ := ask(t, two, second.who, http.MethodGet, "/v1/sessions/"+c.room()+"/history", nil)
	require.Equal(t, http.StatusUnauthorized, status)
	two.Public(t, http.MethodGet, "/v1/rooms/"+c.room(), c.second.AccessToken, nil).Refused(t, http.StatusNotFound, wire.NotFound)
	two.Public(t, http.MethodPost, "/v1/rooms/"+c.room()+"/credentials", c.second.AccessToken, struct{}{}).Refused(t, http.StatusNotFound, wire.NotFound)
	require.Equal(t, "REKEYING", showRoom(t, one, c.room()).State)
	for _, p := range []*peer{owner, first, viewer} {
		e := p.told(wire.MemberRemoved)
		require.Equal(t, second.who.ID, e.ParticipantID)
		require.Equal(t, c.second.ID, e.DeviceID)
		p.told(wire.RekeyRequired)
	}

	first.nacked(first.envelope("message", c.room(), "retired"), wire.MLSRetired)
	first.nacked(under(2, first.envelope("message", c.room(), "unknown")), wire.MLSUnknown)
	require.EqualValues(t, 2, generation(t, two, first.who, 2))
	first.says(under(2, first.envelope("message", c.room(), "new-keys")), 2, owner, viewer)
	owner.nacked(owner.envelope("message", c.room(), "still-old"), wire.MLSRetired)
	require.Equal(t, "REKEYING", showRoom(t, one, c.room()).State)
	require.EqualValues(t, 2, generation(t, one, owner.who, 2))
	require.Equal(t, "ACTIVE", showRoom(t, one, c.room()).State)
	owner.says(under(2, owner.envelope("message", c.room(), "all-new")), 2, first, viewer)
	first.queued(under(2, first.envelope("message", c.room(), "goes-on")), 2)
	first.nacked(first.envelope("message", c.room(), "retired-still"), wire.MLSRetired)

	// Its device may come back, as somebody else who knows nothing of before.
	again := added(t, one, c.owner, c.room(), c.second, "agent")
	require.NotEqual(t, second.who.ID, again.ID)
	back := awaitEvents(t, two, again, "room_joined "+again.ID)
	require.Empty(t, back.rows)
	require.Equal(t, []string{"room_joined " + again.ID}, back.eventsOf())
}

// wayOut is a way to leave a room.
type wayOut struct {
	leave func(t *testing.T, s *testkit.Relay, c *crew)
	ends  bool // the membership, and so the keys; else it is cut off for a while
}

var waysOut = map[string]wayOut{
	"it leaves": {func(t *testing.T, s *testkit.Relay, c *crew) {
		t.Helper()
		removeFrom(t, s, c.second, c.as[c.second]).Demand(t, http.StatusOK)
	}, true},
	"an owner removes it": {func(t *testing.T, s *testkit.Relay, c *crew) {
		t.Helper()
		removeFrom(t, s, c.owner, c.as[c.second]).Demand(t, http.StatusOK)
	}, true},
	"the operator removes it": {func(t *testing.T, s *testkit.Relay, c *crew) {
		t.Helper()
		s.Remove(t, c.as[c.second])
	}, true},
	"its device is revoked": {func(t *testing.T, s *testkit.Relay, c *crew) {
		t.Helper()
		moveDevice(t, s, c.second, "revoke")
	}, true},
	"its device is suspended": {func(t *testing.T, s *testkit.Relay, c *crew) {
		t.Helper()
		moveDevice(t, s, c.second, "suspend")
	}, false},
}

// FAULTS H08, I06: whatever way somebody leaves, from the answer on nothing is accepted from
// it or delivered to it, and everybody who stays has to change keys, also who was away.
func TestEachWayOfLeaving(t *testing.T) {
	t.Parallel()
	for name, out := range waysOut {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			c := newCrew(t, s, testkit.RoomOptions{})
			owner, leaver := online(t, s, c.as[c.owner]), online(t, s, c.as[c.second])
			away := c.as[c.first] // has keys, and is not there
			generation(t, s, away, 1)
			generation(t, s, owner.who, 1)
			generation(t, s, leaver.who, 1)
			leaver.says(leaver.envelope("message", c.room(), "warm"), 3, owner)
			alive(t, owner, leaver)

			out.leave(t, s, c)
			owner.send(owner.envelope("control", c.room(), "after"))
			_ = leaver.conn.SendRaw(t.Context(), leaver.envelope("message", c.room(), "from-the-leaver"))
			for _, frame := range leaver.closed(wire.CloseAuth) {
				require.NotContains(t, string(frame.Raw), `"after"`)
				require.NotEqual(t, wire.ServerQueued, frame.Type)
				require.NotEqual(t, wire.ServerRoomEvent, frame.Type, "who left is told nothing")
			}
			refusedHello(t, s, client.Options{Token: leaver.who.Credential}, wire.CloseAuth)

			stay := 3
			if out.ends {
				stay = 2
			}
			owner.verdict(stay)
			missed := resumeOnce(t, s, away, "0")
			if out.ends {
				missed = awaitEvents(t, s, away, "rekey_required ")
			}
			for _, row := range missed.rows {
				require.NotContains(t, string(row.Envelope), "from-the-leaver")
			}
			back := online(t, s, away)
			if !out.ends {
				require.NotContains(t, missed.eventsOf(), "member_removed "+leaver.who.ID)
				back.queued(back.envelope("message", c.room(), "old-keys"), stay)
				moveDevice(t, s, c.second, "reinstate")
				alive(t, back, online(t, s, leaver.who))
				return
			}
			require.Contains(t, missed.eventsOf(), "member_removed "+leaver.who.ID)
			back.nacked(back.envelope("message", c.room(), "old-keys"), wire.MLSRetired)
			gen := generation(t, s, away, 2)
			back.queued(under(gen, back.envelope("message", c.room(), "new-keys")), stay)
		})
	}
}

// FAULTS H08, I06: of messages that race with a leaving, each is refused that comes after it,
// and none is accepted once the leaving was answered.
func TestLeavingRacesWithMessages(t *testing.T) {
	t.Parallel()
	for name, out := range waysOut {
		if !out.ends {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			c := newCrew(t, s, testkit.RoomOptions{})
			sender, leaver := online(t, s, c.as[c.first]), online(t, s, c.as[c.second])
			generation(t, s, sender.who, 1)
			generation(t, s, leaver.who, 1)
			const before, racing = 20, 100
			started, sent := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(sent)
				for n := range racing {
					if n == before {
						close(started)
					}
					if sender.conn.SendRaw(t.Context(), sender.envelope("message", c.room(), fmt.Sprintf("race-%d", n))) != nil {
						return
					}
				}
			}()
			<-started
			out.leave(t, s, c)
			<-sent
			sender.send(sender.envelope("message", c.room(), "last"))
			queued, refused := make(map[string]int), false
			for id := ""; id != "last"; {
				got := sender.next()
				if got.Type == wire.ServerDeliver {
					continue
				}
				if id = got.ID; got.Type == wire.ServerNack {
					require.Equal(t, wire.MLSRetired, got.Reason)
					refused = true
					continue
				}
				require.Equal(t, wire.ServerQueued, got.Type, "frame %s", got.Raw)
				require.False(t, refused, "accepted after another was refused: %s", got.Raw)
				require.NotEqual(t, "last", id, "accepted after the answer")
				queued[id]++
			}
			leaver.closed(wire.CloseAuth)
			for _, row := range resumeOnce(t, s, c.as[c.owner], "0").rows {
				var sent struct {
					ID string `json:"id"`
				}
				require.NoError(t, json.Unmarshal(row.Envelope, &sent))
				delete(queued, sent.ID)
			}
			require.Empty(t, queued, "what was accepted is there")
		})
	}
}

// The room goes on without its last owner; admins manage it then.
func TestLastOwnerLeaves(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCrew(t, s, testkit.RoomOptions{})
	admin, next := s.ActiveDevice(t, "human", true), s.ActiveDevice(t, "human", false)
	removeFrom(t, s, c.owner, c.as[c.owner]).Demand(t, http.StatusOK)
	for _, d := range []*testkit.Device{c.first, c.viewer} {
		addTo(t, s, d, c.room(), next, "owner").Refused(t, http.StatusForbidden, wire.Forbidden)
	}
	addTo(t, s, c.owner, c.room(), c.owner, "owner").Refused(t, http.StatusNotFound, wire.NotFound)
	added(t, s, admin, c.room(), next, "owner")
	removeFrom(t, s, next, c.as[c.viewer]).Demand(t, http.StatusOK)
}

// STATE, SUSPENDED: "Temporarily blocked": an owner too, who manages again when reinstated.
func TestSuspendedOwnerDoesNotManage(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCrew(t, s, testkit.RoomOptions{})
	moveDevice(t, s, c.owner, "suspend")
	for _, call := range []struct{ method, path string }{
		{http.MethodGet, "/v1/rooms"},
		{http.MethodGet, "/v1/rooms/" + c.room()},
		{http.MethodPost, "/v1/rooms/" + c.room() + "/archive"},
		{http.MethodPost, "/v1/rooms/" + c.room() + "/reset"},
		{http.MethodDelete, "/v1/rooms/" + c.room() + "/members/" + c.as[c.first].ID},
	} {
		s.Public(t, call.method, call.path, c.owner.AccessToken, nil).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
	}
	require.Len(t, showRoom(t, s, c.room()).Participants, 4)
	moveDevice(t, s, c.owner, "reinstate")
	removeFrom(t, s, c.owner, c.as[c.first]).Demand(t, http.StatusOK)
}

// FAULTS I06: "an empty room ends in a defined state".
func TestLastMemberLeaves(t *testing.T) {
	t.Parallel()
	s := shared(t)
	owner, agent, admin := s.ActiveDevice(t, "human", false), s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "human", true)
	self := opened(t, s, owner, testkit.RoomOptions{})
	generation(t, s, self, 1)
	other := added(t, s, owner, self.Room, agent, "agent")
	removeFrom(t, s, owner, self).Demand(t, http.StatusOK)
	require.Equal(t, "REKEYING", showRoom(t, s, self.Room).State)
	removeFrom(t, s, agent, other).Demand(t, http.StatusOK)
	empty := showRoom(t, s, self.Room)
	require.Equal(t, "ACTIVE", empty.State)
	require.Empty(t, empty.Participants)
	var mine struct {
		Rooms []shownRoom `json:"rooms"`
	}
	s.Public(t, http.MethodGet, "/v1/rooms", owner.AccessToken, nil).Into(t, &mine)
	require.Empty(t, mine.Rooms)

	back := online(t, s, added(t, s, admin, self.Room, agent, "agent"))
	back.nacked(back.envelope("message", self.Room, "to-nobody"), wire.NoRecipients)
	s.Public(t, http.MethodPost, "/v1/rooms/"+self.Room+"/archive", admin.AccessToken, nil).Demand(t, http.StatusOK)
	back.told(wire.ArchivedRoom)
}

// STATE, ARCHIVED: from the answer on nothing is stored in the room, on no node; its members
// are told and read on.
func TestArchivedRoomIsReadOnly(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	c := newCrew(t, one, testkit.RoomOptions{})
	first, second, away := online(t, one, c.as[c.first]), online(t, two, c.as[c.second]), c.as[c.owner]
	gen := generation(t, one, first.who, 1)
	kept := first.envelope("message", c.room(), "kept")
	first.queued(kept, 3)
	second.delivered()
	second.queued(second.envelope("control", first.who.ID, "warm"), 1)
	first.delivered()

	archive := "/v1/rooms/" + c.room() + "/archive"
	two.Public(t, http.MethodPost, archive, c.first.AccessToken, nil).Refused(t, http.StatusForbidden, wire.Forbidden)
	var archived shownRoom
	two.Public(t, http.MethodPost, archive, c.owner.AccessToken, nil).Into(t, &archived)
	require.Equal(t, "ARCHIVED", archived.State)
	for _, p := range []*peer{first, second} {
		for _, frame := range [][]byte{
			p.envelope("message", c.room(), "m-"+p.who.ID), p.envelope("message", c.as[c.owner].ID, "p-"+p.who.ID),
			p.envelope("control", c.room(), "c-"+p.who.ID), p.fresh("n-"+p.who.ID, gen),
		} {
			p.nacked(frame, wire.RoomIsArchived)
		}
		require.Equal(t, archived.Version, p.told(wire.ArchivedRoom).Version)
	}
	two.Public(t, http.MethodPost, archive, c.owner.AccessToken, nil).Demand(t, http.StatusOK)

	addTo(t, one, c.owner, c.room(), one.ActiveDevice(t, "agent", false), "agent").Refused(t, http.StatusConflict, wire.Conflict)
	for path, body := range map[string]map[string]string{
		"/sender-generations": {"kid": "AAECAwQFBgcICQoLDA0ODw", "session_key": "QQ=="},
		"/board/cards":        {"kind": "task", "content": "QQ==", "signature": "QQ=="},
	} {
		one.Public(t, http.MethodPost, "/v1/sessions/"+c.room()+path, first.who.Credential, body).Refused(t, http.StatusConflict, wire.RoomIsArchived)
	}

	reader := selfMinted(t, two, c.owner, c.room()) // a credential is still minted
	missed := resumeOnce(t, two, reader, "0")
	require.Equal(t, []string{string(kept)}, missed.envelopes())
	require.Contains(t, missed.eventsOf(), "room_archived ")
	history := session[struct {
		Messages []struct{} `json:"messages"`
	}](t, two, away, http.MethodGet, "/history", nil, http.StatusOK)
	require.Len(t, history.Messages, 1)
	var shown shownRoom
	two.Public(t, http.MethodGet, "/v1/rooms/"+c.room(), c.viewer.AccessToken, nil).Into(t, &shown)
	require.Equal(t, "ARCHIVED", shown.State)
	removeFrom(t, two, c.second, second.who).Demand(t, http.StatusOK)
	second.closed(wire.CloseAuth)
}

// STATE, "Corrupt State": a reset retires the keys of everybody; it is for owners.
func TestResetBeginsAnew(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	c := newCrew(t, one, testkit.RoomOptions{})
	first := online(t, two, c.as[c.first])
	generation(t, one, first.who, 1)
	first.queued(first.envelope("message", c.room(), "before"), 3)
	reset := "/v1/rooms/" + c.room() + "/reset"
	one.Public(t, http.MethodPost, reset, c.second.AccessToken, nil).Refused(t, http.StatusForbidden, wire.Forbidden)
	one.Public(t, http.MethodPost, reset, c.owner.AccessToken, nil).Demand(t, http.StatusOK)
	first.told(wire.RoomReset)
	first.nacked(first.envelope("message", c.room(), "old"), wire.MLSRetired)
	gen := generation(t, one, first.who, 2)
	first.queued(under(gen, first.envelope("message", c.room(), "new")), 3)
	awaitEvents(t, one, c.as[c.viewer], "room_reset ")
}

// STATE, "Session Establishment" and "Ratchet Desync": in a direct room the owner writes first,
// and again after either of the two asked for a new start.
func TestDirectRoomOfDevices(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	owner, agent := one.ActiveDevice(t, "human", false), one.ActiveDevice(t, "agent", false)
	self := opened(t, one, owner, testkit.RoomOptions{Kind: "direct"})
	other := added(t, one, owner, self.Room, agent, "agent")
	a, b := online(t, one, self), online(t, two, other)
	ratchet := `"hdr":"aGVhZGVy","ct":"c2VjcmV0"`
	for n := range 2 {
		b.nacked(b.envelopeWith("message", self.Room, fmt.Sprintf("early-%d", n), ratchet), wire.NotActivated)
		require.False(t, *showRoom(t, one, self.Room).Activated)
		a.queued(a.envelopeWith("message", self.Room, fmt.Sprintf("first-%d", n), ratchet), 1)
		b.delivered()
		require.True(t, *showRoom(t, one, self.Room).Activated)
		b.queued(b.envelopeWith("message", self.Room, fmt.Sprintf("reply-%d", n), ratchet), 1)
		a.delivered()
		if n == 0 {
			two.Public(t, http.MethodPost, "/v1/rooms/"+self.Room+"/reset", agent.AccessToken, nil).Demand(t, http.StatusOK)
			for _, p := range []*peer{a, b} {
				p.told(wire.RoomReset)
				require.Equal(t, agent.ID, p.told(wire.DeviceLinked).DeviceID)
			}
		}
	}
}

// Whoever joins sees nothing that was stored before: not in its inbox, not in history, not in
// notices, and as an owner not in traces.
func TestNewMemberSeesNothingFromBefore(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCrew(t, s, testkit.RoomOptions{})
	first := online(t, s, c.as[c.first])
	gen := generation(t, s, first.who, 1)
	first.queued(first.envelope("message", c.room(), "message"), 3)
	first.queued(first.envelope("message", c.as[c.second].ID, "private"), 1)
	first.queued(first.fresh("notice", gen), 3)

	late := added(t, s, c.owner, c.room(), s.ActiveDevice(t, "human", false), "owner")
	missed := awaitEvents(t, s, late, "room_joined "+late.ID)
	require.Empty(t, missed.rows)
	require.Equal(t, []string{"room_joined " + late.ID}, missed.eventsOf())
	type rows struct {
		Messages []struct{} `json:"messages"`
		Notices  []struct{} `json:"notices"`
		Traces   []struct{} `json:"traces"`
	}
	for _, path := range []string{"/history", "/notices", "/traces"} {
		seen := session[rows](t, s, late, http.MethodGet, path, nil, http.StatusOK)
		require.Empty(t, seen.Messages)
		require.Empty(t, seen.Notices)
		require.Empty(t, seen.Traces)
		seen = session[rows](t, s, c.as[c.owner], http.MethodGet, path, nil, http.StatusOK)
		require.Equal(t, 1, len(seen.Messages)+len(seen.Notices)+len(seen.Traces), path)
	}
	first.queued(first.envelope("message", c.room(), "from-now-on"), 4)
	require.Len(t, resumeOnce(t, s, late, "0").rows, 1)
}

// STATE, "Only ACTIVE devices may receive room membership", of the kind that the role is for.
func TestOnlyActiveDevicesAreAdded(t *testing.T) {
	t.Parallel()
	s := shared(t)
	owner := s.ActiveDevice(t, "human", false)
	room := opened(t, s, owner, testkit.RoomOptions{}).Room
	pending, approved := s.Enroll(t, "agent", false), s.Enroll(t, "agent", false)
	s.Approve(t, approved)
	suspended, revoked := s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "agent", false)
	moveDevice(t, s, suspended, "suspend")
	moveDevice(t, s, revoked, "revoke")
	for _, d := range []*testkit.Device{pending, approved, suspended, revoked, s.ActiveDevice(t, "human", false)} {
		addTo(t, s, owner, room, d, "agent").Refused(t, http.StatusConflict, wire.Conflict)
	}
	addTo(t, s, owner, room, &testkit.Device{ID: uuid.NewString()}, "agent").Refused(t, http.StatusNotFound, wire.NotFound)
	require.Len(t, showRoom(t, s, room).Participants, 1)
	s.SignIn(t, approved)
	s.Public(t, http.MethodPost, "/v1/rooms", approved.AccessToken, struct{}{}).Refused(t, http.StatusForbidden, wire.Forbidden)
}
