package client_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	deviceID = "01980000-0000-7000-8000-00000000000d"
	roomID   = "01980000-0000-7000-8000-00000000000e"
)

// token is a token of one repeated byte.
func token(b byte) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
}

// scripted is a relay whose answers a test chooses. It answers enrollments and sign-ins as a
// relay does where nothing else is set.
type scripted struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	asked    []string // method and path
	keys     identity.Keys
	nonces   int
	tokens   int
	handlers map[string]http.HandlerFunc
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{t: t, handlers: make(map[string]http.HandlerFunc)}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	s.on("POST /v1/enroll", s.enroll)
	s.on("POST /v1/auth/challenge", s.challenge)
	s.on("POST /v1/auth/token", s.token)
	s.on("GET /v1/devices/me/prekeys", func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"last_prekey_id":0,"one_time_prekeys":0}`) })
	s.on("PUT /v1/devices/me/prekeys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"signed_prekey_id":1,"last_prekey_id":100,"one_time_prekeys":100}`)
	})
	return s
}

func (s *scripted) on(what string, handler http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[what] = handler
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	s.mu.Lock()
	s.asked = append(s.asked, what)
	handler := s.handlers[what]
	s.mu.Unlock()
	if handler == nil {
		refuse(w, http.StatusNotFound, wire.NotFound)
		return
	}
	handler(w, r)
}

// count is how often something was asked.
func (s *scripted) count(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if asked == what {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body))
}

func refuse(w http.ResponseWriter, status int, code wire.Code) {
	w.WriteHeader(status)
	answer(w, fmt.Sprintf(`{"error":%q,"detail":"said by a test"}`, code))
}

func (s *scripted) enroll(w http.ResponseWriter, r *http.Request) {
	var body map[string]string
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.t.Errorf("enroll: %v", err)
	}
	for name, into := range map[string][]byte{
		"identity_key": s.keys.Identity[:], "agreement_key": s.keys.Agreement[:], "agreement_signature": s.keys.AgreementSignature[:],
	} {
		raw, _ := base64.StdEncoding.DecodeString(body[name])
		copy(into, raw)
	}
	answer(w, fmt.Sprintf(`{"device_id":%q,"state":"PENDING","fingerprint":%q}`, deviceID, s.keys.Fingerprint()))
}

func (s *scripted) challenge(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.nonces++
	nonce := token(byte(s.nonces))
	s.mu.Unlock()
	answer(w, fmt.Sprintf(`{"nonce":%q}`, nonce))
}

// token checks what was signed and gives tokens of "A", "B", …
func (s *scripted) token(w http.ResponseWriter, r *http.Request) {
	var body struct{ DeviceID, Nonce, Signature string }
	if err := json.NewDecoder(r.Body).Decode(&struct {
		D *string `json:"device_id"`
		N *string `json:"nonce"`
		S *string `json:"signature"`
	}{&body.DeviceID, &body.Nonce, &body.Signature}); err != nil {
		s.t.Errorf("token: %v", err)
	}
	id, _ := wire.ParseUUID([]byte(body.DeviceID))
	nonce, _ := base64.RawURLEncoding.DecodeString(body.Nonce)
	signature, _ := base64.StdEncoding.DecodeString(body.Signature)
	if len(nonce) != 32 || len(signature) != 64 || !identity.VerifySignIn(s.keys.Identity, [32]byte(nonce), id, [64]byte(signature)) {
		refuse(w, http.StatusUnauthorized, wire.Unauthorized)
		return
	}
	s.mu.Lock()
	s.tokens++
	made := token(byte('A' + s.tokens - 1))
	s.mu.Unlock()
	answer(w, fmt.Sprintf(`{"access_token":%q,"expires_in":3600}`, made))
}

// device is a device that has enrolled.
func (s *scripted) device(dir string) *client.Device {
	s.t.Helper()
	d, err := client.EnrollDevice(s.t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, d.Close()) })
	return d
}

func (s *scripted) enrollment() client.Enrollment {
	return client.Enrollment{RelayURL: s.server.URL, Invite: token('i'), Kind: client.KindAgent, Label: "a test"}
}

func bearer(r *http.Request) string {
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return text
}

func encode(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
