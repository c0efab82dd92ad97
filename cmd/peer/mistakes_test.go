package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a device waits for its approval it shows the fingerprint that is to be compared.
func TestADeviceThatWaitsShowsItsFingerprint(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	token := h.relay.Invite(t, "agent", false).Token
	waiting := h.starts(t, "robot", nil, "enroll", token, "--url", h.relay.URL(), "--agent", "--wait")
	waiting.until(t, "waiting until an admin approves it")
	status := h.ok(t, "robot", "", "status")
	require.Equal(t, "PENDING", status["state"])
	h.ok(t, "alice", "", "device", "approve", text(t, status, "device_id"), text(t, status, "fingerprint"))
	ended := waiting.ends(t)
	require.Equal(t, exitOK, ended.code, ended.err)
	require.Contains(t, ended.out, "ACTIVE")
}

// What ends the process with the device may be done by a command that runs in it: that is done.
func TestTheRoomThatIsListenedToIsLeft(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	listening := h.starts(t, "robot", nil, "listen", "--room", h.room)
	listening.until(t, "listening in room")
	left := h.types(t, "robot", "", "room", "leave", h.room)
	require.Equal(t, exitOK, left.code, left.err)
	ended := listening.ends(t)
	require.Equal(t, exitFailed, ended.code)
	require.Contains(t, ended.err, "this device is not in the room any more")
}

// Mistakes that are easily made are named.
func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	device := text(t, h.ok(t, "robot", "", "status"), "device_id")
	for _, mistake := range []struct {
		args []string
		says string
	}{
		{[]string{"room", "remove", h.room, device}, "in this room it is participant " + h.ids["robot"]},
		{[]string{"send", "--room", h.room, "--to", device, "hello"}, "in this room it is participant " + h.ids["robot"]},
		{[]string{"send", "--room", h.room, "--to", h.ids["alice"], "hello"}, "that is this device itself"},
		{[]string{"send", "--room", h.room, "--file", "one", "--file", "two"}, "--file is given twice"},
	} {
		got := h.types(t, "alice", "", mistake.args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", mistake.args, got.err)
		require.Contains(t, got.err, mistake.says)
	}

	card := text(t, h.ok(t, "alice", "", "board", "create", "--room", h.room, "Which day?", "--option", "Monday"), "card_id")
	got := h.types(t, "robot", "", "board", "choose", "--room", h.room, card, "Mnday")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, `no option "Mnday": it has ["Monday"]`)
	h.ok(t, "robot", "", "board", "choose", "--room", h.room, card, "Monday")

	mistyped := h.types(t, "alice", "", "fingerprint", device, text(t, h.ok(t, "alice", "", "fingerprint"), "fingerprint"), "--json")
	require.Equal(t, exitFailed, mistyped.code)
	require.Equal(t, "wrong_fingerprint", errorLine(t, mistyped).Error, "nobody's keys changed")

	notice := h.types(t, "alice", "", "notice", "send", "--room", h.room, "a person's")
	require.Equal(t, exitFailed, notice.code)
	require.Contains(t, notice.err, "The sender may not send notices")
	direct := text(t, h.ok(t, "alice", "", "room", "create", "--kind", "direct"), "room_id")
	h.ok(t, "alice", "", "room", "add", direct, device)
	got = h.types(t, "alice", "", "send", "--room", direct, "--to", text(t, h.ok(t, "robot", "", "room", "show", direct), "participant_id"), "x")
	require.Contains(t, got.err, "without --to")

	h.ok(t, "alice", "", "room", "remove", h.room, h.ids["robot"])
	h.ok(t, "alice", "", "room", "add", h.room, device, "--role", "viewer")
	viewer := h.types(t, "robot", "", "send", "--room", h.room, "hello", "--json")
	require.Equal(t, "read_only", errorLine(t, viewer).Error)
}

// Events are about nobody, too: the labels of those who write are shown behind them.
func TestLabelsAreShownAfterAnEventAboutNobody(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	h.types(t, "alice", "", "poll", "--room", h.room)
	h.ok(t, "alice", "", "room", "reset", h.room)
	h.ok(t, "robot", "", "send", "--room", h.room, "good morning")
	got := h.types(t, "alice", "", "poll", "--room", h.room)
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `(?s)-- all encryption of the room begins anew\n.*robot \(agent \w{8}\)  good morning`, got.out)
}

// A listen that nobody takes the output of fails as any other command does, and what it could not
// print comes again.
func TestListenWhoseOutputIsClosed(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	out, listens, err := os.Pipe()
	require.NoError(t, err)
	listen := h.program(t, "robot", h.folder, "listen", "--room", h.room, "--json")
	var said bytes.Buffer
	listen.Stdout, listen.Stderr = listens, &said
	require.NoError(t, listen.Start())
	require.NoError(t, listens.Close())
	require.NoError(t, out.Close())
	h.ok(t, "alice", "", "send", "--room", h.room, "good morning")
	require.Error(t, listen.Wait())
	require.Equal(t, exitFailed, listen.ProcessState.ExitCode(), listen.ProcessState.String())
	require.Contains(t, said.String(), "broken pipe")
	require.Contains(t, h.types(t, "robot", "", "poll", "--room", h.room).out, "good morning")
}

// What the relay could not even be asked for is not kept, so an agent may send it again: after
// unavailable it must not.
func TestWhatIsNotKeptIsNotCalledUnavailable(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	h.relay.Freeze(t, true)
	got := h.types(t, "alice", "", "send", "--room", h.room, "frozen", "--json")
	require.Equal(t, "unreachable", errorLine(t, got).Error)
	h.relay.Freeze(t, false)
	h.ok(t, "alice", "", "send", "--room", h.room, "thawed")
	read := h.types(t, "robot", "", "poll", "--room", h.room).out
	require.Contains(t, read, "thawed")
	require.NotContains(t, read, "frozen")
}
