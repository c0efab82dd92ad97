package e2e_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// deviceState asks the operator.
func deviceState(t *testing.T, s *testkit.Relay, id string) string {
	t.Helper()
	var device struct {
		State string `json:"state"`
	}
	s.Call(t, http.MethodGet, "/v1/devices/"+id, nil, &device)
	return device.State
}

// moveDevice suspends, reinstates or revokes, as the operator.
func moveDevice(t *testing.T, s *testkit.Relay, d *testkit.Device, move string) {
	t.Helper()
	s.Call(t, http.MethodPost, "/v1/devices/"+d.ID+"/"+move, nil, nil)
}

// STATE, "Enrollment Protocol Flow": from an invite to an envelope, and what each state
// does not allow yet.
func TestFromAnInviteToAnEnvelope(t *testing.T) {
	t.Parallel()
	s := shared(t)
	other := room(t, s, "agent")[0]
	d := s.Enroll(t, "agent", false)
	require.Equal(t, "PENDING", deviceState(t, s, d.ID))
	s.Public(t, http.MethodPost, "/v1/auth/token", "", s.SignedNonce(t, d)).Refused(t, http.StatusUnauthorized, wire.Unauthorized)

	admin := s.ActiveDevice(t, "human", true)
	approve := func(fingerprint string) testkit.Answer {
		return s.Public(t, http.MethodPost, "/v1/devices/"+d.ID+"/approve", admin.AccessToken, map[string]string{"fingerprint": fingerprint})
	}
	approve(admin.Keys.Fingerprint()).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	approve("").Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	require.Equal(t, "PENDING", deviceState(t, s, d.ID))
	approve(strings.ToLower(strings.ReplaceAll(d.Keys.Fingerprint(), "-", " "))).Demand(t, http.StatusOK)
	approve(d.Keys.Fingerprint()).Refused(t, http.StatusConflict, wire.Conflict)

	s.SignIn(t, d)
	member := map[string]string{"role": "agent", "device_id": d.ID}
	members := "/v1/rooms/" + other.Room + "/members"
	require.Error(t, s.Try(t, http.MethodPost, members, member), "an APPROVED device becomes no member")
	keys := map[string]string{"agreement_key": base64.StdEncoding.EncodeToString(admin.Keys.Agreement[:]), "agreement_signature": ""}
	s.Public(t, http.MethodPut, "/v1/devices/me/keys", d.AccessToken, keys).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	require.Equal(t, "APPROVED", deviceState(t, s, d.ID))
	for range 2 {
		s.Public(t, http.MethodPut, "/v1/devices/me/keys", d.AccessToken, struct{}{}).Demand(t, http.StatusOK)
	}

	credentials := "/v1/rooms/" + other.Room + "/credentials"
	s.Public(t, http.MethodPost, credentials, d.AccessToken, struct{}{}).Refused(t, http.StatusNotFound, wire.NotFound)
	s.Call(t, http.MethodPost, members, member, nil)
	who := selfMinted(t, s, d, other.Room)
	alive(t, online(t, s, who), online(t, s, other))
	s.Public(t, http.MethodPost, credentials, d.AccessToken, map[string]string{"participant_id": other.ID}).Refused(t, http.StatusNotFound, wire.NotFound)
	s.Public(t, http.MethodPost, credentials, d.AccessToken, map[string]string{"kind": "development"}).Refused(t, http.StatusForbidden, wire.Forbidden)
}

// selfMinted is the device's participant in a room, with a credential it minted for itself.
func selfMinted(t *testing.T, s *testkit.Relay, d *testkit.Device, room string) testkit.Participant {
	t.Helper()
	var minted struct {
		ParticipantID string    `json:"participant_id"`
		Credential    string    `json:"credential"`
		CredentialID  string    `json:"credential_id"`
		ExpiresAt     time.Time `json:"expires_at"`
	}
	s.Public(t, http.MethodPost, "/v1/rooms/"+room+"/credentials", d.AccessToken, struct{}{}).Into(t, &minted)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), minted.ExpiresAt, time.Hour)
	return testkit.Participant{Room: room, ID: minted.ParticipantID, Credential: minted.Credential, CredentialID: minted.CredentialID}
}

// STATE, max uses 1; FAULTS H01: of 50 at once on two nodes one enrolls, the others get
// the one refusal.
func TestOneInviteOneDevice(t *testing.T) {
	t.Parallel()
	_, s, other := sharedPair(t)
	nodes := []*testkit.Relay{s, other}
	invite := s.Invite(t, "agent", false)
	const at = 50
	bodies := make([]map[string]string, at)
	for i := range bodies {
		bodies[i] = testkit.NewDevice(t).Enrollment(t, invite.Token, "agent")
	}
	barrier := make(chan struct{})
	answers := make([]testkit.Answer, at)
	errs := make([]error, at)
	var all sync.WaitGroup
	for i := range bodies {
		all.Go(func() {
			<-barrier
			answers[i], errs[i] = nodes[i%2].TryPublic(t, http.MethodPost, "/v1/enroll", "", bodies[i])
		})
	}
	close(barrier)
	all.Wait()
	refusals := make(map[string]int)
	for i, answer := range answers {
		require.NoError(t, errs[i])
		if answer.Status != http.StatusCreated {
			require.Equal(t, http.StatusBadRequest, answer.Status, answer.Body)
			refusals[answer.Body]++
		}
	}
	require.Len(t, refusals, 1, "all refusals are the same: %v", refusals)
	for _, n := range refusals {
		require.Equal(t, at-1, n)
	}
	var list struct {
		Devices []struct{} `json:"devices"`
	}
	s.Call(t, http.MethodGet, "/v1/devices", nil, &list)
	require.Len(t, list.Devices, 1)
}

// withMember is a body with one member changed.
func withMember(body map[string]string, name, value string) map[string]string {
	changed := maps.Clone(body)
	changed[name] = value
	return changed
}

// STATE, "Failure cases"; FAULTS H03, H04, H09, H10: the refusal does not tell what was wrong.
func TestEnrollmentIsRefusedTheSameWay(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := testkit.Start(t, testkit.Database(database))
	good := s.Invite(t, "agent", false)
	fresh := func(token string) map[string]string { return testkit.NewDevice(t).Enrollment(t, token, "agent") }

	expired, consumed, revoked := s.Invite(t, "agent", false), s.Invite(t, "agent", false), s.Invite(t, "agent", false)
	changed, err := databaseOwner(t, database).Exec(t.Context(),
		"UPDATE invites SET created_at = created_at - interval '20 minutes', expires_at = expires_at - interval '20 minutes' WHERE id = $1", expired.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, changed.RowsAffected())
	enrolled := testkit.NewDevice(t)
	s.Public(t, http.MethodPost, "/v1/enroll", "", enrolled.Enrollment(t, consumed.Token, "agent")).Demand(t, http.StatusCreated)
	s.Call(t, http.MethodDelete, "/v1/invites/"+revoked.ID, nil, nil)
	s.Call(t, http.MethodDelete, "/v1/invites/"+revoked.ID, nil, nil)
	require.Error(t, s.Try(t, http.MethodDelete, "/v1/invites/"+consumed.ID, nil))
	unknown, _ := store.NewToken()
	otherInvite := s.Invite(t, "agent", false)
	body := fresh(good.Token)
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32))

	var first *testkit.Answer
	for name, bad := range map[string]any{
		"unknown":             fresh(unknown),
		"expired":             fresh(expired.Token),
		"consumed":            fresh(consumed.Token),
		"revoked":             fresh(revoked.Token),
		"proof of another":    withMember(body, "proof", fresh(good.Token)["proof"]),
		"proof for another":   withMember(body, "token", otherInvite.Token),
		"token too short":     withMember(body, "token", "short"),
		"token padded":        withMember(body, "token", good.Token+"="),
		"token empty":         withMember(body, "token", ""),
		"zero key":            withMember(body, "identity_key", zeros),
		"zero agreement":      withMember(body, "agreement_key", zeros),
		"key encoding":        withMember(body, "identity_key", body["identity_key"][:40]),
		"key enrolled":        enrolled.Enrollment(t, good.Token, "agent"),
		"another kind":        withMember(body, "kind", "human"),
		"no kind":             withMember(body, "kind", "robot"),
		"label too long":      withMember(body, "label", strings.Repeat("é", store.MaxDeviceLabel+1)),
		"label of controls":   withMember(body, "label", "a\n[INFO] approved"),
		"one more member":     withMember(body, "admin", "true"),
		"one more at the end": withMember(body, "zone", "x"), // all that it needs was read before
		"no JSON":             `{"token":`,
		"no object":           `[]`,
		"nothing":             ``,
		"token a number":      `{"token":5}`,
	} {
		answer := s.Public(t, http.MethodPost, "/v1/enroll", "", bad)
		answer.Header.Del("Date")
		if first == nil {
			answer.Refused(t, http.StatusBadRequest, wire.EnrollmentRefused)
			first = &answer
		}
		require.Equal(t, *first, answer, name)
	}
	s.Public(t, http.MethodPost, "/v1/enroll", "", body).Demand(t, http.StatusCreated)
}

// Ten wrong proofs revoke an invite; nine do not.
func TestWrongProofsRevokeAnInvite(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, wrong := range []int{store.MaxFailedProofs - 1, store.MaxFailedProofs} {
		invite := s.Invite(t, "agent", false)
		body := testkit.NewDevice(t).Enrollment(t, invite.Token, "agent")
		bad := withMember(body, "proof", base64.StdEncoding.EncodeToString(make([]byte, 64)))
		for range wrong {
			s.Public(t, http.MethodPost, "/v1/enroll", "", bad).Refused(t, http.StatusBadRequest, wire.EnrollmentRefused)
		}
		want := http.StatusCreated
		if wrong == store.MaxFailedProofs {
			want = http.StatusBadRequest
		}
		s.Public(t, http.MethodPost, "/v1/enroll", "", body).Demand(t, want)
	}
}

// DESIGN section 9: a nonce works once, for its device, with its key; all else is one 401.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	s := shared(t)
	d, other := s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "agent", false)
	used := s.SignedNonce(t, d)
	s.Public(t, http.MethodPost, "/v1/auth/token", "", used).Demand(t, http.StatusOK)
	stranger := testkit.NewDevice(t)
	stranger.ID = uuid.NewString()
	byOther := *d
	byOther.Private = other.Private
	unsigned := s.SignedNonce(t, d)
	refusals := make(map[string]bool)
	for name, bad := range map[string]map[string]string{
		"used":           used,
		"another key":    s.SignedNonce(t, &byOther),
		"another device": withMember(s.SignedNonce(t, d), "device_id", other.ID),
		"unknown device": s.SignedNonce(t, stranger),
		"no id":          withMember(unsigned, "device_id", "me"),
		"no signature":   withMember(unsigned, "signature", ""),
		"no nonce":       withMember(unsigned, "nonce", "x"),
	} {
		answer := s.Public(t, http.MethodPost, "/v1/auth/token", "", bad)
		require.Equal(t, http.StatusUnauthorized, answer.Status, name)
		refusals[answer.Body] = true
	}
	require.Len(t, refusals, 1)
	s.Public(t, http.MethodGet, "/v1/devices/"+d.ID, d.AccessToken, nil).Demand(t, http.StatusOK)
}

// STATE, SUSPENDED and REVOKED; FAULTS H06, H08: sockets close on the spot, nothing of the
// device is accepted, a suspension ends and a revocation does not.
func TestSuspendAndRevokeADevice(t *testing.T) {
	t.Parallel()
	s := shared(t)
	others := []testkit.Participant{room(t, s, "agent")[0], room(t, s, "agent")[0]}
	d := s.ActiveDevice(t, "agent", false)
	var mine []testkit.Participant
	for _, other := range others {
		s.Call(t, http.MethodPost, "/v1/rooms/"+other.Room+"/members", map[string]string{"role": "agent", "device_id": d.ID}, nil)
		mine = append(mine, selfMinted(t, s, d, other.Room))
	}
	cutOff := func(move string) {
		t.Helper()
		witness := online(t, s, others[0])
		open := []*peer{online(t, s, mine[0]), online(t, s, mine[1]), connect(t, s, mine[0])}
		alive(t, open[0], witness)
		moveDevice(t, s, d, move)
		_ = open[0].conn.SendRaw(t.Context(), open[0].envelope("message", mine[0].Room, "after-"+move))
		for _, p := range open {
			for _, frame := range p.closed(wire.CloseAuth) {
				require.NotEqual(t, wire.ServerQueued, frame.Type, "%s", frame.Raw)
			}
		}
		for _, who := range mine {
			refusedHello(t, s, client.Options{Token: who.Credential}, wire.CloseAuth)
		}
		s.Public(t, http.MethodGet, "/v1/devices/"+d.ID, d.AccessToken, nil).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
		s.Public(t, http.MethodPost, "/v1/auth/token", "", s.SignedNonce(t, d)).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
		s.Public(t, http.MethodGet, "/v1/sessions/"+mine[0].Room+"/participants", mine[0].Credential, nil).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
		moveDevice(t, s, d, move) // again is no error
	}
	cutOff("suspend")
	require.Equal(t, "SUSPENDED", deviceState(t, s, d.ID))
	moveDevice(t, s, d, "reinstate")
	s.SignIn(t, d)
	alive(t, online(t, s, mine[0]), online(t, s, others[0]))

	cutOff("revoke")
	require.Equal(t, "REVOKED", deviceState(t, s, d.ID))
	require.Error(t, s.Try(t, http.MethodPost, "/v1/devices/"+d.ID+"/reinstate", nil))
	require.Error(t, s.Try(t, http.MethodPost, "/v1/devices/"+d.ID+"/approve", map[string]string{"fingerprint": d.Keys.Fingerprint()}))
	for _, other := range others {
		var members struct {
			Participants []struct{} `json:"participants"`
		}
		s.Call(t, http.MethodGet, "/v1/sessions/"+other.Room+"/participants", nil, &members)
		require.Len(t, members.Participants, 1)
	}
}

// FAULTS H06(e): what is decided on one node closes what is open on the other.
func TestRevokeADeviceOnAnotherNode(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	other := room(t, one, "agent")[0]
	d := one.ActiveDevice(t, "agent", false)
	one.Call(t, http.MethodPost, "/v1/rooms/"+other.Room+"/members", map[string]string{"role": "agent", "device_id": d.ID}, nil)
	who := selfMinted(t, two, d, other.Room)
	alive(t, online(t, two, who), online(t, one, other))
	for _, move := range []string{"suspend", "reinstate", "revoke"} {
		if move == "reinstate" {
			moveDevice(t, one, d, move)
			continue
		}
		open := connect(t, two, who)
		moveDevice(t, one, d, move)
		open.closed(wire.CloseAuth)
		refusedHello(t, two, client.Options{Token: who.Credential}, wire.CloseAuth)
		two.Public(t, http.MethodGet, "/v1/devices/"+d.ID, d.AccessToken, nil).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
	}
}

// Only admins manage devices; a device sees itself and no other.
func TestOnlyAdminsManageDevices(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	agent, admin := s.ActiveDevice(t, "agent", false), s.ActiveDevice(t, "human", true)
	pending := s.Enroll(t, "agent", false)
	approval := map[string]string{"fingerprint": pending.Keys.Fingerprint()}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, "/v1/invites", struct{}{}},
		{http.MethodDelete, "/v1/invites/" + uuid.NewString(), nil},
		{http.MethodGet, "/v1/devices", nil},
		{http.MethodGet, "/v1/events", nil},
		{http.MethodPost, "/v1/devices/" + pending.ID + "/approve", approval},
		{http.MethodPost, "/v1/devices/" + admin.ID + "/suspend", nil},
		{http.MethodPost, "/v1/devices/" + admin.ID + "/reinstate", nil},
		{http.MethodPost, "/v1/devices/" + admin.ID + "/revoke", nil},
	} {
		s.Public(t, c.method, c.path, agent.AccessToken, c.body).Refused(t, http.StatusForbidden, wire.Forbidden)
		s.Public(t, c.method, c.path, "", c.body).Refused(t, http.StatusUnauthorized, wire.Unauthorized)
	}
	s.Public(t, http.MethodGet, "/v1/devices/"+admin.ID, agent.AccessToken, nil).Refused(t, http.StatusNotFound, wire.NotFound)
	s.Public(t, http.MethodGet, "/v1/devices/"+agent.ID, agent.AccessToken, nil).Demand(t, http.StatusOK)
	s.Public(t, http.MethodPost, "/v1/tenants", agent.AccessToken, map[string]string{"name": "mine"}).Refused(t, http.StatusUnauthorized, wire.Unauthorized)

	s.Public(t, http.MethodPost, "/v1/devices/"+pending.ID+"/approve", admin.AccessToken, approval).Demand(t, http.StatusOK)
	var list struct {
		Devices []struct {
			State string `json:"state"`
		} `json:"devices"`
		NextCursor string `json:"next_cursor"`
	}
	seen := 0
	for path := "/v1/devices?limit=2"; path != ""; {
		list.NextCursor = ""
		s.Public(t, http.MethodGet, path, admin.AccessToken, nil).Into(t, &list)
		seen += len(list.Devices)
		path = ""
		if list.NextCursor != "" {
			path = "/v1/devices?limit=2&cursor=" + list.NextCursor
		}
	}
	require.Equal(t, 3, seen)
	for _, query := range []string{"state=pending", "limit=0", "cursor=x", "cursor=AAAAAAAAAAAAAAAAAAAAAQ", "x=1"} {
		s.Public(t, http.MethodGet, "/v1/devices?"+query, admin.AccessToken, nil).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	}
	for _, body := range []string{`{"ttl_seconds":601}`, `{"ttl_seconds":0}`, `{"ttl_seconds":-1}`, `{"kind":"robot"}`} {
		s.Public(t, http.MethodPost, "/v1/invites", admin.AccessToken, body).Refused(t, http.StatusBadRequest, wire.MalformedRequest)
	}
}

// events reads a stream of server-sent events in the background.
type events struct {
	lines chan string
}

func follow(t *testing.T, s *testkit.Relay, token string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/v1/events", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	e := &events{lines: make(chan string, 64)}
	go func() {
		defer answer.Body.Close()
		defer close(e.lines)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if text := lines.Text(); text != "" && !strings.HasPrefix(text, ":") {
				e.lines <- text
			}
		}
	}()
	return e
}

// pending demands one event device_pending of that device.
func (e *events) pending(t *testing.T, d *testkit.Device) {
	t.Helper()
	require.Equal(t, "event: device_pending", e.line(t))
	require.Equal(t, "id: "+d.ID, e.line(t))
	data, found := strings.CutPrefix(e.line(t), "data: ")
	require.True(t, found)
	var told map[string]string
	require.NoError(t, json.Unmarshal([]byte(data), &told))
	require.Equal(t, d.ID, told["device_id"])
	require.Equal(t, d.Keys.Fingerprint(), told["fingerprint"])
	require.Equal(t, "agent", told["kind"])
}

func (e *events) line(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-e.lines:
		require.True(t, ok, "the stream has ended")
		return line
	case <-time.After(patience):
		require.Fail(t, "no event came")
		return ""
	}
}

// ended demands that nothing more comes.
func (e *events) ended(t *testing.T) {
	t.Helper()
	select {
	case line, ok := <-e.lines:
		require.False(t, ok, line)
	case <-time.After(patience):
		require.Fail(t, "the stream goes on")
	}
}

// STATE, "Notify new device pending": each admin is told once of each device, those that
// wait already first, and nobody who is no admin any more.
func TestAdminsAreToldOfPendingDevices(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	first, second := s.ActiveDevice(t, "human", true), s.ActiveDevice(t, "human", true)
	early := s.Enroll(t, "agent", false)
	streams := []*events{follow(t, s, first.AccessToken), follow(t, s, second.AccessToken)}
	for _, e := range streams {
		e.pending(t, early)
	}
	late := s.Enroll(t, "agent", false)
	for _, e := range streams {
		e.pending(t, late)
	}
	moveDevice(t, s, second, "suspend")
	streams[1].ended(t)
	for range 3 { // 4 of one device
		follow(t, s, first.AccessToken)
	}
	s.Public(t, http.MethodGet, "/v1/events", first.AccessToken, nil).Refused(t, http.StatusServiceUnavailable, wire.Unavailable)
	s.Stop(t)
	streams[0].ended(t)
}

// FAULTS H09: what is signed for one purpose serves for no other.
func TestSignaturesServeOnePurpose(t *testing.T) {
	t.Parallel()
	s := shared(t)
	invite := s.Invite(t, "agent", false)
	d := testkit.NewDevice(t)
	body := d.Enrollment(t, invite.Token, "agent")
	signIn := identity.SignIn(d.Private, [32]byte{}, [16]byte{})
	plain := ed25519.Sign(d.Private, []byte(invite.Token))
	for name, signature := range map[string][]byte{
		"agreement": d.Keys.AgreementSignature[:], "sign-in": signIn[:], "the token alone": plain,
	} {
		bad := withMember(body, "proof", base64.StdEncoding.EncodeToString(signature))
		answer := s.Public(t, http.MethodPost, "/v1/enroll", "", bad)
		require.Equal(t, http.StatusBadRequest, answer.Status, name)
	}
	s.Public(t, http.MethodPost, "/v1/enroll", "", body).Demand(t, http.StatusCreated)
}
