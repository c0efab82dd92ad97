package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// falseAPI stands between an edge and its API, and answers what stores in the API's place
// when a test says how.
type falseAPI struct {
	*httptest.Server

	answer atomic.Pointer[http.HandlerFunc]
}

func newFalseAPI(t *testing.T, api *testkit.Relay) *falseAPI {
	t.Helper()
	target, err := url.Parse(api.URL())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f := &falseAPI{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stores := slices.Contains([]string{"/internal/v1/history", "/internal/v1/traces", "/internal/v1/notices"}, r.URL.Path)
		if answer := f.answer.Load(); stores && answer != nil {
			(*answer)(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// says answers with this status and body from now on.
func (f *falseAPI) says(status int, body string) {
	f.does(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func (f *falseAPI) does(answer http.HandlerFunc) { f.answer.Store(&answer) }
func (f *falseAPI) isTrueAgain()                 { f.answer.Store(nil) }

// behindFalseAPI is an edge whose API lies, and the API.
func behindFalseAPI(t *testing.T) (f *falseAPI, api, edge *testkit.Relay) {
	t.Helper()
	api = testkit.StartAPI(t)
	f = newFalseAPI(t, api)
	edge = testkit.StartEdge(t, api, append(slices.Clone(fast), testkit.APIURL(f.URL), testkit.StoreTimeout(3*time.Second))...)
	requireReady(t, http.StatusOK, edge)
	return f, api, edge
}

// lies are answers that say nothing (RELAY: "Any other answer of the history store").
func lies(code string, status int) map[string]http.HandlerFunc {
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	refusal := `{"error":"` + code + `"}`
	return map[string]http.HandlerFunc{
		"500":                  says(500, refusal),
		"503":                  says(503, `{"error":"unavailable"}`),
		"another status":       says(status+8, refusal),
		"an unknown code":      says(status, `{"error":"unheard_of"}`),
		"no error":             says(status, `{}`),
		"error is a number":    says(status, `{"error":1}`),
		"null":                 says(status, `null`),
		"4,097 bytes":          says(status, refusal+strings.Repeat(" ", 4097-len(refusal))),
		"two values":           says(status, refusal+`{}`),
		"junk after it":        says(status, refusal+" x"),
		"NUL after it":         says(status, refusal+"\x00"),
		"200 with nothing":     says(200, ""),
		"201 with nothing":     says(201, ""),
		"201, an empty object": says(201, "{}"),
		"204":                  says(204, ""),
		"a body that is cut":   cut(status, refusal),
		"no answer":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an answer that is due": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the caller has left
			<-r.Context().Done()
		},
	}
}

// cut declares a longer body than it sends.
func cut(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+10))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// RELAY, "A session-addressed envelope is stored in history before any XADD": each of the
// typed refusals is the nack's reason under its own status, everything else is unavailable,
// and what was refused is in no inbox (FAULTS E10).
func TestAnswersOfTheHistoryStore(t *testing.T) {
	t.Parallel()
	f, api, edge := behindFalseAPI(t)
	who := room(t, api, "agent", "agent")
	a, b := online(t, edge, who[0]), online(t, edge, who[1])
	send := func(id string, reason wire.Code) {
		t.Helper()
		a.nacked(a.envelope("message", a.who.Room, id), reason)
	}
	for code, status := range map[wire.Code]int{
		wire.MLSSchemeDisabled: 403, wire.SchemeMismatch: 409, wire.MLSRetired: 409, wire.MLSRemovalPending: 409,
		wire.MLSUnknown: 404, wire.HistoryConflict: 409, wire.MalformedRequest: 400, wire.InvalidFilePart: 422,
	} {
		f.says(status, `{"error":"`+string(code)+`","detail":"x"}`+"\r\n\t ")
		send("refused", code)
		f.says(status+1, `{"error":"`+string(code)+`"}`)
		send("refused", wire.Unavailable)
	}
	for name, lie := range lies("history_conflict", http.StatusConflict) {
		f.does(lie)
		send(strings.ReplaceAll(name, " ", "_"), wire.Unavailable)
	}
	alive(t, a, b)
	f.isTrueAgain()
	sent := a.envelope("message", a.who.Room, "refused")
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope), "the id was not used up")
	require.Len(t, resumeOnce(t, edge, who[1], "0").rows, 2)
}

// RELAY, "A trace failure refuses delivery", "A private-aside API refusal overrides an
// allowing roster response"; FAULTS E09: whatever the trace store does instead of saying
// that it has committed, nothing is delivered, and the connection serves the rest.
func TestAnswersOfTheTraceStore(t *testing.T) {
	t.Parallel()
	f, api, edge := behindFalseAPI(t)
	who := room(t, api, "agent", "agent")
	a, b := online(t, edge, who[0]), online(t, edge, who[1])
	private := func(id, members string, reason wire.Code) {
		t.Helper()
		a.nacked(a.envelopeWith("message", who[1].ID, id, members), reason)
	}
	f.says(http.StatusForbidden, `{"error":"private_refused"}`)
	private("refused", padding(1), wire.PrivateRefused)
	for name, lie := range lies("private_refused", http.StatusForbidden) {
		f.does(lie)
		private(strings.ReplaceAll(name, " ", "_"), declaredFile, wire.Unavailable)
	}
	private("no-file", padding(1), wire.Unavailable)
	for _, kind := range []string{"senderkey", "control", "key_request"} {
		a.queued(a.envelope(kind, who[1].ID, kind), 1)
		b.delivered()
	}
	f.isTrueAgain()
	sent := a.envelope("message", who[1].ID, "refused")
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
	a.queued(a.envelope("message", a.who.Room, "to-all"), 1)
	require.Len(t, resumeOnce(t, edge, who[1], "0").rows, 5)
}

// RELAY, "The writer's refusals": through an edge, each under its own status; whatever else
// is unavailable, and the notice may have been stored.
func TestAnswersOfTheNoticeStore(t *testing.T) {
	t.Parallel()
	f, api, edge := behindFalseAPI(t)
	who := room(t, api, "agent", "agent")
	gen := generation(t, api, who[0], 1)
	a, b := online(t, edge, who[0]), online(t, edge, who[1])
	for code, status := range map[wire.Code]int{
		wire.NoticeNotPermitted: 403, wire.InvalidEnvelope: 400, wire.NoticeStale: 409, wire.NoticeCap: 409,
		wire.NoticeIDConflict: 409, wire.NoticeInvalidGen: 409, wire.NoticeDuplicate: 409,
	} {
		f.says(status, `{"error":"`+string(code)+`"}`)
		a.nacked(a.fresh("refused", gen), code)
		f.says(status+1, `{"error":"`+string(code)+`"}`)
		a.nacked(a.fresh("refused", gen), wire.Unavailable)
	}
	for name, lie := range lies("notice_stale", http.StatusConflict) {
		f.does(lie)
		a.nacked(a.fresh(strings.ReplaceAll(name, " ", "_"), gen), wire.Unavailable)
	}
	f.isTrueAgain()
	alive(t, a, b)
	sent := a.fresh("refused", gen)
	a.queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
	require.Len(t, resumeOnce(t, edge, who[1], "0").rows, 2)
}

// FAULTS E09: the table of traces is locked, so that the commit does not come in time.
func TestLockedTracesRefuseDelivery(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database), testkit.StoreTimeout(3*time.Second))
	who := room(t, s, "agent", "agent", "owner")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	alive(t, a, b)
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	lock, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK message_traces IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	sent := a.envelope("message", who[1].ID, "private")
	a.nacked(sent, wire.Unavailable)
	a.nacked(a.envelopeWith("message", who[1].ID, "with-file", declaredFile), wire.Unavailable)
	for _, kind := range []string{"senderkey", "control", "key_request"} {
		a.queued(a.envelope(kind, who[1].ID, kind), 1)
		b.delivered()
	}
	a.queued(a.envelope("message", a.who.Room, "to-all"), 2)
	b.delivered()
	require.NoError(t, lock.Rollback(t.Context()))

	connect(t, s, who[0]).queued(sent, 1)
	require.Equal(t, string(sent), string(b.delivered().Envelope))
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 6)
	found := session[traces](t, s, who[2], http.MethodGet, "/traces", nil, http.StatusOK).Traces
	require.Contains(t, []int{1, 2}, len(found), "the one that was delivered, and perhaps the one that was in doubt")
}

// RELAY, "A private-aside API refusal overrides an allowing roster response": the store
// knows a policy that the relay does not know yet.
func TestStoreOverridesTheRoster(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database))
	who := room(t, s, "agent", "agent", "owner")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	a.queued(a.envelope("message", who[1].ID, "allowed"), 1) // and the relay keeps the roster
	b.delivered()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), "UPDATE rooms SET private_messages = 'refused'")
	require.NoError(t, err)
	a.nacked(a.envelope("message", who[1].ID, "refused"), wire.PrivateRefused)
	alive(t, a, b)
	require.Len(t, resumeOnce(t, s, who[1], "0").rows, 2)
	require.Len(t, session[traces](t, s, who[2], http.MethodGet, "/traces", nil, http.StatusOK).Traces, 1)
}

// RELAY, "Any other failure answers unavailable: the notice may have been stored, so a
// sender must not resend it": the writer accepted it and no inbox has it, which is never
// partial, and never made good by sending it again.
func TestNoticeWithoutInboxes(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	s := unlimited(t, testkit.NATSURL(broker.URL()), testkit.InboxTimeout(time.Second))
	who := room(t, s, "agent", "agent")
	gen := generation(t, s, who[0], 1)
	a, b := online(t, s, who[0]), online(t, s, who[1])
	alive(t, a, b)
	broker.Stop()
	requireReady(t, http.StatusServiceUnavailable, s)
	sent := a.fresh("lost", gen)
	a.nacked(sent, wire.Unavailable)
	broker.Start(t)
	requireReady(t, http.StatusOK, s)
	connect(t, s, who[0]).nacked(sent, wire.NoticeDuplicate)
	require.Empty(t, drained(t, s, who[0], b, "after"))
	for _, row := range resumeOnce(t, s, who[1], "0").rows {
		require.NotEqual(t, string(sent), string(row.Envelope), "stored is not delivered")
	}
}
