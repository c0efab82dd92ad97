package encryption_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// benchBatch is how many are sealed or opened in one Update, which is not saved: what is
// measured is encryption with its signature and state, without the disk.
const benchBatch = 1000

// BenchmarkSenderKeySealOpen is for messages of 1 KiB; the keys alone are measured in package
// senderkey.
func BenchmarkSenderKeySealOpen(b *testing.B) {
	w := newWorld(b, "alice", "bob", "carol")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	text := strings.Repeat("x", 1024)
	alice.say(text)
	w.settle()
	require.Equal(b, 1, bob.shown[text])
	var messages []encryption.Sealed
	seal := func(tx *keystore.Tx) {
		sealed, err := alice.cipher.Seal(tx, alice.room, alice.draft(text, w.id))
		require.NoError(b, err)
		messages = append(messages, sealed...)
	}
	b.Run("seal", func(b *testing.B) {
		batches(b, alice.store, func(tx *keystore.Tx, _ int) { seal(tx) })
	})
	messages = nil
	batch(b, alice.store, func(tx *keystore.Tx) {
		for range benchBatch {
			seal(tx)
		}
	})
	b.Run("open", func(b *testing.B) {
		batches(b, bob.store, func(tx *keystore.Tx, i int) {
			opened, err := bob.cipher.Open(tx, bob.room, &alice.member, messages[i].Raw, w.now)
			require.NoError(b, err)
			require.Equal(b, wire.KindMessage, opened.Kind)
		})
	})
}

// batches calls do in Updates of benchBatch that all begin with the same state.
func batches(b *testing.B, store *keystore.Store, do func(tx *keystore.Tx, i int)) {
	b.Helper()
	b.SetBytes(1024)
	for more := true; more; {
		batch(b, store, func(tx *keystore.Tx) {
			for i := 0; i < benchBatch && more; i++ {
				if more = b.Loop(); more {
					do(tx, i)
				}
			}
		})
	}
}

func batch(b *testing.B, store *keystore.Store, do func(tx *keystore.Tx)) {
	b.Helper()
	require.ErrorIs(b, store.Update(func(tx *keystore.Tx) error {
		do(tx)
		return errScripted
	}), errScripted)
}
