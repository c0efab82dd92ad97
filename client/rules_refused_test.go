package client_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/wire"
)

func someFile(t *testing.T, chunks int) *client.File {
	t.Helper()
	data := make([]byte, chunks*content.ChunkSize)
	_, err := rand.Read(data)
	require.NoError(t, err)
	return &client.File{Name: "a.bin", MIMEType: "application/octet-stream", Data: data}
}

// STATE "Message During Rekey": a batch that is refused because the keys of before are over is
// sealed anew and sent once. Nothing of the first attempt follows, also not what had not left yet.
func TestARefusedBatchLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	other, err := o.admin.AddMember(t.Context(), o.room, o.device(t, client.KindAgent).ID(), client.RoleAgent)
	require.NoError(t, err)
	bob := open(t, o.robot, o.room)
	say(t, bob, "before")
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, other.ParticipantID))
	file := someFile(t, 10)
	_, err = bob.Send(t.Context(), client.Draft{File: file})
	require.NoError(t, err)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
	bob.poll(t)
	require.Empty(t, bob.failures())
	o.alice.poll(t)
	require.Empty(t, o.alice.failures())
	require.Len(t, o.alice.messages(), 2)
	require.Equal(t, file.Data, o.alice.messages()[1].Files[0].Data)
}

// RELAY: a nack for one envelope of a batch rejects the send. What of it was not sent yet is
// never sent, and does not wait; what is queued stays queued.
func TestARejectedFileIsNotSentOn(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	for range 6 { // with a key for each of them, a group of chunks is more than one batch
		_, err := o.admin.AddMember(t.Context(), o.room, o.device(t, client.KindAgent).ID(), client.RoleAgent)
		require.NoError(t, err)
	}
	bob := open(t, o.robot, o.room)
	left := make(chan string, 64)
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		id, kind := envelopeOf(message)
		if kind != "message" {
			return true, nil
		}
		left <- id
		return false, nackOf(id, wire.InvalidFilePart)
	})
	_, err := bob.Send(t.Context(), client.Draft{File: someFile(t, 20)})
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidFilePart})
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
	sent := len(left)
	require.Less(t, sent, 8)
	o.proxy.onUp(nil)
	say(t, bob, "after")
	bob.poll(t)
	require.Empty(t, bob.failures())
	require.Len(t, left, sent)
	o.alice.poll(t)
	require.Equal(t, []string{"after"}, o.alice.texts())
	require.Empty(t, o.alice.failures())
}
