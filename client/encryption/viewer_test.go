package encryption_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/wire"
)

// A viewer whose key did not come is told that it cannot ask, after the time in which the key may still
// come; what follows under a key that it has is read.
func TestAViewerIsToldThatItCannotAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice")
	alice, viewer := w.members[0], w.join("viewer", "viewer")
	w.settle()
	alice.say("without its key")
	viewer.inbox = nil
	viewer.receive(w.newest())
	for range senderkey.RepairAttempts {
		require.Empty(t, viewer.lost)
		w.now = w.now.Add(senderkey.RepairCooldown)
		viewer.tick()
	}
	require.Len(t, viewer.lost, 1)
	require.ErrorIs(t, viewer.lost[0], encryption.ErrMayNotAsk)
	require.ErrorIs(t, viewer.lost[0], encryption.ErrLost)
	require.ErrorIs(t, viewer.lost[0], senderkey.ErrStaleSenderKey)
	require.Empty(t, w.rows(wire.KindKeyRequest))

	w.version++
	alice.refresh()
	alice.receive(envelope{event: &wire.RoomEvent{Event: wire.RekeyRequired, RoomID: w.id, Version: int64(w.version)}})
	alice.say("under the next one")
	w.settle()
	require.Equal(t, map[string]int{"under the next one": 1}, viewer.shown)
	require.Len(t, viewer.lost, 1)
}
