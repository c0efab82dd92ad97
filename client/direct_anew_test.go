package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
)

// An owner whose program sends and does not read first begins anew, too, where the room was reset: the
// relay says that the owner has to write.
func TestAnOwnerThatOnlySendsBeginsAnew(t *testing.T) {
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "one")
	bob.pollFor(t, 1)
	say(t, bob, "two")
	_, err := robot.ResetRoom(t.Context(), room)
	require.NoError(t, err)
	require.NoError(t, alice.Close())

	sender, err := w.admin.OpenSession(t.Context(), room)
	require.NoError(t, err)
	defer sender.Close()
	_, err = sender.Send(t.Context(), client.Draft{Text: "three"})
	require.NoError(t, err)
	bob.pollFor(t, 2)
	require.Equal(t, []string{"one", "three"}, bob.texts())
	require.Empty(t, bob.failures())
}
