package storetest

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// leavings are the ways out of a room (FAULTS BL-I06, BL-H08). Each does the same.
func (f fixture) leavings(t *testing.T) map[string]func(p store.Participant) error {
	t.Helper()
	owner := func(room uuid.UUID) uuid.UUID {
		roster, err := f.Edge.Roster(t.Context(), f.tenant, room)
		require.NoError(t, err)
		return roster.Participants[0].Device
	}
	removeBy := func(by func(p store.Participant) uuid.UUID) func(p store.Participant) error {
		return func(p store.Participant) error {
			_, err := f.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, p.ID, by(p))
			return err
		}
	}
	return map[string]func(p store.Participant) error{
		"by itself":       removeBy(func(p store.Participant) uuid.UUID { return p.Device }),
		"by the owner":    removeBy(func(p store.Participant) uuid.UUID { return owner(p.Room) }),
		"by an admin":     removeBy(func(store.Participant) uuid.UUID { return f.active(t, true).ID }),
		"by the operator": removeBy(func(store.Participant) uuid.UUID { return uuid.Nil }),
		"device revoked": func(p store.Participant) error {
			_, err := f.Store.RevokeDevice(t.Context(), f.tenant, p.Device, uuid.Nil)
			return err
		},
	}
}

// testLeaving: STATE, "Remove Member / Device Revocation"; FAULTS BL-I06: before any further
// message those who remain use other keys.
func testLeaving(t *testing.T, s Subject) {
	t.Run("sender keys", func(t *testing.T) { testLeavingKeys(t, newFixture(t, s)) })
	t.Run("double ratchet", func(t *testing.T) { testLeavingRatchet(t, newFixture(t, s)) })
	t.Run("an MLS group", func(t *testing.T) { testLeavingMLS(t, newFixture(t, s)) })
	t.Run("nothing encrypted", func(t *testing.T) { testLeavingPlain(t, newFixture(t, s)) })
	t.Run("by oneself", func(t *testing.T) { testLeavingOneself(t, newFixture(t, s)) })
	t.Run("the last one", func(t *testing.T) { testLastLeaves(t, newFixture(t, s)) })
	t.Run("a suspended device stays", func(t *testing.T) { testSuspendedStays(t, newFixture(t, s)) })
}

func testLeavingKeys(t *testing.T, f fixture) {
	for how, leave := range f.leavings(t) {
		t.Run(how, func(t *testing.T) {
			room := f.newRoom(t, store.RoomGroup)
			a := f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner)
			b, c := f.add(t, room.ID, store.RoleAgent), f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent)
			silent := f.add(t, room.ID, store.RoleAgent)
			f.add(t, room.ID, store.RoleViewer)
			for _, p := range []store.Participant{a, b, c} {
				f.send(t, p, f.allocate(t, p, 1).Gen, nil)
			}
			old := f.room(t, room.ID)
			_, hash := f.mint(t, c, hour)
			f.hears(t, room.ID)

			require.NoError(t, leave(c))
			rekeying := f.room(t, room.ID)
			require.Equal(t, store.RoomRekeying, rekeying.State)
			require.Equal(t, old.Version+1, rekeying.Version)
			require.Equal(t, []told{removed(rekeying.Version, c), {Event: wire.RekeyRequired, Version: rekeying.Version}}, f.hears(t, room.ID))
			_, err := f.Edge.Authenticate(t.Context(), hash)
			require.ErrorIs(t, err, store.ErrUnauthenticated)
			_, err = f.Edge.AppendMessage(t.Context(), message(c, "late", "x"))
			require.ErrorIs(t, err, store.ErrNotFound)

			newcomer := f.add(t, room.ID, store.RoleAgent)
			f.send(t, newcomer, 9, nil) // it has no key that c knows
			for _, p := range []store.Participant{a, b} {
				f.send(t, p, 0, errRetired)
				f.send(t, p, 1, errRetired)
				f.send(t, p, 2, errUnknownGen)
				require.Equal(t, uint64(1), f.allocate(t, p, 1).Gen, "of then")
				f.send(t, p, 1, errRetired)
			}
			f.send(t, silent, 0, errRetired)
			f.send(t, silent, 1, errUnknownGen)
			require.False(t, f.allocate(t, silent, 1).Rekeyed, "others wait")
			f.send(t, silent, 1, nil)
			require.False(t, f.allocate(t, a, 2).Rekeyed)
			f.send(t, a, 2, nil)
			f.send(t, b, 2, errUnknownGen)
			require.Equal(t, store.RoomRekeying, f.room(t, room.ID).State)
			last := f.allocate(t, b, 2)
			active := f.room(t, room.ID)
			require.True(t, last.Rekeyed, "everybody who had one has a new one")
			require.Equal(t, active.Version, last.RoomVersion)
			require.Equal(t, store.RoomActive, active.State)
			require.Equal(t, rekeying.Version+2, active.Version, "with the newcomer")
			f.send(t, b, 2, nil)
			require.False(t, f.allocate(t, b, 3).Rekeyed, "once")
		})
	}
}

// testRetiredGenerations is what holds for a store that is asked over a network, too.
func testRetiredGenerations(t *testing.T, s Subject) {
	f := newFixture(t, s)
	p := f.member(t)
	f.allocate(t, p, 1)
	f.remove(t, f.add(t, p.Room, store.RoleAgent))
	for _, kind := range []wire.Kind{wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest} {
		m := message(p, kind.String(), "x")
		m.Kind = kind
		_, err := s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
		require.NoError(t, err, "%s: how keys are changed", kind)
	}
	f.send(t, p, 1, errRetired)
	f.send(t, p, 2, errUnknownGen)
	f.allocate(t, p, 2)
	f.allocate(t, p, 3)
	f.send(t, p, 1, errRetired)
	f.send(t, p, 2, nil)
	f.send(t, p, 3, nil)
	f.send(t, p, 4, errUnknownGen)
	errs := race(30, func(i int) error { // alone or together
		m := message(p, strconv.Itoa(i), "x")
		m.Gen = uint64(i % 5)
		_, err := s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
		return err
	})
	for i, err := range errs {
		requireIs(t, err, []*wire.Error{errRetired, errRetired, nil, nil, errUnknownGen}[i%5], "gen %d", i%5)
	}
}

func testLeavingRatchet(t *testing.T, f fixture) {
	for how, leave := range f.leavings(t) {
		t.Run(how, func(t *testing.T) {
			room := f.newRoom(t, store.RoomDirect)
			owner := f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner)
			agent := f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent)
			f.send(t, owner, 1, nil)
			f.send(t, agent, 1, nil)
			require.NoError(t, leave(agent))
			left := f.room(t, room.ID)
			require.Equal(t, store.RoomRekeying, left.State)
			require.False(t, left.Activated)
			next := f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent)
			f.send(t, next, 1, errNotActivated)
			f.send(t, owner, 1, nil)
			again := f.room(t, room.ID)
			require.Equal(t, store.RoomActive, again.State, "a new session has new keys")
			require.True(t, again.Activated)
			require.Equal(t, left.Version+2, again.Version)
			f.send(t, next, 1, nil)
		})
	}
}

// testLeavingMLS: who left the room leaves the group by a commit. Somebody who was not in it
// knows none of its keys.
func testLeavingMLS(t *testing.T, f fixture) {
	a := f.add(t, f.schemeRoom(t, store.RoomGroup, store.SchemeMLS).ID, store.RoleAgent)
	b := f.add(t, a.Room, store.RoleAgent)
	f.SetEpoch(t, f.tenant, a.Room, 1)
	f.hears(t, a.Room)
	f.remove(t, b)
	room := f.room(t, a.Room)
	require.Equal(t, store.RoomActive, room.State)
	require.Equal(t, []told{removed(room.Version, b)}, f.hears(t, a.Room))
	f.send(t, a, 1, nil)

	f.remove(t, a)
	require.Equal(t, store.RoomActive, f.room(t, a.Room).State)
	c := f.add(t, a.Room, store.RoleAgent)
	f.send(t, c, 1, errRetired) // the group is over
	f.send(t, c, 2, errUnknownGen)
}

func testLeavingPlain(t *testing.T, f fixture) {
	room := f.schemeRoom(t, store.RoomGroup, store.SchemeNone)
	f.add(t, room.ID, store.RoleOwner)
	p := f.add(t, room.ID, store.RoleAgent)
	f.hears(t, room.ID)
	f.remove(t, p)
	after := f.room(t, room.ID)
	require.Equal(t, store.RoomActive, after.State)
	require.Equal(t, []told{removed(after.Version, p)}, f.hears(t, room.ID))
}

func testLeavingOneself(t *testing.T, f fixture) {
	devices := map[store.Role]store.DeviceKind{
		store.RoleOwner: store.DeviceHuman, store.RoleController: store.DeviceHuman,
		store.RoleAgent: store.DeviceAgent, store.RoleViewer: store.DeviceAgent,
	}
	for role, kind := range devices {
		room := f.newRoom(t, store.RoomGroup)
		other := f.add(t, room.ID, store.RoleOwner)
		p := f.joinAs(t, room.ID, f.activeAs(t, kind, false).ID, role)
		if role != store.RoleOwner {
			_, err := f.Store.RemoveParticipant(t.Context(), f.tenant, room.ID, other.ID, p.Device)
			require.ErrorIs(t, err, store.ErrForbidden)
			_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, room.ID, newID(t), p.Device)
			require.ErrorIs(t, err, store.ErrForbidden, "who does not manage learns nothing")
		}
		_, err := f.Store.RemoveParticipant(t.Context(), f.tenant, room.ID, p.ID, p.Device)
		require.NoError(t, err, role)
		_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, room.ID, p.ID, p.Device)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

// testLastLeaves: an empty room ends in a defined state.
func testLastLeaves(t *testing.T, f fixture) {
	for _, scheme := range []store.Scheme{store.SchemeSenderKeys, store.SchemeMLS, store.SchemeNone, store.SchemeDoubleRatchet} {
		kind := store.RoomGroup
		if scheme == store.SchemeDoubleRatchet {
			kind = store.RoomDirect
		}
		for how, leave := range f.leavings(t) {
			room := f.schemeRoom(t, kind, scheme)
			first := f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner)
			last := f.joinAs(t, room.ID, f.active(t, false).ID, store.RoleAgent)
			f.allocate(t, last, 1)
			f.remove(t, first)
			if how == "by the owner" {
				continue
			}
			f.hears(t, room.ID)
			require.NoError(t, leave(last))
			require.Equal(t, store.RoomActive, f.room(t, room.ID).State, "%s: %s", scheme, how)
			require.Empty(t, f.hears(t, room.ID), "there is nobody to tell")
			f.add(t, room.ID, store.RoleAgent)
			require.Equal(t, store.RoomActive, f.room(t, room.ID).State)
		}
	}
}

// testSuspendedStays: a suspension is not a removal (STATE, "Temporarily blocked").
func testSuspendedStays(t *testing.T, f fixture) {
	p := f.joinAs(t, f.member(t).Room, f.active(t, false).ID, store.RoleAgent)
	before := f.room(t, p.Room)
	f.hears(t, p.Room)
	_, err := f.Store.SuspendDevice(t.Context(), f.tenant, p.Device, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, before, f.room(t, p.Room))
	require.Empty(t, f.hears(t, p.Room))
	after, err := f.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, p.ID, uuid.Nil)
	require.NoError(t, err)
	require.Equal(t, store.RoomRekeying, after.State)
}

// testFirstMessages: STATE, "Session Establishment": the owner must send the first message.
func testFirstMessages(t *testing.T, s Subject) {
	f := newFixture(t, s)
	for _, scheme := range []store.Scheme{store.SchemeDoubleRatchet, store.SchemeSenderKeys} {
		for _, human := range []store.Role{store.RoleOwner, store.RoleController} {
			room := f.schemeRoom(t, store.RoomDirect, scheme)
			agent := f.add(t, room.ID, store.RoleAgent)
			f.send(t, agent, 1, errNotActivated)
			owner := f.add(t, room.ID, human)
			f.send(t, agent, 1, errNotActivated)
			for _, p := range []store.Participant{agent, owner} {
				m := message(p, "control-"+p.ID.String(), "x")
				m.Kind = wire.KindControl
				_, err := s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
				require.NoError(t, err)
			}
			before := f.room(t, room.ID)
			require.False(t, before.Activated)

			bad := message(owner, "bad", "x")
			bad.Enc = "pairwise"
			_, err := s.Edge.AppendMessage(t.Context(), sealed(bad, "x"))
			require.ErrorIs(t, err, errSchemeMismatch)
			require.Equal(t, before, f.room(t, room.ID), "what is refused activates nothing")

			first := message(owner, "first", "x")
			appendTwice(t, s, first)
			after := f.room(t, room.ID)
			before.Activated, before.Version = true, before.Version+1
			require.Equal(t, before, after)
			f.send(t, agent, 1, nil)
			f.send(t, owner, 1, nil)
			require.Equal(t, after, f.room(t, room.ID), "once")

			_, err = s.Store.ResetRoom(t.Context(), f.tenant, room.ID, uuid.Nil)
			require.NoError(t, err)
			got, err := s.Edge.AppendMessage(t.Context(), first)
			require.NoError(t, err)
			require.True(t, got.Duplicate)
			require.False(t, f.room(t, room.ID).Activated, "a resend is a resend, and begins nothing")
		}
	}
	t.Run("many at once", func(t *testing.T) { testFirstMessagesAtOnce(t, f) })
}

// appendTwice sends a message and sends it again.
func appendTwice(t *testing.T, s Subject, m store.Message) {
	t.Helper()
	for i := range 2 {
		got, err := s.Edge.AppendMessage(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, i == 1, got.Duplicate)
	}
}

func testFirstMessagesAtOnce(t *testing.T, f fixture) {
	for range 5 {
		room := f.newRoom(t, store.RoomDirect)
		owner, agent := f.add(t, room.ID, store.RoleOwner), f.add(t, room.ID, store.RoleAgent)
		before := f.room(t, room.ID)
		same := message(owner, "same", "x")
		const others = 6
		errs := race(3*others, func(i int) error {
			m := same
			switch i % 3 {
			case 1:
				m = message(owner, "own-"+strconv.Itoa(i), "x")
			case 2:
				m = message(agent, "agent-"+strconv.Itoa(i), "x")
			}
			_, err := f.Edge.AppendMessage(t.Context(), m)
			return err
		})
		stored := 1 + others
		for i, err := range errs {
			if i%3 == 2 {
				if err == nil {
					stored++
				}
				continue // before or after the first one, or while it was being written
			}
			require.NoError(t, err)
		}
		require.Equal(t, stored, f.HistoryRows(t, f.tenant, room.ID))
		require.Equal(t, before.Version+1, f.room(t, room.ID).Version, "it is activated once")
		f.send(t, agent, 1, nil)
	}
}

// testRoomRaces: of changes that exclude each other one happens (STATE, "Simultaneous Admin
// Changes"), and none is lost (FAULTS BL-H08).
func testRoomRaces(t *testing.T, s Subject) {
	t.Run("two admins", func(t *testing.T) { testTwoAdmins(t, newFixture(t, s)) })
	t.Run("leaving and sending", func(t *testing.T) { testLeaveAgainstSend(t, newFixture(t, s)) })
	t.Run("archiving and sending", func(t *testing.T) { testArchiveAgainstSend(t, newFixture(t, s)) })
	t.Run("revoking and opening or adding", func(t *testing.T) { testRevokeAgainstRooms(t, newFixture(t, s)) })
	t.Run("the last one leaves and somebody joins", func(t *testing.T) { testLeaveAgainstJoin(t, newFixture(t, s)) })
	t.Run("all change their keys", func(t *testing.T) { testRekeyTogether(t, newFixture(t, s)) })
}

func testTwoAdmins(t *testing.T, f fixture) {
	ctx := t.Context()
	admins := []uuid.UUID{f.active(t, true).ID, f.active(t, true).ID}
	for range 8 {
		room := f.newRoom(t, store.RoomGroup)
		p := f.add(t, room.ID, store.RoleAgent)
		removals := race(2, func(i int) error {
			_, err := f.Store.RemoveParticipant(ctx, f.tenant, room.ID, p.ID, admins[i])
			return err
		})
		require.Equal(t, 1, count(removals, nil))
		require.Equal(t, 1, count(removals, store.ErrNotFound))
		device := f.active(t, false)
		additions := race(2, func(i int) error {
			_, err := f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: room.ID, Device: device.ID, Role: store.RoleAgent, By: admins[i]})
			return err
		})
		require.Equal(t, 1, count(additions, nil))
		require.Equal(t, 1, count(additions, store.ErrConflict))

		owners := []store.Participant{f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner), f.joinAs(t, room.ID, f.human(t).ID, store.RoleOwner)}
		mutual := race(2, func(i int) error {
			_, err := f.Store.RemoveParticipant(ctx, f.tenant, room.ID, owners[i].ID, owners[1-i].Device)
			return err
		})
		require.Equal(t, 1, count(mutual, nil), "of two owners who remove each other one stays")
		require.Equal(t, 1, count(mutual, store.ErrNotFound))
	}
}

func testLeaveAgainstSend(t *testing.T, f fixture) {
	for range 8 {
		p := f.member(t)
		leaver := f.joinAs(t, p.Room, f.active(t, false).ID, store.RoleAgent)
		f.allocate(t, p, 1)
		f.allocate(t, leaver, 1)
		const senders = 12
		errs := race(senders+1, func(i int) error {
			if i == senders {
				_, err := f.Store.RemoveParticipant(t.Context(), f.tenant, p.Room, leaver.ID, leaver.Device)
				return err
			}
			from := p
			if i%2 == 0 {
				from = leaver
			}
			_, err := f.Edge.AppendMessage(t.Context(), message(from, strconv.Itoa(i), "x"))
			return err
		})
		require.NoError(t, errs[senders])
		stored := 0
		for i, err := range errs[:senders] {
			switch {
			case err == nil:
				stored++
			case i%2 == 0:
				require.ErrorIs(t, err, store.ErrNotFound)
			default:
				require.ErrorIs(t, err, errRetired)
			}
		}
		require.Equal(t, stored, f.HistoryRows(t, f.tenant, p.Room))
		f.send(t, p, 1, errRetired)
	}
}

func testArchiveAgainstSend(t *testing.T, f fixture) {
	for range 8 {
		p := f.member(t)
		const senders = 12
		errs := race(senders+1, func(i int) error {
			if i == senders {
				_, err := f.Store.ArchiveRoom(t.Context(), f.tenant, p.Room, uuid.Nil)
				return err
			}
			_, err := f.Edge.AppendMessage(t.Context(), message(p, strconv.Itoa(i), "x"))
			return err
		})
		require.NoError(t, errs[senders])
		require.Equal(t, senders, count(errs[:senders], nil)+count(errs[:senders], errArchived))
		require.Equal(t, count(errs[:senders], nil), f.HistoryRows(t, f.tenant, p.Room))
		f.send(t, p, 1, errArchived)
	}
}

func testRevokeAgainstRooms(t *testing.T, f fixture) {
	ctx := t.Context()
	for range 8 {
		device := f.human(t)
		room := f.newRoom(t, store.RoomGroup)
		f.joinAs(t, room.ID, device.ID, store.RoleOwner)
		elsewhere, agent := f.newRoom(t, store.RoomGroup), f.active(t, false)
		errs := race(7, func(i int) (err error) {
			switch i {
			case 0:
				_, err = f.Store.RevokeDevice(ctx, f.tenant, device.ID, uuid.Nil)
			case 1, 2, 3:
				_, _, err = f.Store.OpenRoom(ctx, f.newGroup(), device.ID)
			case 4:
				_, err = f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: elsewhere.ID, Device: device.ID, Role: store.RoleViewer})
			case 5:
				_, err = f.Store.AddParticipant(ctx, store.NewParticipant{Tenant: f.tenant, Room: room.ID, Device: agent.ID, Role: store.RoleAgent, By: device.ID})
			case 6:
				_, err = f.Store.ArchiveRoom(ctx, f.tenant, room.ID, device.ID)
			}
			return err
		})
		require.NoError(t, errs[0])
		for i, err := range errs[1:] {
			require.True(t, err == nil || errors.Is(err, store.ErrForbidden) || errors.Is(err, store.ErrConflict), "%d: %v", i+1, err)
		}
		rooms, _, err := f.Store.RoomPage(ctx, f.tenant, device.ID, uuid.Nil, store.MaxPage)
		require.NoError(t, err)
		require.Empty(t, rooms, "it is in no room, whatever was in flight")
	}
}

func testLeaveAgainstJoin(t *testing.T, f fixture) {
	for range 15 {
		last := f.member(t)
		f.allocate(t, last, 1)
		var joined store.Participant
		errs := race(2, func(i int) (err error) {
			if i == 0 {
				_, err = f.Store.RemoveParticipant(t.Context(), f.tenant, last.Room, last.ID, last.Device)
				return err
			}
			joined, err = f.Store.AddParticipant(t.Context(), store.NewParticipant{Tenant: f.tenant, Room: last.Room, Role: store.RoleAgent})
			return err
		})
		require.NoError(t, errors.Join(errs...))
		if f.room(t, last.Room).State == store.RoomActive {
			f.send(t, joined, 1, nil) // into an empty room: nobody ever knew its keys
			continue
		}
		f.send(t, joined, 1, errUnknownGen)
		require.True(t, f.allocate(t, joined, 1).Rekeyed)
		f.send(t, joined, 1, nil)
	}
}

// testRekeyTogether: of allocations at the same time one finds that it was the last.
func testRekeyTogether(t *testing.T, f fixture) {
	for range 5 {
		room := f.newRoom(t, store.RoomGroup)
		members := make([]store.Participant, 6)
		for i := range members {
			members[i] = f.add(t, room.ID, store.RoleAgent)
			f.allocate(t, members[i], 1)
		}
		f.remove(t, f.add(t, room.ID, store.RoleAgent))
		rekeyed := make([]bool, len(members))
		errs := race(len(members), func(i int) error {
			g, err := f.Store.AllocateGeneration(t.Context(), newGeneration(members[i], 2))
			rekeyed[i] = g.Rekeyed
			return err
		})
		require.NoError(t, errors.Join(errs...))
		times := 0
		for _, was := range rekeyed {
			if was {
				times++
			}
		}
		require.Equal(t, 1, times)
		require.Equal(t, store.RoomActive, f.room(t, room.ID).State)
	}
}
