package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/store"
)

func TestBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	members := "/v1/rooms/" + room.ID + "/members"
	s.here.take()
	for name, body := range map[string]string{
		"nothing":            ``,
		"white space":        "  \n",
		"no JSON":            `role=agent`,
		"null":               `null`,
		"list":               `[{"role":"agent"}]`,
		"text":               `"agent"`,
		"two values":         `{"role":"agent"}{}`,
		"value and junk":     `{"role":"agent"} x`,
		"byte order mark":    "\uFEFF" + `{"role":"agent"}`,
		"other case":         `{"Role":"agent"}`,
		"both cases":         `{"role":"agent","Role":"owner"}`,
		"duplicate":          `{"role":"viewer","role":"owner"}`,
		"escaped duplicate":  `{"role":"viewer","r\u006fle":"owner"}`,
		"unknown member":     `{"role":"agent","admin":true}`,
		"wrong type":         `{"role":1}`,
		"null role":          `{"role":null}`,
		"unknown role":       `{"role":"root"}`,
		"role with NUL":      `{"role":"agent\u0000"}`,
		"lone surrogate":     `{"role":"\ud800"}`,
		"bad UTF-8":          "{\"role\":\"\xff\"}",
		"unknown kind":       `{"role":"agent","kind":"forever"}`,
		"device is no id":    `{"role":"agent","device_id":"a.b"}`,
		"device in capitals": `{"role":"agent","device_id":"` + strings.ToUpper(uuid.NewString()) + `"}`,
		"ttl zero":           `{"role":"agent","ttl_seconds":0}`,
		"ttl negative":       `{"role":"agent","ttl_seconds":-1}`,
		"ttl ten years":      `{"role":"agent","ttl_seconds":315360000}`,
		"ttl fraction":       `{"role":"agent","ttl_seconds":60.5}`,
		"ttl exponent":       `{"role":"agent","ttl_seconds":6e1}`,
		"ttl overflow":       `{"role":"agent","ttl_seconds":18446744073709551617}`,
		"ttl text":           `{"role":"agent","ttl_seconds":"60"}`,
		"deep":               `{"role":` + strings.Repeat("[", 16000),
		"deep objects":       strings.Repeat(`{"role":`, 1900),
	} {
		t.Run(name, func(t *testing.T) {
			s.send(t, http.MethodPost, members, body).refused(t, 400, "malformed_request")
		})
	}
	s.send(t, http.MethodPost, members, `{"role":"agent"`+strings.Repeat(" ", 16<<10)+`}`).refused(t, 413, "too_large")
	send(t, s.server, http.MethodPost, members, `{"role":"agent"}`, "Content-Type", "text/plain").refused(t, 400, "malformed_request")
	send(t, s.server, http.MethodPost, members, `{"role":"agent"}`, "Content-Type", "application/json; charset=utf-8")
	var list api.Participants
	s.send(t, http.MethodGet, "/v1/sessions/"+room.ID+"/participants", "").decode(t, &list)
	require.Len(t, list.Participants, 1, "only the last one had an effect")

	for _, body := range []string{`{}`, `{"frozen":null}`, `{"frozen":"true"}`, `{"frozen":1}`, `{"Frozen":true}`} {
		s.send(t, http.MethodPut, "/v1/freeze", body).refused(t, 400, "malformed_request")
	}
	for _, body := range []string{`{"kind":"party"}`, `{"scheme":"rot13"}`, `{"private_messages":"maybe"}`, `{"scheme":"double_ratchet"}`} {
		s.send(t, http.MethodPost, "/v1/rooms", body).refused(t, 400, "malformed_request")
	}
	s.send(t, http.MethodDelete, "/v1/credentials/"+uuid.NewString(), `{}`).refused(t, 400, "malformed_request")
}

// What a careless client writes for a value it does not have is no request for the default:
// the policy of a room, for one, can never be changed.
func TestNullAndEmptyAreNotTheDefault(t *testing.T) {
	s := newStack(t)
	room := s.room(t)
	member := s.member(t, room.ID, "agent")
	for path, names := range map[string][]string{
		"/v1/rooms":                         {"private_messages", "scheme", "kind"},
		"/v1/rooms/" + room.ID + "/members": {"kind", "device_id", "ttl_seconds"},
		"/v1/participants/" + member.ParticipantID + "/credentials": {"kind", "participant_id", "ttl_seconds"},
		"/v1/invites": {"kind", "admin", "ttl_seconds"},
	} {
		for _, name := range names {
			for _, value := range []string{"null", `""`} {
				body := fmt.Sprintf(`{%q:%s}`, name, value)
				if strings.HasSuffix(path, "/members") {
					body = fmt.Sprintf(`{"role":"agent",%q:%s}`, name, value)
				}
				s.send(t, http.MethodPost, path, body).refused(t, 400, "malformed_request")
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	room := s.room(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/rooms/", "/v1/rooms/" + room.ID + "/", "//v1/rooms", "/v1/../v1/freeze", "/v1//freeze",
		"/v1/rooms/" + strings.ToUpper(room.ID), "/v1/rooms/a.b", "/v1/rooms/*", "/v1/rooms/%3E", "/v1/rooms/{" + room.ID + "}",
		"/v1/rooms/" + room.ID + "%2Fmembers", "/v1/rooms/urn:uuid:" + room.ID, "/v1/rooms/%00", "/v2/rooms", "/debug/pprof/", "/metrics",
	} {
		s.send(t, http.MethodGet, path, "").refused(t, 404, "not_found")
	}
	require.Contains(t, s.send(t, http.MethodGet, "/%76%31/relay", "").body, "there is no such address",
		"another spelling of an address is no other node's")
	answer := s.send(t, http.MethodPatch, "/v1/freeze", "")
	answer.refused(t, 405, "method_not_allowed")
	require.Equal(t, "GET, HEAD, PUT", answer.header.Get("Allow"))
	s.send(t, http.MethodGet, "/v1/invites", "").refused(t, 405, "method_not_allowed")
	require.Equal(t, http.StatusOK, s.send(t, http.MethodHead, "/v1/freeze", "").status)
	require.Equal(t, "no-store", s.send(t, http.MethodGet, "/v1/freeze", "").header.Get("Cache-Control"))
}

func TestPublicListenerAsksForTheToken(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	other, _ := store.NewToken()
	bearer := "Bearer " + s.token
	for name, headers := range map[string][]string{
		"none":          {},
		"another token": {"Authorization", "Bearer " + other},
		"no scheme":     {"Authorization", s.token},
		"basic":         {"Authorization", "Basic " + s.token},
		"empty":         {"Authorization", ""},
		"two":           {"Authorization", bearer, "Authorization", bearer},
		"two spaces":    {"Authorization", "Bearer  " + s.token},
		"padded":        {"Authorization", bearer + "="},
		"shorter":       {"Authorization", bearer[:len(bearer)-1]},
		"cookie":        {"Cookie", "token=" + s.token},
	} {
		t.Run(name, func(t *testing.T) {
			answer := send(t, s.public, http.MethodGet, "/v1/freeze", "", headers...)
			answer.refused(t, 401, "unauthorized")
			require.Equal(t, `Bearer realm="relay"`, answer.header.Get("WWW-Authenticate"))
			require.JSONEq(t, `{"error":"unauthorized","detail":"the operator token is needed: Authorization: Bearer"}`, answer.body,
				"the same whatever is wrong")
		})
	}
	send(t, s.public, http.MethodGet, "/v1/freeze?access_token="+s.token, "").refused(t, 401, "unauthorized")
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/v1/freeze", "", "Authorization", bearer).status)
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/v1/freeze", "", "Authorization", "bearer "+s.token).status)
	require.NotContains(t, s.log.String(), s.token)

	closed := newStack(t, func(c *api.Config) { c.OperatorToken = store.TokenHash{} })
	send(t, closed.public, http.MethodGet, "/v1/freeze", "", "Authorization", "Bearer "+closed.token).refused(t, 401, "unauthorized")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var broken error
	s := newStack(t, func(c *api.Config) {
		c.Checks = map[string]func() error{
			"nats": func() error { return nil },
			"postgresql": func() error {
				mu.Lock()
				defer mu.Unlock()
				return broken
			},
		}
	})
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/healthz", "").status)
	require.JSONEq(t, `{"ok":true}`, send(t, s.public, http.MethodGet, "/readyz", "").body)

	mu.Lock()
	broken = errors.New("no connection to 10.0.0.1")
	mu.Unlock()
	require.Eventually(t, func() bool { return send(t, s.public, http.MethodGet, "/readyz", "").status == 503 }, patience, checkEvery)
	require.JSONEq(t, `{"ok":false,"degraded":["postgresql"]}`, send(t, s.public, http.MethodGet, "/readyz", "").body, "names only")
	require.Equal(t, http.StatusOK, send(t, s.public, http.MethodGet, "/healthz", "").status)

	var status api.Status
	s.send(t, http.MethodGet, "/v1/status", "").decode(t, &status)
	require.False(t, status.Ready)
	require.Equal(t, []api.Check{{Name: "nats", OK: true}, {Name: "postgresql", Detail: "no connection to 10.0.0.1"}}, status.Checks)
	require.Equal(t, "v1", status.Version)
	require.Equal(t, "here", status.NodeID)
}

func TestPanicEndsOneRequest(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.fault.set(func(f *faults) { f.panics = true })
	answer := s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`)
	answer.refused(t, 500, "internal")
	require.NotContains(t, answer.body, "injected")
	require.Contains(t, s.log.String(), "injected panic")
	s.fault.set(func(f *faults) { f.panics = false })
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPut, "/v1/freeze", `{"frozen":true}`).status)
}

func TestNewRefusesMissingParts(t *testing.T) {
	t.Parallel()
	_, err := api.New(api.Config{})
	require.Error(t, err)
}

func TestOperatorTokenFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, api.OperatorTokenFile)
	var wg sync.WaitGroup
	hashes := make([]store.TokenHash, 8)
	for i := range hashes {
		wg.Go(func() {
			hash, err := api.LoadOperatorToken(data)
			if err == nil {
				hashes[i] = hash
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	want, ok := store.HashToken([]byte(strings.TrimSpace(string(text))))
	require.True(t, ok)
	for _, hash := range hashes {
		require.Equal(t, want, hash, "made once")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left behind")

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = api.LoadOperatorToken(data)
	require.ErrorContains(t, err, "read by others")
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	_, err = api.LoadOperatorToken(data)
	require.ErrorContains(t, err, "holds no token")
	require.NotContains(t, err.Error(), "short")
}
