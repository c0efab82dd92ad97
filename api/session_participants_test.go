package api_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/testkit"
)

// credential mints one of the participant that a device is in a room.
func (s *stack) credential(t *testing.T, d *testkit.Device, room string) string {
	t.Helper()
	var minted api.Credential
	s.by(t, d, http.MethodPost, "/v1/rooms/"+room+"/credentials", `{}`).decode(t, &minted)
	return minted.Credential
}

// Whoever was away verifies messages of somebody who has left meanwhile.
func TestParticipantsArePastAndPresent(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	human, leaves, early, late := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "agent", false), s.device(t, "agent", false)
	room := s.opened(t, human, `{}`)
	member := s.added(t, human, room.ID, leaves, "agent")
	s.added(t, human, room.ID, early, "agent")
	local := s.member(t, room.ID, "viewer")
	address := "/v1/sessions/" + room.ID + "/participants/"
	text := base64.StdEncoding.EncodeToString
	shown := func(token, participant string) (found api.RoomMember) {
		t.Helper()
		answer := s.as(t, token, http.MethodGet, address+participant)
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		answer.decode(t, &found)
		return found
	}
	before, own := s.credential(t, early, room.ID), s.credential(t, leaves, room.ID)
	now := shown(before, member.ParticipantID)
	require.Equal(t, api.RoomMember{
		ParticipantID: member.ParticipantID, DeviceID: leaves.ID, Role: "agent", JoinedAt: now.JoinedAt,
		IdentityKey: text(leaves.Keys.Identity[:]), AgreementKey: text(leaves.Keys.Agreement[:]),
		AgreementSignature: text(leaves.Keys.AgreementSignature[:]),
	}, now)
	require.WithinDuration(t, time.Now(), now.JoinedAt, time.Hour)
	require.Empty(t, shown(before, local.ParticipantID).IdentityKey, "a device that the operator made has no keys")

	removed := s.by(t, human, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+member.ParticipantID, "")
	require.Equal(t, http.StatusOK, removed.status, removed.body)
	s.added(t, human, room.ID, late, "agent")
	for _, token := range []string{before, local.Credential, s.token} {
		then := shown(token, member.ParticipantID)
		require.False(t, then.LeftAt.Before(then.JoinedAt))
		require.WithinDuration(t, time.Now(), then.LeftAt, time.Hour)
		then.LeftAt = time.Time{}
		require.Equal(t, now, then, "as before, with the same keys")
	}
	s.as(t, own, http.MethodGet, address+member.ParticipantID).refused(t, 401, "unauthorized")

	// Who joined later sees nobody from before, as of one that never was.
	after := s.credential(t, late, room.ID)
	require.Equal(t, early.ID, shown(after, shown(before, participantOf(t, s, human, room.ID, early)).ParticipantID).DeviceID)
	missing := s.as(t, after, http.MethodGet, address+uuid.NewString())
	missing.refused(t, 404, "not_found")
	hidden := s.as(t, after, http.MethodGet, address+member.ParticipantID)
	hidden.refused(t, 404, "not_found")
	require.Equal(t, missing.body, hidden.body)
}

// participantOf is who a device is in a room.
func participantOf(t *testing.T, s *stack, by *testkit.Device, room string, d *testkit.Device) string {
	t.Helper()
	var found api.Room
	s.by(t, by, http.MethodGet, "/v1/rooms/"+room, "").decode(t, &found)
	for _, p := range found.Participants {
		if p.DeviceID == d.ID {
			return p.ParticipantID
		}
	}
	require.Fail(t, "not in the room")
	return ""
}

func TestParticipantsOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room, other := s.room(t), s.room(t)
	mine, theirs := s.member(t, room.ID, "agent"), s.member(t, other.ID, "agent")
	address := "/v1/sessions/" + room.ID + "/participants/"
	missing := s.as(t, mine.Credential, http.MethodGet, address+uuid.NewString())
	for _, path := range []string{
		address + theirs.ParticipantID,
		"/v1/sessions/" + other.ID + "/participants/" + theirs.ParticipantID, "/v1/sessions/" + other.ID + "/participants/" + mine.ParticipantID,
	} {
		answer := s.as(t, mine.Credential, http.MethodGet, path)
		answer.refused(t, 404, "not_found")
		require.Equal(t, missing.body, answer.body, path)
	}
	for _, none := range []string{strings.ToUpper(mine.ParticipantID), "me"} {
		s.as(t, mine.Credential, http.MethodGet, address+none).refused(t, 404, "not_found")
	}
	s.as(t, "", http.MethodGet, address+mine.ParticipantID).refused(t, 401, "unauthorized")
	s.as(t, mine.Credential, http.MethodGet, address+mine.ParticipantID+"?x=1").refused(t, 400, "malformed_request")
}
