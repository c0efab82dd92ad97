package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/wire"
)

// linked is how often the conversation began anew, as a session heard.
func (r *talker) linked() (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if item.Event != nil && item.Event.Event == wire.DeviceLinked {
			times++
		}
	}
	return times
}

func (r *talker) pollForReset(t *testing.T, times int) {
	t.Helper()
	repeat(t, func() bool { r.poll(t); return r.linked() >= times })
}

// FAULTS J09 at a real relay: the agent cannot open the first message, as its one-time prekey is
// lost. It asks for a reset once, the owner begins with a fresh X3DH, and both go on.
func TestFirstContactIsRepairedAtARealRelay(t *testing.T) {
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "lost")
	require.NoError(t, robot.Store().Update(func(tx *keystore.Tx) error {
		return tx.Delete(keystore.Prekeys, "one-time/0000000001")
	}))
	for range 3 {
		bob.poll(t)
	}
	require.Len(t, bob.failures(), 1)
	require.ErrorIs(t, bob.failures()[0].Err, encryption.ErrLost)
	require.ErrorContains(t, bob.failures()[0].Err, ratchet.ErrUnknownPrekey.Error())
	_, err := bob.Send(t.Context(), client.Draft{Text: "x"})
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	alice.pollForReset(t, 1)
	say(t, alice, "hello")
	bob.pollFor(t, 1)
	say(t, bob, "hello yourself")
	alice.pollFor(t, 1)
	for range 3 {
		alice.poll(t)
		bob.poll(t)
	}
	require.Equal(t, []string{"hello"}, bob.texts())
	require.Equal(t, []string{"hello yourself"}, alice.texts())
	require.Equal(t, []int{1, 1}, []int{alice.linked(), bob.linked()}, "one reset")
	stock, err := robot.PrekeyStock(t.Context())
	require.NoError(t, err)
	require.Equal(t, 98, stock.OneTime, "one fresh X3DH")
}

// An old copy of a key store is not sent with: Send asks for a reset, and goes on with a fresh
// session, before the event of the reset came.
func TestOldCopyBeginsADirectRoomAnewAtARealRelay(t *testing.T) {
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "one")
	bob.pollFor(t, 1)
	say(t, bob, "two")
	alice.pollFor(t, 1)
	restored, err := w.admin.Store().NoticeRestored(room, 1)
	require.NoError(t, err)
	require.True(t, restored)

	say(t, alice, "three")
	bob.pollFor(t, 2)
	say(t, bob, "four")
	alice.pollFor(t, 2)
	alice.pollForReset(t, 1)
	bob.pollForReset(t, 1)
	say(t, alice, "five")
	bob.pollFor(t, 3)
	require.Equal(t, []string{"one", "three", "five"}, bob.texts())
	require.Equal(t, []string{"two", "four"}, alice.texts())
	require.Equal(t, []int{1, 1}, []int{alice.linked(), bob.linked()}, "one reset")
	require.Empty(t, alice.failures())
	require.Empty(t, bob.failures())
}
