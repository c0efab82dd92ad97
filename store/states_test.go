package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// The moves of STATE, each by its event; what is not listed is refused. That the
// database has the same ones is tested with the schema.
func TestMoves(t *testing.T) {
	t.Parallel()
	to, err := store.RoomCreated.Next(store.RoomMembersAdded)
	require.NoError(t, err)
	require.Equal(t, store.RoomActive, to)
	to, err = store.RoomActive.Next(store.RoomMemberRemoved)
	require.NoError(t, err)
	require.Equal(t, store.RoomRekeying, to)
	to, err = store.RoomRekeying.Next(store.RoomRekeyed)
	require.NoError(t, err)
	require.Equal(t, store.RoomActive, to)
	for _, event := range []store.RoomEvent{store.RoomMembersAdded, store.RoomMemberRemoved, store.RoomRekeyed, store.RoomArchive, ""} {
		_, err := store.RoomArchived.Next(event)
		require.ErrorIs(t, err, store.ErrConflict, "an archived room is final")
	}
	for _, event := range []store.DeviceEvent{store.DeviceApprove, store.DeviceActivate, store.DeviceSuspend, store.DeviceReinstate, store.DeviceRevoke} {
		_, err := store.DeviceRevoked.Next(event)
		require.ErrorIs(t, err, store.ErrConflict, "a revoked device is final")
	}
	_, err = store.DevicePending.Next(store.DeviceActivate)
	require.ErrorIs(t, err, store.ErrConflict, "no activation without approval")
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for _, role := range []store.Role{store.RoleOwner, store.RoleController, store.RoleAgent, store.RoleViewer} {
		require.True(t, role.Valid())
	}
	for _, role := range []store.Role{"", "Owner", "admin", "agent "} {
		require.False(t, role.Valid())
	}
}
