package keystore_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/keystore"
)

var errStop = errors.New("stop")

// keyFile is the secret that takes no time.
func keyFile(t testing.TB) keystore.Secret {
	t.Helper()
	secret, err := keystore.NewKeyFile(filepath.Join(t.TempDir(), "key"))
	require.NoError(t, err)
	return secret
}

func put(t testing.TB, s *keystore.Store, b keystore.Bucket, key, value string) {
	t.Helper()
	require.NoError(t, s.Update(func(tx *keystore.Tx) error { return tx.Put(b, key, []byte(value)) }))
}

func get(t testing.TB, s *keystore.Store, b keystore.Bucket, key string) (value string) {
	t.Helper()
	require.NoError(t, s.View(func(tx *keystore.Tx) error {
		value = string(tx.Get(b, key))
		return nil
	}))
	return value
}

func TestWhatAnUpdateSavedIsThereAgain(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	require.NoError(t, s.Update(func(tx *keystore.Tx) error {
		fresh, err := tx.MarkSeen("room", "id")
		require.True(t, fresh)
		require.True(t, tx.Seen("room", "id"))
		require.NoError(t, tx.Put(keystore.Outbox, "b", []byte("2")))
		require.NoError(t, tx.Put(keystore.Outbox, "a", nil))
		require.Equal(t, []byte{}, tx.Get(keystore.Outbox, "a"), "an empty value is one")
		return err
	}))
	require.ErrorIs(t, s.Update(func(tx *keystore.Tx) error {
		require.NoError(t, tx.Put(keystore.Outbox, "c", nil))
		require.NoError(t, tx.Delete(keystore.Outbox, "a"))
		require.NoError(t, tx.ForgetSeen("room"))
		require.False(t, tx.Seen("room", "id"))
		require.Equal(t, 2, tx.Len(keystore.Outbox))
		return errStop
	}), errStop)
	require.Panics(t, func() {
		_ = s.Update(func(tx *keystore.Tx) error {
			require.NoError(t, tx.Put(keystore.Outbox, "d", nil))
			panic("a mistake")
		})
	})
	require.EqualValues(t, 1, s.Epoch())

	for range 2 {
		var keys []string
		require.NoError(t, s.View(func(tx *keystore.Tx) error {
			require.ErrorIs(t, tx.Put(keystore.Outbox, "e", nil), keystore.ErrReadOnly)
			for key, value := range tx.All(keystore.Outbox, "") {
				keys = append(keys, key+"="+string(value))
			}
			require.True(t, tx.Seen("room", "id"), "BL-J07")
			require.False(t, tx.Seen("other room", "id"))
			require.Nil(t, tx.Get(keystore.Device, "a"), "buckets do not mix")
			return nil
		}))
		require.Equal(t, []string{"a=", "b=2"}, keys)
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Close(), keystore.ErrClosed)
		require.ErrorIs(t, s.View(func(*keystore.Tx) error { return nil }), keystore.ErrClosed)
		require.ErrorIs(t, s.Update(func(*keystore.Tx) error { return nil }), keystore.ErrClosed)
		s, err = keystore.Open(path, secret)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Epoch())
	}
	require.NoError(t, s.Close())
}

func TestATxEndsWithItsFunction(t *testing.T) {
	s, err := keystore.Create(filepath.Join(t.TempDir(), "keys"), keyFile(t))
	require.NoError(t, err)
	var kept *keystore.Tx
	require.NoError(t, s.Update(func(tx *keystore.Tx) error { kept = tx; return nil }))
	require.Panics(t, func() { kept.Get(keystore.Device, "a") })
	require.Panics(t, func() { _ = kept.Put(keystore.Device, "a", nil) })
	require.Panics(t, func() { _ = s.View(func(tx *keystore.Tx) error { tx.Get(10, "room"); return nil }) }, "not a bucket of callers")
	require.NoError(t, s.Close())
}

func TestSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	first, err := keystore.Passphrase([]byte("the first passphrase"))
	require.NoError(t, err)
	second, err := keystore.Passphrase([]byte("the second passphrase"))
	require.NoError(t, err)
	s, err := keystore.Create(path, first)
	require.NoError(t, err)
	put(t, s, keystore.Device, "a", "1")
	require.NoError(t, s.Close())
	for _, wrong := range []keystore.Secret{second, keyFile(t), {}} {
		_, err = keystore.Open(path, wrong)
		require.ErrorIs(t, err, keystore.ErrWrongSecret)
		require.NotErrorIs(t, err, keystore.ErrDamaged)
	}
	_, err = keystore.Create(path, second)
	require.ErrorIs(t, err, keystore.ErrExists)
	_, err = keystore.Create(path+"2", keystore.Secret{})
	require.ErrorIs(t, err, keystore.ErrSecret)

	s, err = keystore.Open(path, first)
	require.NoError(t, err)
	require.NoError(t, s.ChangeSecret(second))
	put(t, s, keystore.Device, "b", "2")
	require.NoError(t, s.Close())
	_, err = keystore.Open(path, first)
	require.ErrorIs(t, err, keystore.ErrWrongSecret)
	s, err = keystore.Open(path, second)
	require.NoError(t, err)
	require.Equal(t, "12", get(t, s, keystore.Device, "a")+get(t, s, keystore.Device, "b"))
	require.NoError(t, s.Close())

	for _, bad := range []string{"", "1234567", string(make([]byte, keystore.MaxPassphrase+1))} {
		_, err = keystore.Passphrase([]byte(bad))
		require.ErrorIs(t, err, keystore.ErrSecret)
	}
	for _, form := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		require.Equal(t, "(secret)", fmt.Sprintf(form, first), form)
	}
	text, err := json.Marshal(first)
	require.Error(t, err)
	require.Empty(t, text)
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	path, key := filepath.Join(dir, "keys"), filepath.Join(dir, "key")
	secret, err := keystore.NewKeyFile(key)
	require.NoError(t, err)
	_, err = keystore.NewKeyFile(key)
	require.ErrorIs(t, err, fs.ErrExist)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	put(t, s, keystore.Device, "a", "1")
	require.NoError(t, s.Compact())
	for _, name := range []string{path, path + ".lock", key} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	require.NoError(t, s.Close())
	for _, mode := range []os.FileMode{0o640, 0o620, 0o604, 0o602} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = keystore.Open(path, secret)
		require.ErrorIs(t, err, keystore.ErrPermissions)
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.Chmod(key, mode))
		_, err = keystore.KeyFile(key)
		require.ErrorIs(t, err, keystore.ErrPermissions)
		require.ErrorContains(t, err, "chmod 600 "+key)
	}
	require.NoError(t, os.Chmod(key, 0o600))
	again, err := keystore.KeyFile(key)
	require.NoError(t, err)
	s, err = keystore.Open(path, again)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, bad := range [][]byte{nil, make([]byte, 32), []byte("short"), make([]byte, 33)} {
		require.NoError(t, os.WriteFile(key, bad, 0o600))
		_, err = keystore.KeyFile(key)
		require.ErrorIs(t, err, keystore.ErrSecret)
	}
	_, err = keystore.KeyFile(dir)
	require.Error(t, err)
	_, err = keystore.Open(filepath.Join(dir, "none"), secret)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A key file is whole whenever it can be seen, so that neither a second program nor one that
// follows a killed one finds half of it.
func TestAKeyFileIsMadeAsAWhole(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		path := filepath.Join(dir, "key")
		var made atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := keystore.NewKeyFile(path)
				switch {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
				if _, err := keystore.KeyFile(path); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, made.Load())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is left of making it")
	}
}

func TestWhatOpensAStoreIsKnownBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	_, err := keystore.TakesPassphrase(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	secret := keyFile(t)
	require.False(t, secret.IsZero())
	require.True(t, keystore.Secret{}.IsZero())
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	takes, err := keystore.TakesPassphrase(path)
	require.NoError(t, err, "while it is open")
	require.False(t, takes)
	phrase, err := keystore.Passphrase([]byte("correct horse"))
	require.NoError(t, err)
	require.NoError(t, s.ChangeSecret(phrase))
	takes, err = keystore.TakesPassphrase(path)
	require.NoError(t, err)
	require.True(t, takes)
	require.NoError(t, s.Close())
	for _, damaged := range [][]byte{nil, []byte("short"), make([]byte, 1024)} {
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		_, err = keystore.TakesPassphrase(path)
		require.ErrorIs(t, err, keystore.ErrDamaged)
	}
}

func TestTwoClientsOfOneDevice(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "keys"), keyFile(t)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
	for _, name := range []string{path, filepath.Join(dir, "link")} {
		_, err = keystore.Open(name, secret)
		require.ErrorIs(t, err, keystore.ErrInUse)
	}
	require.NoError(t, s.Compact(), "another file under the same name")
	_, err = keystore.Open(path, secret)
	require.ErrorIs(t, err, keystore.ErrInUse)
	require.NoError(t, s.Close())

	var won sync.Map
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if s, err := keystore.Open(path, secret); err == nil {
				won.Store(i, s)
			} else if !errors.Is(err, keystore.ErrInUse) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	won.Range(func(_, held any) bool {
		n++
		s, ok := held.(*keystore.Store)
		return ok && s.Close() == nil
	})
	require.Equal(t, 1, n)
}

func TestManyGoroutines(t *testing.T) {
	s, err := keystore.CreateWith(filepath.Join(t.TempDir(), "keys"), keyFile(t), nil, &keystore.Limits{Bytes: 1 << 20, Rooms: 4, Seen: 9, SeenTotal: 9, Slack: 2000})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 20 {
				_ = s.View(func(tx *keystore.Tx) error {
					a, b := tx.Get(keystore.Rooms, "a"), tx.Get(keystore.Rooms, "b")
					if string(a) != string(b) {
						t.Error("half of an Update was seen")
					}
					return nil
				})
				value := fmt.Appendf(nil, "%d %d", i, n)
				if err := s.Update(func(tx *keystore.Tx) error {
					return errors.Join(tx.Put(keystore.Rooms, "a", value), tx.Put(keystore.Rooms, "b", value))
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 160, s.Epoch())
	require.NoError(t, s.Close())
}

func TestBounds(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	small := &keystore.Limits{Bytes: 3000, Rooms: 2, Seen: 5, SeenTotal: 7, Slack: 4000}
	s, err := keystore.CreateWith(path, secret, nil, small)
	require.NoError(t, err)
	update := func(change func(tx *keystore.Tx) error) error { return s.Update(change) }
	require.ErrorIs(t, update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, "", nil) }), keystore.ErrSize)
	require.ErrorIs(t, update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, string(make([]byte, 257)), nil) }), keystore.ErrSize)
	require.ErrorIs(t, update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, "a", make([]byte, keystore.MaxValue+1)) }), keystore.ErrSize)
	require.ErrorIs(t, update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, "a", make([]byte, 3000)) }), keystore.ErrFull)
	require.ErrorIs(t, update(func(tx *keystore.Tx) error {
		for i := range 257 {
			require.NoError(t, tx.Put(keystore.Device, fmt.Sprint(i), nil))
		}
		return nil
	}), keystore.ErrFull)

	mark := func(room, id string) bool {
		var fresh bool
		require.NoError(t, update(func(tx *keystore.Tx) (err error) { fresh, err = tx.MarkSeen(room, id); return err }))
		return fresh
	}
	for i := range 6 {
		require.True(t, mark("a", fmt.Sprint(i)))
		require.False(t, mark("a", fmt.Sprint(i)))
	}
	for i := range 3 {
		require.True(t, mark("b", fmt.Sprint(i)))
	}
	require.ErrorIs(t, update(func(tx *keystore.Tx) error { _, err := tx.MarkSeen("c", "0"); return err }), keystore.ErrFull)
	seen := func() (ids string) {
		require.NoError(t, s.View(func(tx *keystore.Tx) error {
			for _, room := range []string{"a", "b"} {
				for i := range 6 {
					if tx.Seen(room, fmt.Sprint(i)) {
						ids += fmt.Sprint(room, i, " ")
					}
				}
			}
			return nil
		}))
		return ids
	}
	require.Equal(t, "a2 a3 a4 a5 b0 b1 b2 ", seen())
	for i := range 100 { // and the file does not grow without end
		put(t, s, keystore.Device, "big", fmt.Sprint(i, string(make([]byte, 2000))))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(16000))
	require.NoError(t, s.Close())
	s, err = keystore.OpenWith(path, secret, nil, small)
	require.NoError(t, err)
	require.Equal(t, "a2 a3 a4 a5 b0 b1 b2 ", seen())
	require.NoError(t, s.Close())
}

func TestAnOldCopyIsNoticed(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	set := func(room string, gen uint64) error {
		return s.Update(func(tx *keystore.Tx) error { return tx.SetGeneration(room, gen) })
	}
	usable := func(room string) (gen uint64) {
		require.NoError(t, s.View(func(tx *keystore.Tx) error { gen, _ = tx.Generation(room); return nil }))
		return gen
	}
	require.NoError(t, set("a", 4))
	require.NoError(t, set("b", 1))
	require.NoError(t, s.Close())
	old, err := os.ReadFile(path)
	require.NoError(t, err)

	s, err = keystore.Open(path, secret)
	require.NoError(t, err)
	require.NoError(t, set("a", 5))
	restored, err := s.NoticeRestored("a", 5)
	require.NoError(t, err)
	require.False(t, restored)
	newest := s.Epoch()
	require.NoError(t, s.Close())

	require.NoError(t, os.WriteFile(path, old, 0o600))
	s, err = keystore.Open(path, secret)
	require.NoError(t, err)
	require.Less(t, s.Epoch(), newest)
	restored, err = s.NoticeRestored("a", 5)
	require.NoError(t, err)
	require.True(t, restored)
	for range 2 {
		require.Zero(t, usable("a"))
		require.Zero(t, usable("b"), "the other rooms are as old")
		require.ErrorIs(t, set("a", 5), keystore.ErrGeneration)
		require.ErrorIs(t, set("b", 1), keystore.ErrGeneration)
		require.NoError(t, s.View(func(tx *keystore.Tx) error { require.EqualValues(t, 1, tx.Restores()); return nil }))
		require.NoError(t, s.Close())
		s, err = keystore.Open(path, secret)
		require.NoError(t, err)
	}
	restored, err = s.NoticeRestored("a", 5)
	require.NoError(t, err)
	require.False(t, restored, "once is enough")
	require.NoError(t, set("a", 6))
	require.EqualValues(t, 6, usable("a"))
	require.Zero(t, usable("b"))
	require.NoError(t, set("b", 2))
	require.EqualValues(t, 2, usable("b"))
	require.NoError(t, s.Close())
}

func TestArgon2id(t *testing.T) {
	text, err := os.ReadFile("testdata/argon2.json")
	require.NoError(t, err)
	var rows []struct {
		Passphrase string `json:"passphrase"`
		Salt       string `json:"salt"`
		Passes     uint32 `json:"passes"`
		Memory     uint32 `json:"memory_kib"`
		Threads    uint8  `json:"threads"`
		Key        string `json:"key"`
	}
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 4)
	for _, row := range rows {
		passphrase, err := hex.DecodeString(row.Passphrase)
		require.NoError(t, err)
		salt, err := hex.DecodeString(row.Salt)
		require.NoError(t, err)
		key, err := keystore.DeriveKey(passphrase, [16]byte(salt), keystore.Cost{Passes: row.Passes, Memory: row.Memory, Threads: row.Threads})
		require.NoError(t, err)
		require.Equal(t, row.Key, hex.EncodeToString(key[:]))
	}
}

func TestCostsThatAreRefused(t *testing.T) {
	for _, c := range []keystore.Cost{
		{},
		{Passes: 1, Memory: 64 << 10, Threads: 4},
		{Passes: 3, Memory: 19<<10 - 1, Threads: 4},
		{Passes: 3, Memory: 64 << 10, Threads: 0},
		{Passes: 3, Memory: 64 << 10, Threads: 17},
		{Passes: 3, Memory: 512<<10 + 1, Threads: 4},
		{Passes: 17, Memory: 64 << 10, Threads: 4},
		{Passes: 5, Memory: 512 << 10, Threads: 4},
		{Passes: 1<<32 - 1, Memory: 1<<32 - 1, Threads: 255},
	} {
		require.ErrorIs(t, keystore.CheckCost(c), keystore.ErrCost, c)
	}
	require.NoError(t, keystore.CheckCost(keystore.Cost{Passes: 2, Memory: 19 << 10, Threads: 1}))
	require.NoError(t, keystore.CheckCost(keystore.Cost{Passes: 4, Memory: 512 << 10, Threads: 16}))
}

func TestEachOpeningHasANumberOfItsOwn(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	opening := func(s *keystore.Store) (number [16]byte) {
		t.Helper()
		require.NoError(t, s.Update(func(tx *keystore.Tx) error {
			number = tx.Opening()
			return tx.Put(keystore.Device, "key", number[:])
		}))
		require.NoError(t, s.View(func(tx *keystore.Tx) error {
			require.Equal(t, number, tx.Opening(), "the same as long as it is open")
			return nil
		}))
		return number
	}
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	first := opening(s)
	require.NoError(t, s.Close())
	s, err = keystore.Open(path, secret)
	require.NoError(t, err)
	second := opening(s)
	require.NoError(t, s.Close())
	require.NotEqual(t, first, second)
	require.NotEqual(t, [16]byte{}, first)
	require.NotEqual(t, [16]byte{}, second)
}
