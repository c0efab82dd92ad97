package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func testMemberships(t *testing.T, s Subject) {
	t.Run("past and present", func(t *testing.T) { testPastAndPresent(t, newFixture(t, s), newFixture(t, s)) })
	t.Run("device keys", func(t *testing.T) { testDeviceKeys(t, newFixture(t, s), newFixture(t, s)) })
}

func testPastAndPresent(t *testing.T, f, other fixture) {
	p, elsewhere := f.member(t), f.member(t)
	for _, left := range []bool{false, true} {
		if left {
			f.remove(t, p)
		}
		found, was, err := f.Store.Membership(t.Context(), f.tenant, p.Room, p.ID)
		require.NoError(t, err)
		require.Equal(t, p, found)
		require.Equal(t, left, !was.IsZero())
		require.False(t, left && was.Before(p.JoinedAt), "it left after it had joined")
		require.True(t, was.IsZero() || time.Since(was) < time.Hour)
		for _, c := range []struct{ tenant, room, participant uuid.UUID }{
			{f.tenant, elsewhere.Room, p.ID}, {f.tenant, p.Room, elsewhere.ID}, {f.tenant, p.Room, newID(t)}, {other.tenant, p.Room, p.ID},
		} {
			_, _, err := f.Store.Membership(t.Context(), c.tenant, c.room, c.participant)
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
}

func testDeviceKeys(t *testing.T, f, other fixture) {
	pending, revoked, foreign := f.enrolled(t, false), f.in(t, store.DeviceRevoked), other.enrolled(t, false)
	local := f.member(t).Device
	keys, err := f.Store.DeviceKeys(t.Context(), f.tenant, []uuid.UUID{pending.ID, local, revoked.ID, foreign.ID, newID(t)})
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]store.DeviceKeys{pending.ID: *pending.Keys, revoked.ID: *revoked.Keys}, keys)
	keys, err = f.Store.DeviceKeys(t.Context(), f.tenant, nil)
	require.NoError(t, err)
	require.Empty(t, keys)
}
