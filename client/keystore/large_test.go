package keystore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// large fills a store as that of a device which has been in 100 rooms of 50 for long.
func large(t testing.TB, path string, secret keystore.Secret) {
	t.Helper()
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	for room := range 100 {
		require.NoError(t, s.Update(func(tx *keystore.Tx) error {
			name := fmt.Sprintf("room-%d", room)
			err := tx.Put(keystore.Rooms, name, []byte(strings.Repeat("r", 25_000)))
			for peer := range 50 {
				id := fmt.Sprintf("%s/from/participant-%d", name, peer)
				err = errors.Join(err,
					tx.Put(keystore.SenderKeys, id, []byte(strings.Repeat("s", 130))),
					tx.Put(keystore.Peers, "participant/"+id, []byte(strings.Repeat("d", 36))),
					tx.Put(keystore.Peers, "device/"+id, []byte(strings.Repeat("k", 129))))
			}
			return err
		}))
		for part := range 100 { // marking is quadratic in one Update
			require.NoError(t, s.Update(func(tx *keystore.Tx) error {
				for n := range 100 {
					if _, err := tx.MarkSeen(fmt.Sprintf("room-%d", room), fmt.Sprintf("%d %d %d", room, part, n)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	require.NoError(t, s.Close())
}

// BenchmarkLargeStore is what a program that receives one message pays for a store with a million
// ids: opening it, one Update, and closing it.
func BenchmarkLargeStore(b *testing.B) {
	path, secret := filepath.Join(b.TempDir(), "keys"), keyFile(b)
	large(b, path, secret)
	info, err := os.Stat(path)
	require.NoError(b, err)
	var s *keystore.Store
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err = keystore.Open(path, secret)
			require.NoError(b, err)
			b.StopTimer()
			require.NoError(b, s.Close())
			b.StartTimer()
		}
		b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			s, err = keystore.Open(path, secret)
			require.NoError(b, err)
			n++
			require.NoError(b, s.Update(func(tx *keystore.Tx) error {
				_, err := tx.MarkSeen("room-7", fmt.Sprint("new ", n))
				return errors.Join(err, tx.Put(keystore.SenderKeys, "room-7/from/participant-3", []byte(fmt.Sprint(n))))
			}))
			require.NoError(b, s.Close())
		}
	})
}

// One message costs a device in many rooms a record, not its whole store; what it deleted
// leaves the file when that has grown by a part.
func TestALargeFileIsNotWrittenAnewForOneMessage(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	s, err := keystore.CreateWith(path, secret, nil, small)
	require.NoError(t, err)
	put(t, s, keystore.Rooms, "others", strings.Repeat("r", 100<<10))
	require.NoError(t, s.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	whole, anew := len(file), 0
	for n := range 40 {
		s, err := keystore.OpenWith(path, secret, nil, small)
		require.NoError(t, err)
		if n > 0 {
			require.Equal(t, strings.Repeat(fmt.Sprint(n-1), 300), get(t, s, keystore.SenderKeys, "key"))
		}
		put(t, s, keystore.SenderKeys, "key", strings.Repeat(fmt.Sprint(n), 300))
		require.NoError(t, s.Close())
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		if bytes.HasPrefix(after, file) {
			require.Less(t, len(after)-len(file), 2<<10)
		} else {
			anew++
			require.Less(t, len(after), whole+2<<10)
		}
		require.Less(t, len(after), whole+whole/10, "what was deleted does not stay")
		file = after
	}
	require.Positive(t, anew)
	require.Less(t, anew, 8)
}
