package storetest

import (
	"math"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func (f fixture) newGroup() store.NewRoom {
	return store.NewRoom{Tenant: f.tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateRefused}
}

// testOpenRoom: a room of a device is ACTIVE from the start, and the device owns it.
func testOpenRoom(t *testing.T, s Subject) {
	f, other := newFixture(t, s), newFixture(t, s)
	ctx := t.Context()
	device := f.human(t)
	for _, asked := range []store.NewRoom{
		f.newGroup(),
		{Tenant: f.tenant, Kind: store.RoomDirect, Scheme: store.SchemeDoubleRatchet, PrivateMessages: store.PrivateAllowed},
	} {
		room, owner, err := s.Store.OpenRoom(ctx, asked, device.ID)
		require.NoError(t, err)
		got := store.NewRoom{Tenant: room.Tenant, Kind: room.Kind, Scheme: room.Scheme, PrivateMessages: room.PrivateMessages}
		require.Equal(t, asked, got)
		require.Equal(t, store.RoomActive, room.State)
		require.Equal(t, device.ID, owner.Device)
		require.Equal(t, store.RoleOwner, owner.Role)
		roster, err := s.Edge.Roster(ctx, f.tenant, room.ID)
		require.NoError(t, err)
		require.Equal(t, store.Roster{Room: room, Participants: []store.Participant{owner}}, roster)
		require.Equal(t, []told{joined(room.Version, owner)}, f.hears(t, room.ID))
	}

	inState := func(move func(device uuid.UUID) error) uuid.UUID {
		device := f.human(t).ID
		require.NoError(t, move(device))
		return device
	}
	for who, by := range map[string]uuid.UUID{
		"an agent device": f.active(t, false).ID, "the operator": uuid.Nil, "nobody known": newID(t),
		"another tenant's device": other.human(t).ID,
		"a pending device":        f.enrolledAs(t, store.DeviceHuman, false).ID,
		"an approved device":      f.enrolledAs(t, store.DeviceHuman, true).ID,
		"a suspended device": inState(func(device uuid.UUID) error {
			_, err := s.Store.SuspendDevice(ctx, f.tenant, device, uuid.Nil)
			return err
		}),
		"a revoked device": inState(func(device uuid.UUID) error {
			_, err := s.Store.RevokeDevice(ctx, f.tenant, device, uuid.Nil)
			return err
		}),
	} {
		_, _, err := s.Store.OpenRoom(ctx, f.newGroup(), by)
		require.ErrorIs(t, err, store.ErrForbidden, who)
	}
	bad := f.newGroup()
	bad.Scheme = store.SchemeDoubleRatchet
	_, _, err := s.Store.OpenRoom(ctx, bad, device.ID)
	require.ErrorIs(t, err, store.ErrInvalid)
	rooms, _, err := s.Store.RoomPage(ctx, f.tenant, uuid.Nil, uuid.Nil, store.MaxPage)
	require.NoError(t, err)
	require.Len(t, rooms, 2, "a refusal leaves no room behind")
}

func testRoomPages(t *testing.T, s Subject) {
	f, other := newFixture(t, s), newFixture(t, s)
	device := f.human(t)
	mine, all := []store.Room{}, []store.Room{}
	for i := range 7 {
		room := f.newRoom(t, store.RoomGroup)
		if i%2 == 0 {
			f.joinAs(t, room.ID, device.ID, store.RoleOwner)
			if i == 4 {
				f.ArchiveRoom(t, f.tenant, room.ID)
			}
			mine = append(mine, f.room(t, room.ID))
		}
		all = append(all, f.room(t, room.ID))
	}
	left := f.newRoom(t, store.RoomGroup)
	f.remove(t, f.joinAs(t, left.ID, device.ID, store.RoleViewer))
	all = append(all, f.room(t, left.ID))
	other.newRoom(t, store.RoomGroup)

	for who, want := range map[uuid.UUID][]store.Room{device.ID: mine, uuid.Nil: all, f.human(t).ID: {}, newID(t): {}} {
		for _, limit := range []int{1, 3, len(all), store.MaxPage} {
			got := []store.Room{}
			for after := uuid.Nil; ; {
				page, more, err := s.Store.RoomPage(t.Context(), f.tenant, who, after, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				got = append(got, page...)
				if !more {
					break
				}
				require.Len(t, page, limit)
				after = page[limit-1].ID
			}
			require.Equal(t, want, got, "by %d", limit) // ids are of one clock
		}
	}
	for _, limit := range []int{0, -1, store.MaxPage + 1, math.MaxInt} { // FAULTS BL-G07
		_, _, err := s.Store.RoomPage(t.Context(), f.tenant, uuid.Nil, uuid.Nil, limit)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
}

// cast are devices that want something of a room, and what they may get.
type cast struct {
	room     store.Room
	managers map[string]uuid.UUID
	members  map[string]store.Participant // who do not manage it
	refused  map[string]uuid.UUID         // store.ErrForbidden
	lost     map[string]uuid.UUID         // store.ErrNotFound
}

func newCast(t *testing.T, f, other fixture, room store.Room) cast {
	t.Helper()
	suspend := func(device store.Device) uuid.UUID {
		_, err := f.Store.SuspendDevice(t.Context(), f.tenant, device.ID, uuid.Nil)
		require.NoError(t, err)
		return device.ID
	}
	owner, second, suspended, former := f.human(t), f.human(t), f.human(t), f.human(t)
	for _, device := range []store.Device{owner, second, suspended} {
		f.joinAs(t, room.ID, device.ID, store.RoleOwner)
	}
	f.remove(t, f.joinAs(t, room.ID, former.ID, store.RoleOwner))
	return cast{
		room: room,
		managers: map[string]uuid.UUID{
			"the operator": uuid.Nil, "an owner": owner.ID, "the second owner": second.ID,
			"an admin who is no member": f.active(t, true).ID,
		},
		members: map[string]store.Participant{
			"a controller": f.joinAs(t, room.ID, f.human(t).ID, store.RoleController),
			"an agent":     f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent),
			"a viewer":     f.joinAs(t, room.ID, f.human(t).ID, store.RoleViewer),
		},
		refused: map[string]uuid.UUID{
			"a suspended owner": suspend(suspended), "a suspended admin": suspend(f.active(t, true)),
			"an approved admin": f.enrolled(t, true).ID, "nobody known": newID(t),
			"another tenant's admin": other.active(t, true).ID,
		},
		lost: map[string]uuid.UUID{"a stranger": f.human(t).ID, "a former owner": former.ID},
	}
}

// testManaging: who changes a room (STATE, "Room Lifecycle"; store.Rooms).
func testManaging(t *testing.T, s Subject) {
	t.Run("who may", func(t *testing.T) { testWhoManages(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("adding", func(t *testing.T) { testAddingBy(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("roles fit devices", func(t *testing.T) { testRolesFit(t, newFixture(t, s)) })
	t.Run("without owners", func(t *testing.T) { testWithoutOwners(t, newFixture(t, s)) })
}

func testWhoManages(t *testing.T, f, other fixture) {
	ctx := t.Context()
	room := f.newRoom(t, store.RoomGroup)
	c := newCast(t, f, other, room)
	victim := f.add(t, room.ID, store.RoleAgent)
	newcomer := f.active(t, false)
	changes := map[string]func(room, by uuid.UUID) error{
		"add": func(room, by uuid.UUID) error {
			_, err := f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: room, Device: newcomer.ID, Role: store.RoleAgent, By: by})
			return err
		},
		"remove": func(room, by uuid.UUID) error {
			_, err := f.Store.RemoveParticipant(ctx, f.tenant, room, victim.ID, by)
			return err
		},
		"archive": func(room, by uuid.UUID) error {
			_, err := f.Store.ArchiveRoom(ctx, f.tenant, room, by)
			return err
		},
		"reset": func(room, by uuid.UUID) error {
			_, err := f.Store.ResetRoom(ctx, f.tenant, room, by)
			return err
		},
	}
	before, err := f.Edge.Roster(ctx, f.tenant, room.ID)
	require.NoError(t, err)
	f.hears(t, room.ID)
	for name, change := range changes {
		for who, p := range c.members {
			require.ErrorIs(t, change(room.ID, p.Device), store.ErrForbidden, "%s by %s", name, who)
		}
		for who, by := range c.refused {
			require.ErrorIs(t, change(room.ID, by), store.ErrForbidden, "%s by %s", name, who)
			require.ErrorIs(t, change(newID(t), by), store.ErrForbidden, "%s nothing by %s", name, who)
		}
		for who, by := range c.lost {
			require.ErrorIs(t, change(room.ID, by), store.ErrNotFound, "%s by %s", name, who)
		}
		for who, by := range c.managers {
			require.ErrorIs(t, change(newID(t), by), store.ErrNotFound, "%s nothing by %s", name, who)
		}
	}
	after, err := f.Edge.Roster(ctx, f.tenant, room.ID)
	require.NoError(t, err)
	require.Equal(t, before, after, "a refusal changes nothing")
	require.Empty(t, f.hears(t, room.ID), "and tells nobody")

	for who, by := range c.managers {
		c := newCast(t, f, other, f.newRoom(t, store.RoomGroup))
		if who == "an owner" || who == "the second owner" {
			by = c.managers[who]
		}
		victim = f.add(t, c.room.ID, store.RoleAgent)
		for _, name := range []string{"add", "remove", "reset", "archive"} {
			version := f.room(t, c.room.ID).Version
			require.NoError(t, changes[name](c.room.ID, by), "%s by %s", name, who)
			require.Greater(t, f.room(t, c.room.ID).Version, version, "every change counts")
			require.NotEmpty(t, f.hears(t, c.room.ID), "and is told")
		}
	}
}

func testAddingBy(t *testing.T, f, other fixture) {
	room, owner, err := f.Store.OpenRoom(t.Context(), f.newGroup(), f.human(t).ID)
	require.NoError(t, err)
	f.hears(t, room.ID)
	p, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{
		Tenant: f.tenant, Room: room.ID, Device: f.active(t, false).ID, Role: store.RoleAgent, By: owner.Device,
	})
	require.NoError(t, err)
	require.Equal(t, []told{joined(room.Version+1, p)}, f.hears(t, room.ID))
	for name, c := range map[string]struct {
		device uuid.UUID
		want   error
	}{
		"none named":       {uuid.Nil, store.ErrForbidden}, // only the operator makes local devices
		"nobody known":     {newID(t), store.ErrNotFound},
		"another tenant's": {other.active(t, false).ID, store.ErrNotFound},
		"not approved":     {f.enrolled(t, false).ID, store.ErrConflict},
		"a member":         {p.Device, store.ErrConflict},
	} {
		_, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{
			Tenant: f.tenant, Room: room.ID, Device: c.device, Role: store.RoleAgent, By: owner.Device,
		})
		require.ErrorIs(t, err, c.want, name)
	}
	local := f.add(t, room.ID, store.RoleViewer)
	require.Equal(t, []told{joined(room.Version+2, local)}, f.hears(t, room.ID))
}

func testRolesFit(t *testing.T, f fixture) {
	kinds := map[store.Role][]store.DeviceKind{
		store.RoleOwner: {store.DeviceHuman}, store.RoleController: {store.DeviceHuman},
		store.RoleAgent: {store.DeviceAgent}, store.RoleViewer: {store.DeviceHuman, store.DeviceAgent},
	}
	room := f.newRoom(t, store.RoomGroup)
	for role, fitting := range kinds {
		for _, kind := range []store.DeviceKind{store.DeviceHuman, store.DeviceAgent} {
			want := store.ErrConflict
			for _, fits := range fitting {
				if fits == kind {
					want = nil
				}
			}
			_, err := f.Store.AddParticipant(t.Context(), store.NewParticipant{
				Tenant: f.tenant, Room: room.ID, Device: f.activeAs(t, kind, false).ID, Role: role,
			})
			require.ErrorIs(t, err, want, "%s as %s", kind, role)
		}
		local := f.device(t, f.add(t, room.ID, role).Device)
		require.Contains(t, fitting, local.Kind, "a local device fits")
	}
}

// testWithoutOwners: the last owner may leave or be suspended. Then admins manage the room.
func testWithoutOwners(t *testing.T, f fixture) {
	ctx := t.Context()
	for how, lose := range map[string]func(owner store.Participant) error{
		"left": func(owner store.Participant) error {
			_, err := f.Store.RemoveParticipant(ctx, f.tenant, owner.Room, owner.ID, owner.Device)
			return err
		},
		"suspended": func(owner store.Participant) error {
			_, err := f.Store.SuspendDevice(ctx, f.tenant, owner.Device, uuid.Nil)
			return err
		},
		"revoked": func(owner store.Participant) error {
			_, err := f.Store.RevokeDevice(ctx, f.tenant, owner.Device, uuid.Nil)
			return err
		},
	} {
		room, owner, err := f.Store.OpenRoom(ctx, f.newGroup(), f.human(t).ID)
		require.NoError(t, err)
		controller := f.joinAs(t, room.ID, f.human(t).ID, store.RoleController)
		require.NoError(t, lose(owner), how)
		add := func(by uuid.UUID) (store.Participant, error) {
			return f.Store.AddParticipant(ctx, store.NewParticipant{
				Tenant: f.tenant, Room: room.ID, Device: f.human(t).ID, Role: store.RoleOwner, By: by,
			})
		}
		_, err = add(controller.Device)
		require.ErrorIs(t, err, store.ErrForbidden, how)
		_, err = add(owner.Device)
		require.Error(t, err, how)
		next, err := add(f.active(t, true).ID)
		require.NoError(t, err, how)
		_, err = add(next.Device)
		require.NoError(t, err, how)
	}
}

func testArchiving(t *testing.T, s Subject) {
	f := newFixture(t, s)
	ctx := t.Context()
	for _, from := range []store.RoomState{store.RoomActive, store.RoomRekeying} {
		p := f.member(t)
		f.send(t, p, 1, nil)
		if from == store.RoomRekeying {
			f.remove(t, f.add(t, p.Room, store.RoleAgent))
		}
		before := f.room(t, p.Room)
		require.Equal(t, from, before.State)
		f.hears(t, p.Room)
		room, err := s.Store.ArchiveRoom(ctx, f.tenant, p.Room, uuid.Nil)
		require.NoError(t, err, "a closed room needs no keys")
		require.Equal(t, f.room(t, p.Room), room)
		require.Equal(t, store.RoomArchived, room.State)
		require.Greater(t, room.Version, before.Version)
		require.Equal(t, []told{{Event: wire.ArchivedRoom, Version: room.Version}}, f.hears(t, p.Room))
		f.send(t, p, 1, errArchived)
		rows, _, err := s.Store.HistoryPage(ctx, f.tenant, p.Room, store.Page{Limit: 10})
		require.NoError(t, err, "members may read on")
		require.Len(t, rows, 1)
		_, hash := f.mint(t, p, hour)
		_, err = s.Edge.Authenticate(ctx, hash)
		require.NoError(t, err)

		_, err = s.Store.ArchiveRoom(ctx, f.tenant, p.Room, uuid.Nil)
		require.ErrorIs(t, err, store.ErrConflict)
		left, err := s.Store.RemoveParticipant(ctx, f.tenant, p.Room, p.ID, uuid.Nil)
		require.NoError(t, err)
		require.Equal(t, store.RoomArchived, left.State, "for good")
	}
	created := f.newRoom(t, store.RoomGroup)
	_, err := s.Store.ArchiveRoom(ctx, f.tenant, created.ID, uuid.Nil)
	require.ErrorIs(t, err, store.ErrConflict)
	require.Equal(t, created, f.room(t, created.ID))
}

// testResetting: STATE, "Corrupt State" and "Ratchet Desync (1:1)".
func testResetting(t *testing.T, s Subject) {
	t.Run("sender keys", func(t *testing.T) { testResetKeys(t, newFixture(t, s)) })
	t.Run("direct rooms", func(t *testing.T) { testResetDirect(t, newFixture(t, s)) })
	t.Run("an MLS room", func(t *testing.T) { testResetMLS(t, newFixture(t, s)) })
	t.Run("what has no state to reset", func(t *testing.T) {
		f := newFixture(t, s)
		none := f.add(t, f.schemeRoom(t, store.RoomGroup, store.SchemeNone).ID, store.RoleAgent).Room
		created, archived := f.newRoom(t, store.RoomGroup).ID, f.member(t).Room
		f.ArchiveRoom(t, f.tenant, archived)
		for _, id := range []uuid.UUID{none, created, archived} {
			before := f.room(t, id)
			_, err := s.Store.ResetRoom(t.Context(), f.tenant, id, uuid.Nil)
			require.ErrorIs(t, err, store.ErrConflict, "%s, %s", before.Scheme, before.State)
			require.Equal(t, before, f.room(t, id))
		}
	})
}

func testResetKeys(t *testing.T, f fixture) {
	p := f.member(t)
	q := f.add(t, p.Room, store.RoleAgent)
	f.allocate(t, p, 1)
	f.allocate(t, p, 2)
	for _, state := range []store.RoomState{store.RoomActive, store.RoomRekeying} {
		f.SetRoomState(t, f.tenant, p.Room, state)
		before := f.room(t, p.Room)
		f.hears(t, p.Room)
		room, err := f.Store.ResetRoom(t.Context(), f.tenant, p.Room, uuid.Nil)
		require.NoError(t, err)
		require.Equal(t, f.room(t, p.Room), room)
		require.Equal(t, before.Version+1, room.Version)
		require.Equal(t, state, room.State)
		require.Equal(t, []told{{Event: wire.RoomReset, Version: room.Version}}, f.hears(t, p.Room))
		f.send(t, p, 2, errRetired)
		f.send(t, p, 3, errUnknownGen)
		f.send(t, q, 0, errRetired)
	}
	require.False(t, f.allocate(t, q, 1).Rekeyed, "p had one and has none now")
	require.True(t, f.allocate(t, p, 3).Rekeyed)
	f.send(t, p, 3, nil)
	f.send(t, q, 1, nil)
}

func testResetDirect(t *testing.T, f fixture) {
	for _, scheme := range []store.Scheme{store.SchemeDoubleRatchet, store.SchemeSenderKeys} {
		room := f.schemeRoom(t, store.RoomDirect, scheme)
		owner := f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner)
		agent := f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent)
		admin := store.Participant{Device: f.active(t, true).ID}
		for _, who := range []store.Participant{owner, agent, admin, {}} {
			if who == agent && scheme != store.SchemeDoubleRatchet {
				_, err := f.Store.ResetRoom(t.Context(), f.tenant, room.ID, agent.Device)
				require.ErrorIs(t, err, store.ErrForbidden)
				continue
			}
			if scheme == store.SchemeSenderKeys {
				f.send(t, owner, f.allocate(t, owner, byte(f.HistoryRows(t, f.tenant, room.ID))).Gen, nil)
			} else {
				f.send(t, owner, 1, nil)
			}
			before := f.room(t, room.ID)
			require.True(t, before.Activated)
			f.hears(t, room.ID)
			got, err := f.Store.ResetRoom(t.Context(), f.tenant, room.ID, who.Device)
			require.NoError(t, err)
			want := before
			want.Activated, want.Version = false, before.Version+1
			require.Equal(t, want, got)
			require.Equal(t, want, f.room(t, room.ID))
			require.Equal(t, []told{{Event: wire.RoomReset, Version: got.Version}, linked(got.Version, who)}, f.hears(t, room.ID))
		}
		f.send(t, agent, f.allocate(t, agent, 1).Gen, errNotActivated)
	}
}

func testResetMLS(t *testing.T, f fixture) {
	p := f.add(t, f.schemeRoom(t, store.RoomGroup, store.SchemeMLS).ID, store.RoleAgent)
	f.SetEpoch(t, f.tenant, p.Room, 4)
	f.send(t, p, 4, nil)
	f.SetRoomState(t, f.tenant, p.Room, store.RoomRekeying)
	f.send(t, p, 4, errRemovalPending)
	f.hears(t, p.Room)
	room, err := f.Store.ResetRoom(t.Context(), f.tenant, p.Room, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, f.room(t, p.Room), room)
	require.Equal(t, store.RoomActive, room.State, "nobody's removal is pending in a group that is over")
	events := f.hears(t, p.Room)
	require.Len(t, events, 1)
	require.NotNil(t, events[0].Epoch)
	epoch := *events[0].Epoch
	require.Greater(t, epoch, int64(4), "the room's epoch never falls")
	require.Equal(t, told{Event: wire.RoomReset, Version: room.Version, Epoch: &epoch}, events[0])
	f.send(t, p, 4, errRetired)
	f.send(t, p, uint64(epoch), errUnknownGen)
	f.send(t, p, uint64(epoch)+1, errUnknownGen)
}
