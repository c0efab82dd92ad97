package keystore_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// receive saves message number n as a client does: the message, the state that opened it, the
// cursor and its id, in one Update. It tells whether the message was new.
func receive(s *keystore.Store, n int) (fresh bool, err error) {
	err = s.Update(func(tx *keystore.Tx) error {
		id := strconv.Itoa(n)
		if fresh, err = tx.MarkSeen("room", id); err != nil || !fresh {
			return err
		}
		state := bytes.Repeat([]byte(id+" "), 100+n%700)
		return errors.Join(
			tx.Put(keystore.Messages, fmt.Sprintf("%06d", n), state[:80]),
			tx.Delete(keystore.Messages, fmt.Sprintf("%06d", n-30)),
			tx.Put(keystore.Sessions, "room", state),
			tx.Put(keystore.Cursors, "room", []byte(id)))
	})
	return fresh, err
}

// received is the newest message, and fails if anything of an Update is missing or too much.
func received(t testing.TB, s *keystore.Store) (newest int) {
	t.Helper()
	require.NoError(t, s.View(func(tx *keystore.Tx) error {
		cursor := string(tx.Get(keystore.Cursors, "room"))
		if cursor == "" {
			require.Zero(t, s.Epoch())
			require.Nil(t, tx.Get(keystore.Sessions, "room"))
			return nil
		}
		var err error
		newest, err = strconv.Atoi(cursor)
		require.NoError(t, err)
		state := tx.Get(keystore.Sessions, "room")
		require.Equal(t, bytes.Repeat([]byte(cursor+" "), 100+newest%700), state)
		require.Equal(t, min(newest, 30), tx.Len(keystore.Messages))
		for n := 1; n <= newest+2; n++ {
			require.Equal(t, n <= newest, tx.Seen("room", strconv.Itoa(n)), n)
			require.Equal(t, n <= newest && n > newest-30, tx.Get(keystore.Messages, fmt.Sprintf("%06d", n)) != nil, n)
		}
		return nil
	}))
	require.EqualValues(t, newest, s.Epoch())
	return newest
}

var small = &keystore.Limits{Bytes: 1 << 20, Rooms: 4, Seen: 20000, SeenTotal: 20000, Slack: 8 << 10}

const crashing = "KEYSTORE_CRASHING"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashing); path != "" {
		crash(path)
	}
	os.Exit(m.Run())
}

// crash is another process: it receives, and says what was saved, until it is killed.
func crash(path string) {
	secret, err := keystore.KeyFile(path + ".key")
	if err == nil {
		var s *keystore.Store
		if s, err = keystore.OpenWith(path, secret, nil, small); err == nil {
			for n := int(s.Epoch()) + 1; err == nil; n++ {
				_, err = receive(s, n)
				fmt.Println(n)
			}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// BL-J08, BL-J07: a kill at any point neither loses nor repeats a message.
func TestKilledAtManyPoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	secret, err := keystore.NewKeyFile(path + ".key")
	require.NoError(t, err)
	s, err := keystore.CreateWith(path, secret, nil, small)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for range 25 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), crashing+"="+path)
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		lines := bufio.NewScanner(out)
		saved := 0
		for range 3 + rand.IntN(20) {
			require.True(t, lines.Scan())
			saved, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		spin := sha256.Sum256(nil)
		for range rand.IntN(20_000) { // somewhere in one of the next Updates
			spin = sha256.Sum256(spin[:])
		}
		require.NoError(t, child.Process.Signal(syscall.SIGKILL))
		for lines.Scan() {
			saved, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		require.Error(t, child.Wait())

		s, err := keystore.OpenWith(path, secret, nil, small)
		require.NoError(t, err, "the lock is gone with the process")
		newest := received(t, s)
		require.Contains(t, []int{saved, saved + 1}, newest, "what was said to be saved is, and at most one more")
		fresh, err := receive(s, newest)
		require.NoError(t, err)
		require.False(t, fresh, "the relay gives it again")
		require.Equal(t, newest, received(t, s))
		require.NoError(t, s.Close())
	}
}

// machine is a disk in memory that keeps what a power cut would leave: of what was written
// since the last flush, each sector may or may not be there.
type machine struct {
	files  map[string]*simulated // as the running system sees them
	stable map[string]*simulated // names that last
	steps  int                   // writes, flushes, truncations and renames left before the cut
	broken error                 // what every step then returns
	once   bool                  // only one step fails
	short  bool                  // writes that fail have done half of it
}

type simulated struct {
	now, flushed []byte
	m            *machine
}

var errCut = errors.New("no power")

func newMachine() *machine {
	return &machine{files: map[string]*simulated{}, stable: map[string]*simulated{}, steps: 1 << 30}
}

func (m *machine) step() error {
	m.steps--
	if m.steps == 0 || m.steps < 0 && !m.once {
		return m.broken
	}
	return nil
}

func (m *machine) Open(path string) (keystore.File, error) {
	f := m.files[path]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return f, nil
}

func (m *machine) Create(path string) (keystore.File, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	m.files[path] = &simulated{m: m}
	return m.files[path], nil
}

func (m *machine) Rename(from, to string) error {
	if err := m.step(); err != nil {
		return err
	}
	m.files[to] = m.files[from]
	delete(m.files, from)
	if err := m.step(); err != nil { // the flush of the folder
		return err
	}
	m.stable[to] = m.files[to]
	return nil
}

func (m *machine) Remove(path string) error { delete(m.files, path); return nil }

func (f *simulated) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(f.now).ReadAt(p, at)
}
func (f *simulated) Close() error         { return nil }
func (f *simulated) Size() (int64, error) { return int64(len(f.now)), nil }

func (f *simulated) WriteAt(p []byte, at int64) (int, error) {
	err := f.m.step()
	if err != nil && f.m.short {
		p = p[:len(p)/2+7]
	} else if err != nil {
		return 0, err
	}
	if grow := int(at) + len(p) - len(f.now); grow > 0 {
		f.now = append(bytes.Clone(f.now), make([]byte, grow)...)
	} else {
		f.now = bytes.Clone(f.now)
	}
	return copy(f.now[at:], p), err
}

func (f *simulated) Truncate(size int64) error {
	if err := f.m.step(); err != nil {
		return err
	}
	f.now = bytes.Clone(f.now[:size])
	return nil
}

func (f *simulated) Sync() error {
	if err := f.m.step(); err != nil {
		return err
	}
	f.flushed = f.now
	return nil
}

// after is the machine after the cut: each sector that was not flushed is there or not, the
// file ends somewhere among them, and a new name lasts or does not.
func (m *machine) after(random *rand.Rand) *machine {
	left := newMachine()
	names := m.stable
	if random.IntN(2) == 0 {
		names = m.files
	}
	for name, f := range names {
		data := bytes.Clone(f.flushed)
		if size := len(f.flushed) + random.IntN(max(len(f.now)-len(f.flushed), 0)+1); len(f.now) > len(f.flushed) {
			if random.IntN(2) == 0 {
				size = len(f.now)
			}
			data = append(data, make([]byte, size-len(data))...)
			for at := len(f.flushed); at < size; at += keystore.Sector {
				if random.IntN(3) > 0 {
					copy(data[at:min(at+keystore.Sector, size)], f.now[at:])
				}
			}
		}
		left.files[name] = &simulated{now: data, flushed: data, m: left}
		left.stable[name] = left.files[name]
	}
	return left
}

// BL-J08 with a power cut at each write, flush, truncation and rename, several times.
func TestPowerCutAtEachStep(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	cuts, torn := 0, 0
	for step := 1; ; step++ {
		ended := false
		for try := range 6 {
			random := rand.New(rand.NewPCG(uint64(step), uint64(try)))
			m := newMachine()
			s, err := keystore.CreateWith(path, secret, m, small)
			require.NoError(t, err)
			m.steps, m.broken = step, errCut
			saved := 0
			for n := 1; n <= 40 && err == nil; n++ {
				if _, err = receive(s, n); err == nil {
					saved = n
				}
			}
			ended = err == nil
			m.steps, m.broken = 0, errCut
			_ = s.Close()

			after := m.after(random)
			before := len(after.files[path].now)
			s, err = keystore.OpenWith(path, secret, after, small)
			require.NoError(t, err, "step %d, %d", step, try)
			require.Contains(t, []int{saved, saved + 1}, received(t, s), "step %d, %d", step, try)
			if len(after.files[path].now) < before {
				torn++
			}
			cuts++
			_, err = receive(s, received(t, s)+1)
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
		if ended {
			break
		}
	}
	t.Logf("%d cuts, %d unfinished records", cuts, torn)
	require.Greater(t, torn, 50)
}

// A step that fails once, as on a full disk: what Update refused is not there, and what it
// took afterwards is.
func TestADiskThatFailsOnce(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	for _, short := range []bool{false, true} {
		for step := 1; step < 90; step++ {
			m := newMachine()
			s, err := keystore.CreateWith(path, secret, m, small)
			require.NoError(t, err)
			m.steps, m.broken, m.once, m.short = step, syscall.ENOSPC, true, short
			saved, uncertain := 0, false
			for saved < 40 {
				_, err := receive(s, saved+1)
				if errors.Is(err, keystore.ErrUncertain) {
					_, again := receive(s, saved+1)
					require.ErrorIs(t, again, keystore.ErrUncertain, "until it is opened again")
					uncertain = true
					break
				}
				if err == nil {
					saved++
				} else {
					require.ErrorIs(t, err, syscall.ENOSPC)
				}
				require.Equal(t, saved, received(t, s))
			}
			require.NoError(t, s.Close())
			s, err = keystore.OpenWith(path, secret, m, small)
			require.NoError(t, err)
			newest := received(t, s)
			if uncertain {
				require.Contains(t, []int{saved, saved + 1}, newest)
			} else {
				require.Equal(t, saved, newest)
			}
			require.NoError(t, s.Close())
		}
	}
}

// copyOf is a file with records, as it is before Close writes it anew.
func copyOf(t *testing.T, path string, secret keystore.Secret, updates int) (data []byte, ends []int) {
	t.Helper()
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	for n := range updates + 1 {
		if n > 0 {
			put(t, s, keystore.Device, "value", strings.Repeat(strconv.Itoa(n), 700))
		}
		data, err = os.ReadFile(path)
		require.NoError(t, err)
		ends = append(ends, len(data))
	}
	require.NoError(t, s.Close())
	return data, ends
}

func TestEachChangedByteIsNoticed(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	whole, ends := copyOf(t, path, secret, 3)
	require.Len(t, whole, 512+512+3*1024)
	check := func(name string, data []byte) {
		m := newMachine()
		m.files[path] = &simulated{now: data, m: m}
		_, err := keystore.OpenWith(path, secret, m, small)
		require.ErrorIs(t, err, keystore.ErrDamaged, name)
		require.Equal(t, data, m.files[path].now, "and left as it is")
	}
	for at := range whole {
		for _, bits := range []byte{1, 0x80} {
			data := bytes.Clone(whole)
			data[at] ^= bits
			check(fmt.Sprint("byte ", at), data)
		}
	}
	for i, end := range ends[:len(ends)-1] {
		next := ends[i+1]
		check("twice", append(bytes.Clone(whole[:next]), whole[end:]...))
		if i < len(ends)-2 { // without the last one it is an old copy
			check("left out", append(bytes.Clone(whole[:end]), whole[next:]...))
			zeros := append(bytes.Clone(whole[:end]), make([]byte, next-end)...)
			check("zeros, and one that follows", append(zeros, whole[next:]...))
			half := bytes.Clone(whole)
			clear(half[end+512 : next])
			check("half of it zeros, and one that follows", half)
		}
	}
	check("more", append(bytes.Clone(whole), bytes.Repeat([]byte{7}, 512)...))
	for end := range ends[0] {
		check("cut short", whole[:end])
	}
}

// What is cut off is what a power cut may leave; the rest of it is there.
func TestACutEndIsAnUnfinishedUpdate(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	whole, ends := copyOf(t, path, secret, 3)
	for end := ends[0]; end <= len(whole); end++ {
		m := newMachine()
		m.files[path] = &simulated{now: bytes.Clone(whole[:end]), m: m}
		s, err := keystore.OpenWith(path, secret, m, small)
		require.NoError(t, err)
		whole := 0
		for i, size := range ends {
			if size <= end {
				whole = i
			}
		}
		require.EqualValues(t, whole, s.Epoch())
		want := ""
		if whole > 0 {
			want = strings.Repeat(strconv.Itoa(whole), 700)
		}
		require.Equal(t, want, get(t, s, keystore.Device, "value"))
		require.Len(t, m.files[path].now, ends[whole])
		require.NoError(t, s.Close())
	}
}

// Records of every length, as Updates and as what a file begins with.
func TestEveryLength(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	m := newMachine()
	s, err := keystore.CreateWith(path, secret, m, small)
	require.NoError(t, err)
	for n := range 1100 {
		value := strings.Repeat("v", n)
		put(t, s, keystore.Device, "value", value)
		if n%2 == 0 {
			require.NoError(t, s.Compact())
		}
		kept := &simulated{now: m.files[path].now, m: m} // before it is written anew
		require.NoError(t, s.Close())
		for _, f := range []*simulated{m.files[path], kept} {
			m.files[path] = f
			s, err = keystore.OpenWith(path, secret, m, small)
			require.NoError(t, err, n)
			require.Equal(t, value, get(t, s, keystore.Device, "value"))
			if f != kept {
				require.NoError(t, s.Close())
			}
		}
	}
	require.NoError(t, s.Close())
}

// Two futures of one copy have the same keys, and do not mix.
func TestRecordsOfAnotherFuture(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	data, ends := copyOf(t, path, secret, 2)
	future := func(value string) []byte {
		m := newMachine()
		m.files[path] = &simulated{now: bytes.Clone(data[:ends[1]]), m: m}
		s, err := keystore.OpenWith(path, secret, m, small)
		require.NoError(t, err)
		put(t, s, keystore.Device, "value", strings.Repeat(value, 700))
		put(t, s, keystore.Device, "value", strings.Repeat(value, 701))
		return m.files[path].now
	}
	// The lock of the first is held until it is closed.
	_ = os.Remove(path + ".lock")
	a := future("a")
	_ = os.Remove(path + ".lock")
	b := future("b")
	require.NotEqual(t, a[ends[1]:ends[1]+24], b[ends[1]:ends[1]+24], "nonces are random: an old copy reuses none")
	mixed := append(bytes.Clone(a[:ends[2]]), b[ends[2]:]...)
	m := newMachine()
	m.files[path] = &simulated{now: mixed, m: m}
	_ = os.Remove(path + ".lock")
	_, err := keystore.OpenWith(path, secret, m, small)
	require.ErrorIs(t, err, keystore.ErrDamaged)
}

func TestNothingInClear(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	require.NoError(t, s.Update(func(tx *keystore.Tx) error {
		_, err := tx.MarkSeen("secret-room", "secret-id")
		return errors.Join(err, tx.Put(keystore.Sessions, "secret-key", []byte("secret-value")), tx.SetGeneration("secret-room", 1))
	}))
	for range 2 {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(data), "secret")
		for at := 512; at < len(data); at += 512 {
			require.Less(t, bytes.Count(data[at:at+512], []byte{0}), 30, "sector %d", at/512)
		}
		require.NoError(t, s.Compact())
	}
	require.NoError(t, s.Close())
}

// What was deleted is not in the file after Compact or Close, even for who has the secret.
func TestDeletedKeysLeaveTheFile(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	s, err := keystore.Create(path, secret)
	require.NoError(t, err)
	put(t, s, keystore.SenderKeys, "a", strings.Repeat("x", 5000))
	require.NoError(t, s.Update(func(tx *keystore.Tx) error { return tx.Delete(keystore.SenderKeys, "a") }))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Greater(t, len(before), 5000)
	require.NoError(t, s.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, after, 1024)
	require.NotEqual(t, before[36:512], after[36:512], "another file key")
}

func FuzzHeader(f *testing.F) {
	dir := f.TempDir()
	secret, err := keystore.NewKeyFile(filepath.Join(dir, "key"))
	require.NoError(f, err)
	s, err := keystore.Create(filepath.Join(dir, "keys"), secret)
	require.NoError(f, err)
	require.NoError(f, s.Close())
	data, err := os.ReadFile(filepath.Join(dir, "keys"))
	require.NoError(f, err)
	f.Add(data[:512])
	f.Add([]byte("PEERKEYS"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, keystore.WithSum(b)} {
			again, err := keystore.ParseHeader(b)
			if err != nil {
				for _, known := range []error{keystore.ErrDamaged, keystore.ErrVersion, keystore.ErrCost} {
					if errors.Is(err, known) {
						return
					}
				}
				t.Fatal(err)
			}
			require.Equal(t, b, again)
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 'a', 0, 0, 0, 1, 'b', 2, 1, 0, 1, 'a', 0, 0})
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 1, 'r', 0, 0, 0, 1}, make([]byte, 20)...))
	f.Add(binary.BigEndian.AppendUint32([]byte{3, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 1, 'r'}, 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		err := keystore.ApplyBody(b)
		if err != nil && !errors.Is(err, keystore.ErrDamaged) && !errors.Is(err, keystore.ErrVersion) {
			t.Fatal(err)
		}
	})
}

func TestNewerVersions(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "keys"), keyFile(t)
	data, _ := copyOf(t, path, secret, 0)
	data[8] = 2
	require.NoError(t, os.WriteFile(path, append(keystore.WithSum(data[:512]), data[512:]...), 0o600))
	_, err := keystore.Open(path, secret)
	require.ErrorIs(t, err, keystore.ErrVersion)
	require.ErrorIs(t, keystore.ApplyBody([]byte{3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 99, 0, 1, 'a', 0}), keystore.ErrVersion)
	require.ErrorIs(t, keystore.ApplyBody([]byte{3, 0, 0, 0, 0, 0, 0, 0, 1, 99}), keystore.ErrVersion)
}

func BenchmarkReceive(b *testing.B) {
	path := filepath.Join(b.TempDir(), "keys")
	s, err := keystore.Create(path, keyFile(b))
	require.NoError(b, err)
	require.NoError(b, s.Update(func(tx *keystore.Tx) error {
		for i := range 20_000 {
			if err := markSeen(tx, -i-1); err != nil {
				return err
			}
		}
		return nil
	}))
	text, state := make([]byte, 1024), make([]byte, 300)
	n := 0
	b.ResetTimer()
	for b.Loop() {
		n++
		text[0], state[0] = byte(n), byte(n)
		binary.BigEndian.PutUint64(state[1:], uint64(n))
		require.NoError(b, s.Update(func(tx *keystore.Tx) error {
			return errors.Join(markSeen(tx, n),
				tx.Put(keystore.Messages, fmt.Sprintf("%08d", n), text), tx.Delete(keystore.Messages, fmt.Sprintf("%08d", n-100)),
				tx.Put(keystore.Sessions, "room", state), tx.Put(keystore.Cursors, "room", state[:48]))
		}))
	}
	b.StopTimer()
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "updates/s")
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
	require.NoError(b, s.Close())
}

func markSeen(tx *keystore.Tx, n int) error {
	_, err := tx.MarkSeen("room", strconv.Itoa(n))
	return err
}
