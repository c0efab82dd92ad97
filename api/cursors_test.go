package api_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
)

// historyCursor stores two messages, and returns the cursor after the first.
func (s *sessions) historyCursor(t *testing.T, who api.Member) string {
	t.Helper()
	s.append(t, who, "cursor-1", "x")
	s.append(t, who, "cursor-2", "x")
	var page api.History
	s.as(t, who, http.MethodGet, "/history?limit=1", "").decode(t, &page)
	require.NotEmpty(t, page.NextCursor)
	return page.NextCursor
}

// Positions rise over all tenants: who could read them in cursors could count what others
// store.
func TestCursorsTellNothing(t *testing.T) {
	t.Parallel()
	s := newSessions(t)
	owner := s.member(t, s.make(t, `{}`), "owner")
	first := s.historyCursor(t, owner)
	s.append(t, owner, "cursor-3", "x")
	var page api.History
	s.as(t, owner, http.MethodGet, "/history?limit=1&cursor="+first, "").decode(t, &page)
	require.Equal(t, "cursor-2", page.Messages[0].MessageID)
	same := 0
	one, another := rawCursor(t, first), rawCursor(t, page.NextCursor)
	for i := range one {
		if one[i] == another[i] {
			same++
		}
	}
	require.Less(t, same, 6, "of 16 bytes: neighbours have nothing in common")

	s.as(t, owner, http.MethodGet, "/history?order=newest&cursor="+first, "").refused(t, 400, "malformed_request")
	s.as(t, owner, http.MethodGet, "/notices?cursor="+first, "").refused(t, 400, "malformed_request")
	send(t, s.server, http.MethodPost, "/v1/tenants", `{"name":"alpha"}`)
	var room api.Room
	send(t, s.server, http.MethodPost, "/v1/rooms", `{}`, "Relay-Tenant", "alpha").decode(t, &room)
	answer := send(t, s.server, http.MethodGet, "/v1/sessions/"+room.ID+"/history?cursor="+first, "", "Relay-Tenant", "alpha")
	answer.refused(t, 400, "malformed_request")
}

func rawCursor(t *testing.T, cursor string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	require.Len(t, raw, 16)
	return raw
}
