package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func testParticipants(t *testing.T, s Subject) {
	t.Run("adding and removing raise the version", func(t *testing.T) { testMembershipVersions(t, newFixture(t, s)) })
	t.Run("removing", func(t *testing.T) { testRemoving(t, newFixture(t, s)) })
	t.Run("devices", func(t *testing.T) { testMemberDevices(t, newFixture(t, s)) })
	t.Run("direct rooms", func(t *testing.T) { testDirectRooms(t, newFixture(t, s)) })
	t.Run("a full room", func(t *testing.T) { testFullRoom(t, newFixture(t, s)) })

	t.Run("what does not exist", func(t *testing.T) {
		f := newFixture(t, s)
		room := f.newRoom(t, store.RoomGroup)
		for name, c := range map[string]struct {
			p    store.NewParticipant
			want error
		}{
			"room":         {store.NewParticipant{Tenant: f.tenant, Room: newID(t), Role: store.RoleAgent}, store.ErrNotFound},
			"device":       {store.NewParticipant{Tenant: f.tenant, Room: room.ID, Role: store.RoleAgent, Device: newID(t)}, store.ErrNotFound},
			"role":         {store.NewParticipant{Tenant: f.tenant, Room: room.ID}, store.ErrInvalid},
			"unknown role": {store.NewParticipant{Tenant: f.tenant, Room: room.ID, Role: "Owner"}, store.ErrInvalid},
		} {
			_, err := s.Store.AddParticipant(t.Context(), c.p)
			require.ErrorIs(t, err, c.want, name)
		}
		found, err := s.Store.FindRoom(t.Context(), f.tenant, room.ID)
		require.NoError(t, err)
		require.Equal(t, room, found, "a refusal changes nothing")
	})

	t.Run("an archived room", func(t *testing.T) {
		f := newFixture(t, s)
		p := f.member(t)
		s.ArchiveRoom(t, f.tenant, p.Room)
		_, err := s.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: p.Room, Role: store.RoleAgent})
		require.ErrorIs(t, err, store.ErrConflict)
	})
}

func testMembershipVersions(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	p := f.add(t, room.ID, store.RoleOwner)
	found, err := f.Store.FindParticipant(t.Context(), f.tenant, p.ID)
	require.NoError(t, err)
	require.Equal(t, p, found)
	active, err := f.Store.FindRoom(t.Context(), f.tenant, room.ID)
	require.NoError(t, err)
	require.Equal(t, store.RoomActive, active.State, "the first participant makes a room active")
	require.Greater(t, active.Version, room.Version)

	removed, err := f.Store.RemoveParticipant(t.Context(), f.tenant, room.ID, p.ID, uuid.Nil)
	require.NoError(t, err)
	require.Greater(t, removed.Version, active.Version)
	again, err := f.Store.FindRoom(t.Context(), f.tenant, room.ID)
	require.NoError(t, err)
	require.Equal(t, again, removed, "the returned room is the changed one")
}

func testRemoving(t *testing.T, f fixture) {
	p := f.member(t)
	_, hash := f.mint(t, p, hour)
	other := f.newRoom(t, store.RoomGroup)

	_, err := f.Store.RemoveParticipant(t.Context(), f.tenant, other.ID, p.ID, uuid.Nil)
	require.ErrorIs(t, err, store.ErrNotFound, "it is not in that room")
	_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, newID(t), p.ID, uuid.Nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = f.Edge.Authenticate(t.Context(), hash)
	require.NoError(t, err)

	f.remove(t, p)
	_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, p.ID, uuid.Nil)
	require.ErrorIs(t, err, store.ErrNotFound, "it is not a current participant any more")
	_, err = f.Store.FindParticipant(t.Context(), f.tenant, p.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = f.Edge.Authenticate(t.Context(), hash)
	require.ErrorIs(t, err, store.ErrUnauthenticated)
	revoked, err := f.Store.RevokeParticipantCredentials(t.Context(), f.tenant, p.ID)
	require.NoError(t, err)
	require.Empty(t, revoked, "its credentials ended with it")
}

func testMemberDevices(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	add := func(device uuid.UUID) (store.Participant, error) {
		return f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room.ID, Device: device, Role: store.RoleAgent})
	}
	pending := f.NewDevice(t, f.tenant, store.DevicePending)
	_, err := add(pending)
	require.ErrorIs(t, err, store.ErrConflict, "only active devices are members (STATE)")

	device := f.NewDevice(t, f.tenant, store.DeviceActive)
	first, err := add(device)
	require.NoError(t, err)
	require.Equal(t, device, first.Device)
	_, err = add(device)
	require.ErrorIs(t, err, store.ErrConflict, "it is in the room")

	f.remove(t, first)
	second, err := add(device)
	require.NoError(t, err, "a removed device may come back")
	require.NotEqual(t, first.ID, second.ID, "as another participant, with another inbox")

	f.SetDeviceState(t, f.tenant, device, store.DeviceSuspended)
	f.remove(t, second)
	_, err = add(device)
	require.ErrorIs(t, err, store.ErrConflict)

	a, b := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleAgent)
	require.NotEqual(t, a.Device, b.Device, "where none is named each gets a device of its own")

	shared := f.NewDevice(t, f.tenant, store.DeviceActive)
	added := race(8, func(int) error { _, err := add(shared); return err })
	require.Equal(t, 1, count(added, nil))
	require.Equal(t, 7, count(added, store.ErrConflict))
}

func testDirectRooms(t *testing.T, f fixture) {
	for _, human := range []store.Role{store.RoleOwner, store.RoleController} {
		for _, order := range [][]store.Role{{human, store.RoleAgent}, {store.RoleAgent, human}} {
			room := f.newRoom(t, store.RoomDirect)
			refuse := func(role store.Role) {
				t.Helper()
				_, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room.ID, Role: role})
				require.ErrorIs(t, err, store.ErrConflict)
			}
			refuse(store.RoleViewer)
			f.add(t, room.ID, order[0])
			refuse(order[0])
			f.add(t, room.ID, order[1])
			for _, role := range []store.Role{store.RoleOwner, store.RoleController, store.RoleAgent, store.RoleViewer} {
				refuse(role)
			}
		}
	}
}

func testFullRoom(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	add := func(int) error {
		_, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: room.ID, Role: store.RoleAgent})
		return err
	}
	const places, extra, wave = 30, 20, 47 // waves that the database answers in time wherever this runs
	for range (store.MaxParticipants - places) / wave {
		require.Equal(t, wave, count(race(wave, add), nil))
	}
	results := race(places+extra, add)
	require.Equal(t, places, count(results, nil))
	require.Equal(t, extra, count(results, store.ErrConflict))
	roster, err := f.Edge.Roster(t.Context(), f.tenant, room.ID)
	require.NoError(t, err)
	require.Len(t, roster.Participants, store.MaxParticipants)
	f.remove(t, roster.Participants[0])
	f.add(t, room.ID, store.RoleAgent)
}

// race calls do n times at once and returns the errors.
func race(n int, do func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// count counts the errors that are target; nil counts successes.
func count(errs []error, target error) (n int) {
	for _, err := range errs {
		if target == nil && err == nil || target != nil && errors.Is(err, target) {
			n++
		}
	}
	return n
}
