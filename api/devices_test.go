package api_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

// A device takes back a credential of its own that fell into other hands, and no other one. Where
// it is not known what became of that, nothing is announced: it might be another one's.
func TestADeviceRevokesItsCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent := s.device(t, "human", false), s.device(t, "agent", false)
	room := s.opened(t, owner, `{}`).ID
	s.added(t, owner, room, agent, "agent")
	var minted api.Credential
	s.by(t, agent, http.MethodPost, "/v1/rooms/"+room+"/credentials", "{}").decode(t, &minted)
	revoke := func(by *testkit.Device) response {
		return s.by(t, by, http.MethodDelete, "/v1/credentials/"+minted.CredentialID, "")
	}
	announced := func() {
		t.Helper()
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, []uuid.UUID{uuid.MustParse(minted.CredentialID)}, changes[0].Credentials)
	}
	s.there.take()

	unknown := s.by(t, owner, http.MethodDelete, "/v1/credentials/"+uuid.NewString(), "")
	unknown.refused(t, 404, "not_found")
	require.Equal(t, unknown.body, revoke(owner).body, "of another device's there is nothing, for the room's owner either")
	s.fault.set(func(f *faults) { f.lose = true })
	revoke(agent).refused(t, 503, "unavailable")
	s.fault.set(func(f *faults) { f.lose = false })
	require.Empty(t, s.there.take())

	again := revoke(agent)
	require.Equal(t, http.StatusOK, again.status)
	require.JSONEq(t, `{"revoked":0}`, again.body, "the lost answer's request had revoked it")
	announced()
	s.by(t, agent, http.MethodPost, "/v1/rooms/"+room+"/credentials", "{}").decode(t, &minted)
	require.JSONEq(t, `{"revoked":1}`, revoke(agent).body)
	announced()
}

// A suspension and a revocation are in force on every node before they are answered, are
// announced again when asked again, and where it is not known whether they were committed.
func TestDevicesAreCutOffEverywhere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	device := s.member(t, s.room(t).ID, "agent").DeviceID
	path := "/v1/devices/" + device
	cutOff := func() {
		t.Helper()
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, []uuid.UUID{uuid.MustParse(device)}, changes[0].Devices)
		require.Zero(t, changes[0].Room, "in all rooms")
	}
	s.there.take()

	s.fault.set(func(f *faults) { f.lose = true })
	s.send(t, http.MethodPost, path+"/suspend", "").refused(t, 503, "unavailable")
	cutOff()
	s.fault.set(func(f *faults) { f.lose = false })
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, path+"/suspend", "").status)
	cutOff()
	conflict := s.send(t, http.MethodPost, path+"/revoke", "")
	conflict.refused(t, 409, "conflict")
	require.Contains(t, conflict.body, "the device is SUSPENDED: reinstate it first")
	require.Empty(t, s.there.take())
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, path+"/reinstate", "").status)
	require.Empty(t, s.there.take()[0].Devices)

	s.fault.set(func(f *faults) { f.announces = 1 })
	answer := s.send(t, http.MethodPost, path+"/revoke", "")
	answer.refused(t, 503, "unavailable")
	require.Contains(t, answer.body, "committed")
	require.Empty(t, s.there.take())
	require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, path+"/revoke", "").status)
	cutOff()
	conflict = s.send(t, http.MethodPost, path+"/reinstate", "")
	conflict.refused(t, 409, "conflict")
	require.Contains(t, conflict.body, "the device is REVOKED")
	s.send(t, http.MethodPost, "/v1/devices/"+uuid.NewString()+"/revoke", "").refused(t, 404, "not_found")
	s.send(t, http.MethodPost, "/v1/devices/me/revoke", "").refused(t, 404, "not_found")
	s.send(t, http.MethodPost, path+"/revoke", "{}").refused(t, 400, "malformed_request")
}

// The owner's invite is for the time without an admin.
func TestOwnerInvite(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for range 2 {
		invite, made, err := s.api.OwnerInvite(t.Context())
		require.NoError(t, err)
		require.True(t, made)
		require.True(t, invite.Admin)
		_, ok := store.HashToken([]byte(invite.Token))
		require.True(t, ok)
	}
	require.NotContains(t, s.log.String(), "token")
	for range store.MaxPendingInvite - 2 {
		require.Equal(t, http.StatusCreated, s.send(t, http.MethodPost, "/v1/invites", `{}`).status)
	}
	s.send(t, http.MethodPost, "/v1/invites", `{}`).refused(t, 409, "conflict")
}

// One address may try so often, whatever becomes of it, and others are not concerned.
func TestEnrollmentsAreLimited(t *testing.T) {
	t.Parallel()
	at := &clock{now: time.Now()} // so that no budget comes back
	s := newStack(t, func(c *api.Config) { c.Limits.EnrollPerSecond, c.Limits.EnrollBurst, c.Now = 1, 3, at.Now })
	body := func() string {
		answer := s.send(t, http.MethodPost, "/v1/invites", `{}`)
		var invite api.Invite
		answer.decode(t, &invite)
		return testkit.EncodeJSON(t, testkit.NewDevice(t).Enrollment(t, invite.Token, "agent"))
	}
	enroll := func(text string) response {
		return send(t, s.public, http.MethodPost, "/v1/enroll", text, "Content-Type", "application/json")
	}
	enroll(`{}`).refused(t, 400, "enrollment_refused")
	require.Equal(t, http.StatusCreated, enroll(body()).status)
	enroll(`{`).refused(t, 400, "enrollment_refused")
	limited := enroll(body())
	limited.refused(t, 429, "rate_limited")
	require.NotEmpty(t, limited.header.Get("Retry-After"))
	send(t, s.public, http.MethodPost, "/v1/enroll?x=1", `{}`).refused(t, 400, "malformed_request")
}

// A stream outlives the time that the server gives an answer, and no method but GET holds one.
func TestEventsOutliveTheServersTime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	server := httptest.NewUnstartedServer(s.api.Socket())
	const most = 2 * time.Second // of an answer that is no stream
	server.Config.ReadTimeout, server.Config.WriteTimeout = most, most
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(s.api.Close)
	enroll := func() {
		var invite api.Invite
		s.send(t, http.MethodPost, "/v1/invites", `{}`).decode(t, &invite)
		body := testkit.EncodeJSON(t, testkit.NewDevice(t).Enrollment(t, invite.Token, "agent"))
		require.Equal(t, http.StatusCreated, s.send(t, http.MethodPost, "/v1/enroll", body).status)
	}
	for range 10 { // more than one caller may hold
		require.Equal(t, http.StatusOK, send(t, server, http.MethodHead, "/v1/events", "").status)
	}
	enroll()
	answer, err := server.Client().Get(server.URL + "/v1/events")
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	told := func() {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				return
			}
		}
		require.Fail(t, "the stream has ended", "%v", lines.Err())
	}
	told()
	<-time.After(most + most/10)
	enroll()
	told()
	s.api.Close()
	for lines.Scan() { // to the end of what was told
		require.Empty(t, lines.Text())
	}
	send(t, server, http.MethodGet, "/v1/events", "").refused(t, 503, "unavailable")
}
