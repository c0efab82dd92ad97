package storetest

import (
	"errors"
	"math"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// active is a new agent device in state ACTIVE.
func (f fixture) active(t *testing.T, admin bool) store.Device {
	t.Helper()
	return f.activeAs(t, store.DeviceAgent, admin)
}

// human is a new human device in state ACTIVE.
func (f fixture) human(t *testing.T) store.Device {
	t.Helper()
	return f.activeAs(t, store.DeviceHuman, false)
}

func (f fixture) activeAs(t *testing.T, kind store.DeviceKind, admin bool) store.Device {
	t.Helper()
	device := f.enrolledAs(t, kind, admin)
	if !admin {
		_, err := f.Store.ApproveDevice(t.Context(), f.tenant, device.ID, uuid.Nil, device.Fingerprint)
		require.NoError(t, err)
	}
	device, err := f.Store.ActivateDevice(t.Context(), f.tenant, device.ID)
	require.NoError(t, err)
	require.Equal(t, store.DeviceActive, device.State)
	return device
}

// in is a new device in that state.
func (f fixture) in(t *testing.T, state store.DeviceState) store.Device {
	t.Helper()
	device := f.enrolled(t, state == store.DeviceApproved)
	if state == store.DevicePending || state == store.DeviceApproved {
		return device
	}
	device = f.active(t, false)
	var change store.DeviceChange
	var err error
	switch state {
	case store.DeviceSuspended:
		change, err = f.Store.SuspendDevice(t.Context(), f.tenant, device.ID, uuid.Nil)
	case store.DeviceRevoked:
		change, err = f.Store.RevokeDevice(t.Context(), f.tenant, device.ID, uuid.Nil)
	default:
		return device
	}
	require.NoError(t, err)
	return change.Device
}

func (f fixture) device(t *testing.T, id uuid.UUID) store.Device {
	t.Helper()
	device, err := f.Store.Device(t.Context(), f.tenant, id)
	require.NoError(t, err)
	return device
}

// join makes the device a member of a room.
func (f fixture) join(t *testing.T, room, device uuid.UUID) store.Participant {
	t.Helper()
	p, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room, Device: device, Role: store.RoleAgent})
	require.NoError(t, err)
	return p
}

func testDevices(t *testing.T, s Subject) {
	t.Run("moves", func(t *testing.T) { testDeviceMoves(t, newFixture(t, s)) })
	t.Run("who may", func(t *testing.T) { testWhoMoves(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("approving", func(t *testing.T) { testApproving(t, newFixture(t, s)) })
	t.Run("pages", func(t *testing.T) { testDevicePages(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("suspending", func(t *testing.T) { testSuspending(t, newFixture(t, s)) })
	t.Run("revoking", func(t *testing.T) { testRevokingDevice(t, newFixture(t, s)) })
}

// moves are the changes of a device's state, as the operator.
func (f fixture) moves(t *testing.T) map[store.DeviceEvent]func(store.Device) (store.Device, error) {
	t.Helper()
	changed := func(move func(device store.Device) (store.DeviceChange, error)) func(store.Device) (store.Device, error) {
		return func(device store.Device) (store.Device, error) {
			change, err := move(device)
			return change.Device, err
		}
	}
	return map[store.DeviceEvent]func(store.Device) (store.Device, error){
		store.DeviceApprove: func(d store.Device) (store.Device, error) {
			return f.Store.ApproveDevice(t.Context(), f.tenant, d.ID, uuid.Nil, d.Fingerprint)
		},
		store.DeviceActivate: func(d store.Device) (store.Device, error) {
			return f.Store.ActivateDevice(t.Context(), f.tenant, d.ID)
		},
		store.DeviceSuspend: changed(func(d store.Device) (store.DeviceChange, error) {
			return f.Store.SuspendDevice(t.Context(), f.tenant, d.ID, uuid.Nil)
		}),
		store.DeviceReinstate: changed(func(d store.Device) (store.DeviceChange, error) {
			return f.Store.ReinstateDevice(t.Context(), f.tenant, d.ID, uuid.Nil)
		}),
		store.DeviceRevoke: changed(func(d store.Device) (store.DeviceChange, error) {
			return f.Store.RevokeDevice(t.Context(), f.tenant, d.ID, uuid.Nil)
		}),
	}
}

// testDeviceMoves makes every move from every state: those of STATE succeed, each other
// one is refused and changes nothing.
func testDeviceMoves(t *testing.T, f fixture) {
	for _, from := range []store.DeviceState{
		store.DevicePending, store.DeviceApproved, store.DeviceActive, store.DeviceSuspended, store.DeviceRevoked,
	} {
		for event, move := range f.moves(t) {
			device := f.in(t, from)
			require.Equal(t, from, device.State)
			want, refusal := from.Next(event)
			if from == store.DeviceActive && event == store.DeviceActivate {
				want, refusal = from, nil
			}
			got, err := move(device)
			if refusal != nil {
				require.ErrorIs(t, err, store.ErrConflict, "%s %s", from, event)
				require.Equal(t, device, f.device(t, device.ID), "%s %s", from, event)
				continue
			}
			require.NoError(t, err, "%s %s", from, event)
			require.Equal(t, want, got.State, "%s %s", from, event)
			require.Equal(t, got, f.device(t, device.ID))
			require.Equal(t, want != store.DevicePending, got.ApprovedAt != nil)
			require.Equal(t, want == store.DeviceRevoked, got.RevokedAt != nil)
		}
	}
	for event, move := range f.moves(t) {
		_, err := move(store.Device{ID: newID(t), Fingerprint: "x"})
		require.ErrorIs(t, err, store.ErrNotFound, event)
	}
	_, err := f.Store.Device(t.Context(), f.tenant, newID(t))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testWhoMoves(t *testing.T, f, other fixture) {
	admin := f.active(t, true)
	strangers := map[string]uuid.UUID{
		"nobody known": newID(t), "no admin": f.active(t, false).ID, "an approved admin": f.enrolled(t, true).ID,
		"another tenant's admin": other.active(t, true).ID,
	}
	ctx := t.Context()
	moves := map[string]struct {
		from store.DeviceState
		move func(d store.Device, by uuid.UUID) error
	}{
		"approve": {store.DevicePending, func(d store.Device, by uuid.UUID) error {
			_, err := f.Store.ApproveDevice(ctx, f.tenant, d.ID, by, d.Fingerprint)
			return err
		}},
		"suspend": {store.DeviceActive, func(d store.Device, by uuid.UUID) error {
			_, err := f.Store.SuspendDevice(ctx, f.tenant, d.ID, by)
			return err
		}},
		"reinstate": {store.DeviceSuspended, func(d store.Device, by uuid.UUID) error {
			_, err := f.Store.ReinstateDevice(ctx, f.tenant, d.ID, by)
			return err
		}},
		"revoke": {store.DeviceActive, func(d store.Device, by uuid.UUID) error {
			_, err := f.Store.RevokeDevice(ctx, f.tenant, d.ID, by)
			return err
		}},
	}
	for name, c := range moves {
		device := f.in(t, c.from)
		for who, by := range strangers {
			require.ErrorIs(t, c.move(device, by), store.ErrForbidden, "%s by %s", name, who)
			require.ErrorIs(t, c.move(store.Device{ID: newID(t)}, by), store.ErrForbidden, "%s of nothing by %s", name, who)
		}
		require.ErrorIs(t, c.move(device, device.ID), store.ErrForbidden, "%s by itself", name)
		require.Equal(t, device, f.device(t, device.ID))
		require.NoError(t, c.move(device, admin.ID), name)

		theirs := other.in(t, c.from)
		require.ErrorIs(t, c.move(theirs, admin.ID), store.ErrNotFound, "%s of another tenant's", name)
		require.Equal(t, theirs, other.device(t, theirs.ID))
	}

	t.Run("of two admins who suspend each other one is", func(t *testing.T) {
		for range 10 {
			pair := []store.Device{f.active(t, true), f.active(t, true)}
			results := race(2, func(i int) error {
				_, err := f.Store.SuspendDevice(ctx, f.tenant, pair[i].ID, pair[1-i].ID)
				return err
			})
			require.Equal(t, 1, count(results, nil))
			require.Equal(t, 1, count(results, store.ErrForbidden))
		}
	})
}

func testApproving(t *testing.T, f fixture) {
	device := f.enrolled(t, false)
	for _, wrong := range []string{"", device.Fingerprint + "0", device.Fingerprint[1:], f.enrolled(t, false).Fingerprint} {
		_, err := f.Store.ApproveDevice(t.Context(), f.tenant, device.ID, uuid.Nil, wrong)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	require.Equal(t, device, f.device(t, device.ID))
	keyless := f.NewDevice(t, f.tenant, store.DevicePending)
	_, err := f.Store.ApproveDevice(t.Context(), f.tenant, keyless, uuid.Nil, "")
	require.ErrorIs(t, err, store.ErrInvalid, "nothing was compared")

	results := race(8, func(int) error {
		_, err := f.Store.ApproveDevice(t.Context(), f.tenant, device.ID, uuid.Nil, device.Fingerprint)
		return err
	})
	require.Equal(t, 1, count(results, nil))
	require.Equal(t, 7, count(results, store.ErrConflict))
	_, err = f.Store.ApproveDevice(t.Context(), f.tenant, device.ID, uuid.Nil, "wrong")
	require.ErrorIs(t, err, store.ErrInvalid, "whatever the state")
}

func testDevicePages(t *testing.T, f, other fixture) {
	const n = 7
	var made, pending []store.Device
	for i := range n {
		device := f.enrolled(t, i%2 == 1)
		made = append(made, device)
		if device.State == store.DevicePending {
			pending = append(pending, device)
		}
	}
	theirs := other.enrolled(t, false)
	for state, want := range map[store.DeviceState][]store.Device{"": made, store.DevicePending: pending, store.DeviceRevoked: {}} {
		for _, limit := range []int{1, 2, n, store.MaxPage} {
			all := []store.Device{}
			for after := uuid.Nil; ; {
				page, more, err := f.Store.DevicePage(t.Context(), f.tenant, state, after, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				all = append(all, page...)
				if !more {
					break
				}
				require.Len(t, page, limit)
				after = page[limit-1].ID
			}
			require.Equal(t, want, all, "%s by %d", state, limit)
		}
	}
	for _, limit := range []int{0, -1, store.MaxPage + 1, math.MaxInt} { // FAULTS BL-G07
		_, _, err := f.Store.DevicePage(t.Context(), f.tenant, "", uuid.Nil, limit)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, _, err := f.Store.DevicePage(t.Context(), f.tenant, "active", uuid.Nil, 1)
	require.ErrorIs(t, err, store.ErrInvalid)
	for _, after := range []uuid.UUID{newID(t), theirs.ID} {
		_, _, err := f.Store.DevicePage(t.Context(), f.tenant, "", after, 1)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

func testSuspending(t *testing.T, f fixture) {
	device := f.active(t, false)
	first, second := f.join(t, f.newRoom(t, store.RoomGroup).ID, device.ID), f.join(t, f.newRoom(t, store.RoomGroup).ID, device.ID)
	former := f.join(t, f.newRoom(t, store.RoomGroup).ID, device.ID)
	f.mint(t, former, hour)
	f.remove(t, former)
	credential, hash := f.mint(t, first, hour)
	revoked, _ := f.mint(t, second, hour)
	_, err := f.Store.RevokeCredential(t.Context(), f.tenant, revoked.ID, uuid.Nil)
	require.NoError(t, err)
	token := f.signIn(t, device)
	before, err := f.Edge.Roster(t.Context(), f.tenant, first.Room)
	require.NoError(t, err)

	change, err := f.Store.SuspendDevice(t.Context(), f.tenant, device.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, store.DeviceSuspended, change.Device.State)
	require.Empty(t, change.Rooms)
	require.ElementsMatch(t, []uuid.UUID{first.ID, second.ID}, change.Participants)
	require.Equal(t, []uuid.UUID{credential.ID}, change.Credentials)
	f.refusesToken(t, token)
	_, err = f.Edge.Authenticate(t.Context(), hash)
	require.ErrorIs(t, err, store.ErrUnauthenticated)
	roster, err := f.Edge.Roster(t.Context(), f.tenant, first.Room)
	require.NoError(t, err)
	require.Equal(t, before, roster, "nothing ended for good")

	back, err := f.Store.ReinstateDevice(t.Context(), f.tenant, device.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, store.DeviceChange{Device: device}, back)
	_, err = f.Edge.Authenticate(t.Context(), hash)
	require.NoError(t, err)
	_, err = f.Store.AuthenticateDevice(t.Context(), token)
	require.NoError(t, err)
}

// testRevokingDevice: STATE, all memberships stripped and every affected room in REKEYING.
func testRevokingDevice(t *testing.T, f fixture) {
	device := f.active(t, false)
	ctx := t.Context()
	type affected struct {
		room store.Room
		p    store.Participant
		want store.RoomState
	}
	var rooms []affected
	var credentials, participants []uuid.UUID
	var hashes []store.TokenHash
	join := func(scheme store.Scheme, want store.RoomState) store.Participant {
		room, err := f.Store.CreateRoom(ctx, store.NewRoom{
			Tenant: f.tenant, Kind: store.RoomGroup, Scheme: scheme, PrivateMessages: store.PrivateAllowed,
		})
		require.NoError(t, err)
		p := f.join(t, room.ID, device.ID)
		c, hash := f.mint(t, p, hour)
		rooms = append(rooms, affected{room, p, want})
		credentials, participants, hashes = append(credentials, c.ID), append(participants, p.ID), append(hashes, hash)
		return p
	}
	keys := join(store.SchemeSenderKeys, store.RoomRekeying)
	join(store.SchemeMLS, store.RoomActive) // nobody who left knows keys: there is no group
	join(store.SchemeNone, store.RoomActive)
	again := join(store.SchemeSenderKeys, store.RoomRekeying)
	f.remove(t, f.add(t, again.Room, store.RoleAgent))
	f.add(t, again.Room, store.RoleAgent)
	f.ArchiveRoom(t, f.tenant, join(store.SchemeSenderKeys, store.RoomArchived).Room)
	for i := range rooms {
		room, err := f.Store.FindRoom(ctx, f.tenant, rooms[i].room.ID)
		require.NoError(t, err)
		rooms[i].room = room
	}
	other := f.add(t, keys.Room, store.RoleAgent)
	_, otherHash := f.mint(t, other, hour)
	rooms[0].room.Version++
	token := f.signIn(t, device)
	apart := f.member(t)

	change, err := f.Store.RevokeDevice(ctx, f.tenant, device.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, store.DeviceRevoked, change.Device.State)
	require.NotNil(t, change.Device.RevokedAt)
	require.ElementsMatch(t, participants, change.Participants)
	require.ElementsMatch(t, credentials, change.Credentials)
	require.Len(t, change.Rooms, len(rooms))
	for i, got := range change.Rooms { // the ids are of one clock, so by ID is as they were made
		want := rooms[i].room
		want.Version++
		want.State = rooms[i].want
		require.Equal(t, want, got)
		found, err := f.Store.FindRoom(ctx, f.tenant, got.ID)
		require.NoError(t, err)
		require.Equal(t, got, found)
		_, err = f.Store.FindParticipant(ctx, f.tenant, rooms[i].p.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = f.Edge.Authenticate(ctx, hashes[i])
		require.ErrorIs(t, err, store.ErrUnauthenticated)
		_, err = f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: got.ID, Device: device.ID, Role: store.RoleAgent})
		require.ErrorIs(t, err, store.ErrConflict)
	}
	f.refusesToken(t, token)
	_, err = f.Edge.Authenticate(ctx, otherHash)
	require.NoError(t, err, "the others live on")
	_, err = f.Edge.AppendMessage(ctx, message(keys, "late", "x"))
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = f.Edge.AppendMessage(ctx, message(other, "after", "x"))
	require.ErrorIs(t, err, errUnknownGen, "whoever stays changes its keys")
	f.allocate(t, other, 1)
	_, err = f.Edge.AppendMessage(ctx, message(other, "after", "x"))
	require.NoError(t, err)
	roster, err := f.Edge.Roster(ctx, f.tenant, apart.Room)
	require.NoError(t, err)
	require.Equal(t, store.RoomActive, roster.Room.State, "rooms without it are as they were")

	bare, err := f.Store.RevokeDevice(ctx, f.tenant, f.active(t, false).ID, uuid.Nil)
	require.NoError(t, err)
	require.Empty(t, bare.Rooms)
	require.Empty(t, bare.Participants)
	require.Empty(t, bare.Credentials)
}

// testRevocationRaces: what is in flight never undoes a revocation (STATE; FAULTS BL-H08).
func testRevocationRaces(t *testing.T, s Subject) {
	t.Run("joins, credentials, sign-ins and moves", func(t *testing.T) { testRevokeAgainstAll(t, newFixture(t, s)) })
	t.Run("revocations and removals of shared rooms", func(t *testing.T) { testRevokeShared(t, newFixture(t, s)) })
}

func testRevokeAgainstAll(t *testing.T, f fixture) {
	ctx := t.Context()
	for range 15 {
		device := f.active(t, false)
		member := f.join(t, f.newRoom(t, store.RoomGroup).ID, device.ID)
		rooms := []store.Room{f.newRoom(t, store.RoomGroup), f.newRoom(t, store.RoomGroup), f.newRoom(t, store.RoomGroup)}
		credential, token, nonce := newHash(), newHash(), newHash()
		require.NoError(t, f.Store.NewChallenge(ctx, f.tenant, device.ID, nonce))
		inFlight := []func() error{
			func() error {
				_, err := f.Store.MintCredential(ctx, f.tenant, member.ID, store.CredentialSession, credential, hour)
				return err
			},
			func() error {
				_, err := f.Store.SignIn(ctx, f.tenant, device.ID, nonce, token, hour, anyone)
				return err
			},
			func() error { _, err := f.Store.ActivateDevice(ctx, f.tenant, device.ID); return err },
			func() error {
				_, err := f.Store.ApproveDevice(ctx, f.tenant, device.ID, uuid.Nil, device.Fingerprint)
				return err
			},
			func() error { _, err := f.Store.ReinstateDevice(ctx, f.tenant, device.ID, uuid.Nil); return err },
		}
		for _, room := range rooms {
			inFlight = append(inFlight, func() error {
				_, err := f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: room.ID, Device: device.ID, Role: store.RoleAgent})
				return err
			})
		}
		results := race(len(inFlight)+1, func(i int) error {
			if i < len(inFlight) {
				return inFlight[i]()
			}
			_, err := f.Store.RevokeDevice(ctx, f.tenant, device.ID, uuid.Nil)
			return err
		})
		require.NoError(t, results[len(inFlight)])
		for i, err := range results {
			require.True(t, err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) ||
				errors.Is(err, store.ErrUnauthenticated), "%d: %v", i, err)
		}
		require.Equal(t, store.DeviceRevoked, f.device(t, device.ID).State)
		_, err := f.Edge.Authenticate(ctx, credential)
		require.ErrorIs(t, err, store.ErrUnauthenticated)
		f.refusesToken(t, token)
		for _, room := range append(rooms, store.Room{ID: member.Room}) {
			roster, err := f.Edge.Roster(ctx, f.tenant, room.ID)
			require.NoError(t, err)
			require.Empty(t, roster.Participants)
			require.NotEqual(t, store.RoomRekeying, roster.Room.State, "nobody is in it, so nobody changes keys")
		}
	}
}

func testRevokeShared(t *testing.T, f fixture) {
	const devices, rooms = 4, 12
	for range 3 {
		var made []store.Device
		for range devices {
			made = append(made, f.active(t, false))
		}
		var bystanders []store.Participant
		for range rooms {
			room := f.newRoom(t, store.RoomGroup)
			for _, device := range made {
				f.join(t, room.ID, device.ID)
			}
			bystanders = append(bystanders, f.add(t, room.ID, store.RoleAgent))
		}
		changes := make([]store.DeviceChange, devices)
		results := race(devices+rooms, func(i int) (err error) {
			if i < devices {
				changes[i], err = f.Store.RevokeDevice(t.Context(), f.tenant, made[i].ID, uuid.Nil)
				return err
			}
			p := bystanders[rooms-1-(i-devices)]
			_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, p.ID, uuid.Nil)
			return err
		})
		require.NoError(t, errors.Join(results...))
		for _, change := range changes {
			require.Len(t, change.Rooms, rooms)
		}
		for _, p := range bystanders {
			roster, err := f.Edge.Roster(t.Context(), f.tenant, p.Room)
			require.NoError(t, err)
			require.Empty(t, roster.Participants)
			require.Equal(t, store.RoomActive, roster.Room.State, "nobody is left")
			require.Equal(t, int64(1+2*(devices+1)), roster.Room.Version, "every change counts")
		}
	}
}
