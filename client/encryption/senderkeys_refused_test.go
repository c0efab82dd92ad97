package encryption_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// What a member signed and cannot be opened is lost, changes nothing and starts no repair
// (FAULTS J05, J06, I09): the next message is read.
func TestAuthenticEnvelopesThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("before")
	w.settle()
	key := alice.newestKey()
	direction, err := pairwise.DirectionKey(alice.self.Agreement, bob.self.Keys.Agreement, w.id, alice.id(), bob.id())
	require.NoError(t, err)
	to := func(to string, change func(*signed.Envelope)) *signed.Envelope {
		e := &signed.Envelope{
			ID: uuid(), SessionID: w.id, From: alice.id(), To: to, Kind: wire.KindMessage, Gen: key.Gen, Seq: 1, TS: 1,
		}
		change(e)
		return e
	}
	for name, test := range map[string]struct {
		envelope *signed.Envelope
		key      [seal.KeySize]byte
		want     error
	}{
		"private without its mark":    {to(bob.id(), func(*signed.Envelope) {}), direction, pairwise.ErrPairwise},
		"private with a kid":          {to(bob.id(), func(e *signed.Envelope) { e.Enc, e.KID = "pairwise", key.KID.String() }), direction, pairwise.ErrPairwise},
		"private under another key":   {to(bob.id(), func(e *signed.Envelope) { e.Enc = "pairwise" }), [32]byte{1}, seal.ErrOpen},
		"control under another key":   {to(bob.id(), func(e *signed.Envelope) { e.Kind = wire.KindControl }), [32]byte{1}, seal.ErrOpen},
		"key under another key":       {to(bob.id(), func(e *signed.Envelope) { e.Kind = wire.KindSenderKey }), [32]byte{1}, seal.ErrOpen},
		"key without meaning":         {to(bob.id(), func(e *signed.Envelope) { e.Kind = wire.KindSenderKey }), direction, senderkey.ErrPayload},
		"request without meaning":     {to(bob.id(), func(e *signed.Envelope) { e.Kind = wire.KindKeyRequest }), direction, senderkey.ErrPayload},
		"control to the room":         {to(w.id, func(e *signed.Envelope) { e.Kind = wire.KindControl }), direction, encryption.ErrKind},
		"key to the room":             {to(w.id, func(e *signed.Envelope) { e.Kind = wire.KindSenderKey }), direction, encryption.ErrKind},
		"message of another scheme":   {to(w.id, func(e *signed.Envelope) { e.Hdr = []byte{1} }), direction, encryption.ErrKind},
		"private message to the room": {to(w.id, func(e *signed.Envelope) { e.Enc = "pairwise" }), direction, encryption.ErrKind},
		"gen of another key":          {to(w.id, func(e *signed.Envelope) { e.KID, e.Gen = key.KID.String(), key.Gen+1 }), direction, encryption.ErrLost},
	} {
		// In a message to the room, the iteration is in front: here it is anything.
		raw, err := test.envelope.Seal(alice.self.Identity, test.key, []byte("text"))
		require.NoError(t, err, name)
		row := envelope{from: alice, raw: raw}
		bob.refuses(row, test.want)
		bob.refuses(row, encryption.ErrLost)
	}
	short, err := to(w.id, func(e *signed.Envelope) { e.KID = key.KID.String() }).Sign(alice.self.Identity, make([]byte, seal.NonceSize), []byte{1})
	require.NoError(t, err)
	bob.refuses(envelope{from: alice, raw: short}, senderkey.ErrMessage)
	none, err := to(w.id, func(e *signed.Envelope) { e.KID = key.KID.String() }).Sign(alice.self.Identity, nil, make([]byte, 64))
	require.NoError(t, err)
	bob.refuses(envelope{from: alice, raw: none}, senderkey.ErrMessage)
	for _, raw := range [][]byte{nil, []byte("{}"), []byte(`{"to":"` + w.id + `"}`), make([]byte, wire.MaxMessage+1)} {
		bob.notAuthentic(envelope{from: alice, raw: raw})
	}
	alice.say("after")
	w.settle()
	require.Equal(t, map[string]int{"before": 1, "after": 1}, bob.shown)
	require.Empty(t, w.rows(wire.KindKeyRequest))
}

func (d *device) notAuthentic(row envelope) {
	d.w.t.Helper()
	before := d.store.Epoch()
	_, err := d.take(row)
	require.Error(d.w.t, err)
	require.NotErrorIs(d.w.t, err, encryption.ErrLost)
	require.NotErrorIs(d.w.t, err, encryption.ErrPending)
	require.Equal(d.w.t, before, d.store.Epoch())
}

// A counter that was not written here, or has no number left, seals nothing.
func TestSeqThatIsNotOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	for _, value := range [][]byte{{1}, {}, binary.BigEndian.AppendUint64(nil, wire.MaxInteger), make([]byte, 9)} {
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error { return tx.Put(keystore.Rooms, w.id+"/seq", value) }))
		_, err := alice.trySeal(alice.draft("text", bob.id()))
		require.ErrorIs(t, err, encryption.ErrState)
	}
	require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
		return tx.Put(keystore.Rooms, w.id+"/seq", binary.BigEndian.AppendUint64(nil, wire.MaxInteger-1))
	}))
	alice.postAll(alice.seal(alice.draft("the last one", bob.id())))
	require.Equal(t, uint64(wire.MaxInteger), w.seen[alice.id()])
}
