package api_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// edgeStore stands for the store behind the internal endpoints: it notes what it is
// given, and answers as it is told.
type edgeStore struct {
	api.Store

	mu       sync.Mutex
	messages []store.Message
	traces   []store.Trace
	notices  []store.Notice
	answer   func(id string) (store.Appended, error) // nil: stored
	hold     chan struct{}                           // when not nil, Ping waits for it
	held     chan struct{}
}

func (s *edgeStore) say(id string) (store.Appended, error) {
	if s.answer == nil {
		return store.Appended{}, nil
	}
	return s.answer(id)
}

func (s *edgeStore) AppendMessage(_ context.Context, m store.Message) (store.Appended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
	return s.say(m.ID)
}

func (s *edgeStore) AppendTrace(_ context.Context, t store.Trace) (store.Appended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces = append(s.traces, t)
	return s.say(t.MessageID)
}

func (s *edgeStore) AppendNotice(_ context.Context, n store.Notice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, n)
	_, err := s.say(n.ID)
	return err
}

func (s *edgeStore) Ping(context.Context) error {
	if s.hold != nil {
		s.held <- struct{}{}
		<-s.hold
	}
	return nil
}

func (*edgeStore) Roster(context.Context, uuid.UUID, uuid.UUID) (store.Roster, error) {
	return store.Roster{}, store.ErrNotFound
}

func (*edgeStore) ValidCredentials(_ context.Context, _ uuid.UUID, ids []uuid.UUID) ([]uuid.UUID, error) {
	return ids, nil
}

func (*edgeStore) RoomVersions(context.Context, uuid.UUID, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, nil
}

func (*edgeStore) Authenticate(context.Context, store.TokenHash) (store.Identity, error) {
	return store.Identity{}, store.ErrUnauthenticated
}

// counts are how many messages, traces and notices the store was given.
func (s *edgeStore) counts() [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [3]int{len(s.messages), len(s.traces), len(s.notices)}
}

type unusedParts struct {
	api.Announcer
	api.Inboxes
}

// internal is an API over an edgeStore.
type internal struct {
	store   *edgeStore
	handler http.Handler
	token   string
	log     *logBuffer
}

func newInternal(t *testing.T, options ...func(*api.Config)) *internal {
	t.Helper()
	token, hash := store.NewToken()
	n := &internal{store: &edgeStore{}, token: token, log: &logBuffer{}}
	cfg := api.Config{Store: n.store, Announcer: unusedParts{}, Inboxes: unusedParts{}, ServiceToken: hash, Limits: api.Limits{FailuresPerSecond: -1}, Logger: slog.New(slog.NewTextHandler(n.log, nil))}
	for _, option := range options {
		option(&cfg)
	}
	a, err := api.New(cfg)
	require.NoError(t, err)
	n.handler = a.Public()
	return n
}

// ask asks from a loopback address with the service token; changes may make it otherwise.
func (n *internal) ask(t *testing.T, method, path, body string, changes ...func(*http.Request)) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:999"
	r.Header.Set("Authorization", "Bearer "+n.token)
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	answer := w.Result()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return response{answer.StatusCode, answer.Header, string(text)}
}

const (
	tenantID = "01890a5d-ac96-774b-bcce-b302099a8051"
	roomID   = "01890a5d-ac96-774b-bcce-b302099a8052"
	agentID  = "01890a5d-ac96-774b-bcce-b302099a8053"
	otherID  = "01890a5d-ac96-774b-bcce-b302099a8054"
)

// sent is an envelope of the agent to its room; more is JSON members with a comma before each.
func sent(id, kind, more string) string {
	return `{"v":1,"id":"` + id + `","session_id":"` + roomID + `","from":"` + agentID + `","to":"` + roomID + `","kind":"` + kind +
		`","gen":7,"seq":1,"ts":1700000000000,"nonce":"AAAA","ct":"AAAA"` + more + `}`
}

func item(envelope string) string {
	return `{"tenant_id":"` + tenantID + `","envelope":"` + base64.StdEncoding.EncodeToString([]byte(envelope)) + `"}`
}

func oneMessage(envelope string) string { return `{"message":` + item(envelope) + `}` }

// Whatever is wrong with who asks, the answer is the same, and tells nothing of what
// was asked (DESIGN section 9).
func TestOnlyEdgeNodesPass(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	for _, address := range []string{
		"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "10.1.2.3:1", "172.16.0.1:1", "172.31.255.255:1", "192.168.0.1:1",
		"169.254.1.1:1", "[fe80::1%eth0]:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1",
	} {
		answer := n.ask(t, http.MethodGet, "/internal/v1/ping", "", func(r *http.Request) { r.RemoteAddr = address })
		require.Equal(t, http.StatusOK, answer.status, address)
		require.JSONEq(t, `{"ok":true}`, answer.body)
	}

	var bodies []string
	refused := func(name string, n *internal, changes ...func(*http.Request)) {
		t.Helper()
		for _, path := range []string{"GET /internal/v1/ping", "GET /internal/v1/sessions/" + roomID + "/roster?tenant_id=" + tenantID, "POST /internal/v1/history", "POST /internal/v1/notices"} {
			method, path, _ := strings.Cut(path, " ")
			answer := n.ask(t, method, path, "", changes...)
			require.Equal(t, http.StatusForbidden, answer.status, "%s: %s", name, answer.body)
			answer.refused(t, http.StatusForbidden, "forbidden")
			bodies = append(bodies, answer.body)
		}
		require.Equal(t, [3]int{}, n.store.counts())
	}
	for _, address := range []string{
		"8.8.8.8:1", "172.32.0.1:1", "[2001:db8::1]:1", "[::ffff:8.8.8.8]:1", "100.64.0.1:1", "0.0.0.0:1", "", "@", "localhost:1",
	} {
		refused(address, n, func(r *http.Request) { r.RemoteAddr = address })
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "Via", "x-forwarded-for", "X-Forwarded-Host", "X-Real-IP", "CF-Connecting-IP"} {
		for _, value := range []string{"", "127.0.0.1", "for=127.0.0.1"} {
			refused(name, n, func(r *http.Request) { r.Header.Set(name, value) })
		}
	}
	refused("HTTP/1.0", n, func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 1, 0 })
	other, _ := store.NewToken()
	for name, value := range map[string]string{
		"no token": "", "no scheme": n.token, "another scheme": "Basic " + n.token, "another token": "Bearer " + other,
		"padded": "Bearer " + n.token + "=", "cut": "Bearer " + n.token[:42], "in lower case": "Bearer " + strings.ToLower(n.token),
	} {
		refused(name, n, func(r *http.Request) { r.Header.Set("Authorization", value) })
	}
	refused("twice", n, func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+n.token) })

	_, operator := store.NewToken()
	closed := newInternal(t, func(c *api.Config) { c.ServiceToken, c.OperatorToken = store.TokenHash{}, operator })
	refused("no token is configured", closed)
	refused("no token is configured, and zeros", closed, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("A", 43))
	})
	for _, body := range bodies {
		require.Equal(t, bodies[0], body)
	}
	require.NotContains(t, n.log.String(), n.token)
}

// The service token opens nothing but the internal endpoints, and no other token opens
// those.
func TestServiceTokenIsForEdgeNodesOnly(t *testing.T) {
	t.Parallel()
	operator, hash := store.NewToken()
	n := newInternal(t, func(c *api.Config) { c.OperatorToken = hash })
	n.ask(t, http.MethodGet, "/v1/freeze", "").refused(t, http.StatusUnauthorized, "unauthorized")
	n.ask(t, http.MethodGet, "/internal/v1/ping", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+operator)
	}).refused(t, http.StatusForbidden, "forbidden")
}

// What is stored of an envelope is what its bytes say, and the bytes as they came.
func TestHistoryIsReadFromTheBytes(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	const kid = "AAAAAAAAAAAAAAAAAAAA_-"
	text := " " + sent(`m\u002d1`, "control", `,"kid":"`+kid+`","enc":"x3","hdr":"AAAA","file":{"name":"\u00e4","mimeType":"a/b","sizeBytes":3},"x":[1]`) + "\n"
	answer := n.ask(t, http.MethodPost, "/internal/v1/history", oneMessage(text))
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	require.JSONEq(t, `{"duplicate":false}`, answer.body)
	require.Equal(t, []store.Message{{
		Tenant: uuid.MustParse(tenantID), Room: uuid.MustParse(roomID), Sender: uuid.MustParse(agentID),
		ID: "m-1", Kind: wire.KindControl, Gen: 7, KID: kid, Enc: "x3", Hdr: true, Bytes: []byte(text),
	}}, n.store.messages)

	n.store.answer = func(string) (store.Appended, error) { return store.Appended{Duplicate: true}, nil }
	answer = n.ask(t, http.MethodPost, "/internal/v1/history", oneMessage(text))
	require.Equal(t, http.StatusOK, answer.status)
	require.JSONEq(t, `{"duplicate":true}`, answer.body)
}

func TestNoticesAreReadFromTheBytes(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	text := sent("n-1", "notice", `,"expires_at":1700000360000`)
	answer := n.ask(t, http.MethodPost, "/internal/v1/notices", item(text))
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	require.JSONEq(t, `{"accepted":true}`, answer.body)
	require.Equal(t, []store.Notice{{
		Tenant: uuid.MustParse(tenantID), Room: uuid.MustParse(roomID), Sender: uuid.MustParse(agentID),
		ID: "n-1", Gen: 7, TS: 1_700_000_000_000, ExpiresAt: 1_700_000_360_000, Bytes: []byte(text),
	}}, n.store.notices)
}

// What is no envelope to a session does not reach the store.
func TestBytesThatAreNotStored(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	private := strings.Replace(sent("m", "message", ""), `"to":"`+roomID, `"to":"`+otherID, 1)
	for name, c := range map[string]struct {
		envelope string
		history  string // code
		notices  string
	}{
		"nothing":             {"", "malformed_request", "invalid_envelope"},
		"no JSON":             {"x", "malformed_request", "invalid_envelope"},
		"two values":          {sent("m", "message", "") + "{}", "malformed_request", "invalid_envelope"},
		"a control frame":     {`{"type":"hello","token":"x"}`, "malformed_request", "invalid_envelope"},
		"an envelope in type": {strings.Replace(sent("m", "message", ""), "{", `{"type":"envelope",`, 1), "malformed_request", "invalid_envelope"},
		"private":             {private, "malformed_request", "invalid_envelope"},
		"a private notice":    {strings.Replace(sent("m", "notice", `,"expires_at":1`), `"to":"`+roomID, `"to":"`+otherID, 1), "malformed_request", "invalid_envelope"},
		"no id":               {sent("", "message", ""), "malformed_request", "invalid_envelope"},
		"unknown kind":        {sent("m", "alert", ""), "malformed_request", "invalid_envelope"},
		"a member twice":      {sent("m", "message", `,"id":"m"`), "malformed_request", "invalid_envelope"},
		"a room in capitals":  {strings.ReplaceAll(sent("m", "message", ""), roomID, strings.ToUpper(roomID)), "malformed_request", "invalid_envelope"},
		"a sender of letters": {strings.ReplaceAll(sent("m", "message", ""), agentID, "me"), "malformed_request", "invalid_envelope"},
		"too large":           {sent("m", "message", `,"x":"`+strings.Repeat("x", wire.MaxMessage)+`"`), "malformed_request", "invalid_envelope"},
		"a file without name": {sent("m", "message", `,"file":{"mimeType":"a/b","sizeBytes":3}`), "invalid_file_part", "invalid_envelope"},
		"a file of null":      {sent("m", "message", `,"file":null`), "invalid_file_part", "invalid_envelope"},
		"a large file":        {sent("m", "message", `,"file":{"name":"x","mimeType":"a/b","sizeBytes":700001}`), "invalid_file_part", "invalid_envelope"},
		"a file, and no id":   {sent("", "message", `,"file":null`), "malformed_request", "invalid_envelope"},
		"a notice with more":  {sent("m", "notice", `,"expires_at":1,"x":1`), "malformed_request", "invalid_envelope"},
		"a notice with enc":   {sent("m", "notice", `,"expires_at":1,"enc":"x"`), "malformed_request", "invalid_envelope"},
		"a notice, no expiry": {sent("m", "notice", ``), "malformed_request", "invalid_envelope"},
		"no notice":           {sent("m", "message", `,"expires_at":1`), "", "invalid_envelope"},
	} {
		if c.history != "" {
			info, _ := wire.Lookup(wire.Code(c.history))
			answer := n.ask(t, http.MethodPost, "/internal/v1/history", oneMessage(c.envelope))
			require.Equal(t, info.Status, answer.status, name)
			answer.refused(t, info.Status, c.history)
		}
		n.ask(t, http.MethodPost, "/internal/v1/notices", item(c.envelope)).refused(t, http.StatusBadRequest, c.notices)
	}
	require.Equal(t, [3]int{}, n.store.counts())
}

// Each item of a batch gets what it alone would get, in order; all are asked for at once.
func TestBatchOfEdgeNodes(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	all := []struct {
		err    error
		answer string
	}{
		{nil, `{"status":201}`},
		{&wire.Error{Code: wire.HistoryConflict, Detail: "x"}, `{"status":409,"error":"history_conflict"}`},
		{fmt.Errorf("room: %w", store.ErrNotFound), `{"status":404,"error":"not_found"}`},
		{fmt.Errorf("room: %w", store.ErrConflict), `{"status":409,"error":"conflict"}`},
		{&wire.Error{Code: wire.MLSUnknown}, `{"status":404,"error":"mls_generation_unknown"}`},
		{&wire.Error{Code: wire.PrivateRefused}, `{"status":403,"error":"private_refused"}`},
		{errFault, `{"status":503,"error":"unavailable"}`},
		{context.DeadlineExceeded, `{"status":503,"error":"unavailable"}`},
		{&wire.Error{Code: "unheard_of"}, `{"status":500,"error":"internal"}`},
	}
	n.store.answer = func(id string) (store.Appended, error) {
		var i int
		if _, err := fmt.Sscanf(id, "m-%d", &i); err != nil {
			panic("injected panic")
		}
		if i == len(all) {
			return store.Appended{Duplicate: true}, nil
		}
		return store.Appended{}, all[i].err
	}
	var messages, traces, want []string
	for i := range len(all) + 1 {
		id := fmt.Sprintf("m-%d", i)
		messages, traces = append(messages, item(sent(id, "message", ""))), append(traces, trace(id, ""))
		if i < len(all) {
			want = append(want, all[i].answer)
		}
	}
	messages, traces = append(messages, item(sent("panics", "message", ""))), append(traces, trace("panics", ""))
	want = append(want, `{"status":200}`, `{"status":500,"error":"internal"}`)
	messages, traces = append(messages, item("x")), append(traces, strings.Replace(trace("m", ""), agentID, "x", 1))
	want = append(want, `{"status":400,"error":"malformed_request"}`)
	for path, items := range map[string][]string{"history": messages, "traces": traces} {
		answer := n.ask(t, http.MethodPost, "/internal/v1/"+path, `{"messages":[`+strings.Join(items, ",")+`]}`)
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		require.JSONEq(t, `{"answers":[`+strings.Join(want, ",")+`]}`, answer.body, path)
	}
	require.Contains(t, n.log.String(), errFault.Error())
}

func trace(id, more string) string {
	digest := blake2b.Sum256([]byte(id))
	return `{"tenant_id":"` + tenantID + `","room_id":"` + roomID + `","message_id":"` + id + `","from":"` + agentID + `","to":"` + otherID +
		`","ts":1700000000000,"digest":"` + base64.StdEncoding.EncodeToString(digest[:]) + `"` + more + `}`
}

func TestTracesOfEdgeNodes(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	want := store.Trace{
		Tenant: uuid.MustParse(tenantID), Room: uuid.MustParse(roomID), From: uuid.MustParse(agentID), To: uuid.MustParse(otherID),
		MessageID: "m-1", TS: 1_700_000_000_000, Declared: true, Digest: blake2b.Sum256([]byte("m-1")),
	}
	answer := n.ask(t, http.MethodPost, "/internal/v1/traces", `{"message":`+trace("m-1", "")+`}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	answer = n.ask(t, http.MethodPost, "/internal/v1/traces", `{"message":`+trace("m-1", `,"file":{"name":"\u00e4","mime_type":"a/b","size_bytes":3}`)+`}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	with := want
	with.Files = []store.FileHeader{{Name: "ä", MIMEType: "a/b", SizeBytes: 3}}
	require.Equal(t, []store.Trace{want, with}, n.store.traces)

	for name, change := range map[string][2]string{
		"an id in capitals": {roomID, strings.ToUpper(roomID)},
		"no recipient":      {`,"to":"` + otherID + `"`, ""},
		"a short digest":    {`"digest":"`, `"digest":"AAAA","x":"`},
		"not declared":      {`"ts"`, `"declared":false,"ts"`},
		"content":           {`"ts"`, `"ct":"AAAA","ts"`},
		"a negative ts":     {`"ts":1`, `"ts":-1`},
	} {
		body := strings.Replace(trace("m-2", ""), change[0], change[1], 1)
		require.NotEqual(t, trace("m-2", ""), body, name)
		n.ask(t, http.MethodPost, "/internal/v1/traces", `{"message":`+body+`}`).refused(t, http.StatusBadRequest, "malformed_request")
	}
	require.Equal(t, 2, n.store.counts()[1])
}

// Bodies that are not exactly what an endpoint takes are refused, and nothing of them is
// obeyed (FAULTS E10, F04).
func TestInternalBodies(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	good := item(sent("m", "message", ""))
	many := func(of int) string {
		return `{"messages":[` + strings.TrimSuffix(strings.Repeat(good+",", of), ",") + `]}`
	}
	for path, bodies := range map[string][]string{
		"history": {
			``, `null`, `[]`, `{}`, `{"messages":[]}`, `{"messages":null}`, good, `{"message":` + good + `}{}`, `{"message":` + good + `} x`,
			`{"message":` + good + `,"messages":[` + good + `]}`, `{"message":` + good + `,"message":` + good + `}`, `{"Message":` + good + `}`,
			`{"message":` + strings.Replace(good, "}", `,"id":"x"}`, 1) + `}`, `{"message":{"tenant_id":"x","envelope":""}}`,
			`{"message":{"tenant_id":"` + tenantID + `","envelope":"*"}}`, `{"message":{"tenant_id":"` + tenantID + `"}}`, many(513),
		},
		"traces":            {``, `{}`, `{"messages":[]}`, trace("m", ""), `{"message":` + trace("m", "") + `}x`},
		"notices":           {``, `{}`, `{"message":` + good + `}`, good + good, `[` + good + `]`},
		"authenticate":      {``, `{}`, `{"token_hash":""}`, `{"token_hash":"AAAA"}`, `{"token_hash":"` + base64.StdEncoding.EncodeToString(make([]byte, 33)) + `"}`, `{"token":"x"}`},
		"credentials/valid": {``, `{}`, `{"tenant_id":"` + tenantID + `","credential_ids":[]}`, `{"tenant_id":"` + tenantID + `","credential_ids":["x"]}`, `{"tenant_id":"x","credential_ids":["` + roomID + `"]}`, ids("credential_ids", 1001)},
		"rooms/versions":    {``, `{}`, `{"tenant_id":"` + tenantID + `","room_ids":[]}`, `{"tenant_id":"` + tenantID + `","room_ids":["x"]}`, ids("room_ids", 1001)},
	} {
		for _, body := range bodies {
			answer := n.ask(t, http.MethodPost, "/internal/v1/"+path, body)
			require.Equal(t, http.StatusBadRequest, answer.status, "%s %.200s: %s", path, body, answer.body)
		}
	}
	for _, path := range []string{"x/roster?tenant_id=" + tenantID, roomID + "/roster", roomID + "/roster?tenant_id=x", roomID + "/roster?tenant_id=" + tenantID} {
		answer := n.ask(t, http.MethodGet, "/internal/v1/sessions/"+path, "")
		require.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, answer.status, path)
	}
	require.Equal(t, [3]int{}, n.store.counts())

	require.Equal(t, http.StatusOK, n.ask(t, http.MethodPost, "/internal/v1/history", many(512)).status)
	require.Equal(t, 512, n.store.counts()[0])
	for _, path := range []string{"credentials/valid", "rooms/versions"} {
		member := map[string]string{"credentials/valid": "credential_ids", "rooms/versions": "room_ids"}[path]
		require.Equal(t, http.StatusOK, n.ask(t, http.MethodPost, "/internal/v1/"+path, ids(member, 1000)).status)
	}
	large := item(sent("m", "message", `,"x":"`+strings.Repeat("x", wire.MaxMessage-1000)+`"`))
	n.ask(t, http.MethodPost, "/internal/v1/history", `{"messages":[`+strings.TrimSuffix(strings.Repeat(large+",", 66), ",")+`]}`).
		refused(t, http.StatusRequestEntityTooLarge, "too_large")
	n.ask(t, http.MethodPost, "/internal/v1/history", `{"message":`+strings.Repeat(" ", 6<<20)+good+`}`).
		refused(t, http.StatusRequestEntityTooLarge, "too_large")
	require.Equal(t, 512, n.store.counts()[0])
}

// ids is a look-up of n ids.
func ids(member string, n int) string {
	body := map[string]any{"tenant_id": tenantID}
	list := make([]string, n)
	for i := range list {
		list[i] = uuid.NewString()
	}
	body[member] = list
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// No more than 256 requests of edge nodes are at work; the next is told to wait, and the
// place of one that ended is free again.
func TestInternalRequestsAreBounded(t *testing.T) {
	t.Parallel()
	n := newInternal(t)
	n.store.hold, n.store.held = make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	for range 256 {
		running.Go(func() {
			if answer := n.ask(t, http.MethodGet, "/internal/v1/ping", ""); answer.status != http.StatusOK {
				t.Error(answer.body)
			}
		})
		<-n.store.held
	}
	answer := n.ask(t, http.MethodGet, "/internal/v1/ping", "")
	answer.refused(t, http.StatusServiceUnavailable, "unavailable")
	require.Equal(t, "1", answer.header.Get("Retry-After"))
	n.ask(t, http.MethodPost, "/internal/v1/history", oneMessage(sent("m", "message", ""))).refused(t, http.StatusServiceUnavailable, "unavailable")
	require.Equal(t, [3]int{}, n.store.counts())
	close(n.store.hold)
	running.Wait()
	go func() { <-n.store.held }()
	require.Equal(t, http.StatusOK, n.ask(t, http.MethodGet, "/internal/v1/ping", "").status)
}

func TestServiceTokenFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, api.ServiceTokenFile)
	_, err := api.ReadServiceToken(path)
	require.ErrorIs(t, err, os.ErrNotExist, "reading makes none")
	hash, err := api.LoadServiceToken(data)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := api.ReadServiceToken(path)
	require.NoError(t, err)
	read, ok := store.HashToken([]byte(text))
	require.True(t, ok)
	require.Equal(t, hash, read)
	again, err := api.LoadServiceToken(data)
	require.NoError(t, err)
	require.Equal(t, hash, again, "kept")
	operator, err := api.LoadOperatorToken(data)
	require.NoError(t, err)
	require.NotEqual(t, operator, hash)

	require.NoError(t, os.Chmod(path, 0o640))
	_, err = api.LoadServiceToken(data)
	require.ErrorContains(t, err, "read by others")
	_, err = api.ReadServiceToken(path)
	require.ErrorContains(t, err, "read by others")
}
