package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// keep writes a file that is the owner's alone.
func (h household) keep(t *testing.T, name, text string) string {
	t.Helper()
	path := h.home(name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestADeviceWithAPassphrase(t *testing.T) {
	h := newHousehold(t)
	const first, second = "correct horse ", "battery staple" // a space counts
	one, two := h.keep(t, "one", first+"\r\nand a note"), h.keep(t, "two", second)
	token := h.relay.Invite(t, "human", true).Token
	var said strings.Builder
	does := func(code int, stdin string, args ...string) outcome {
		t.Helper()
		got := h.types(t, "alice", stdin, args...)
		require.Equal(t, code, got.code, "%v: %s", args, got.err)
		said.WriteString(got.out + got.err)
		return got
	}
	enrolled := does(exitOK, first+"\n"+token+"\n", "enroll", "--url", h.relay.URL(), "--passphrase-file", "-")
	require.Contains(t, enrolled.out, "is enrolled, and APPROVED")
	require.NoFileExists(t, filepath.Join(h.home("alice"), "key-file"))
	next := does(exitOK, "", "activate", "--passphrase-file", one)
	require.Contains(t, next.out, " --passphrase-file "+one, "what is to be typed next has it too")

	asked := does(exitUsage, "", "status")
	require.Contains(t, asked.err, "PEER_PASSPHRASE_FILE")
	require.Contains(t, does(exitFailed, "", "status", "--passphrase-file", two).err, keystore.ErrWrongSecret.Error())
	require.Contains(t, does(exitUsage, "short\n", "status", "--passphrase-file", "-").err, "a passphrase has 8 to 1024 bytes")
	does(exitUsage, "", "status", "--passphrase-file", "-")
	does(exitUsage, strings.Repeat("x", 5000), "status", "--passphrase-file", "-")
	does(exitFailed, "", "status", "--passphrase-file", h.home("none"))
	require.NoError(t, os.Chmod(one, 0o644))
	require.Contains(t, does(exitFailed, "", "status", "--passphrase-file", one).err, "chmod 600 "+one)
	require.NoError(t, os.Chmod(one, 0o600))
	t.Setenv("PEER_PASSPHRASE_FILE", one)

	does(exitUsage, "", "passphrase") // nobody can be asked
	does(exitUsage, "", "passphrase", "--key-file", "--new-passphrase-file", two)
	does(exitOK, "", "passphrase", "--new-passphrase-file", two)
	does(exitFailed, "", "status")
	changed := does(exitOK, second+"\n"+first, "passphrase", "--passphrase-file", "-", "--new-passphrase-file", "-", "--json")
	require.Contains(t, changed.out, `"opened_by":"passphrase"`)
	changed = does(exitOK, "", "passphrase", "--key-file", "--json")
	require.Contains(t, changed.out, `"opened_by":"key_file"`)
	t.Setenv("PEER_PASSPHRASE_FILE", "")
	does(exitOK, "", "status")
	require.FileExists(t, filepath.Join(h.home("alice"), "key-file"))

	taken := does(exitFailed, token, "enroll", "--url", h.relay.URL())
	require.Contains(t, taken.err, client.ErrEnrolled.Error())
	for _, secret := range []string{"horse", "staple", token} {
		require.NotContains(t, said.String(), secret)
	}
}

// FAULTS J, two clients of one device: the second one is told what is going on.
func TestASecondPeerOfADevice(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	held, err := client.OpenDevice(h.home("alice"), client.DeviceOptions{})
	require.NoError(t, err)
	h.patience = 100 * time.Millisecond
	for _, args := range [][]string{{"status"}, {"enroll", "--url", h.relay.URL()}, {"room", "list"}, {"listen", "--room", session}} {
		got := h.types(t, "alice", strings.Repeat("A", 43), args...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.err, "another peer has this device open", args)
	}
	require.NoError(t, held.Close())
	h.ok(t, "alice", "", "status")
}

// Nothing that a device keeps is shown, by any command that looks at it.
func TestKeysAreShownNowhere(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	robot := h.agent(t, "alice", "robot")
	secret, err := keystore.KeyFile(filepath.Join(h.home("alice"), "key-file"))
	require.NoError(t, err)
	store, err := keystore.Open(filepath.Join(h.home("alice"), "keys"), secret)
	require.NoError(t, err)
	var record struct {
		IdentityKey  string `json:"identity_key"`
		AgreementKey string `json:"agreement_key"`
	}
	var access struct {
		Token string `json:"access_token"`
	}
	require.NoError(t, store.View(func(tx *keystore.Tx) error {
		require.NoError(t, json.Unmarshal(tx.Get(keystore.Device, "record"), &record))
		return json.Unmarshal(tx.Get(keystore.Device, "access-token"), &access)
	}))
	require.NoError(t, store.Close())
	for _, secret := range []string{record.IdentityKey, record.AgreementKey, access.Token} {
		require.Greater(t, len(secret), 40)
	}
	for _, args := range [][]string{
		{"status"},
		{"fingerprint"},
		{"fingerprint", robot},
		{"device", "list"},
		{"activate"},
		{"room", "list"},
		{"move", h.relay.URL()},
		{"passphrase", "--key-file"},
		{"enroll", "--help"},
		{"status", "--help"},
		{"passphrase", "--help"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			got := h.types(t, "alice", "", append(args, more...)...)
			require.Equal(t, exitOK, got.code, "%v: %s", args, got.err)
			for _, secret := range []string{record.IdentityKey, record.AgreementKey, access.Token} {
				require.NotContains(t, got.out+got.err, secret, args)
			}
		}
	}
}

func TestFingerprints(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	alice := h.owner(t, "alice")
	robot := h.agent(t, "alice", "robot")
	own := h.types(t, "robot", "", "fingerprint")
	require.Equal(t, exitOK, own.code, own.err)
	shown := strings.TrimSpace(own.out)
	require.Regexp(t, `^[0-9A-Z]{4}(-[0-9A-Z]{4}){4}$`, shown)
	require.Equal(t, map[string]any{"device_id": robot, "fingerprint": shown}, h.ok(t, "robot", "", "fingerprint"))
	require.Equal(t, map[string]any{"device_id": robot, "fingerprint": shown, "compared": true}, h.ok(t, "alice", "", "fingerprint", robot))
	require.Equal(t, shown+"  compared\n", h.types(t, "alice", "", "fingerprint", robot).out)

	unknown := h.types(t, "robot", "", "fingerprint", alice)
	require.Equal(t, exitFailed, unknown.code)
	require.Contains(t, unknown.err, client.ErrUnknownPeer.Error())
	admin := text(t, h.ok(t, "alice", "", "fingerprint"), "fingerprint")
	require.Equal(t, true, h.ok(t, "robot", "", "fingerprint", alice, strings.ToLower(admin))["compared"])
	wrong := h.types(t, "robot", "", "fingerprint", alice, shown)
	require.Equal(t, exitFailed, wrong.code)
	require.Contains(t, wrong.err, admin, "what it remembers")
	require.Equal(t, exitUsage, h.types(t, "robot", "", "fingerprint", "alice").code)
}

func TestARelayThatMoved(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	require.Equal(t, exitUsage, h.types(t, "alice", "", "move", "gopher://relay").code)
	moved := h.types(t, "alice", "", "move", "http://127.0.0.1:1")
	require.Equal(t, exitOK, moved.code, moved.err)
	require.Equal(t, exitFailed, h.types(t, "alice", "", "status").code, "nobody is there")
	h.ok(t, "alice", "", "move", h.relay.RelayURL())
	require.Equal(t, h.relay.URL(), h.ok(t, "alice", "", "status")["relay"])
}

// What an older version kept in the clear is taken over by whatever command comes first.
func TestAnOlderFolder(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	id := h.owner(t, "alice")
	secret, err := keystore.KeyFile(filepath.Join(h.home("alice"), "key-file"))
	require.NoError(t, err)
	store, err := keystore.Open(filepath.Join(h.home("alice"), "keys"), secret)
	require.NoError(t, err)
	var record []byte
	require.NoError(t, store.View(func(tx *keystore.Tx) error { record = tx.Get(keystore.Device, "record"); return nil }))
	require.NoError(t, store.Close())
	require.NoError(t, os.Mkdir(h.home("older"), 0o700))
	inTheClear := h.keep(t, filepath.Join("older", "device.json"), string(record)) // the form is the same
	got := h.ok(t, "older", "", "status")
	require.Equal(t, id, got["device_id"])
	require.Equal(t, "ACTIVE", got["state"])
	require.NoFileExists(t, inTheClear)
}

func TestSecretsOnStandardInputFollowEachOther(t *testing.T) {
	in := strings.NewReader("one\r\ntwo\nthree")
	for _, want := range []string{"one", "two", "three", ""} {
		line, err := firstLine(in, 10)
		require.NoError(t, err)
		require.Equal(t, want, string(line))
	}
	line, err := firstLine(bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20)), 10)
	require.NoError(t, err)
	require.Len(t, line, 10)
	_, err = firstLine(errorReader{}, 10)
	require.ErrorIs(t, err, errRead)
}

var errRead = fmt.Errorf("the disk: %w", os.ErrInvalid)

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errRead }
