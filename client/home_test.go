package client_test

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

func passphrase(t *testing.T, text string) client.DeviceOptions {
	t.Helper()
	secret, err := keystore.Passphrase([]byte(text))
	require.NoError(t, err)
	return client.DeviceOptions{Secret: secret}
}

// openStore opens the key store of a device that is closed.
func openStore(t *testing.T, dir string) *keystore.Store {
	t.Helper()
	secret, err := keystore.KeyFile(filepath.Join(dir, "key-file"))
	require.NoError(t, err)
	store, err := keystore.Open(filepath.Join(dir, "keys"), secret)
	require.NoError(t, err)
	return store
}

// put changes what a key of the bucket Device stands for.
func put(t *testing.T, dir, key, value string) {
	t.Helper()
	store := openStore(t, dir)
	require.NoError(t, store.Update(func(tx *keystore.Tx) error { return tx.Put(keystore.Device, key, []byte(value)) }))
	require.NoError(t, store.Close())
}

func stored(t *testing.T, dir, key string) (value string) {
	t.Helper()
	store := openStore(t, dir)
	require.NoError(t, store.View(func(tx *keystore.Tx) error { value = string(tx.Get(keystore.Device, key)); return nil }))
	require.NoError(t, store.Close())
	return value
}

// private are the private keys in the record of a device that is closed.
func private(t *testing.T, dir string) (keys [][]byte) {
	t.Helper()
	var saved struct {
		Identity  []byte `json:"identity_key"`
		Agreement []byte `json:"agreement_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(stored(t, dir, "record")), &saved))
	require.Len(t, saved.Identity, 32)
	require.Len(t, saved.Agreement, 32)
	return [][]byte{saved.Identity, saved.Agreement}
}

// requireNowhere demands that no file in the folder has one of the secrets in it, in any form
// that it is written in.
func requireNowhere(t *testing.T, dir string, secrets ...[]byte) {
	t.Helper()
	for _, name := range files(t, dir) {
		text := []byte(read(t, filepath.Join(dir, name)))
		for _, secret := range secrets {
			for _, form := range [][]byte{
				secret, []byte(base64.StdEncoding.EncodeToString(secret)), []byte(base64.RawURLEncoding.EncodeToString(secret)),
				[]byte(hex.EncodeToString(secret)),
			} {
				require.NotContains(t, string(text), string(form), name)
			}
		}
	}
}

func requirePrivate(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, name := range files(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

// copyFolder is the folder as a kill at this moment leaves it.
func copyFolder(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	require.NoError(t, os.Chmod(to, 0o700))
	for _, name := range files(t, to) {
		require.NoError(t, os.Chmod(filepath.Join(to, name), 0o600))
	}
	return to
}

// older is a device as older versions kept it.
type older struct {
	keys     identity.Keys
	private  [][]byte
	device   string // device.json
	access   string // access-token.json
	relayURL string
}

func newOlder(t *testing.T, relay string) older {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	o := older{private: [][]byte{key.Seed(), agreement.Bytes()}, relayURL: relay}
	copy(o.keys.Identity[:], key[32:])
	copy(o.keys.Agreement[:], agreement.PublicKey().Bytes())
	o.keys.AgreementSignature = identity.SignAgreement(key, o.keys.Agreement)
	o.device = fmt.Sprintf(`{
  "version": 1,
  "relay": %q,
  "device_id": %q,
  "kind": "agent",
  "label": "an older one",
  "state": "ACTIVE",
  "identity_key": %q,
  "agreement_key": %q
}
`, relay, deviceID, encode(key.Seed()), encode(agreement.Bytes()))
	o.access = fmt.Sprintf(`{"access_token": %q, "expires_at": "2100-01-01T00:00:00Z", "device_id": %q, "relay": %q}`, token('o'), deviceID, relay)
	return o
}

// folder keeps it, as a kill of the older version may have left it too.
func (o older) folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "older")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, text := range map[string]string{
		"device.json": o.device, "access-token.json": o.access, ".device.json.123": o.device, ".access-token.json.456": o.access,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// requireTakenOver opens a folder, and demands that it is the older device and that nothing of
// it is in the clear.
func (o older) requireTakenOver(t *testing.T, dir string, options client.DeviceOptions) {
	t.Helper()
	d, err := client.OpenDevice(dir, options)
	require.NoError(t, err)
	require.Equal(t, deviceID, d.ID())
	require.Equal(t, o.keys, d.Keys())
	require.Equal(t, o.relayURL, d.RelayURL())
	require.Equal(t, client.KindAgent, d.Kind())
	require.Equal(t, "an older one", d.Label())
	require.Equal(t, client.DeviceActive, d.LastState())
	require.NoError(t, d.Close())
	wanted := []string{"keys", "keys.lock"}
	if options.Secret.IsZero() {
		wanted = append(wanted, "key-file")
	}
	require.ElementsMatch(t, wanted, files(t, dir))
	requireNowhere(t, dir, append(o.private, []byte(token('o')))...)
	requirePrivate(t, dir)
}

// A device of an older version is in the key store after the first OpenDevice, wherever that
// was stopped before.
func TestAnOlderDeviceIsTakenOverWheneverItIsStopped(t *testing.T) {
	for name, options := range map[string]client.DeviceOptions{"key file": {}, "passphrase": passphrase(t, "correct horse")} {
		t.Run(name, func(t *testing.T) {
			o := newOlder(t, "http://127.0.0.1:1")
			dir := o.folder(t)
			stopped := []string{copyFolder(t, dir)}
			d, err := client.OpenDevicePausing(dir, options, func() { stopped = append(stopped, copyFolder(t, dir)) })
			require.NoError(t, err)
			require.NoError(t, d.Close())
			require.GreaterOrEqual(t, len(stopped), 1+1+1+4, "the store, the record, each file that is removed")
			if !options.Secret.IsZero() { // a passphrase takes long
				stopped = stopped[:3]
			}
			for _, at := range stopped {
				o.requireTakenOver(t, at, options)
			}
			o.requireTakenOver(t, dir, options)
		})
	}
}

// Between the steps there are those of the key store and of the key file.
func TestAnOlderDeviceIsTakenOverWhereTheKeyStoreWasBeingMade(t *testing.T) {
	o := newOlder(t, "http://127.0.0.1:1")
	dir := o.folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".key-file.789"), []byte("half a k"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.new"), []byte("PEERKEYS"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys.lock"), nil, 0o600))
	o.requireTakenOver(t, dir, client.DeviceOptions{})
}

func TestAnOlderDeviceThatIsNotTakenOver(t *testing.T) {
	o := newOlder(t, "http://127.0.0.1:1")
	for name, damaged := range map[string]string{
		"cut short":     o.device[:len(o.device)/2],
		"a short key":   strings.Replace(o.device, `"identity_key": "`, `"identity_key": "AAAA`, 1),
		"no base64":     strings.Replace(o.device, `"identity_key": "`, `"identity_key": "*`, 1),
		"no id":         strings.Replace(o.device, deviceID, "../../etc/passwd", 1),
		"no address":    strings.Replace(o.device, `"http://`, `"gopher://`, 1),
		"of the future": strings.Replace(o.device, `"version": 1`, `"version": 2`, 1),
		"empty":         "",
	} {
		require.NotEqual(t, o.device, damaged, name)
		dir := o.folder(t)
		file := filepath.Join(dir, "device.json")
		require.NoError(t, os.WriteFile(file, []byte(damaged), 0o600))
		_, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.ErrorContains(t, err, file, name)
		require.NotErrorIs(t, err, client.ErrNoDevice, "%s: nobody may enroll over it", name)
		require.NotContains(t, err.Error(), "identity_key", name)
		_, err = client.EnrollDevice(t.Context(), dir, newScripted(t).enrollment(), client.DeviceOptions{})
		require.ErrorContains(t, err, file, name)
		require.Equal(t, damaged, read(t, file), name)
		require.NoFileExists(t, filepath.Join(dir, "keys"), name)
	}

	dir := o.folder(t)
	file := filepath.Join(dir, "device.json")
	require.NoError(t, os.Chmod(file, 0o640))
	_, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, keystore.ErrPermissions)
	require.ErrorContains(t, err, "chmod 600 "+file)
	require.NoError(t, os.Chmod(file, 0o600))
	_, err = client.EnrollDevice(t.Context(), dir, newScripted(t).enrollment(), client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrEnrolled)
	require.Equal(t, o.device, read(t, file))
	o.requireTakenOver(t, dir, client.DeviceOptions{})
}

// Two devices in one folder: none of them is lost.
func TestAnOlderFileOfAnotherDeviceStays(t *testing.T) {
	o := newOlder(t, "http://127.0.0.1:1")
	dir := o.folder(t)
	o.requireTakenOver(t, dir, client.DeviceOptions{})
	file := filepath.Join(dir, "device.json")
	another := strings.Replace(o.device, deviceID, roomID, 1)
	require.NoError(t, os.WriteFile(file, []byte(another), 0o600))
	_, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorContains(t, err, "another device")
	require.Equal(t, another, read(t, file))
	require.NoError(t, os.WriteFile(file, []byte(o.device), 0o600)) // from a backup
	o.requireTakenOver(t, dir, client.DeviceOptions{})
}

// What an older version left of an enrollment without an answer is of nobody.
func TestAnOlderEnrollmentThatWasNotFinished(t *testing.T) {
	s := newScripted(t)
	o := newOlder(t, s.server.URL)
	dir := o.folder(t)
	nobody := strings.Replace(o.device, `"device_id": "`+deviceID+`",`, "", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "device.json"), []byte(nobody), 0o600))
	_, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrNoDevice)
	d := s.device(dir)
	require.NotEqual(t, o.keys, d.Keys())
	require.ElementsMatch(t, []string{"keys", "keys.lock", "key-file"}, files(t, dir))
	requireNowhere(t, dir, o.private...)
}

func TestNothingOfADeviceIsInTheClear(t *testing.T) {
	s := newScripted(t)
	s.describe(func(string) bool { return true })
	dir := filepath.Join(t.TempDir(), "alice")
	d := s.device(dir)
	_, err := d.Info(t.Context())
	require.NoError(t, err)
	running := copyFolder(t, dir)
	require.NoError(t, d.Close())
	secrets := append(private(t, dir), []byte(token('A')))
	require.Contains(t, stored(t, dir, "access-token"), token('A'), "it is kept")
	requireNowhere(t, dir, secrets...)
	requireNowhere(t, running, secrets...)
	requireNowhere(t, running, []byte(token('i')), []byte(d.ID()), []byte("a test"))
	require.NotContains(t, stored(t, dir, "record"), token('i'), "the invite is not kept")
}

func TestTheSecretOfADevice(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	right, wrong := passphrase(t, "correct horse"), passphrase(t, "battery staple")
	d, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), right)
	require.NoError(t, err)
	keys := d.Keys()
	require.NoError(t, d.Close())
	require.ElementsMatch(t, []string{"keys", "keys.lock"}, files(t, dir), "a passphrase needs no key file")

	opens := func(options client.DeviceOptions) {
		t.Helper()
		d, err := client.OpenDevice(dir, options)
		require.NoError(t, err)
		require.Equal(t, keys, d.Keys())
		require.NoError(t, d.Close())
	}
	refuses := func(options client.DeviceOptions, want error) {
		t.Helper()
		_, err := client.OpenDevice(dir, options)
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), "horse")
		require.NotContains(t, err.Error(), "staple")
	}
	refuses(client.DeviceOptions{}, client.ErrPassphrase)
	refuses(wrong, keystore.ErrWrongSecret)
	_, err = client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.ErrorIs(t, err, client.ErrPassphrase)
	require.ErrorContains(t, err, "keys in the folder already")

	change := func(with client.DeviceOptions, to keystore.Secret) {
		t.Helper()
		d, err := client.OpenDevice(dir, with)
		require.NoError(t, err)
		require.NoError(t, d.ChangeSecret(to))
		require.NoError(t, d.Close())
	}
	change(right, wrong.Secret)
	refuses(right, keystore.ErrWrongSecret)
	change(wrong, keystore.Secret{})
	opens(client.DeviceOptions{})
	refuses(wrong, keystore.ErrWrongSecret)
	require.ElementsMatch(t, []string{"keys", "keys.lock", "key-file"}, files(t, dir))
	requirePrivate(t, dir)
	change(client.DeviceOptions{}, keystore.Secret{}) // again
	before := copyFolder(t, dir)
	change(client.DeviceOptions{}, right.Secret)
	require.NoFileExists(t, filepath.Join(dir, "key-file"))

	// A kill before the key file was removed, and one before the store was changed.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key-file"), []byte(read(t, filepath.Join(before, "key-file"))), 0o600))
	refuses(client.DeviceOptions{}, client.ErrPassphrase)
	opens(right)
	require.NoFileExists(t, filepath.Join(dir, "key-file"))
	dir = before
	opens(client.DeviceOptions{})

	require.NoError(t, os.Rename(filepath.Join(dir, "key-file"), filepath.Join(dir, "elsewhere")))
	refuses(client.DeviceOptions{}, os.ErrNotExist)
	external, err := keystore.KeyFile(filepath.Join(dir, "elsewhere"))
	require.NoError(t, err)
	opens(client.DeviceOptions{Secret: external})
}

// After a lost answer there is no device yet, and its keys are replaced.
func TestAnEnrollmentThatWasNotFinishedIsBegunAgainWithItsSecret(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	right := passphrase(t, "correct horse")
	s.on("POST /v1/enroll", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), right)
	require.Error(t, err)
	_, err = client.OpenDevice(dir, right)
	require.ErrorIs(t, err, client.ErrNoDevice)
	s.on("POST /v1/enroll", s.enroll)
	_, err = client.EnrollDevice(t.Context(), dir, s.enrollment(), passphrase(t, "battery staple"))
	require.ErrorIs(t, err, keystore.ErrWrongSecret)
	d, err := client.EnrollDevice(t.Context(), dir, s.enrollment(), right)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// FAULTS J: two clients of one device. The second one is told; when the first one is killed,
// the device opens again.
func TestADeviceIsOpenInOneProcess(t *testing.T) {
	const folder = "PEERRELAY_TEST_FOLDER"
	if dir := os.Getenv(folder); dir != "" { // the other process
		d, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.NoError(t, err)
		fmt.Println("open")
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // until it is killed
		require.NoError(t, d.Close())
		return
	}
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	d := s.device(dir)
	_, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, keystore.ErrInUse, "in this process too")
	_, err = client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
	require.ErrorIs(t, err, keystore.ErrInUse)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "again")

	self, err := os.Executable()
	require.NoError(t, err)
	other := exec.CommandContext(t.Context(), self, "-test.run=^TestADeviceIsOpenInOneProcess$")
	other.Env = append(os.Environ(), folder+"="+dir)
	_, err = other.StdinPipe()
	require.NoError(t, err)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "open\n", line)
	_, err = client.OpenDevice(dir, client.DeviceOptions{})
	require.ErrorIs(t, err, keystore.ErrInUse)
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestAnOldCopyOfADeviceOpens(t *testing.T) {
	s := newScripted(t)
	s.describe(func(string) bool { return true })
	dir := filepath.Join(t.TempDir(), "alice")
	d := s.device(dir)
	old := copyFolder(t, dir)
	_, err := d.Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.Close())

	restored, err := client.OpenDevice(old, client.DeviceOptions{})
	require.NoError(t, err)
	require.Equal(t, d.Keys(), restored.Keys())
	require.Equal(t, client.DevicePending, restored.LastState())
	_, err = restored.Info(t.Context())
	require.NoError(t, err, "it signs in by itself")
	require.Equal(t, client.DeviceActive, restored.LastState())
	require.NoError(t, restored.Close())
}

func TestARelayThatMoves(t *testing.T) {
	s, moved := newScripted(t), newScripted(t)
	s.describe(func(string) bool { return true })
	dir := filepath.Join(t.TempDir(), "alice")
	d := s.device(dir)
	for _, address := range []string{"", "gopher://relay", "http://user:secret@relay.example"} {
		require.ErrorIs(t, d.SetRelayURL(address), client.ErrRelayURL)
	}
	require.NoError(t, d.SetRelayURL("ws"+strings.TrimPrefix(moved.server.URL, "http")+"/v1/relay"))
	require.Equal(t, s.server.URL, d.RelayURL(), "until it is opened again")
	_, err := d.Info(t.Context()) // which notes a state beside the new address
	require.NoError(t, err)
	require.NoError(t, d.Close())

	moved.keys = s.keys
	moved.describe(func(shown string) bool { return shown == token('A') && moved.count("POST /v1/auth/token") == 1 })
	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	require.Equal(t, moved.server.URL, again.RelayURL())
	_, err = again.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, moved.count("GET /v1/devices/"+deviceID), "the token for the former address was not shown to the other one")
	require.NoError(t, again.Close())
}

func TestADamagedKeyStore(t *testing.T) {
	s := newScripted(t)
	dir := filepath.Join(t.TempDir(), "alice")
	require.NoError(t, s.device(dir).Close())
	file := filepath.Join(dir, "keys")
	whole := []byte(read(t, file))
	last := bytes.Clone(whole)
	last[len(last)-600] ^= 1
	for name, damaged := range map[string][]byte{
		"empty": {}, "cut short": whole[:700], "another file": []byte(strings.Repeat("x", 1024)), "one bit": last,
	} {
		require.NoError(t, os.WriteFile(file, damaged, 0o600))
		_, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.ErrorIs(t, err, keystore.ErrDamaged, name)
		_, err = client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
		require.ErrorIs(t, err, keystore.ErrDamaged, name)
		require.Equal(t, string(damaged), read(t, file), name)
	}
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	record := stored(t, dir, "record")
	for name, damaged := range map[string]string{
		"no JSON":       record[1:],
		"a short key":   strings.Replace(record, `"identity_key":"`, `"identity_key":"AAAA`, 1),
		"no id":         strings.Replace(record, deviceID, "../../etc/passwd", 1),
		"no address":    strings.Replace(record, `"http://`, `"gopher://`, 1),
		"of the future": strings.Replace(record, `"version":1`, `"version":2`, 1),
	} {
		require.NotEqual(t, record, damaged, name)
		put(t, dir, "record", damaged)
		_, err := client.OpenDevice(dir, client.DeviceOptions{})
		require.ErrorContains(t, err, "the device in it is", name)
		require.NotErrorIs(t, err, client.ErrNoDevice)
		require.NotContains(t, err.Error(), "identity_key", name)
		_, err = client.EnrollDevice(t.Context(), dir, s.enrollment(), client.DeviceOptions{})
		require.ErrorContains(t, err, "the device in it is", name)
	}
	require.Equal(t, 1, s.count("POST /v1/enroll"))
}

// A device remembers whom its user compared, before it has seen their keys.
func TestPeersThatWereCompared(t *testing.T) {
	s := newScripted(t)
	d := s.device(filepath.Join(t.TempDir(), "alice"))
	const shown, other = "K7QM-2XPD-9VWE-R4TN-BA3C", "K7QM-2XPD-9VWE-R4TN-BA3D"
	_, err := d.Peer(roomID)
	require.ErrorIs(t, err, client.ErrUnknownPeer)
	_, err = d.Peer("robot")
	require.ErrorIs(t, err, client.ErrID)
	_, err = d.ComparePeer(roomID, "none")
	require.ErrorIs(t, err, client.ErrFingerprint)
	got, err := d.ComparePeer(roomID, "k7qm 2xpd 9vwe r4tn ba3c")
	require.NoError(t, err)
	require.Equal(t, client.Peer{DeviceID: roomID, Fingerprint: shown, Compared: true}, got)
	_, err = d.ComparePeer(roomID, other)
	require.ErrorIs(t, err, client.ErrFingerprint)
	require.ErrorContains(t, err, shown)

	// The relay shows another fingerprint than the one that was compared.
	s.on("GET /v1/devices/"+roomID, func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"fingerprint":"`+other+`"}`) })
	_, err = d.ApproveDevice(t.Context(), roomID, other)
	require.ErrorIs(t, err, client.ErrKeysChanged)
	require.Zero(t, s.count("POST /v1/devices/"+roomID+"/approve"))
	got, err = d.Peer(roomID)
	require.NoError(t, err)
	require.Equal(t, shown, got.Fingerprint)
}
