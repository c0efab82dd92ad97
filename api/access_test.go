package api_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

// as calls the public listener with a token.
func (s *stack) as(t *testing.T, token, method, path string) response {
	t.Helper()
	return send(t, s.public, method, path, "", "Authorization", "Bearer "+token)
}

// DESIGN section 9: a credential opens its own room's session endpoints, and nothing else.
func TestCredentialOpensItsOwnRoom(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room, other := s.room(t), s.room(t)
	agent, viewer := s.member(t, room.ID, "agent"), s.member(t, room.ID, "viewer")
	s.member(t, other.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants"
	for _, token := range []string{agent.Credential, viewer.Credential, s.token} {
		answer := s.as(t, token, http.MethodGet, mine)
		require.Equal(t, http.StatusOK, answer.status, answer.body)
	}
	foreign := s.as(t, agent.Credential, http.MethodGet, "/v1/sessions/"+other.ID+"/participants")
	foreign.refused(t, 404, "not_found")
	missing := s.as(t, agent.Credential, http.MethodGet, "/v1/sessions/"+uuid.NewString()+"/participants")
	require.Equal(t, missing.body, foreign.body, "like a room that does not exist")
	s.as(t, agent.Credential, http.MethodGet, "/v1/sessions/"+strings.ToUpper(room.ID)+"/participants").refused(t, 404, "not_found")

	for _, path := range []string{"/v1/rooms/" + room.ID, "/v1/participants/" + agent.ParticipantID + "/inbox", "/v1/freeze", "/v1/status"} {
		s.as(t, agent.Credential, http.MethodGet, path).refused(t, 401, "unauthorized")
	}
	var development api.Credential
	send(t, s.server, http.MethodPost, "/v1/participants/"+agent.ParticipantID+"/credentials", `{"kind":"development"}`).decode(t, &development)
	require.Equal(t, http.StatusOK, s.as(t, development.Credential, http.MethodGet, mine).status)
}

// FAULTS H04, H06: whatever is wrong with a credential the refusal is the same, from the
// moment on in which it stops being valid.
func TestCredentialThatIsNotValidNow(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent, removed, short := s.member(t, room.ID, "agent"), s.member(t, room.ID, "agent"), s.member(t, room.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants"
	for _, m := range []api.Member{agent, removed} {
		require.Equal(t, http.StatusOK, s.as(t, m.Credential, http.MethodGet, mine).status)
	}
	var brief api.Credential
	send(t, s.server, http.MethodPost, "/v1/participants/"+short.ParticipantID+"/credentials", `{"ttl_seconds":1}`).decode(t, &brief)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/credentials/"+agent.CredentialID, "").status)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+removed.ParticipantID, "").status)

	unknown, _ := store.NewToken()
	want := s.as(t, unknown, http.MethodGet, mine)
	want.refused(t, 401, "unauthorized")
	require.Equal(t, `Bearer realm="relay"`, want.header.Get("WWW-Authenticate"))
	require.Eventually(t, func() bool { return s.as(t, brief.Credential, http.MethodGet, mine).status == http.StatusUnauthorized }, patience, 100*time.Millisecond)
	for name, token := range map[string]string{
		"revoked": agent.Credential, "of a removed participant": removed.Credential, "expired": brief.Credential,
		"shorter": agent.Credential[1:], "padded": agent.Credential + "=", "empty": "", "with a line": agent.Credential[:20] + " " + agent.Credential[21:],
	} {
		answer := s.as(t, token, http.MethodGet, mine)
		require.Equal(t, want.status, answer.status, name)
		require.Equal(t, want.body, answer.body, name)
	}
	require.Equal(t, want.body, send(t, s.public, http.MethodGet, mine, "").body, "none at all")
	for _, secret := range []string{agent.Credential, removed.Credential, brief.Credential, unknown} {
		require.NotContains(t, s.log.String(), secret)
	}
}

// FAULTS H05: a token in an address gives no access, even beside one that would.
func TestTokenInAnAddressGivesNoAccess(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent := s.member(t, room.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants?"
	for _, query := range []string{
		"token=" + agent.Credential, "access_token=" + agent.Credential, "x=1&cursor=" + agent.Credential, agent.Credential, "a=" + s.token,
		"a;b=" + agent.Credential, "a=Bearer%20" + agent.Credential, "%zz&a=" + agent.Credential,
	} {
		s.as(t, agent.Credential, http.MethodGet, mine+query).refused(t, 401, "unauthorized")
		send(t, s.public, http.MethodGet, mine+query, "").refused(t, 401, "unauthorized")
		s.send(t, http.MethodGet, "/v1/freeze?"+query, "").refused(t, 401, "unauthorized")
	}
	require.NotContains(t, s.log.String(), agent.Credential)
	other, _ := store.NewToken()
	history := "/v1/sessions/" + room.ID + "/history?message_id="
	s.as(t, agent.Credential, http.MethodGet, history+other).refused(t, 404, "not_found")
	s.as(t, agent.Credential, http.MethodGet, history+agent.Credential).refused(t, 401, "unauthorized")
}

// A query has none but the members that the reference names, whatever the method: a
// request that says more than is understood is not half obeyed.
func TestQueryThatNobodyReads(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	for _, query := range []string{"a=b", "dry_run=true", "a;b", "%zz", "limit=1"} {
		s.send(t, http.MethodPost, "/v1/rooms?"+query, "{}").refused(t, 400, "malformed_request")
		s.send(t, http.MethodPut, "/v1/freeze?"+query, `{"frozen":true}`).refused(t, 400, "malformed_request")
		s.send(t, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+room.ID+"?"+query, "").refused(t, 400, "malformed_request")
	}
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/healthz?at=1", "").status)
}

// Frozen, no credential gives access; the operator's endpoints go on.
func TestFrozenNetworkRefusesCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	agent := s.member(t, room.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants"
	s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`)
	answer := s.as(t, agent.Credential, http.MethodGet, mine)
	answer.refused(t, 503, "unavailable")
	require.Equal(t, "1", answer.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, s.as(t, s.token, http.MethodGet, mine).status)
	s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":false}`)
	require.Equal(t, http.StatusOK, s.as(t, agent.Credential, http.MethodGet, mine).status)
}

// clock is a clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (r response) tooMany(t *testing.T, seconds int) {
	t.Helper()
	r.refused(t, 429, "rate_limited")
	require.Equal(t, strconv.Itoa(seconds), r.header.Get("Retry-After"))
}

// FAULTS B06: the budget is the credential's, not the connection's, and comes back by time.
func TestRateOfACredential(t *testing.T) {
	t.Parallel()
	at := &clock{now: time.Now()}
	registry := prometheus.NewRegistry()
	s := newStack(t, func(c *api.Config) {
		c.Limits = api.Limits{TokenPerSecond: 1, TokenBurst: 3}
		c.Now, c.Registerer = at.Now, registry
	})
	room := s.room(t)
	one, two := s.member(t, room.ID, "agent"), s.member(t, room.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants"
	for range 3 {
		require.Equal(t, http.StatusOK, s.as(t, one.Credential, http.MethodGet, mine).status)
	}
	for range 5 {
		s.public.Client().CloseIdleConnections() // a new connection has no new budget
		s.as(t, one.Credential, http.MethodGet, mine).tooMany(t, 1)
	}
	require.Equal(t, http.StatusOK, s.as(t, two.Credential, http.MethodGet, mine).status, "each has its own")
	for range 10 {
		require.Equal(t, http.StatusOK, s.as(t, s.token, http.MethodGet, mine).status, "the operator has none")
		require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, mine, "").status)
	}
	at.add(time.Second)
	require.Equal(t, http.StatusOK, s.as(t, one.Credential, http.MethodGet, mine).status)
	s.as(t, one.Credential, http.MethodGet, mine).tooMany(t, 1)

	limited := gathered(t, registry, "relay_http_limited_total")
	require.InDelta(t, 6, limited["token"], 0)
	require.InDelta(t, 6, gathered(t, registry, "relay_http_refusals_total")["rate_limited"], 0)
	require.InDelta(t, 6, gathered(t, registry, "relay_http_requests_total")["GET /v1/sessions/{id}/participants 429"], 0)
	s.as(t, s.token, http.MethodGet, "/no/such/"+uuid.NewString())
	require.InDelta(t, 1, gathered(t, registry, "relay_http_requests_total")["none 404"], 0, "labels are bounded")
}

// gathered are the values of a counter by its labels' values.
func gathered(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if family.GetName() == name {
				values[strings.Join(labels, " ")] = metric.GetCounter().GetValue()
			}
		}
	}
	return values
}

// Guessing is slow, and locks out nobody who was let in before.
func TestGuessingIsSlow(t *testing.T) {
	t.Parallel()
	at := &clock{now: time.Now()}
	s := newStack(t, func(c *api.Config) {
		c.Limits = api.Limits{FailuresPerSecond: 1, FailuresBurst: 3}
		c.Now = at.Now
	})
	room := s.room(t)
	known, late := s.member(t, room.ID, "agent"), s.member(t, room.ID, "agent")
	mine := "/v1/sessions/" + room.ID + "/participants"
	require.Equal(t, http.StatusOK, s.as(t, known.Credential, http.MethodGet, mine).status)
	for range 3 {
		guess, _ := store.NewToken()
		s.as(t, guess, http.MethodGet, mine).refused(t, 401, "unauthorized")
	}
	for range 3 {
		guess, _ := store.NewToken()
		s.as(t, guess, http.MethodGet, mine).tooMany(t, 1)
		send(t, s.public, http.MethodGet, "/v1/freeze", "").tooMany(t, 1)
	}
	require.Equal(t, http.StatusOK, s.as(t, known.Credential, http.MethodGet, mine).status)
	require.Equal(t, http.StatusOK, s.as(t, s.token, http.MethodGet, "/v1/freeze").status)
	s.as(t, late.Credential, http.MethodGet, mine).tooMany(t, 1)
	at.add(time.Second)
	require.Equal(t, http.StatusOK, s.as(t, late.Credential, http.MethodGet, mine).status)
}

func TestRateOfAnAddress(t *testing.T) {
	t.Parallel()
	at := &clock{now: time.Now()}
	s := newStack(t, func(c *api.Config) {
		c.Limits = api.Limits{AddressPerSecond: 1, AddressBurst: 3}
		c.Now = at.Now
	})
	for range 3 {
		require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/openapi.json", "").status)
	}
	send(t, s.public, http.MethodGet, "/openapi.json", "").tooMany(t, 1)
	send(t, s.public, http.MethodGet, "/healthz", "", "X-Forwarded-For", "203.0.113.7").tooMany(t, 1)
	require.Equal(t, http.StatusOK, s.as(t, s.token, http.MethodGet, "/v1/freeze").status)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, "/healthz", "").status, "the socket has no limit")
	at.add(2 * time.Second)
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/healthz", "").status)
}

// The reference is served to everybody, and a browser loads nothing for it.
func TestReferencePage(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	answer := send(t, s.public, http.MethodGet, "/docs", "")
	require.Equal(t, http.StatusOK, answer.status)
	require.Equal(t, "text/html; charset=utf-8", answer.header.Get("Content-Type"))
	policy := answer.header.Get("Content-Security-Policy")
	require.Regexp(t, `^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`, policy)
	for _, loaded := range []string{"<script", "<img", "<link", "src=", "@import", "url(", "style=", "onclick", "https://"} {
		require.NotContains(t, answer.body, loaded)
	}
	for _, path := range []string{"/v1/rooms/{id}/members/{participant_id}", "/internal/v1/history", "/v1/sessions/{id}/participants", "/readyz"} {
		require.Contains(t, answer.body, path)
	}
	require.NotContains(t, answer.body, "{room_id}", "examples are filled in")
	require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, "/docs", "").status, "on the socket too")
}
