package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// couple are a human's device and an agent's in a direct room.
type couple struct {
	human, agent *testkit.Device
	owner, other testkit.Participant // the human's, the agent's
}

func newCouple(t *testing.T, s *testkit.Relay) *couple {
	t.Helper()
	c := &couple{human: s.ActiveDevice(t, "human", false), agent: s.ActiveDevice(t, "agent", false)}
	c.owner = opened(t, s, c.human, testkit.RoomOptions{Kind: "direct"})
	c.other = added(t, s, c.human, c.owner.Room, c.agent, "agent")
	return c
}

// ratchet is a message of the session, with a header. It is spelled as few programs would, and
// passes as it is.
func (p *peer) ratchet(id string) []byte {
	return p.envelopeWith("message", p.who.Room, id, ` "hdr" : "AA\/+\u0041`+fmt.Sprint(p.seq.Load())+`"  ,"ct":"c2VjcmV0", "extra":[1, 2.50]`)
}

// conversed has the human write first and the agent answer, each byte for byte.
func conversed(t *testing.T, human, agent *peer, id string) {
	t.Helper()
	agent.nacked(agent.ratchet(id+"-too-early"), wire.NotActivated)
	human.says(human.ratchet(id+"-first"), 1, agent)
	agent.says(agent.ratchet(id+"-answer"), 1, human)
}

// stored are the ids in a room's history, in the order in which they were stored.
func stored(t *testing.T, s *testkit.Relay, who testkit.Participant) (ids []string) {
	t.Helper()
	for _, row := range session[struct {
		Messages []struct {
			ID string `json:"message_id"`
		} `json:"messages"`
	}](t, s, who, http.MethodGet, "/history?order=oldest", nil, http.StatusOK).Messages {
		ids = append(ids, row.ID)
	}
	return ids
}

func activated(t *testing.T, s *testkit.Relay, id string) bool {
	t.Helper()
	room := showRoom(t, s, id)
	require.NotNil(t, room.Activated)
	return *room.Activated
}

// STATE, "Session Establishment", from prekeys to the agent's answer. The agent must not send
// before the owner has, and nothing that it sent too early turns up later.
func TestOwnerWritesFirst(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCouple(t, s)
	s.Public(t, http.MethodPut, "/v1/devices/me/prekeys", c.agent.AccessToken, c.agent.Prekeys(t, 1)).Demand(t, http.StatusOK)
	bundle := takeBundle(t, s, c.human, c.agent)
	require.NotNil(t, bundle.OneTime)

	human, agent := online(t, s, c.owner), online(t, s, c.other)
	require.False(t, activated(t, s, c.owner.Room))
	early := agent.ratchet("early")
	agent.nacked(early, wire.NotActivated)
	alive(t, agent, human) // control passes, and activates nothing
	alive(t, human, agent)
	agent.nacked(agent.ratchet("still-early"), wire.NotActivated)
	human.says(human.ratchet("hello"), 1, agent)
	require.True(t, activated(t, s, c.owner.Room))
	agent.says(agent.ratchet("answer"), 1, human)
	again := online(t, s, c.other)
	again.says(early, 1, human)
	require.Equal(t, []string{"hello", "answer", "early"}, stored(t, s, c.owner))
	require.Len(t, resumeOnce(t, s, c.owner, "0").envelopes(), 3, "one control, two messages")

	// The conversation is the room's: a message beside it is none of its scheme.
	human.nacked(human.envelope("message", c.other.ID, "beside"), wire.SchemeMismatch)
	agent.nacked(agent.envelope("message", c.owner.ID, "beside"), wire.SchemeMismatch)
	for _, members := range []string{`"ct":"QQ==","enc":"none"`, `"ct":"QQ==","kid":"AAAAAAAAAAAAAAAAAAAAAA"`} {
		human.nacked(human.envelopeWith("message", c.owner.Room, "marked", members), wire.SchemeMismatch)
	}
	alive(t, human, agent)
}

// prekeyBundle is what a session is begun with.
type prekeyBundle struct {
	IdentityKey string          `json:"identity_key"`
	Fingerprint string          `json:"fingerprint"`
	Signed      testkit.Prekey  `json:"signed_prekey"`
	OneTime     *testkit.Prekey `json:"one_time_prekey"`
}

// takeBundle takes one and checks it as a client does before it uses it.
func takeBundle(t *testing.T, s *testkit.Relay, by, of *testkit.Device) (bundle prekeyBundle) {
	t.Helper()
	s.Public(t, http.MethodGet, "/v1/devices/"+of.ID+"/prekey-bundle", by.AccessToken, nil).Into(t, &bundle)
	require.Equal(t, of.Keys.Fingerprint(), bundle.Fingerprint)
	key, err := base64.StdEncoding.DecodeString(bundle.Signed.Key)
	require.NoError(t, err)
	signature, err := base64.StdEncoding.DecodeString(bundle.Signed.Signature)
	require.NoError(t, err)
	require.True(t, identity.VerifyPrekey(of.Keys.Identity, bundle.Signed.ID, [32]byte(key), [64]byte(signature)))
	return bundle
}

// STATE, "Session Establishment": who has few prekeys left hears of it, in the room that it
// shares with who took them, live and after having been away.
func TestDeviceHearsOfItsLastPrekeys(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCouple(t, s)
	human, agent := online(t, s, c.owner), online(t, s, c.other)
	s.Public(t, http.MethodPut, "/v1/devices/me/prekeys", c.agent.AccessToken, c.agent.Prekeys(t, 11)).Demand(t, http.StatusOK)
	for n := range 11 {
		require.EqualValues(t, n+1, takeBundle(t, s, c.human, c.agent).OneTime.ID)
	}
	require.Nil(t, takeBundle(t, s, c.human, c.agent).OneTime)
	for _, left := range []int64{9, 0} {
		e := agent.told(wire.PrekeysLow)
		require.NotNil(t, e.Remaining)
		require.Equal(t, left, *e.Remaining)
	}
	alive(t, human, agent)
	alive(t, agent, human)
	require.NotContains(t, resumeOnce(t, s, c.owner, "0").eventsOf(), "prekeys_low ", "nobody else is told")
	require.Contains(t, resumeOnce(t, s, c.other, "0").eventsOf(), "prekeys_low ")
}

// On two nodes the room is activated for both as soon as the owner's message is stored:
// nothing that either node knows of the room keeps the agent's answer back, or lets it by.
func TestOwnerWritesFirstOnAnotherNode(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	c := newCouple(t, one)
	human, agent := online(t, one, c.owner), online(t, two, c.other)
	for n := range 5 {
		if n > 0 {
			c.reset(t, one, c.human)
		}
		conversed(t, human, agent, fmt.Sprintf("round-%d", n))
	}
}

// So it is behind edges, which ask for everything that they know.
func TestOwnerWritesFirstBehindEdges(t *testing.T) {
	t.Parallel()
	api := testkit.StartAPI(t)
	c := newCouple(t, api)
	human, agent := online(t, testkit.StartEdge(t, api), c.owner), online(t, testkit.StartEdge(t, api), c.other)
	conversed(t, human, agent, "edges")
	c.reset(t, api, c.agent)
	conversed(t, human, agent, "again")
	human.nacked(human.envelope("message", c.other.ID, "beside"), wire.SchemeMismatch)
}

func (c *couple) reset(t *testing.T, s *testkit.Relay, by *testkit.Device) {
	t.Helper()
	s.Public(t, http.MethodPost, "/v1/rooms/"+c.owner.Room+"/reset", by.AccessToken, nil).Demand(t, http.StatusOK)
}

// STATE, "Ratchet Desync": either one begins the session anew, both are told who did, and the
// owner writes first again, on whatever node they are.
func TestRatchetDesync(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	c := newCouple(t, one)
	human, agent := online(t, one, c.owner), online(t, two, c.other)
	conversed(t, human, agent, "before")
	for who, by := range map[*testkit.Device]testkit.Participant{c.agent: c.other, c.human: c.owner} {
		c.reset(t, two, who)
		require.False(t, activated(t, one, c.owner.Room))
		for _, p := range []*peer{human, agent} {
			p.told(wire.RoomReset)
			e := p.told(wire.DeviceLinked)
			require.Equal(t, by.ID, e.ParticipantID)
			require.Equal(t, who.ID, e.DeviceID)
		}
		conversed(t, human, agent, "after-"+by.ID)
	}
}

// An agent goes and another one comes: the session is another one, which the owner begins,
// and with its message the room is not REKEYING any more (STATE, "Member removed").
func TestAnotherAgentComes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := newCouple(t, s)
	human, former := online(t, s, c.owner), online(t, s, c.other)
	conversed(t, human, former, "former")
	removeFrom(t, s, c.human, c.other).Demand(t, http.StatusOK)
	former.closed(wire.CloseAuth)
	require.Equal(t, "REKEYING", showRoom(t, s, c.owner.Room).State)
	human.nacked(human.ratchet("to-nobody"), wire.NoRecipients)
	require.Equal(t, "REKEYING", showRoom(t, s, c.owner.Room).State)

	second := s.ActiveDevice(t, "agent", false)
	agent := online(t, s, added(t, s, c.human, c.owner.Room, second, "agent"))
	addTo(t, s, c.human, c.owner.Room, s.ActiveDevice(t, "agent", false), "agent").Refused(t, http.StatusConflict, wire.Conflict)
	require.Equal(t, "REKEYING", showRoom(t, s, c.owner.Room).State)
	require.False(t, activated(t, s, c.owner.Room))
	conversed(t, human, agent, "second")
	require.Equal(t, "ACTIVE", showRoom(t, s, c.owner.Room).State)
	require.Len(t, resumeOnce(t, s, agent.who, "0").envelopes(), 1, "nothing of the conversation before")

	// Its device is revoked: the same.
	moveDevice(t, s, second, "revoke")
	agent.closed(wire.CloseAuth)
	third := online(t, s, added(t, s, c.human, c.owner.Room, s.ActiveDevice(t, "agent", false), "agent"))
	conversed(t, human, third, "third")
	require.Equal(t, "ACTIVE", showRoom(t, s, c.owner.Room).State)
}

// A controller in the owner's place is the human of the conversation.
func TestControllerIsTheHuman(t *testing.T) {
	t.Parallel()
	s := shared(t)
	room := s.Room(t, testkit.RoomOptions{Kind: "direct"})
	controller, agent := online(t, s, s.Join(t, room, "controller")), online(t, s, s.Join(t, room, "agent"))
	require.Error(t, s.TryJoin(t, room, "owner"))
	conversed(t, controller, agent, "controlled")
	require.True(t, activated(t, s, room))
}

// An agent that writes while the owner's first message is being stored gets one verdict each
// time, and is never stored before it, whichever nodes the two are on.
func TestAgentRacesWithTheOwnersFirst(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	const rounds = 8
	for round := range rounds {
		c := newCouple(t, one)
		human, agent := online(t, one, c.owner), online(t, two, c.other)
		if round%2 == 1 {
			agent = online(t, one, c.other)
		}
		agent.nacked(agent.ratchet("before"), wire.NotActivated)
		first := human.ratchet("first")
		wrote := make(chan error, 1)
		go func() { wrote <- human.conn.SendRaw(t.Context(), first) }()
		refused := agent.writesUntilQueued(string(first))
		require.NoError(t, <-wrote)
		t.Logf("refused %d times, then stored", refused)

		want := []string{"first", fmt.Sprintf("try-%d", refused)}
		require.Equal(t, want, stored(t, one, c.owner), "the owner's is the first")
		rows := resumeOnce(t, one, c.owner, "0").envelopes()
		require.Len(t, rows, 1, "nothing that was refused is delivered")
		require.Contains(t, rows[0], want[1])
		require.Equal(t, []string{string(first)}, resumeOnce(t, two, c.other, "0").envelopes())
	}
}

// writesUntilQueued sends one message after the other, each with one verdict, and returns how
// many were refused before one was not. What it gets meanwhile is the owner's first message.
func (p *peer) writesUntilQueued(first string) (refused int) {
	p.t.Helper()
	for delivered := 0; ; {
		p.send(p.ratchet(fmt.Sprintf("try-%d", refused)))
		got := p.next()
		for ; got.Type == wire.ServerDeliver; got = p.next() {
			require.Equal(p.t, first, string(got.Envelope))
			delivered++
		}
		require.LessOrEqual(p.t, delivered, 1)
		require.Equal(p.t, fmt.Sprintf("try-%d", refused), got.ID, "the verdict of this one")
		if got.Type == wire.ServerQueued {
			return refused
		}
		require.Equal(p.t, wire.ServerNack, got.Type, "frame %s", got.Raw)
		require.Equal(p.t, wire.NotActivated, got.Reason)
		refused++
	}
}
