package api_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

// device is an ACTIVE device that has signed in.
func (s *stack) device(t *testing.T, kind string, admin bool) *testkit.Device {
	t.Helper()
	d := testkit.NewDevice(t)
	var invite api.Invite
	s.send(t, http.MethodPost, "/v1/invites", testkit.EncodeJSON(t, map[string]any{"kind": kind, "admin": admin})).decode(t, &invite)
	var enrolled api.Enrolled
	s.send(t, http.MethodPost, "/v1/enroll", testkit.EncodeJSON(t, d.Enrollment(t, invite.Token, kind))).decode(t, &enrolled)
	d.ID = enrolled.DeviceID
	if !admin {
		fingerprint := testkit.EncodeJSON(t, api.Approval{Fingerprint: d.Keys.Fingerprint()})
		require.Equal(t, http.StatusOK, s.send(t, http.MethodPost, "/v1/devices/"+d.ID+"/approve", fingerprint).status)
	}
	var challenge api.Challenge
	s.send(t, http.MethodPost, "/v1/auth/challenge", `{"device_id":"`+d.ID+`"}`).decode(t, &challenge)
	raw, err := base64.RawURLEncoding.DecodeString(challenge.Nonce)
	require.NoError(t, err)
	signature := identity.SignIn(d.Private, [32]byte(raw), uuid.MustParse(d.ID))
	var token api.AccessToken
	s.send(t, http.MethodPost, "/v1/auth/token", testkit.EncodeJSON(t, api.NewAccessToken{
		DeviceID: d.ID, Nonce: challenge.Nonce, Signature: base64.StdEncoding.EncodeToString(signature[:]),
	})).decode(t, &token)
	d.AccessToken = token.AccessToken
	require.Equal(t, http.StatusOK, s.by(t, d, http.MethodPut, "/v1/devices/me/keys", `{}`).status)
	return d
}

// by sends a request with a device's access token.
func (s *stack) by(t *testing.T, d *testkit.Device, method, path, body string) response {
	t.Helper()
	return send(t, s.public, method, path, body, "Authorization", "Bearer "+d.AccessToken)
}

func (s *stack) opened(t *testing.T, d *testkit.Device, body string) api.Room {
	t.Helper()
	answer := s.by(t, d, http.MethodPost, "/v1/rooms", body)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var room api.Room
	answer.decode(t, &room)
	return room
}

// added makes a device a member of a room.
func (s *stack) added(t *testing.T, by *testkit.Device, room string, d *testkit.Device, role string) api.Member {
	t.Helper()
	answer := s.by(t, by, http.MethodPost, "/v1/rooms/"+room+"/members", `{"device_id":"`+d.ID+`","role":"`+role+`"}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	var member api.Member
	answer.decode(t, &member)
	return member
}

// STATE, "Create Room": a human device makes a room, owns it and sees it; an agent makes
// none. The operator sees all of them.
func TestDevicesMakeAndListRooms(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	human, agent := s.device(t, "human", false), s.device(t, "agent", false)
	first := s.opened(t, human, `{"scheme":"mls"}`)
	require.Equal(t, "ACTIVE", first.State)
	require.Equal(t, "mls", first.Scheme)
	require.Nil(t, first.Activated)
	second := s.opened(t, human, `{"kind":"direct"}`)
	require.False(t, *second.Activated, "a direct room says whether its owner has written first")
	s.by(t, agent, http.MethodPost, "/v1/rooms", `{}`).refused(t, 403, "forbidden")
	s.by(t, human, http.MethodPost, "/v1/rooms", `{"scheme":"rot13"}`).refused(t, 400, "malformed_request")
	s.room(t) // the operator's

	list := func(answer response) (ids []string, cursor string) {
		t.Helper()
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		var page api.Rooms
		answer.decode(t, &page)
		for _, room := range page.Rooms {
			require.Nil(t, room.Participants)
			ids = append(ids, room.ID)
		}
		return ids, page.NextCursor
	}
	ids, cursor := list(s.by(t, human, http.MethodGet, "/v1/rooms?limit=1", ""))
	require.Equal(t, []string{first.ID}, ids)
	require.NotEmpty(t, cursor)
	ids, cursor = list(s.by(t, human, http.MethodGet, "/v1/rooms?limit=1&cursor="+cursor, ""))
	require.Equal(t, []string{second.ID}, ids)
	require.Empty(t, cursor)
	ids, _ = list(s.by(t, agent, http.MethodGet, "/v1/rooms", ""))
	require.Empty(t, ids)
	ids, _ = list(s.send(t, http.MethodGet, "/v1/rooms", ""))
	require.Len(t, ids, 3)
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "cursor=x", "cursor=", "after=1", "limit=1&limit=2"} {
		s.by(t, human, http.MethodGet, "/v1/rooms?"+query, "").refused(t, 400, "malformed_request")
	}
}

// Peers verify and encrypt to each other with what a room shows of them.
func TestRoomShowsThePublicKeysOfItsMembers(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	human, agent, admin := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "human", true)
	room := s.opened(t, human, `{}`)
	member := s.added(t, human, room.ID, agent, "agent")
	local := s.member(t, room.ID, "viewer")
	text := base64.StdEncoding.EncodeToString
	for _, d := range []*testkit.Device{human, agent, admin, nil} {
		answer := s.send(t, http.MethodGet, "/v1/rooms/"+room.ID, "")
		if d != nil {
			answer = s.by(t, d, http.MethodGet, "/v1/rooms/"+room.ID, "")
		}
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		var shown api.Room
		answer.decode(t, &shown)
		require.Len(t, shown.Participants, 3)
		for i, of := range []*testkit.Device{human, agent} {
			p := shown.Participants[i]
			require.Equal(t, of.ID, p.DeviceID)
			require.Equal(t, text(of.Keys.Identity[:]), p.IdentityKey)
			require.Equal(t, text(of.Keys.Agreement[:]), p.AgreementKey)
			require.Equal(t, text(of.Keys.AgreementSignature[:]), p.AgreementSignature)
		}
		require.Equal(t, local.ParticipantID, shown.Participants[2].ParticipantID)
		require.Empty(t, shown.Participants[2].IdentityKey, "a device that the operator made has no keys")
		require.Equal(t, map[*testkit.Device]string{human: room.ParticipantID, agent: member.ParticipantID}[d], shown.ParticipantID)
	}
}

// A room of others is like one that there is not, whatever is asked of it.
func TestRoomOfOthersDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, stranger := s.device(t, "human", false), s.device(t, "human", false)
	room := s.opened(t, owner, `{}`)
	was := s.added(t, owner, room.ID, stranger, "controller")
	require.Equal(t, http.StatusOK, s.by(t, stranger, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+was.ParticipantID, "").status)
	for _, c := range []struct{ method, below, body string }{
		{http.MethodGet, "", ""},
		{http.MethodPost, "/members", `{"device_id":"` + stranger.ID + `","role":"agent"}`},
		{http.MethodDelete, "/members/" + room.ParticipantID, ""},
		{http.MethodPost, "/archive", ""},
		{http.MethodPost, "/reset", ""},
		{http.MethodPost, "/credentials", `{}`},
	} {
		theirs := s.by(t, stranger, c.method, "/v1/rooms/"+room.ID+c.below, c.body)
		theirs.refused(t, 404, "not_found")
		missing := s.by(t, stranger, c.method, "/v1/rooms/"+uuid.NewString()+c.below, c.body)
		require.Equal(t, missing.body, theirs.body, "%s %s", c.method, c.below)
	}
	var shown api.Room
	s.by(t, owner, http.MethodGet, "/v1/rooms/"+room.ID, "").decode(t, &shown)
	require.NotEqual(t, "ARCHIVED", shown.State)
	require.Len(t, shown.Participants, 1)
}

// A device that is added mints its credentials itself: nobody else ever sees one.
func TestDevicesMintTheirOwnCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent := s.device(t, "human", false), s.device(t, "agent", false)
	room := s.opened(t, owner, `{}`)
	members := "/v1/rooms/" + room.ID + "/members"
	for _, body := range []string{
		`{"role":"agent"}`, `{"role":"boss","device_id":"` + agent.ID + `"}`, `{"device_id":"` + agent.ID + `"}`,
		`{"role":"agent","device_id":"me"}`, `{"role":"agent","device_id":"` + agent.ID + `","kind":"session"}`,
		`{"role":"agent","device_id":"` + agent.ID + `","ttl_seconds":60}`, `{"role":"agent","device_id":"` + agent.ID + `","x":1}`,
	} {
		s.by(t, owner, http.MethodPost, members, body).refused(t, 400, "malformed_request")
	}
	s.there.take()
	member := s.added(t, owner, room.ID, agent, "agent")
	require.Equal(t, agent.ID, member.DeviceID)
	require.Empty(t, member.Credential)
	require.Empty(t, member.CredentialID)
	require.Zero(t, member.ExpiresAt)
	requireOneChange(t, s.there.take())
	var minted api.Credential
	s.by(t, agent, http.MethodPost, "/v1/rooms/"+room.ID+"/credentials", `{}`).decode(t, &minted)
	require.Equal(t, member.ParticipantID, minted.ParticipantID)
	require.True(t, s.valid(t, minted.Credential))
	s.by(t, owner, http.MethodPost, members, `{"role":"agent","device_id":"`+agent.ID+`"}`).refused(t, 409, "conflict")
	s.by(t, agent, http.MethodPost, members, `{"role":"agent","device_id":"`+owner.ID+`"}`).refused(t, 403, "forbidden")
}

// A removal is in force everywhere before it is answered, and may be repeated by whoever may
// remove, and by the one that left.
func TestRemovalByDevicesIsRepeatable(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent, second, admin := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "agent", false), s.device(t, "human", true)
	room := s.opened(t, owner, `{}`)
	member, other := s.added(t, owner, room.ID, agent, "agent"), s.added(t, owner, room.ID, second, "agent")
	elsewhere := s.member(t, s.room(t).ID, "agent")
	path := func(participant string) string { return "/v1/rooms/" + room.ID + "/members/" + participant }
	removed := func(by *testkit.Device, participant string) {
		t.Helper()
		answer := s.by(t, by, http.MethodDelete, path(participant), "")
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		for _, r := range []*recorder{s.here, s.there} {
			changes := r.take()
			requireOneChange(t, changes)
			require.Equal(t, []uuid.UUID{uuid.MustParse(participant)}, changes[0].Removed)
			require.Equal(t, room.ID, changes[0].Room.String())
		}
	}
	s.here.take()
	s.there.take()
	s.by(t, agent, http.MethodDelete, path(other.ParticipantID), "").refused(t, 403, "forbidden")
	s.by(t, owner, http.MethodDelete, path(elsewhere.ParticipantID), "").refused(t, 404, "not_found")
	s.by(t, owner, http.MethodDelete, path(uuid.NewString()), "").refused(t, 404, "not_found")
	require.Empty(t, s.there.take())

	s.fault.set(func(f *faults) { f.announces = 1 })
	answer := s.by(t, agent, http.MethodDelete, path(member.ParticipantID), "")
	answer.refused(t, 503, "unavailable")
	require.Contains(t, answer.body, "committed")
	for _, by := range []*testkit.Device{agent, owner, admin} {
		removed(by, member.ParticipantID)
	}
	s.by(t, second, http.MethodDelete, path(member.ParticipantID), "").refused(t, 403, "forbidden")
	s.by(t, agent, http.MethodDelete, path(other.ParticipantID), "").refused(t, 404, "not_found")
	s.by(t, agent, http.MethodDelete, path(room.ParticipantID), "").refused(t, 404, "not_found")
	require.Empty(t, s.there.take())
	removed(admin, other.ParticipantID)
	s.by(t, second, http.MethodDelete, path(member.ParticipantID), "").refused(t, 404, "not_found")
}

// Where the store does not say what it did, every node acts as if it had, but for a caller
// who may not ask for it.
func TestRemovalByDevicesInDoubt(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner, agent, stranger := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "human", false)
	room := s.opened(t, owner, `{}`)
	member := s.added(t, owner, room.ID, agent, "agent")
	s.there.take()
	s.fault.set(func(f *faults) { f.fail = true })
	for d, closes := range map[*testkit.Device]bool{owner: true, agent: true, stranger: false} {
		s.by(t, d, http.MethodDelete, "/v1/rooms/"+room.ID+"/members/"+member.ParticipantID, "").refused(t, 503, "unavailable")
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, room.ID, changes[0].Room.String())
		require.Equal(t, closes, len(changes[0].Removed) == 1)
	}
}

// Archiving is in force on every node before it is answered, and is announced again when
// asked again; inboxes are told after nodes.
func TestArchivingIsAnnounced(t *testing.T) {
	t.Parallel()
	var woken atomic.Int32
	var s *stack
	s = newStack(t, func(c *api.Config) { c.OutboxWake = func() { woken.Add(int32(1 + len(s.here.changesNow()))) } })
	owner, agent, admin := s.device(t, "human", false), s.device(t, "agent", false), s.device(t, "human", true)
	room := s.opened(t, owner, `{}`)
	s.added(t, owner, room.ID, agent, "agent")
	path := "/v1/rooms/" + room.ID
	for _, below := range []string{"/archive", "/reset"} {
		s.by(t, agent, http.MethodPost, path+below, "").refused(t, 403, "forbidden")
		s.by(t, owner, http.MethodPost, path+below, "{}").refused(t, 400, "malformed_request")
	}
	s.here.take()
	s.there.take()
	announced := func(below string, by *testkit.Device) (now api.Room) {
		t.Helper()
		woken.Store(0)
		answer := s.by(t, by, http.MethodPost, path+below, "")
		require.Equal(t, http.StatusOK, answer.status, answer.body)
		answer.decode(t, &now)
		require.GreaterOrEqual(t, woken.Load(), int32(2), "inboxes are told when this node had been")
		s.here.take()
		changes := s.there.take()
		requireOneChange(t, changes)
		require.Equal(t, cluster.Change{Tenant: changes[0].Tenant, Room: uuid.MustParse(room.ID), Version: now.Version}, changes[0])
		return now
	}
	require.Equal(t, "ACTIVE", announced("/reset", owner).State)
	announced("/reset", admin)
	s.fault.set(func(f *faults) { f.lose = true })
	s.by(t, owner, http.MethodPost, path+"/archive", "").refused(t, 503, "unavailable")
	requireOneChange(t, s.there.take())
	s.fault.set(func(f *faults) { f.lose, f.announces = false, 1 })
	s.by(t, owner, http.MethodPost, path+"/archive", "").refused(t, 503, "unavailable")
	s.here.take()
	for _, by := range []*testkit.Device{owner, admin} {
		require.Equal(t, "ARCHIVED", announced("/archive", by).State)
	}
	s.by(t, owner, http.MethodPost, path+"/reset", "").refused(t, 409, "conflict")
	s.send(t, http.MethodPost, "/v1/rooms/"+s.room(t).ID+"/archive", "").refused(t, 409, "conflict")
}

// In an archived room reading goes on: a device still gets a credential.
func TestArchivedRoomStillMints(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	owner := s.device(t, "human", false)
	room := s.opened(t, owner, `{}`)
	require.Equal(t, http.StatusOK, s.by(t, owner, http.MethodPost, "/v1/rooms/"+room.ID+"/archive", "").status)
	var minted api.Credential
	answer := s.by(t, owner, http.MethodPost, "/v1/rooms/"+room.ID+"/credentials", `{}`)
	require.Equal(t, http.StatusCreated, answer.status, answer.body)
	answer.decode(t, &minted)
	require.Equal(t, http.StatusOK, s.as(t, minted.Credential, http.MethodGet, "/v1/sessions/"+room.ID+"/history").status)
	s.by(t, owner, http.MethodPost, "/v1/rooms/"+room.ID+"/members", `{"role":"agent","device_id":"`+s.device(t, "agent", false).ID+`"}`).refused(t, 409, "conflict")
}

func (w *watched) AuthenticateDevice(ctx context.Context, token store.TokenHash) (store.Device, error) {
	w.see()
	return w.Store.AuthenticateDevice(ctx, token)
}

func (w *watched) Roster(ctx context.Context, tenant, room uuid.UUID) (store.Roster, error) {
	w.see()
	return w.Store.Roster(ctx, tenant, room)
}

func (w *watched) RoomPage(ctx context.Context, tenant, device, after uuid.UUID, limit int) ([]store.Room, bool, error) {
	w.see()
	return w.Store.RoomPage(ctx, tenant, device, after, limit)
}

// FAULTS H06: a device that is suspended, or removed from a room, reads nothing of rooms
// from the answer on.
func TestReadsOfDevicesHoldChangesBack(t *testing.T) {
	t.Parallel()
	var sees *watched
	s := newSessions(t, func(c *api.Config) {
		doorkeeper, ok := c.Admission.(*gate)
		require.True(t, ok)
		sees = &watched{Store: c.Store, gate: doorkeeper}
		c.Store = sees
	})
	owner := s.device(t, "human", false)
	paths := []string{"/v1/rooms/" + s.opened(t, owner, `{}`).ID, "/v1/rooms"}
	sees.outside = 0
	for _, path := range paths {
		sees.inside = 0
		require.Equal(t, http.StatusOK, s.by(t, owner, http.MethodGet, path, "").status)
		require.Equal(t, 2, sees.inside, path)
		require.Zero(t, sees.outside, path)
		require.False(t, s.gate.entered(), "it has left")
	}
	s.gate.close()
	for _, path := range paths {
		s.by(t, owner, http.MethodGet, path, "").refused(t, 503, "unavailable")
		require.Equal(t, http.StatusOK, s.send(t, http.MethodGet, path, "").status, "the operator reads whatever the state of the node")
	}
}
