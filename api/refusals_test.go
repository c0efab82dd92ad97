package api_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A refusal names the state or right that is missing, to those who may know of the room; for
// others there is none.
func TestRefusalsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent, stranger := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "human", false)
	room := s.opened(t, owner, `{}`)
	path := "/v1/rooms/" + room.ID
	add := `{"role":"agent","device_id":"` + agent.ID + `"}`
	require.Equal(t, http.StatusCreated, s.by(t, owner, http.MethodPost, path+"/members", add).status)

	refused := func(answer response, status int, code, detail string) {
		t.Helper()
		answer.refused(t, status, code)
		require.Contains(t, answer.body, detail)
	}
	managers := "only the room's owners and the tenant's admins may do this"
	refused(s.by(t, owner, http.MethodPost, path+"/members", add), 409, "conflict", "the device is in the room already")
	refused(s.by(t, owner, http.MethodPost, path+"/members", `{"role":"owner","device_id":"`+agent.ID+`"}`), 409, "conflict", "a device of kind agent is no owner")
	refused(s.by(t, agent, http.MethodPost, path+"/archive", ""), 403, "forbidden", managers)
	refused(s.by(t, agent, http.MethodPost, path+"/reset", ""), 403, "forbidden", managers)
	refused(s.by(t, agent, http.MethodDelete, path+"/members/"+room.ParticipantID, ""), 403, "forbidden", managers)
	refused(s.by(t, agent, http.MethodPost, "/v1/rooms", `{}`), 403, "forbidden", "only an ACTIVE device of a person makes rooms")
	refused(s.by(t, owner, http.MethodPost, "/v1/rooms", `{"scheme":"double_ratchet"}`), 400, "malformed_request", "double_ratchet is for kind direct")
	plain := s.opened(t, owner, `{"kind":"direct","scheme":"none"}`)
	require.Nil(t, plain.Activated, "it means nothing there")
	refused(s.by(t, owner, http.MethodPost, "/v1/rooms/"+plain.ID+"/reset", ""), 409, "conflict", "has no encryption to begin anew")

	require.Equal(t, http.StatusOK, s.by(t, owner, http.MethodPost, path+"/archive", "").status)
	refused(s.by(t, owner, http.MethodPost, path+"/reset", ""), 409, "conflict", "the room is ARCHIVED")
	known := s.by(t, stranger, http.MethodPost, path+"/reset", "")
	known.refused(t, 404, "not_found")
	require.Equal(t, s.by(t, stranger, http.MethodPost, "/v1/rooms/"+uuid.NewString()+"/reset", "").body, known.body, "as one that does not exist")
}
