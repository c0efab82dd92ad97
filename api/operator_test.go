package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/inbox"
)

func TestRoomWithItsMembers(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	require.Equal(t, "group", room.Kind)
	require.Equal(t, "sender_keys", room.Scheme)
	require.Equal(t, "allowed", room.PrivateMessages)
	require.Equal(t, "CREATED", room.State)

	owner, agent := s.member(t, room.ID, "owner"), s.member(t, room.ID, "agent")
	require.True(t, s.valid(t, owner.Credential))
	require.True(t, s.valid(t, agent.Credential))
	require.WithinDuration(t, time.Now().Add(24*time.Hour), agent.ExpiresAt, time.Hour)
	for _, r := range []*recorder{s.here, s.there} {
		require.GreaterOrEqual(t, len(r.take()), 2, "nodes look the roster up again before the answer")
	}

	var list api.Participants
	s.send(t, http.MethodGet, "/v1/sessions/"+room.ID+"/participants", "").decode(t, &list)
	require.Len(t, list.Participants, 2)
	require.Equal(t, owner.ParticipantID, list.Participants[0].ParticipantID)
	require.Equal(t, agent.DeviceID, list.Participants[1].DeviceID)
	require.Empty(t, list.NextCursor)

	var now api.Room
	s.send(t, http.MethodGet, "/v1/rooms/"+room.ID, "").decode(t, &now)
	require.Equal(t, "ACTIVE", now.State)

	path := "/v1/rooms/" + room.ID + "/members/" + agent.ParticipantID
	answer := s.send(t, http.MethodDelete, path, "")
	require.Equal(t, http.StatusOK, answer.status, answer.body)
	require.False(t, s.valid(t, agent.Credential))
	require.True(t, s.valid(t, owner.Credential))
	for _, r := range []*recorder{s.here, s.there} {
		changes := r.take()
		requireOneChange(t, changes)
		require.Equal(t, []uuid.UUID{uuid.MustParse(agent.ParticipantID)}, changes[0].Removed)
		require.Equal(t, room.ID, changes[0].Room.String())
		require.Greater(t, changes[0].Version, now.Version)
	}
	require.NotContains(t, s.log.String(), owner.Credential)
	require.NotContains(t, s.log.String(), agent.Credential)
}

func TestDirectRoom(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	var room api.Room
	s.send(t, http.MethodPost, "/v1/rooms", `{"kind":"direct","private_messages":"refused"}`).decode(t, &room)
	require.Equal(t, "double_ratchet", room.Scheme)
	require.Equal(t, "refused", room.PrivateMessages)
	s.member(t, room.ID, "owner")
	s.member(t, room.ID, "agent")
	s.send(t, http.MethodPost, "/v1/rooms/"+room.ID+"/members", `{"role":"agent"}`).refused(t, 409, "conflict")
}

func TestRemovingIsRepeatable(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room, other := s.room(t), s.room(t)
	agent, elsewhere := s.member(t, room.ID, "agent"), s.member(t, other.ID, "agent")
	path := "/v1/rooms/" + room.ID + "/members/" + agent.ParticipantID
	s.there.take()

	s.fault.set(func(f *faults) { f.announces = 1 })
	answer := s.send(t, http.MethodDelete, path, "")
	answer.refused(t, 503, "unavailable")
	require.Contains(t, answer.body, "committed")
	require.False(t, s.valid(t, agent.Credential), "it is committed")
	require.Empty(t, s.there.take())

	for range 2 {
		require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, path, "").status)
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, agent.ParticipantID, changes[0].Removed[0].String())
	}

	s.send(t, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+uuid.NewString(), "").refused(t, 404, "not_found")
	s.send(t, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+elsewhere.ParticipantID, "").refused(t, 404, "not_found")
	require.True(t, s.valid(t, elsewhere.Credential), "a member of another room keeps what it has")
	s.send(t, http.MethodDelete, "/v1/rooms/"+uuid.NewString()+"/members/"+agent.ParticipantID, "").refused(t, 404, "not_found")
	require.Empty(t, s.there.take())
}

// The answer of the store is lost after the commit: the caller is told that it is not
// known, and every node acts as if it had happened.
func TestChangeInDoubtIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent, second := s.member(t, room.ID, "agent"), s.member(t, room.ID, "agent")
	s.there.take()
	s.fault.set(func(f *faults) { f.lose = true })
	for _, c := range []struct {
		method, path, body string
		check              func(cluster.Change) bool
	}{
		{http.MethodDelete, "/v1/credentials/" + agent.CredentialID, "", func(c cluster.Change) bool { return len(c.Credentials) == 1 }},
		{http.MethodDelete, "/v1/participants/" + second.ParticipantID + "/credentials", "", func(c cluster.Change) bool { return len(c.Removed) == 1 }},
		{http.MethodDelete, "/v1/rooms/" + room.ID + "/members/" + agent.ParticipantID, "", func(c cluster.Change) bool { return len(c.Removed) == 1 }},
		{http.MethodPut, "/v1/freeze", `{"frozen":true}`, func(c cluster.Change) bool { return c.Frozen }},
	} {
		s.send(t, c.method, c.path, c.body).refused(t, 503, "unavailable")
		changes := s.there.take()
		requireOneChange(t, changes)
		require.True(t, c.check(changes[0]), "%s: %+v", c.path, changes[0])
	}
	require.Contains(t, s.log.String(), errFault.Error(), "the cause is logged")
}

func TestCallerWhoGoesAwayLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent := s.member(t, room.ID, "agent")
	s.there.take()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://relay/v1/rooms/"+room.ID+"/members/"+agent.ParticipantID, http.NoBody)
	require.NoError(t, err)
	s.api.Socket().ServeHTTP(discard{}, request)
	require.False(t, s.valid(t, agent.Credential))
	requireOneChange(t, s.there.take())
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func TestAddingWithoutAnnouncementWarns(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	s.fault.set(func(f *faults) { f.announces = 1 })
	member := s.member(t, room.ID, "viewer")
	require.NotEmpty(t, member.Warning)
	require.True(t, s.valid(t, member.Credential), "the credential is not lost to it")
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room, other := s.room(t), s.room(t)
	agent := s.member(t, room.ID, "agent")
	s.there.take()

	var minted api.Credential
	answer := s.send(t, http.MethodPost, "/v1/rooms/"+room.ID+"/credentials", `{"participant_id":"`+agent.ParticipantID+`","kind":"development","ttl_seconds":600}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	answer.decode(t, &minted)
	require.Equal(t, "development", minted.Kind)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), minted.ExpiresAt, 5*time.Minute)
	require.Len(t, minted.Credential, 43)
	require.True(t, s.valid(t, minted.Credential))
	s.send(t, http.MethodPost, "/v1/rooms/"+other.ID+"/credentials", `{"participant_id":"`+agent.ParticipantID+`"}`).refused(t, 404, "not_found")

	var second api.Credential
	s.send(t, http.MethodPost, "/v1/participants/"+agent.ParticipantID+"/credentials", `{}`).decode(t, &second)
	require.True(t, s.valid(t, second.Credential))

	s.fault.set(func(f *faults) { f.announces = 1 })
	one := "/v1/credentials/" + minted.CredentialID
	s.send(t, http.MethodDelete, one, "").refused(t, 503, "unavailable")
	require.JSONEq(t, `{"revoked":0}`, s.send(t, http.MethodDelete, one, "").body, "done before")
	changes := s.there.take()
	requireOneChange(t, changes)
	require.Equal(t, minted.CredentialID, changes[0].Credentials[0].String())
	require.False(t, s.valid(t, minted.Credential))
	require.True(t, s.valid(t, agent.Credential))

	all := "/v1/participants/" + agent.ParticipantID + "/credentials"
	require.JSONEq(t, `{"revoked":2}`, s.send(t, http.MethodDelete, all, "").body)
	changes = s.there.take()
	require.Len(t, changes[0].Credentials, 2)
	require.Equal(t, room.ID, changes[0].Room.String())
	require.False(t, s.valid(t, agent.Credential))
	require.False(t, s.valid(t, second.Credential))
	require.JSONEq(t, `{"revoked":0}`, s.send(t, http.MethodDelete, all, "").body)
	changes = s.there.take()
	require.Equal(t, agent.ParticipantID, changes[0].Removed[0].String(), "a repetition closes what is open all the same")
	require.Equal(t, room.ID, changes[0].Room.String())

	s.send(t, http.MethodDelete, "/v1/credentials/"+uuid.NewString(), "").refused(t, 404, "not_found")
	s.send(t, http.MethodDelete, "/v1/participants/"+uuid.NewString()+"/credentials", "").refused(t, 404, "not_found")
	s.send(t, http.MethodPost, "/v1/participants/"+uuid.NewString()+"/credentials", `{}`).refused(t, 404, "not_found")
	require.Empty(t, s.there.take())
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	require.JSONEq(t, `{"frozen":false}`, s.send(t, http.MethodGet, "/v1/freeze", "").body)
	s.fault.set(func(f *faults) { f.announces = 1 })
	s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`).refused(t, 503, "unavailable")
	require.JSONEq(t, `{"frozen":true}`, s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`).body)
	require.JSONEq(t, `{"frozen":true}`, s.send(t, http.MethodGet, "/v1/freeze", "").body)
	require.JSONEq(t, `{"frozen":false}`, s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":false}`).body)
	changes := s.there.take()
	changes = slices.CompactFunc(changes, func(a, b cluster.Change) bool { return a.Frozen == b.Frozen }) // may be repeated
	require.Len(t, changes, 2)
	require.True(t, changes[0].Frozen)
	require.True(t, changes[1].Thawed)
	require.Equal(t, uuid.Nil, changes[0].Room)
}

func TestParticipantsInPages(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	var want []string
	for range 5 {
		want = append(want, s.member(t, room.ID, "agent").ParticipantID)
	}
	for _, limit := range []int{1, 2, 5, 500} {
		var got []string
		path := fmt.Sprintf("/v1/sessions/%s/participants?limit=%d", room.ID, limit)
		cursor := ""
		for range 10 {
			var page api.Participants
			s.send(t, http.MethodGet, path+cursor, "").decode(t, &page)
			require.LessOrEqual(t, len(page.Participants), limit)
			for _, p := range page.Participants {
				got = append(got, p.ParticipantID)
			}
			if page.NextCursor == "" {
				break
			}
			cursor = "&cursor=" + page.NextCursor
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "limit=1&limit=2", "cursor=x", "cursor=!!", "page=1", "Limit=1"} {
		s.send(t, http.MethodGet, "/v1/sessions/"+room.ID+"/participants?"+query, "").refused(t, 400, "malformed_request")
	}
	s.send(t, http.MethodGet, "/v1/sessions/"+uuid.NewString()+"/participants", "").refused(t, 404, "not_found")
}

func TestInbox(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent := s.member(t, room.ID, "agent")
	path := "/v1/participants/" + agent.ParticipantID + "/inbox"
	var empty api.Inbox
	s.send(t, http.MethodGet, path, "").decode(t, &empty)
	require.Zero(t, empty.Messages)
	require.Nil(t, empty.OldestID)

	message := inbox.Message{Room: uuid.MustParse(room.ID), To: []uuid.UUID{uuid.MustParse(agent.ParticipantID)}, Payload: []byte(`{}`)}
	first, err := s.inboxes.Write(t.Context(), message)
	require.NoError(t, err)
	last, err := s.inboxes.Write(t.Context(), message)
	require.NoError(t, err)
	var full api.Inbox
	s.send(t, http.MethodGet, path, "").decode(t, &full)
	require.EqualValues(t, 2, full.Messages)
	require.Equal(t, first[0].String(), *full.OldestID)
	require.Equal(t, last[0].String(), *full.NewestID)
	require.Equal(t, "inbox."+strings.TrimPrefix(full.Stream, "INBOX_")+"."+room.ID+"."+agent.ParticipantID, full.Subject)
	require.Contains(t, full.Commands[0], "nats --context '/data dir/nats/context.json' stream view "+full.Stream+" --subject "+full.Subject)
	s.send(t, http.MethodGet, "/v1/participants/"+uuid.NewString()+"/inbox", "").refused(t, 404, "not_found")
}
