package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// traces is what GET /v1/sessions/{id}/traces answers, as far as these tests look.
type traces struct {
	Traces []struct {
		Event     string `json:"event"`
		MessageID string `json:"message_id"`
		From      string `json:"from"`
		To        string `json:"to"`
		TS        int64  `json:"ts"`
		File      *struct {
			Name      string `json:"name"`
			MIMEType  string `json:"mime_type"`
			SizeBytes int64  `json:"size_bytes"`
			Declared  *bool  `json:"declared"`
		} `json:"file"`
	} `json:"traces"`
}

const declaredFile = `"ct":"c2VjcmV0","file":{"name":"plan\u00e9.txt","mimeType":"text/plain","sizeBytes":12}`

// RELAY: the relay commits a durable message.private event before it delivers an
// agent-to-agent message, with the file as declared and nothing of the content; the
// owner reads it later, newest first.
func TestPrivateMessagesAreTraced(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner", "viewer")
	a, b, owner := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	for _, members := range []string{`"ct":"c2VjcmV0"`, declaredFile} {
		sent := a.envelopeWith("message", who[1].ID, "p"+members[len(members)-3:len(members)-2], members)
		require.Contains(t, a.queued(sent, 1), who[1].ID)
		require.Equal(t, string(sent), string(b.delivered().Envelope))
	}
	alive(t, a, owner) // RELAY: nothing is pushed about them, private_aside least of all
	found := session[traces](t, s, who[2], http.MethodGet, "/traces", nil, http.StatusOK).Traces
	require.Len(t, found, 2)
	require.NotNil(t, found[0].File, "newest first")
	require.Equal(t, "plané.txt", found[0].File.Name)
	require.Equal(t, "text/plain", found[0].File.MIMEType)
	require.EqualValues(t, 12, found[0].File.SizeBytes)
	require.True(t, *found[0].File.Declared)
	require.Nil(t, found[1].File, "no declaration")
	for _, trace := range found {
		require.Equal(t, "message.private", trace.Event)
		require.Equal(t, who[0].ID, trace.From)
		require.Equal(t, who[1].ID, trace.To)
		require.Positive(t, trace.TS)
	}
	for _, other := range []testkit.Participant{who[0], who[3]} {
		status, body := ask(t, s, other, http.MethodGet, "/v1/sessions/"+other.Room+"/traces", nil)
		require.Equal(t, http.StatusForbidden, status, "%s", body)
	}
	_, body := ask(t, s, who[2], http.MethodGet, "/v1/sessions/"+who[2].Room+"/traces", nil)
	require.NotContains(t, string(body), "c2VjcmV0", "no ciphertext in the trace")
	_, body = ask(t, s, who[2], http.MethodGet, "/v1/sessions/"+who[2].Room+"/history", nil)
	require.NotContains(t, string(body), "c2VjcmV0", "pairwise messages are never copied into history")
}

// RELAY: the policy covers messages from agent to agent only.
func TestOtherEnvelopesLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := shared(t)
	id := s.Room(t, testkit.RoomOptions{PrivateMessages: "refused"})
	var who []testkit.Participant
	for _, role := range []string{"agent", "agent", "owner"} {
		who = append(who, s.Join(t, id, role))
	}
	a, owner := connect(t, s, who[0]), connect(t, s, who[2])
	for _, kind := range []string{"senderkey", "control", "key_request"} {
		a.queued(a.envelope(kind, who[1].ID, kind), 1)
	}
	a.queued(a.envelope("message", who[2].ID, "to-a-human"), 1)
	owner.queued(owner.envelope("message", who[0].ID, "from-a-human"), 1)
	a.nacked(a.envelope("message", who[1].ID, "refused"), wire.PrivateRefused)
	a.queued(a.envelopeWith("message", a.who.Room, "to-the-room", declaredFile), 2)
	require.Empty(t, session[traces](t, s, who[2], http.MethodGet, "/traces", nil, http.StatusOK).Traces)
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 4)
	require.Len(t, resumeOnce(t, s, who[0], "0").rows, 1)
}

// DESIGN section 7 and FAULTS E05: the same bytes are the same message and are completed,
// not repeated; the id under other bytes, or of a session message, is a conflict.
func TestPrivateMessageSentAgain(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	first := connect(t, s, who[0])
	sent := first.envelope("message", who[1].ID, "again")
	ids := first.queued(sent, 1)
	require.Equal(t, ids, connect(t, s, who[0]).queued(sent, 1), "found where it is")
	connect(t, s, who[0]).nacked([]byte(strings.Replace(string(sent), "{", "{ ", 1)), wire.HistoryConflict)

	both := connect(t, s, who[0])
	both.queued(both.envelope("message", who[0].Room, "taken"), 2)
	both.nacked(both.envelope("message", who[1].ID, "taken"), wire.HistoryConflict)

	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 2)
	require.Len(t, session[traces](t, s, who[2], http.MethodGet, "/traces", nil, http.StatusOK).Traces, 1)
}

// FAULTS E09, RELAY: a trace that cannot be committed refuses delivery, and the
// connection serves everything else.
func TestTraceFailureRefusesDelivery(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := testkit.Start(t, testkit.Database(database))
	who := room(t, s, "agent", "agent", "owner")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	owner, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close(t.Context()) })

	_, err = owner.Exec(t.Context(), "REVOKE INSERT ON message_traces FROM relay_service")
	require.NoError(t, err)
	a.nacked(a.envelope("message", who[1].ID, "private"), wire.Unavailable)
	a.nacked(a.envelopeWith("message", who[1].ID, "with-file", declaredFile), wire.Unavailable)
	alive(t, a, b)
	a.queued(a.envelope("message", who[0].Room, "session"), 2)
	require.Equal(t, wire.ServerDeliver, b.next().Type)
	for _, kind := range []string{"senderkey", "key_request"} {
		a.queued(a.envelope(kind, who[1].ID, kind), 1)
		b.delivered()
	}
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 4, "and nothing of the private ones")

	_, err = owner.Exec(t.Context(), "GRANT INSERT ON message_traces TO relay_service")
	require.NoError(t, err)
	sent := a.envelope("message", who[1].ID, "private")
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
}
