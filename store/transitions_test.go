package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// The moves are listed as Next makes them, in one order.
func TestTransitions(t *testing.T) {
	t.Parallel()
	all := store.Transitions()
	require.Equal(t, all, store.Transitions())
	count := make(map[store.Machine]int)
	for _, m := range all {
		count[m.Machine]++
		var to string
		var err error
		switch m.Machine {
		case store.InviteMachine:
			next, refused := store.InviteState(m.From).Next(store.InviteEvent(m.Event))
			to, err = string(next), refused
		case store.DeviceMachine:
			next, refused := store.DeviceState(m.From).Next(store.DeviceEvent(m.Event))
			to, err = string(next), refused
		case store.RoomMachine:
			next, refused := store.RoomState(m.From).Next(store.RoomEvent(m.Event))
			to, err = string(next), refused
		}
		require.NoError(t, err)
		require.Equal(t, m.To, to)
	}
	require.Equal(t, 3, count[store.InviteMachine])
	require.Equal(t, 5, count[store.DeviceMachine])
	require.Equal(t, 7, count[store.RoomMachine])
}

// An invite ends once, whichever way (STATE, "Invite Token States").
func TestInviteEndsOnce(t *testing.T) {
	t.Parallel()
	for _, event := range []store.InviteEvent{store.InviteConsume, store.InviteExpire, store.InviteRevoke} {
		ended, err := store.InviteCreated.Next(event)
		require.NoError(t, err)
		for _, again := range []store.InviteEvent{store.InviteConsume, store.InviteExpire, store.InviteRevoke} {
			_, err := ended.Next(again)
			require.ErrorIs(t, err, store.ErrConflict)
		}
	}
}
