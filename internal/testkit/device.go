package testkit

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Device is a device with keys, as it enrolls and signs in over HTTP.
type Device struct {
	Private     ed25519.PrivateKey
	Keys        identity.Keys
	ID          string // once it has enrolled
	AccessToken string // once it has signed in
}

// NewDevice makes a device's keys.
func NewDevice(t testing.TB) *Device {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	d := &Device{Private: private}
	copy(d.Keys.Identity[:], public)
	copy(d.Keys.Agreement[:], agreement.PublicKey().Bytes())
	d.Keys.AgreementSignature = identity.SignAgreement(private, d.Keys.Agreement)
	return d
}

// Invite is an invite with its token.
type Invite struct {
	ID    string `json:"invite_id"`
	Token string `json:"token"`
}

// Invite makes an invite as the operator.
func (s *Relay) Invite(t testing.TB, kind string, admin bool) Invite {
	t.Helper()
	var made Invite
	s.Call(t, http.MethodPost, "/v1/invites", map[string]any{"kind": kind, "admin": admin}, &made)
	return made
}

// Enrollment is the body of POST /v1/enroll.
func (d *Device) Enrollment(t testing.TB, token, kind string) map[string]string {
	t.Helper()
	proof := identity.SignEnrollment(d.Private, bytes32(t, token), &d.Keys)
	return map[string]string{
		"token": token, "kind": kind, "label": "a " + kind,
		"identity_key":        base64.StdEncoding.EncodeToString(d.Keys.Identity[:]),
		"agreement_key":       base64.StdEncoding.EncodeToString(d.Keys.Agreement[:]),
		"agreement_signature": base64.StdEncoding.EncodeToString(d.Keys.AgreementSignature[:]),
		"proof":               base64.StdEncoding.EncodeToString(proof[:]),
	}
}

func bytes32(t testing.TB, text string) (raw [32]byte) {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, data, len(raw))
	copy(raw[:], data)
	return raw
}

// Enroll makes a device that has enrolled: PENDING, or APPROVED as an admin.
func (s *Relay) Enroll(t testing.TB, kind string, admin bool) *Device {
	t.Helper()
	d := NewDevice(t)
	var enrolled struct {
		DeviceID string `json:"device_id"`
	}
	s.Public(t, http.MethodPost, "/v1/enroll", "", d.Enrollment(t, s.Invite(t, kind, admin).Token, kind)).Into(t, &enrolled)
	d.ID = enrolled.DeviceID
	return d
}

// Approve approves a device as the operator, by its own fingerprint.
func (s *Relay) Approve(t testing.TB, d *Device) {
	t.Helper()
	s.Call(t, http.MethodPost, "/v1/devices/"+d.ID+"/approve", map[string]string{"fingerprint": d.Keys.Fingerprint()}, nil)
}

// SignIn signs a device in.
func (s *Relay) SignIn(t testing.TB, d *Device) {
	t.Helper()
	var signedIn struct {
		AccessToken string `json:"access_token"`
	}
	s.Public(t, http.MethodPost, "/v1/auth/token", "", s.SignedNonce(t, d)).Into(t, &signedIn)
	d.AccessToken = signedIn.AccessToken
}

// SignedNonce is the body of POST /v1/auth/token for a new nonce.
func (s *Relay) SignedNonce(t testing.TB, d *Device) map[string]string {
	t.Helper()
	var challenge struct {
		Nonce string `json:"nonce"`
	}
	s.Public(t, http.MethodPost, "/v1/auth/challenge", "", map[string]string{"device_id": d.ID}).Into(t, &challenge)
	id, ok := wire.ParseUUID([]byte(d.ID))
	require.True(t, ok)
	signature := identity.SignIn(d.Private, bytes32(t, challenge.Nonce), id)
	return map[string]string{
		"device_id": d.ID, "nonce": challenge.Nonce, "signature": base64.StdEncoding.EncodeToString(signature[:]),
	}
}

// ActiveDevice makes a device that is ACTIVE and has signed in.
func (s *Relay) ActiveDevice(t testing.TB, kind string, admin bool) *Device {
	t.Helper()
	d := s.Enroll(t, kind, admin)
	if !admin {
		s.Approve(t, d)
	}
	s.SignIn(t, d)
	s.Public(t, http.MethodPut, "/v1/devices/me/keys", d.AccessToken, struct{}{}).Demand(t, http.StatusOK)
	return d
}

// Answer is an answer of the public listener, read whole.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Demand demands a status.
func (a Answer) Demand(t testing.TB, status int) Answer {
	t.Helper()
	require.Equal(t, status, a.Status, a.Body)
	return a
}

// Refused demands a refusal.
func (a Answer) Refused(t testing.TB, status int, code wire.Code) {
	t.Helper()
	a.Demand(t, status)
	var body struct {
		Error wire.Code `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.Body), &body), a.Body)
	require.Equal(t, code, body.Error, a.Body)
}

// Into reads an answer of success.
func (a Answer) Into(t testing.TB, value any) {
	t.Helper()
	require.Equal(t, 2, a.Status/100, a.Body)
	require.NoError(t, json.Unmarshal([]byte(a.Body), value), a.Body)
}

// Public makes one request to the public listener, with a bearer token where one is given.
// A string is sent as it is, anything else as JSON; nil is no body.
func (s *Relay) Public(t testing.TB, method, path, token string, body any) Answer {
	t.Helper()
	answer, err := s.TryPublic(t, method, path, token, body)
	require.NoError(t, err)
	return answer
}

// TryPublic is Public for requests of other goroutines than the test's.
func (s *Relay) TryPublic(t testing.TB, method, path, token string, body any) (Answer, error) {
	t.Helper()
	var payload io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		payload = bytes.NewReader([]byte(body))
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return Answer{}, err
		}
		payload = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, payload)
	if err != nil {
		return Answer{}, err
	}
	if payload != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, response.Header, string(text)}, err
}

// Try makes one operator request that may be refused.
func (s *Relay) Try(t testing.TB, method, path string, body any) error {
	t.Helper()
	return s.call(t.Context(), method, path, body, nil)
}

// EncodeJSON returns a value as it is sent.
func EncodeJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
