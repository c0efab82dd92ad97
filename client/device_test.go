package client_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// files are the names in a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestADeviceIsKeptInAFolderOfItsOwn(t *testing.T) {
	s := newScripted(t)
	s.on("PUT /v1/devices/me/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"device_id":"`+deviceID+`","state":"ACTIVE"}`)
	})
	dir := filepath.Join(t.TempDir(), "below", "alice")
	d := s.device(dir)
	require.Equal(t, client.DevicePending, d.LastState())
	require.Equal(t, s.keys, d.Keys(), "what it enrolled with")
	keys := d.Keys()
	require.NoError(t, keys.Check())
	_, err := d.PublishKeys(t.Context())
	require.NoError(t, err)

	requirePrivate(t, dir)
	require.NoError(t, d.Close())
	require.ElementsMatch(t, []string{"keys", "keys.lock", "key-file"}, files(t, dir), "nothing is left of writing them")
	requirePrivate(t, dir)

	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	require.Equal(t, deviceID, again.ID())
	require.Equal(t, s.server.URL, again.RelayURL())
	require.Equal(t, client.KindAgent, again.Kind())
	require.Equal(t, "a test", again.Label())
	require.Equal(t, client.DeviceActive, again.LastState())
	require.Equal(t, d.Keys(), again.Keys())
	require.Equal(t, keys.Fingerprint(), again.Fingerprint())
	require.NoError(t, again.Close())
}

func TestWhatOthersCanReadIsRefused(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	require.NoError(t, s.device(dir).Close())
	for _, name := range []string{"keys", "key-file"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.Chmod(file, 0o640))
		_, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.ErrorIs(t, err, keystore.ErrPermissions)
		require.ErrorContains(t, err, "chmod 600 "+file)
		require.NoError(t, os.Chmod(file, 0o600))
	}

	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o755))
	_, err := client.EnrollDevice(t.Context(), open, s.enrollment(), client.DeviceOptions{})
	require.ErrorContains(t, err, "chmod 700 "+open)
	require.Empty(t, files(t, open))
	require.Equal(t, 1, s.count("POST /v1/enroll"))
}

func TestAFolderWithoutADevice(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		_, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.ErrorIs(t, err, client.ErrNoDevice)
	}
}

func TestAnEnrolledFolderStaysAsItIs(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	require.NoError(t, s.device(dir).Close())
	before := read(t, filepath.Join(dir, "keys"))
	_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrEnrolled)
	require.Equal(t, before, read(t, filepath.Join(dir, "keys")))
	require.Equal(t, 1, s.count("POST /v1/enroll"))
}

func TestARefusedEnrollmentLeavesNoKeys(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	var kept string
	s.on("POST /v1/enroll", func(w http.ResponseWriter, r *http.Request) {
		s.enroll(httptest.NewRecorder(), r)
		kept = copyFolder(t, dir)
		refuse(w, http.StatusBadRequest, wire.EnrollmentRefused)
	})
	_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	refused, ok := errors.AsType[*client.APIError](err)
	require.True(t, ok)
	require.Equal(t, http.StatusBadRequest, refused.Status)
	require.Equal(t, wire.EnrollmentRefused, refused.Code)
	require.ErrorIs(t, err, &wire.Error{Code: wire.EnrollmentRefused})
	require.ElementsMatch(t, []string{"keys.lock", "key-file"}, files(t, dir), "what is left opens nothing")

	seed := private(t, kept)[0]
	require.Equal(t, s.keys.Identity[:], []byte(ed25519.NewKeyFromSeed(seed)[32:]), "the keys are kept before the relay is asked")
	_, err = client.OpenDevice(kept, client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrNoDevice)
	requireNowhere(t, dir, private(t, kept)...)

	s.on("POST /v1/enroll", s.enroll)
	again, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), passphrase(t, "correct horse"))
	require.NoError(t, err, "with another secret")
	require.NoError(t, again.Close())
	require.ElementsMatch(t, []string{"keys", "keys.lock"}, files(t, dir))
}

// FAULTS H03 (d): where the answer is lost there is no device, and another invite makes one.
func TestALostAnswerToAnEnrollment(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	var lost identity.Keys
	s.on("POST /v1/enroll", func(_ http.ResponseWriter, r *http.Request) {
		s.enroll(httptest.NewRecorder(), r)
		lost = s.keys
		panic(http.ErrAbortHandler)
	})
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), token('i'))
	_, err = client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrNoDevice)

	s.on("POST /v1/enroll", s.enroll)
	d := s.device(dir)
	require.NotEqual(t, lost, d.Keys())
}

// A relay that puts other keys in place of the device's is found out by its own word.
func TestARelayThatShowsAnotherFingerprint(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	s.on("POST /v1/enroll", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"device_id":"`+deviceID+`","state":"PENDING","fingerprint":"K7QM-2XPD-9VWE-R4TN-BA3C"}`)
	})
	_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrFingerprint)
	_, err = client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrNoDevice)
}

func TestWhatIsNoInviteOrNoAddressIsNotSent(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	for _, invite := range []string{"", "short", token('i') + "A", token('i')[:42] + "B", token('i')[:42], token('i') + "\n"} {
		e := s.enrollment()
		e.Invite = invite
		_, err := client.EnrollDevice(t.Context(), dir, e, client.DeviceOptions{})
		require.ErrorIs(t, err, client.ErrInvite, "%q", invite)
	}
	for _, address := range []string{
		"", "127.0.0.1:8787", "ftp://127.0.0.1", "http://", "http://user:secret@127.0.0.1", "http://127.0.0.1/?token=x", "http://127.0.0.1/#x", "http://a b",
	} {
		e := s.enrollment()
		e.RelayURL = address
		_, err := client.EnrollDevice(t.Context(), dir, e, client.DeviceOptions{})
		require.ErrorIs(t, err, client.ErrRelayURL, "%q", address)
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoDirExists(t, dir)
	require.Zero(t, s.count("POST /v1/enroll"))
}

func TestTheAddressOfTheWebSocketMeansTheSameRelay(t *testing.T) {
	s := newScripted(t)
	for i, address := range []string{
		s.server.URL, s.server.URL + "/", s.server.URL + "/v1/relay", "ws" + strings.TrimPrefix(s.server.URL, "http") + "/v1/relay",
	} {
		e := s.enrollment()
		e.RelayURL = address
		d, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), fmt.Sprint(i)), e, client.DeviceOptions{})
		require.NoError(t, err)
		require.Equal(t, s.server.URL, d.RelayURL())
		require.NoError(t, d.Close())
	}
}

// describe answers who asks for the device, for tokens that are valid.
func (s *scripted) describe(valid func(token string) bool) {
	s.on("GET /v1/devices/"+deviceID, func(w http.ResponseWriter, r *http.Request) {
		if !valid(bearer(r)) {
			refuse(w, http.StatusUnauthorized, wire.Unauthorized)
			return
		}
		answer(w, `{"device_id":"`+deviceID+`","state":"ACTIVE","admin":true}`)
	})
}

func TestOneTokenServesUntilItIsRefused(t *testing.T) {
	s := newScripted(t)
	only := func(valid string) { s.describe(func(shown string) bool { return shown == valid }) }
	only(token('A'))
	dir := filepath.Join(t.TempDir(), "alice")
	d := s.device(dir)
	for range 3 {
		info, err := d.Info(t.Context())
		require.NoError(t, err)
		require.True(t, info.Admin)
	}
	require.NoError(t, d.Close())
	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	defer again.Close()
	_, err = again.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, s.count("POST /v1/auth/token"), "another program has the kept one")

	only(token('B'))
	_, err = again.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, s.count("POST /v1/auth/token"))

	only("none")
	_, err = again.Info(t.Context())
	require.ErrorIs(t, err, &wire.Error{Code: wire.Unauthorized})
	require.Equal(t, 3, s.count("POST /v1/auth/token"), "once, not for ever")
}

func TestATokenOfAnotherDeviceOrOneThatExpiresIsNotUsed(t *testing.T) {
	s := newScripted(t)
	s.describe(func(string) bool { return true })
	dir := filepath.Join(t.TempDir(), "alice")
	first := s.device(dir)
	_, err := first.Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, first.Close())
	kept := stored(t, dir, "access-token")
	rest := `", "device_id": "` + deviceID + `", "relay": "` + s.server.URL + `"}`
	soon := time.Now().Add(30 * time.Second).UTC().Format(time.RFC3339)
	for i, changed := range []string{
		strings.Replace(kept, deviceID, roomID, 1),
		strings.Replace(kept, s.server.URL, "http://elsewhere.example", 1),
		`{"access_token": "` + token('A') + `", "expires_at": "` + soon + rest,
		"damaged",
	} {
		put(t, dir, "access-token", changed)
		d, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.NoError(t, err)
		_, err = d.Info(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Close())
		require.Equal(t, i+2, s.count("POST /v1/auth/token"), changed)
	}
}

func TestManyWhoAskSignInOnce(t *testing.T) {
	s := newScripted(t)
	s.describe(func(string) bool { return true })
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := d.Info(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, s.count("POST /v1/auth/token"))
}

func TestADeviceThatIsNotLetIn(t *testing.T) {
	s := newScripted(t)
	s.on("POST /v1/auth/token", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusUnauthorized, wire.Unauthorized)
	})
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	_, err := d.Info(t.Context())
	require.ErrorIs(t, err, client.ErrNotAdmitted)
	require.False(t, client.Retryable(err))
	require.Equal(t, client.DevicePending, d.LastState())
}

// What a relay gives to sign must be a nonce, and what it gives for it a token.
func TestNonsenseFromARelay(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	for _, nonce := range []string{"", "AAAA", token('n') + "AAAA"} {
		s.on("POST /v1/auth/challenge", func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"nonce":"`+nonce+`"}`) })
		require.ErrorContains(t, d.SignIn(t.Context()), "not understood")
	}
	require.Zero(t, s.count("POST /v1/auth/token"))
	s.on("POST /v1/auth/challenge", s.challenge)
	s.on("POST /v1/auth/token", func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"access_token":"x","expires_in":3600}`) })
	require.ErrorContains(t, d.SignIn(t.Context()), "not understood")
}

// overdue is a context that is over, though nobody who waits for it knows yet.
type overdue struct{ context.Context }

func (overdue) Err() error { return context.DeadlineExceeded }

func TestAwaitApprovalEndsWhenTheDeviceIsLetInAndWithItsContext(t *testing.T) {
	s := newScripted(t)
	var attempts atomic.Int32
	s.on("POST /v1/auth/token", func(w http.ResponseWriter, r *http.Request) {
		switch attempts.Add(1) {
		case 1:
			refuse(w, http.StatusUnauthorized, wire.Unauthorized)
		case 2:
			refuse(w, http.StatusServiceUnavailable, wire.Unavailable)
		default:
			s.token(w, r)
		}
	})
	clock := clockwork.NewFakeClock()
	d, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), "alice"), s.enrollment(), client.DeviceOptions{Clock: clock})
	require.NoError(t, err)
	defer d.Close()
	let := make(chan error)
	go func() { let <- d.AwaitApproval(t.Context()) }()
	for range 2 {
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(2 * time.Second)
	}
	require.NoError(t, <-let)
	require.Equal(t, int32(3), attempts.Load())

	s.on("POST /v1/auth/token", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusUnauthorized, wire.Unauthorized)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, d.AwaitApproval(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, d.AwaitApproval(overdue{t.Context()}), context.DeadlineExceeded, "also right after a refusal")

	s.on("POST /v1/auth/token", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, wire.Forbidden)
	})
	require.ErrorIs(t, d.AwaitApproval(t.Context()), &wire.Error{Code: wire.Forbidden}, "another refusal stays the same")
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var stolen atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer elsewhere.Close()
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		s.on("POST /v1/enroll", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL+"/v1/enroll", status) })
		_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
		refused, ok := errors.AsType[*client.APIError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, status, refused.Status)
		require.Empty(t, refused.Code)
		require.Contains(t, err.Error(), "not as a relay does")
	}
	require.Zero(t, stolen.Load())
}

func TestACertificateThatCannotBeVerified(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	_, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), "alice"),
		client.Enrollment{RelayURL: server.URL, Invite: token('i'), Kind: client.KindHuman, Label: "x"}, client.DeviceOptions{})
	require.ErrorContains(t, err, "certificate")
	require.False(t, client.Retryable(err))
	require.NotContains(t, err.Error(), token('i'))
}

func TestRefusalsSayWhatARelaySaid(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	for _, c := range []struct {
		body, retryAfter string
		status           int
		want             client.APIError
		retryable        bool
	}{
		{
			`{"error":"rate_limited","detail":"later"}`, "7", http.StatusTooManyRequests,
			client.APIError{Status: 429, Code: wire.RateLimited, Detail: "later", RetryAfter: 7 * time.Second},
			true,
		},
		{`{"error":"unavailable","new":1}`, "-1", http.StatusServiceUnavailable, client.APIError{Status: 503, Code: wire.Unavailable}, true},
		{`{"error":"conflict","detail":"a\u001b[2J\nb"}`, "", http.StatusConflict, client.APIError{Status: 409, Code: wire.Conflict, Detail: "a[2Jb"}, false},
		{`{"error":"conflict","detail":"` + strings.Repeat("ä", 400) + `"}`, "", http.StatusConflict, client.APIError{Status: 409, Code: wire.Conflict, Detail: strings.Repeat("ä", 256)}, false},
		{"<html>Bad gateway</html>", "", http.StatusBadGateway, client.APIError{Status: 502}, true},
		{"", "", http.StatusNotFound, client.APIError{Status: 404}, false},
	} {
		s.on("GET /v1/devices/"+deviceID, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.retryAfter)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		_, err := d.Info(t.Context())
		refused, ok := errors.AsType[*client.APIError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, c.want, *refused)
		require.Equal(t, c.retryable, client.Retryable(err))
	}
}

func TestAnswersAreBoundedAndNotEchoed(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	for _, body := range []string{
		`{"device_id":"` + strings.Repeat("x", 9<<20) + `"}`,
		`{"device_id":7,"label":"secret"}`,
		`{"device_id":"a","device_id":"b"}`,
		`secret`,
		`{"state":"ACTIVE"} {"secret":1}`,
	} {
		s.on("GET /v1/devices/"+deviceID, func(w http.ResponseWriter, _ *http.Request) { answer(w, body) })
		_, err := d.Info(t.Context())
		require.ErrorContains(t, err, "not understood")
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestWhatIsNoIDIsNotAskedFor(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	for _, id := range []string{"", "me/keys", "../" + deviceID, strings.ToUpper(deviceID), deviceID + "?x=1"} {
		_, err := d.DeviceInfo(t.Context(), id)
		require.ErrorIs(t, err, client.ErrID)
		_, err = d.SuspendDevice(t.Context(), id)
		require.ErrorIs(t, err, client.ErrID)
		_, err = d.Room(t.Context(), id)
		require.ErrorIs(t, err, client.ErrID)
		_, err = d.AddMember(t.Context(), roomID, id, client.RoleAgent)
		require.ErrorIs(t, err, client.ErrID)
		require.ErrorIs(t, d.RemoveMember(t.Context(), roomID, id), client.ErrID)
		require.ErrorIs(t, d.RevokeInvite(t.Context(), id), client.ErrID)
	}
	require.Zero(t, s.count("POST /v1/auth/token"))
}

func TestListsGoOverAllPagesAndEnd(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	s.on("GET /v1/rooms", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			answer(w, `{"rooms":[{"room_id":"a"},{"room_id":"b"}],"next_cursor":"one"}`)
		case "one":
			answer(w, `{"rooms":[{"room_id":"c"}]}`)
		}
	})
	var ids []string
	for room, err := range d.Rooms(t.Context()) {
		require.NoError(t, err)
		ids = append(ids, room.RoomID)
	}
	require.Equal(t, []string{"a", "b", "c"}, ids)
	for _, err := range d.Rooms(t.Context()) {
		require.NoError(t, err)
		break // and nothing more is asked for
	}
	require.Equal(t, 3, s.count("GET /v1/rooms"))

	// A relay that sends its reader in a circle.
	for _, page := range []string{`{"rooms":[{"room_id":"a"}],"next_cursor":"one"}`, `{"rooms":[],"next_cursor":"one"}`} {
		s.on("GET /v1/rooms", func(w http.ResponseWriter, _ *http.Request) { answer(w, page) })
		var last error
		for _, err := range d.Rooms(t.Context()) {
			last = err
		}
		require.ErrorContains(t, last, "not understood")
	}
}

// FAULTS H10: keys of a participant are looked at before anything is done with them.
func TestKeysOfParticipantsAreChecked(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	own := d.Keys()
	whole := client.Participant{IdentityKey: encode(own.Identity[:]), AgreementKey: encode(own.Agreement[:]), AgreementSignature: encode(own.AgreementSignature[:])}
	keys, err := whole.Keys()
	require.NoError(t, err)
	require.Equal(t, own, keys)

	zero := encode(make([]byte, 32))
	for name, change := range map[string]func(p *client.Participant){
		"no keys":             func(p *client.Participant) { *p = client.Participant{} },
		"small order":         func(p *client.Participant) { p.AgreementKey = zero },
		"identity of nothing": func(p *client.Participant) { p.IdentityKey = zero },
		"not signed":          func(p *client.Participant) { p.AgreementSignature = encode(make([]byte, 64)) },
		"too long":            func(p *client.Participant) { p.IdentityKey = encode(make([]byte, 33)) },
		"no base64":           func(p *client.Participant) { p.IdentityKey = "*" },
	} {
		bad := whole
		change(&bad)
		_, err := bad.Keys()
		require.ErrorIs(t, err, identity.ErrKeys, name)
	}
}
