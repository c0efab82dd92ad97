package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
)

// Nodes cache a room's state: that it is ACTIVE again, since the last sender has a new
// generation, is in force everywhere before the answer, with the version it has then.
func TestTheEndOfARekeyingIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	room := s.room(t).ID
	agent, leaver := s.member(t, room, "agent"), s.member(t, room, "agent")
	allocate := func(kid string, want int) {
		t.Helper()
		answer := send(t, s.public, http.MethodPost, "/v1/sessions/"+room+"/sender-generations",
			`{"kid":"`+kid+`","session_key":"QQ=="}`, "Content-Type", "application/json", "Authorization", "Bearer "+agent.Credential)
		require.Equal(t, want, answer.status, answer.body)
	}
	allocate("AAECAwQFBgcICQoLDA0ODw", http.StatusCreated)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/rooms/"+room+"/members/"+leaver.ParticipantID, "").status)
	s.there.take()
	allocate("AAECAwQFBgcICQoLDA0OEA", http.StatusCreated)
	var now struct {
		State   string `json:"state"`
		Version int64  `json:"version"`
	}
	s.send(t, http.MethodGet, "/v1/rooms/"+room, "").decode(t, &now)
	require.Equal(t, "ACTIVE", now.State)
	changes := s.there.take()
	requireOneChange(t, changes)
	require.Equal(t, cluster.Change{Tenant: changes[0].Tenant, Room: uuid.MustParse(room), Version: now.Version}, changes[0])
	allocate("AAECAwQFBgcICQoLDA0OEA", http.StatusOK)
	require.Empty(t, s.there.take(), "nothing changed")
}

// FAULTS BL-H08: a member who may not remove others closes nobody's sockets by asking for it
// while the store's answer is lost.
func TestAMembersRequestInDoubtClosesNobody(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent, second := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "agent", false)
	room := s.opened(t, owner, `{}`)
	member := s.added(t, owner, room.ID, agent, "agent")
	s.added(t, owner, room.ID, second, "agent")
	s.there.take()
	s.fault.set(func(f *faults) { f.fail = true })
	s.by(t, second, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+member.ParticipantID, "").refused(t, 503, "unavailable")
	changes := s.there.take()
	requireOneChange(t, changes)
	require.Empty(t, changes[0].Removed)
}

// What one device takes of others is bounded over HTTP, whether there is something to take or
// not; others are not concerned.
func TestTakingBundlesIsLimited(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newStack(t, func(c *api.Config) {
		c.Now = func() time.Time { return now }
		c.Limits = api.Limits{TokenPerSecond: -1, AddressPerSecond: -1}
	})
	owner, agent := s.direct(t)
	for range 60 {
		s.takeBundle(t, owner, agent).refused(t, 404, "not_found")
	}
	s.takeBundle(t, owner, agent).refused(t, 429, "rate_limited")
	s.takeBundle(t, agent, owner).refused(t, 404, "not_found")
}
