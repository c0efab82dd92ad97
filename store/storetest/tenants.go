package storetest

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func testTenants(t *testing.T, s Subject) {
	t.Run("default tenant is made once, also at the same instant", func(t *testing.T) {
		ids := make([]uuid.UUID, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				id, err := s.Store.DefaultTenant(t.Context())
				if err != nil {
					t.Error(err)
				}
				ids[i] = id
			})
		}
		wg.Wait()
		for _, id := range ids {
			require.NotEqual(t, uuid.Nil, id)
			require.Equal(t, ids[0], id)
		}
	})

	t.Run("freezing twice is no error and thawing ends it", func(t *testing.T) {
		f := newFixture(t, s)
		for _, frozen := range []bool{false, true, true, false} {
			require.NoError(t, s.Store.SetFrozen(t.Context(), f.tenant, frozen))
			got, err := s.Store.Frozen(t.Context(), f.tenant)
			require.NoError(t, err)
			require.Equal(t, frozen, got)
		}
	})

	t.Run("unknown tenant", func(t *testing.T) {
		unknown := newID(t)
		require.ErrorIs(t, s.Store.SetFrozen(t.Context(), unknown, true), store.ErrNotFound)
		_, err := s.Store.Frozen(t.Context(), unknown)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.CreateRoom(t.Context(), store.NewRoom{
			Tenant: unknown, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed,
		})
		require.ErrorIs(t, err, store.ErrNotFound)
	})

	t.Run("answers", func(t *testing.T) {
		require.NoError(t, s.Edge.Ping(t.Context()))
	})
}

// testKeptApart gives two tenants the same names for everything a caller may choose, and
// asks each for what is the other's.
func testKeptApart(t *testing.T, s Subject) {
	mine, other := newFixture(t, s), newFixture(t, s)
	me, them := mine.member(t), other.member(t)

	t.Run("the same message id in both", func(t *testing.T) {
		for _, m := range []store.Message{message(me, "same", "mine"), message(them, "same", "theirs")} {
			got, err := s.Edge.AppendMessage(t.Context(), m)
			require.NoError(t, err)
			require.False(t, got.Duplicate)
			got, err = s.Edge.AppendMessage(t.Context(), m)
			require.NoError(t, err)
			require.True(t, got.Duplicate)
		}
		require.Equal(t, 1, s.HistoryRows(t, mine.tenant, me.Room))
		require.Equal(t, 1, s.HistoryRows(t, other.tenant, them.Room))
	})

	t.Run("nothing of the other is there", func(t *testing.T) {
		ctx := t.Context()
		credential, _ := other.mint(t, them, hour)
		_, err := s.Store.FindRoom(ctx, mine.tenant, them.Room)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Edge.Roster(ctx, mine.tenant, them.Room)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.FindParticipant(ctx, mine.tenant, them.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		valid, err := s.Edge.ValidCredentials(ctx, mine.tenant, []uuid.UUID{credential.ID})
		require.NoError(t, err)
		require.Empty(t, valid)
		versions, err := s.Edge.RoomVersions(ctx, mine.tenant, []uuid.UUID{them.Room, me.Room})
		require.NoError(t, err)
		require.Len(t, versions, 1)
		require.Contains(t, versions, me.Room)
	})

	t.Run("nothing of the other can be changed", func(t *testing.T) {
		ctx := t.Context()
		credential, hash := other.mint(t, them, hour)
		_, err := s.Store.RemoveParticipant(ctx, mine.tenant, them.Room, them.ID, uuid.Nil)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.MintCredential(ctx, mine.tenant, them.ID, store.CredentialSession, newHash(), hour)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.RevokeCredential(ctx, mine.tenant, credential.ID, uuid.Nil)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.RevokeParticipantCredentials(ctx, mine.tenant, them.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.AddParticipant(ctx, store.NewParticipant{Tenant: mine.tenant, Room: them.Room, Role: store.RoleAgent})
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Store.AddParticipant(ctx, store.NewParticipant{Tenant: mine.tenant, Room: me.Room, Device: them.Device, Role: store.RoleAgent})
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Edge.Authenticate(ctx, hash)
		require.NoError(t, err, "still valid")
	})

	t.Run("no message enters the other's room", func(t *testing.T) {
		m := message(them, "intruder", "x")
		m.Tenant = mine.tenant
		_, err := s.Edge.AppendMessage(t.Context(), m)
		require.ErrorIs(t, err, store.ErrNotFound)
		m.Room = me.Room // their participant in my room
		_, err = s.Edge.AppendMessage(t.Context(), sealed(m, "x"))
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Equal(t, 1, s.HistoryRows(t, mine.tenant, me.Room))
		require.Equal(t, 1, s.HistoryRows(t, other.tenant, them.Room))
	})

	t.Run("freezing one leaves the other", func(t *testing.T) {
		require.NoError(t, s.Store.SetFrozen(t.Context(), mine.tenant, true))
		_, hash := other.mint(t, them, hour)
		identity, err := s.Edge.Authenticate(t.Context(), hash)
		require.NoError(t, err)
		require.False(t, identity.Frozen)
		require.Equal(t, other.tenant, identity.Tenant)
	})
}
