package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
)

// A session is that of one participant: where the device was removed and added again while it was
// not connected, it ends instead of trying for ever to follow the inbox of the participant that the
// device is now. Nothing there is lost.
func TestASessionFollowsNoInboxOfAnotherParticipant(t *testing.T) {
	t.Parallel()
	o, _, _ := liedTo(t)
	bob := open(t, o.robot, o.room)
	say(t, o.alice, "one")
	bob.pollFor(t, 1)
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, bob.Participant()))
	_, err := o.admin.AddMember(t.Context(), o.room, o.robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	for _, err := range o.robot.History(t.Context(), o.room, client.NewestFirst) { // which replaces the credential
		require.NoError(t, err)
	}
	say(t, o.alice, "two")

	err = bob.Listen(t.Context(), bob.take)
	require.ErrorIs(t, err, client.ErrLeft)
	require.Empty(t, bob.failures())
	require.NoError(t, bob.Close())
	again := open(t, o.robot, o.room)
	again.pollFor(t, 1)
	require.Equal(t, []string{"two"}, again.texts())
	require.Empty(t, again.failures())
}
