package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func testRooms(t *testing.T, s Subject) {
	f := newFixture(t, s)
	valid := store.NewRoom{Tenant: f.tenant, Kind: store.RoomGroup, Scheme: store.SchemeMLS, PrivateMessages: store.PrivateRefused}

	t.Run("created as asked and found again", func(t *testing.T) {
		room, err := s.Store.CreateRoom(t.Context(), valid)
		require.NoError(t, err)
		asked := store.NewRoom{Tenant: room.Tenant, Kind: room.Kind, Scheme: room.Scheme, PrivateMessages: room.PrivateMessages}
		require.Equal(t, valid, asked)
		require.Equal(t, store.RoomCreated, room.State)
		require.Positive(t, room.Version)
		require.False(t, room.CreatedAt.IsZero())
		found, err := s.Store.FindRoom(t.Context(), f.tenant, room.ID)
		require.NoError(t, err)
		require.Equal(t, room, found)
	})

	t.Run("what is missing or unknown is refused", func(t *testing.T) {
		for name, change := range map[string]func(*store.NewRoom){
			"no kind":                   func(r *store.NewRoom) { r.Kind = "" },
			"unknown kind":              func(r *store.NewRoom) { r.Kind = "huddle" },
			"no scheme":                 func(r *store.NewRoom) { r.Scheme = "" },
			"unknown scheme":            func(r *store.NewRoom) { r.Scheme = "rot13" },
			"a kind with U+0000":        func(r *store.NewRoom) { r.Kind = "group\x00" },
			"a scheme with U+0000":      func(r *store.NewRoom) { r.Scheme = "mls\x00" },
			"a policy with U+0000":      func(r *store.NewRoom) { r.PrivateMessages = "allowed\x00" },
			"a kind that is not UTF-8":  func(r *store.NewRoom) { r.Kind = "group\xff" },
			"no policy":                 func(r *store.NewRoom) { r.PrivateMessages = "" },
			"unknown policy":            func(r *store.NewRoom) { r.PrivateMessages = "Allowed" },
			"double ratchet in a group": func(r *store.NewRoom) { r.Scheme = store.SchemeDoubleRatchet },
		} {
			room := valid
			change(&room)
			_, err := s.Store.CreateRoom(t.Context(), room)
			require.ErrorIs(t, err, store.ErrInvalid, name)
		}
	})

	t.Run("unknown room", func(t *testing.T) {
		_, err := s.Store.FindRoom(t.Context(), f.tenant, newID(t))
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Edge.Roster(t.Context(), f.tenant, newID(t))
		require.ErrorIs(t, err, store.ErrNotFound)
	})

	t.Run("roster of an empty room", func(t *testing.T) {
		room := f.newRoom(t, store.RoomGroup)
		roster, err := s.Edge.Roster(t.Context(), f.tenant, room.ID)
		require.NoError(t, err)
		require.Equal(t, store.Roster{Room: room}, roster)
	})

	t.Run("roster has the current participants in the order they joined", func(t *testing.T) {
		room := f.newRoom(t, store.RoomGroup)
		first, second, third := f.add(t, room.ID, store.RoleOwner), f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleViewer)
		f.remove(t, second)
		roster, err := s.Edge.Roster(t.Context(), f.tenant, room.ID)
		require.NoError(t, err)
		require.Equal(t, []store.Participant{first, third}, roster.Participants)
	})

	t.Run("versions of many rooms", func(t *testing.T) {
		a, b := f.newRoom(t, store.RoomGroup), f.newRoom(t, store.RoomGroup)
		f.add(t, b.ID, store.RoleAgent)
		got, err := s.Edge.RoomVersions(t.Context(), f.tenant, []uuid.UUID{a.ID, b.ID, newID(t)})
		require.NoError(t, err)
		require.Equal(t, map[uuid.UUID]int64{a.ID: a.Version, b.ID: b.Version + 1}, got)
		got, err = s.Edge.RoomVersions(t.Context(), f.tenant, nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
