package client_test

import (
	"context"
	"crypto/rand"
	"strings"
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

// RELAY: an id-less nack rejects the batch. Nothing of it is sent behind one either.
func TestNothingIsSentBehindANackWithoutID(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 4)
	refused := make(chan struct{})
	conn := greeted(t, func(p peer) {
		defer close(seen)
		p.ws.SetReadLimit(-1)
		for {
			_, got, err := p.ws.Read(p.ctx)
			if err != nil {
				return
			}
			id, _ := client.EnvelopeID(got)
			seen <- id
			if id == "m1" {
				p.send(nack("", wire.InvalidEnvelope), `{"type":"x"}`)
				<-refused // meanwhile m2 waits for room in the sockets' buffers
			}
		}
	})
	batch := append(batchOf(1, "m1"), client.Outgoing{Envelope: []byte(`{"id":"m2","ct":"` + strings.Repeat("x", 5<<20) + `"}`)})
	go func() {
		_, _ = conn.Receive(t.Context()) // what came behind the nack
		close(refused)
	}()
	verdicts, err := conn.SendAll(t.Context(), append(batch, batchOf(1, "m3")...))
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidEnvelope})
	require.Error(t, verdictErr(verdicts, "m1"))
	require.NoError(t, conn.Close())
	var got []string
	for id := range seen {
		got = append(got, id)
	}
	require.NotContains(t, got, "m3")
}

// RELAY "Already queued envelopes remain queued": of a draft that is refused, what had left and
// has no verdict is kept, since it may be stored.
func TestWhatHasLeftIsKeptBesideARefusal(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "before")
	var left []string
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	o.proxy.onUp(func(message []byte) (bool, []byte) {
		id, kind := envelopeOf(message)
		if kind != "message" {
			return true, nil
		}
		if left = append(left, id); len(left) == 1 {
			return false, nil // what became of it is not known
		}
		o.proxy.afterAnswer(giveUp)
		return false, nackOf(id, wire.InvalidFilePart)
	})
	_, err := bob.Send(ctx, client.Draft{Text: "the first part", File: someFile(t, 1)})
	require.ErrorIs(t, err, &wire.Error{Code: wire.InvalidFilePart})
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Equal(t, left[:1], pending)
	o.proxy.onUp(nil)
	bob.poll(t)
	o.alice.poll(t)
	require.Equal(t, []string{"before", "the first part"}, o.alice.texts())
	require.Empty(t, bob.failures())
}
