package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// household is a relay and a folder with the homes of its devices.
type household struct {
	relay    *testkit.Relay
	folder   string
	patience time.Duration // for a device that is open; 0: the usual one
}

func newHousehold(t *testing.T) household {
	t.Helper()
	return household{relay: testkit.Shared(t), folder: t.TempDir()}
}

func (h household) home(name string) string { return filepath.Join(h.folder, name) }

// type runs one command line of somebody with a home.
func (h household) types(t *testing.T, who, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, append(args, "--home", h.home(who)), console{in: strings.NewReader(stdin), out: &out, err: &errs, program: "peer", patience: h.patience})
	require.NoError(t, ctx.Err())
	return outcome{code, out.String(), errs.String()}
}

// ok demands that a command does what it should, and reads what it prints with --json.
func (h household) ok(t *testing.T, who, stdin string, args ...string) map[string]any {
	t.Helper()
	got := h.types(t, who, stdin, append(args, "--json")...)
	require.Equal(t, exitOK, got.code, "%v: %s", args, got.err)
	var printed map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.out), &printed), got.out)
	return printed
}

func text(t *testing.T, printed map[string]any, member string) string {
	t.Helper()
	value, ok := printed[member].(string)
	require.True(t, ok, "%s in %v", member, printed)
	return value
}

// enroll enrolls a device and returns its id.
func (h household) enroll(t *testing.T, who string, token string, flags ...string) string {
	t.Helper()
	enrolled := h.ok(t, who, token+"\n", append([]string{"enroll", "--url", h.relay.URL(), "--label", who}, flags...)...)
	return text(t, enrolled, "device_id")
}

// owner enrolls an admin and activates it.
func (h household) owner(t *testing.T, who string) string {
	t.Helper()
	id := h.enroll(t, who, h.relay.Invite(t, "human", true).Token)
	h.ok(t, who, "", "activate")
	return id
}

// agent enrolls a device, which the owner approves, and activates it.
func (h household) agent(t *testing.T, owner, who string) string {
	t.Helper()
	id := h.enroll(t, who, h.relay.Invite(t, "agent", false).Token, "--agent")
	h.ok(t, owner, "", "device", "approve", id, text(t, h.ok(t, who, "", "status"), "fingerprint"))
	h.ok(t, who, "", "activate")
	return id
}

// STATE, "Enrollment Protocol Flow".
func TestFromAnInviteToTwoActiveDevices(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	alice := h.ok(t, "alice", h.relay.Invite(t, "human", true).Token, "enroll", "--url", h.relay.RelayURL(), "--label", "Alice's laptop")
	require.Equal(t, "APPROVED", alice["state"], "an admin's invite asks for no approval")
	require.Equal(t, h.relay.URL(), alice["relay"])
	require.Equal(t, "ACTIVE", h.ok(t, "alice", "", "activate")["state"])
	require.Equal(t, true, h.ok(t, "alice", "", "status")["admin"])

	invite := h.home("robot.invite")
	made := h.ok(t, "alice", "", "invite", "create", "--agent", "--out", invite)
	require.Equal(t, invite, made["file"])
	require.NotContains(t, made, "token", "it is in the file only")
	info, err := os.Stat(invite)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	robot := h.ok(t, "robot", "", "enroll", "--url", h.relay.URL(), "--label", "build agent", "--agent", "--invite-file", invite)
	require.Equal(t, "PENDING", robot["state"])
	id, fingerprint := text(t, robot, "device_id"), text(t, robot, "fingerprint")
	require.Equal(t, "PENDING", h.ok(t, "robot", "", "status")["state"])
	early := h.types(t, "robot", "", "activate")
	require.Equal(t, exitFailed, early.code)
	require.Contains(t, early.err, "not approved yet")
	require.Contains(t, early.err, fingerprint)

	shown := h.types(t, "alice", "", "device", "list", "--state", "PENDING")
	require.Equal(t, exitOK, shown.code, shown.err)
	require.Contains(t, shown.out, fingerprint)
	require.Contains(t, shown.out, `"build agent"`)
	require.Contains(t, shown.out, "device approve "+id)

	wrong := h.types(t, "alice", "", "device", "approve", id, text(t, alice, "fingerprint"))
	require.Equal(t, exitFailed, wrong.code)
	require.Contains(t, wrong.err, "that is not the fingerprint of this device")
	require.Equal(t, "PENDING", h.ok(t, "robot", "", "status")["state"])
	loosely := strings.ToLower(strings.ReplaceAll(fingerprint, "-", " "))
	require.Equal(t, "APPROVED", h.ok(t, "alice", "", "device", "approve", id, loosely)["state"])
	require.Equal(t, "APPROVED", h.ok(t, "robot", "", "status")["state"])
	for range 2 { // again is no error
		require.Equal(t, "ACTIVE", h.ok(t, "robot", "", "activate")["state"])
	}
	require.Equal(t, "ACTIVE", h.ok(t, "robot", "", "status")["state"])

	for _, command := range [][]string{{"device", "list"}, {"invite", "create"}, {"device", "suspend", id}} {
		got := h.types(t, "robot", "", command...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.err, "forbidden", "an agent is no admin")
	}
}

func TestEnrollAndWait(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	said, says := io.Pipe()
	done := make(chan outcome, 1)
	go func() {
		var out bytes.Buffer
		code := run(t.Context(), []string{
			"enroll", "--url", h.relay.URL(), "--home", h.home("robot"), "--agent", "--wait", "--json",
		}, console{in: strings.NewReader(h.relay.Invite(t, "agent", false).Token), out: &out, err: says, program: "peer"})
		says.Close()
		done <- outcome{code: code, out: out.String()}
	}()
	hint := make([]byte, 256)
	n, err := said.Read(hint)
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, said) }()
	fields := strings.Fields(string(hint[:n]))
	devices := h.ok(t, "alice", "", "device", "list", "--state", "PENDING")
	waiting, err := json.Marshal(devices["devices"])
	require.NoError(t, err)
	var pending []client.DeviceInfo
	require.NoError(t, json.Unmarshal(waiting, &pending))
	require.Len(t, pending, 1)
	require.Contains(t, fields, pending[0].Fingerprint+";", "it shows the fingerprint while it waits")
	h.ok(t, "alice", "", "device", "approve", pending[0].DeviceID, pending[0].Fingerprint)
	got := <-done
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.out, `"state":"ACTIVE"`)

	h.enroll(t, "late", h.relay.Invite(t, "agent", false).Token, "--agent")
	late := h.types(t, "late", "", "activate", "--wait", "--timeout", "50ms")
	require.Equal(t, exitFailed, late.code)
	require.Contains(t, late.err, "not approved within 50ms")
}

// STATE, "Device Lifecycle States": a suspended device is let in nowhere, a reinstated one is
// as before, a revoked one never again.
func TestSuspendReinstateRevoke(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	robot := h.agent(t, "alice", "robot")
	require.Equal(t, "SUSPENDED", h.ok(t, "alice", "", "device", "suspend", robot)["state"])
	require.Equal(t, string(suspendedOrRevoked), h.ok(t, "robot", "", "status")["state"])
	got := h.types(t, "robot", "", "room", "list")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "suspended")
	require.Equal(t, "ACTIVE", h.ok(t, "alice", "", "device", "reinstate", robot)["state"])
	require.Equal(t, "ACTIVE", h.ok(t, "robot", "", "status")["state"])
	require.Equal(t, "REVOKED", h.ok(t, "alice", "", "device", "revoke", robot)["state"])
	require.Equal(t, string(suspendedOrRevoked), h.ok(t, "robot", "", "status")["state"])
	require.Equal(t, exitFailed, h.types(t, "alice", "", "device", "reinstate", robot).code)
}

// FAULTS H05: a token is in no output but the one it was asked for in, and files that are
// there are not written over.
func TestTokensGoWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	taken := h.home("taken")
	require.NoError(t, os.WriteFile(taken, []byte("mine"), 0o600))
	got := h.types(t, "alice", "", "invite", "create", "--out", taken)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "is there already")
	kept, err := os.ReadFile(taken)
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))

	unused := h.home("unused")
	require.Equal(t, exitFailed, h.types(t, "nobody", "", "invite", "create", "--out", unused).code)
	require.NoFileExists(t, unused, "no invite, no file")

	token := h.relay.Invite(t, "agent", false).Token
	for _, args := range [][]string{
		{"enroll", "--url", h.relay.URL()},                                   // the invite is an agent's
		{"enroll", "--url", "http://127.0.0.1:1", "--agent"},                 // nobody answers
		{"enroll", "--url", h.relay.URL(), "--agent", "--home", h.home("x")}, // and this one enrolls
	} {
		got := h.types(t, "bob", token, args...)
		require.NotContains(t, got.out+got.err, token)
	}
	used := h.types(t, "carol", token, "enroll", "--url", h.relay.URL(), "--agent")
	require.Equal(t, exitFailed, used.code)
	require.Contains(t, used.err, "enrollment_refused")

	shown := h.types(t, "alice", "", "invite", "create", "--agent")
	require.Contains(t, shown.out, "Its token, shown only now:")
	made := h.ok(t, "alice", "", "invite", "create", "--agent", "--ttl", "1m")
	require.Len(t, text(t, made, "token"), 43)
	h.ok(t, "alice", "", "invite", "revoke", text(t, made, "invite_id"))
	revoked := h.types(t, "carol", text(t, made, "token"), "enroll", "--url", h.relay.URL(), "--agent")
	require.Contains(t, revoked.err, "enrollment_refused")
}

// STATE, "Room Lifecycle": from a room to messages in it, and to its end.
func TestDevicesInARoom(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	alice := h.owner(t, "alice")
	robot := h.agent(t, "alice", "robot")
	made := h.ok(t, "alice", "", "room", "create")
	room := text(t, made, "room_id")
	require.Equal(t, "sender_keys", made["scheme"])
	require.Equal(t, exitFailed, h.types(t, "robot", "", "room", "show", room).code, "it is not in it")
	member := text(t, h.ok(t, "alice", "", "room", "add", room, robot, "--role", "agent"), "participant_id")

	shown := h.types(t, "robot", "", "room", "show", room)
	require.Equal(t, exitOK, shown.code, shown.err)
	for _, who := range []string{"alice", "robot"} {
		require.Contains(t, shown.out, text(t, h.ok(t, who, "", "status"), "fingerprint"), "made here, of the keys in the roster")
	}
	require.Regexp(t, member+` +agent \(this device\) +`+robot, shown.out)
	require.Contains(t, shown.out, alice)
	require.Contains(t, h.types(t, "robot", "", "room", "list").out, room)

	sent := h.types(t, "alice", "", "raw", "send", "--room", room, "--count", "3", "--recipients", "1", "--json")
	require.Equal(t, exitOK, sent.code, sent.err)
	require.Len(t, sent.lines(), 3)
	got := h.types(t, "robot", "", "raw", "listen", "--room", room, "--after", "0", "--no-follow", "--json")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, 3, strings.Count(got.out, `"type":"deliver"`), got.out)
	require.Contains(t, got.out, `"room_joined"`)

	h.ok(t, "alice", "", "room", "remove", room, member)
	h.ok(t, "alice", "", "room", "remove", room, member)
	gone := h.types(t, "robot", "", "raw", "listen", "--room", room)
	require.Equal(t, exitFailed, gone.code)
	require.Contains(t, gone.err, "not_found")

	h.ok(t, "alice", "", "room", "add", room, robot)
	shown = h.types(t, "alice", "", "room", "show", room)
	require.Contains(t, shown.out, "REKEYING")
	require.Contains(t, shown.out, "each member that sends allocates a new generation")
	sent = h.types(t, "alice", "", "raw", "send", "--room", room, "--count", "2", "--recipients", "1", "--json")
	require.Equal(t, exitOK, sent.code, sent.err)
	require.Contains(t, sent.err, "sending under new generation 1\n")
	require.Equal(t, "ACTIVE", h.ok(t, "alice", "", "room", "show", room)["state"])
	h.ok(t, "robot", "", "room", "leave", room)
	left := h.types(t, "robot", "", "room", "leave", room)
	require.Equal(t, exitFailed, left.code)
	require.Contains(t, h.types(t, "robot", "", "room", "list").out, "in no room")

	h.ok(t, "alice", "", "room", "reset", room)
	require.Equal(t, "ARCHIVED", h.ok(t, "alice", "", "room", "archive", room)["state"])
	require.Equal(t, exitFailed, h.types(t, "alice", "", "room", "reset", room).code)
	require.Equal(t, exitFailed, h.types(t, "robot", "", "room", "create").code, "an agent owns no room")
	require.Contains(t, h.types(t, "robot", "", "room", "create").err, "only an ACTIVE device of a person makes rooms")
}

func TestACredentialForOtherPrograms(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	room := text(t, h.ok(t, "alice", "", "room", "create", "--scheme", "none"), "room_id")
	file := h.home("alice.cred")
	kept := h.ok(t, "alice", "", "credential", room, "--out", file, "--ttl", "1h")
	require.NotContains(t, kept, "credential")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	listen := h.types(t, "alice", "", "raw", "listen", "--url", h.relay.RelayURL(), "--credential-file", file, "--no-follow")
	require.Equal(t, exitOK, listen.code, listen.err)

	alone := h.types(t, "alice", "", "credential", room)
	require.Equal(t, exitOK, alone.code, alone.err)
	require.Len(t, strings.TrimSpace(alone.out), 43, "nothing but the credential, for a pipe")
	piped := h.types(t, "alice", alone.out, "raw", "listen", "--url", h.relay.RelayURL(), "--credential-file", "-", "--no-follow")
	require.Equal(t, exitOK, piped.code, piped.err)
}

func TestWrongUseOfDeviceCommandsExitsWithTwo(t *testing.T) {
	h := household{folder: t.TempDir()}
	for _, args := range [][]string{
		{"enroll", "TOKEN"}, // never an argument
		{"enroll", "--timeout", "0s"},
		{"activate", "--wait", "--timeout", "-1s"},
		{"invite", "create", "--ttl", "11m"},
		{"invite", "create", "--ttl", "1500ms"},
		{"device", "list", "--state", "GONE"},
		{"device", "approve", session},
		{"room", "create", "--scheme", "rot13"},
		{"room", "add", session, other, "--role", "king"},
		{"credential", session, "--ttl", "0s"},
		{"enroll", "--passphrase"}, // there is nobody to ask
		{"passphrase", "--key-file", "--new-passphrase-file", "x"},
		{"move"},
		{"raw", "listen", "--room", "lobby"},
		{"raw", "listen", "--room", session, "--direct"},
		{"raw", "send", "--room", session, "--credential", "secret", "--count", "1"},
	} {
		got := h.types(t, "alice", "", args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.err)
		command := args[0]
		if slices.Contains([]string{"invite", "device", "room", "raw"}, command) {
			command += " " + args[1]
		}
		require.Contains(t, got.err, "peer: see peer "+command+" --help\n")
		require.Empty(t, got.out)
	}
	require.NoDirExists(t, h.home("alice"))
	bad := h.types(t, "alice", strings.Repeat("A", 43), "enroll", "--url", "gopher://relay")
	require.Equal(t, exitUsage, bad.code, bad.err)
}

func TestAFolderWithoutADeviceSaysHowToEnroll(t *testing.T) {
	h := household{folder: t.TempDir()}
	for _, args := range [][]string{
		{"status"},
		{"activate"},
		{"fingerprint"},
		{"passphrase", "--key-file"},
		{"move", "http://127.0.0.1:1"},
		{"device", "list"},
		{"room", "list"},
		{"credential", session},
		{"raw", "listen", "--room", session},
		{"raw", "send", "--room", session, "--count", "1"},
	} {
		got := h.types(t, "alice", "", args...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.err, "peer enroll --home ")
	}
}

func TestIDsThatAreNoneAreWrongUse(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	for _, args := range [][]string{
		{"device", "suspend", "robot"},
		{"room", "show", "lobby"},
		{"room", "add", session, "robot"},
		{"credential", "lobby"},
	} {
		got := h.types(t, "alice", "", args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.err)
	}
}

func TestHelpOfDeviceCommandsShowsAnExample(t *testing.T) {
	for _, command := range []string{
		"enroll", "activate", "status", "invite create", "invite revoke", "device list", "device approve", "device suspend",
		"device reinstate", "device revoke", "room create", "room list", "room show", "room add", "room remove", "room leave",
		"room archive", "room reset", "credential", "fingerprint", "passphrase", "move", "rooms", "send", "listen", "poll",
		"notice send", "notice list", "export", "board list", "board show", "board events", "board create", "board update", "board comment",
		"board choose", "board approve", "board reject", "board close",
	} {
		got := peer(t, "", append(strings.Fields(command), "--help")...)
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.out, "peer "+command+" --home ", command)
	}
}

func TestSuggestedCommandsAreCalledAsThisProgramWas(t *testing.T) {
	t.Setenv("PEER_HOME", "")
	var out bytes.Buffer
	home{}.next(&out, console{program: "bin/peer"}, "room list")
	require.Equal(t, "\nNext:\n  bin/peer room list\n", out.String())
}

func TestEnrollSaysThatItReadsFromATerminal(t *testing.T) {
	device, err := os.Open("/dev/zero") // a character device, as a terminal is
	require.NoError(t, err)
	defer device.Close()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"enroll", "--home", t.TempDir()}, console{in: device, out: &out, err: &errs, program: "peer"})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "paste the invite's token and press Enter")
}

func TestTokensInTheClearAreWarnedOf(t *testing.T) {
	for relay, warned := range map[string]bool{
		"http://relay.example": true, "ws://192.0.2.1:8787/v1/relay": true,
		"http://127.0.0.1:8787": false, "http://localhost": false, "ws://[::1]:8787": false, "https://relay.example": false,
	} {
		var errs bytes.Buffer
		warnOfClear(console{err: &errs}, relay)
		require.Equal(t, warned, errs.Len() > 0, relay)
	}
}

// FAULTS K01: a relay cannot write over what people compare.
func TestWhatARelaySaysDoesNotMoveTheCursor(t *testing.T) {
	var out bytes.Buffer
	err := deviceCommand{}.show(console{out: &out}, nil, func(w io.Writer) { _, _ = io.WriteString(w, "a\x1b[1A\rb\u202e\x00\nc\n") })
	require.NoError(t, err)
	require.Equal(t, "a[1Ab\nc\n", out.String())
}

// A listener outlives its credential: when that has ended it connects with another one, and
// when something else closed the connection it does not.
func TestAListenerAsADeviceRenewsItsCredential(t *testing.T) {
	refused := &client.CloseError{Code: wire.CloseAuth, Reason: wire.ReasonAuth}
	m := &minting{}
	require.True(t, m.ending())
	require.False(t, m.retryable(refused), "there was none")
	m.credential = client.Credential{Token: "x", ExpiresAt: time.Now().Add(time.Hour)}
	require.False(t, m.ending())
	require.False(t, m.retryable(refused), "the device was suspended, or removed")
	m.credential.ExpiresAt = time.Now().Add(time.Second)
	require.True(t, m.retryable(refused))
	require.False(t, m.retryable(&client.CloseError{Code: wire.ClosePolicy, Reason: string(wire.WrongSender)}))
	require.True(t, m.retryable(&client.APIError{Status: http.StatusServiceUnavailable, Code: wire.Unavailable}))
	require.False(t, m.retryable(&client.APIError{Status: http.StatusNotFound, Code: wire.NotFound}))
}
