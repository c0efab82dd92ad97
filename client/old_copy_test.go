package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// backUp is a copy of a device's key store, as somebody makes of a device that runs.
func backUp(t *testing.T, dir string) (copied []byte) {
	t.Helper()
	copied, err := os.ReadFile(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	return copied
}

// restored is the robot as a program finds it that starts after the copy was put back.
func (o *offline) restored(t *testing.T, copied []byte) *talker {
	t.Helper()
	require.NoError(t, o.robot.Close())
	require.NoError(t, os.WriteFile(filepath.Join(o.dir, "keys"), copied, 0o600))
	return o.again(t)
}

// An old copy of a key store that has the newest generation is known by what a newer one sent: the
// seq of its own newest message. Nothing is sealed under message numbers that others have opened.
func TestOldCopyWithinAGeneration(t *testing.T) {
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "one")
	copied := backUp(t, o.dir)
	say(t, bob, "two")
	say(t, bob, "three")
	for range 30 { // the robot's newest is not in the first page
		say(t, o.alice, "between")
	}
	o.alice.pollFor(t, 3)

	bob = o.restored(t, copied)
	say(t, bob, "four")
	say(t, bob, "five")
	o.alice.pollFor(t, 5)
	require.Equal(t, []string{"one", "two", "three", "four", "five"}, o.alice.texts())
	require.Empty(t, o.alice.failures())
	require.Equal(t, uint64(1), restores(t, o.robot))

	bob = o.again(t) // and once
	say(t, bob, "six")
	o.alice.pollFor(t, 6)
	require.Equal(t, uint64(1), restores(t, o.robot))
}

func restores(t *testing.T, d *client.Device) (n uint64) {
	t.Helper()
	require.NoError(t, d.Store().View(func(tx *keystore.Tx) error {
		n = tx.Restores()
		return nil
	}))
	return n
}

// The same of a direct room, whose conversation begins anew before anything is sealed.
func TestOldCopyOfADirectRoom(t *testing.T) {
	o := newOffline(t)
	room := o.talk.room(t, client.NewRoom{Kind: "direct"}, o.robot)
	alice, bob := open(t, o.admin, room), open(t, o.robot, room)
	say(t, alice, "hello")
	bob.pollFor(t, 1)
	say(t, bob, "one")
	alice.pollFor(t, 1)
	copied := backUp(t, o.dir)
	say(t, bob, "two")
	alice.pollFor(t, 2)

	o.room = room
	bob = o.restored(t, copied)
	_, err := bob.Send(t.Context(), client.Draft{Text: "of an old state"})
	require.ErrorIs(t, err, encryption.ErrNotActivated, "the owner writes first")
	alice.pollForReset(t, 1)
	say(t, alice, "anew")
	bob.pollFor(t, 1)
	say(t, bob, "three")
	alice.pollFor(t, 3)
	require.Equal(t, []string{"one", "two", "three"}, alice.texts())
	require.Equal(t, []string{"anew"}, bob.texts())
	require.Empty(t, alice.failures())
	require.Equal(t, uint64(1), restores(t, o.robot))
}

// Nobody else can make a device believe that its store is an old copy: an envelope that the device
// did not sign says nothing.
func TestForgedOwnEnvelopesSayNothing(t *testing.T) {
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	sent := say(t, bob, "one")
	row, err := o.robot.HistoryMessage(t.Context(), o.room, sent.IDs[0])
	require.NoError(t, err)
	forged := altered(row.Envelope, func(envelope map[string]any) { envelope["seq"] = 9_000 })
	require.NoError(t, bob.Import(t.Context(), forged, bob.take))
	require.NoError(t, bob.Import(t.Context(), row.Envelope, bob.take))
	require.Zero(t, restores(t, o.robot))
}

// One's own envelope that comes by any way says it, too.
func TestAnOwnEnvelopeOfANewerCopy(t *testing.T) {
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "one")
	copied := backUp(t, o.dir)
	sent := say(t, bob, "two")
	row, err := o.robot.HistoryMessage(t.Context(), o.room, sent.IDs[0])
	require.NoError(t, err)
	bob = o.restored(t, copied)
	require.NoError(t, bob.Import(t.Context(), row.Envelope, bob.take))
	require.Equal(t, uint64(1), restores(t, o.robot))
	require.Empty(t, bob.items)
}
