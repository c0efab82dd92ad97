package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/client"
)

// more is another room of alice's, with some of her agents.
func (h talk) more(t *testing.T, agents ...string) talk {
	t.Helper()
	made := h.ok(t, "alice", "", "room", "create")
	other := talk{h.household, text(t, made, "room_id"), map[string]string{"alice": text(t, made, "participant_id")}}
	for _, agent := range agents {
		device := text(t, h.ok(t, agent, "", "status"), "device_id")
		other.ids[agent] = text(t, h.ok(t, "alice", "", "room", "add", other.room, device), "participant_id")
	}
	return other
}

// listens begins a peer listen of all rooms, in a process of its own.
func (h household) listens(t *testing.T, who string, args ...string) *process {
	t.Helper()
	command := h.program(t, who, h.folder, append([]string{"listen", "--look-again", "1s"}, args...)...)
	p := &process{cancel: func() { _ = command.Process.Signal(syscall.SIGINT) }, code: make(chan int, 1)}
	command.Stdout, command.Stderr = stream{p, &p.out}, stream{p, &p.err}
	require.NoError(t, command.Start())
	go func() {
		_ = command.Wait()
		p.code <- command.ProcessState.ExitCode()
	}()
	return p
}

// One process follows all rooms: also one that the device is added to meanwhile, and one that it
// makes by a command that runs in it. It lets go of a room that the device was removed from, and
// follows that one again when it is added again.
func TestAllRoomsAreListenedTo(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	direct := text(t, h.ok(t, "alice", "", "room", "create", "--kind", "direct"), "room_id")
	robot := text(t, h.ok(t, "robot", "", "status"), "device_id")
	h.ok(t, "alice", "", "room", "add", direct, robot)
	h.says(t, "alice", "", "send", "before")

	agent := h.listens(t, "robot", "--json")
	agent.until(t, `"text":"before"`)
	h.ok(t, "alice", "", "send", "--room", direct, "for you")
	agent.until(t, `"text":"for you"`)
	later := h.more(t, "robot")
	later.says(t, "alice", "", "send", "in the third one")
	agent.until(t, `"text":"in the third one"`)
	h.says(t, "robot", "", "send", "from a guest")
	refused := h.types(t, "robot", "", "listen", "--json")
	require.Equal(t, exitFailed, refused.code)
	require.Equal(t, "room_is_read", errorLine(t, refused).Error, "one process follows all")

	h.ok(t, "alice", "", "room", "remove", h.room, h.ids["robot"])
	agent.until(t, "this device is not in room "+h.room+" any more")
	h.ids["robot"] = text(t, h.ok(t, "alice", "", "room", "add", h.room, robot), "participant_id")
	h.says(t, "alice", "", "send", "back again")
	agent.until(t, `"text":"back again"`)
	later.says(t, "alice", "", "send", "the others went on")
	agent.until(t, `"text":"the others went on"`)
	got := agent.stop(t)
	require.Equal(t, exitOK, got.code, got.err)
	require.NoFileExists(t, h.home("robot")+"/"+socketName)
	rooms := map[string]string{}
	for _, line := range printedLines(t, got.out) {
		require.NotEmpty(t, line.RoomID)
		if line.Type == "message" {
			require.Empty(t, rooms[line.Text], "%s is shown twice", line.Text)
			rooms[line.Text] = line.RoomID
		}
	}
	require.Equal(t, map[string]string{
		"before": h.room, "for you": direct, "in the third one": later.room, "back again": h.room, "the others went on": later.room,
	}, rooms)

	// What people see, and a room that was made by a command in the process.
	people := h.starts(t, "alice", nil, "listen", "--look-again", "1h")
	people.until(t, `\[`+short(h.room)+`\]  -- robot \(agent `+short(h.ids["robot"])+`\) is in the room now`)
	people.until(t, "listening in room "+direct)
	made := text(t, h.ok(t, "alice", "", "room", "create"), "room_id")
	people.until(t, "listening in room "+made)
	h.ok(t, "robot", "", "send", "--room", direct, "understood")
	people.until(t, `  \[`+short(direct)+`\]  robot \(agent \w{8}\)  understood\n`)
	require.Equal(t, exitOK, people.stop(t).code)
}

// What cannot be read is said once, and the others are read on; so they are where only a credential was revoked. A device that is not let in any more ends the process.
func TestOneRoomDoesNotKeepTheOthersFromBeingRead(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	robot := text(t, h.ok(t, "robot", "", "status"), "device_id")
	closed := map[string]string{}
	for _, scheme := range []string{"mls", "none"} {
		closed[scheme] = text(t, h.ok(t, "alice", "", "room", "create", "--scheme", scheme), "room_id")
		h.ok(t, "alice", "", "room", "add", closed[scheme], robot)
	}
	other := h.more(t, "robot")
	h.says(t, "alice", "", "send", "readable")
	polled := h.types(t, "robot", "", "poll", "--json")
	require.Equal(t, exitOK, polled.code, polled.err)
	all := printedLines(t, polled.out)
	require.Len(t, ofType(all, "message"), 1)
	require.Equal(t, h.room, ofType(all, "message")[0].RoomID)
	require.Equal(t, 1, all[len(all)-1].Messages)
	require.False(t, all[len(all)-1].More)
	require.Contains(t, polled.err, "room "+closed["mls"]+" is left out")

	agent := h.listens(t, "robot", "--json")
	for _, room := range closed {
		agent.until(t, "room "+room+" is left out: ")
	}
	other.says(t, "alice", "", "send", "one")
	agent.until(t, `"text":"one"`)
	h.relay.Call(t, http.MethodDelete, "/v1/participants/"+other.ids["robot"]+"/credentials", nil, nil)
	agent.until(t, "room "+other.room+": .*trying again")
	other.says(t, "alice", "", "send", "with another credential")
	agent.until(t, `"text":"with another credential"`)
	for _, room := range closed {
		require.Equal(t, 1, strings.Count(agent.said().err, "room "+room+" is left out"))
	}
	h.ok(t, "alice", "", "device", "revoke", robot)
	ended := agent.ends(t)
	require.Equal(t, exitFailed, ended.code)
	require.Equal(t, "not_admitted", errorLine(t, outcome{err: ended.err}).Error)
}

// A device that is in no room waits until it is in one, and how long it waits can be bounded.
func TestNoRoomIsNoError(t *testing.T) {
	t.Parallel()
	h := newTalk(t)
	robot := h.agent(t, "alice", "robot")
	none := h.types(t, "robot", "", "poll")
	require.Equal(t, exitOK, none.code, none.err)
	require.Contains(t, none.err, "no new messages")
	late := h.types(t, "robot", "", "listen", "--json", "--exit-after", "1", "--timeout", "200ms")
	require.Equal(t, exitFailed, late.code)
	require.Equal(t, "timeout", errorLine(t, late).Error)
	agent := h.listens(t, "robot", "--json", "--exit-after", "1")
	agent.until(t, "in no room: waiting until it is")
	h.ok(t, "alice", "", "room", "add", h.room, robot)
	for _, text := range []string{"one", "two"} {
		h.says(t, "alice", "", "send", text)
	}
	ended := agent.ends(t)
	require.Equal(t, exitOK, ended.code, ended.err)
	require.Len(t, ofType(printedLines(t, ended.out), "message"), 1)
	require.Equal(t, "two", h.polled(t, "robot")[0].Text)
}

// FAULTS D, kill -9 while two rooms are listened to: of each of them one message may be printed
// again, with the same id, and no other is, and none is missing.
func TestAKilledListenOfTwoRoomsRepeatsOneMessageOfEachAtMost(t *testing.T) {
	t.Parallel()
	h := newTalk(t, "robot")
	other := h.more(t, "robot")
	const count = 6 // in each room
	for i := range count {
		h.says(t, "alice", "", "send", strings.Repeat("i", i+1))
		other.says(t, "alice", "", "send", strings.Repeat("i", i+1))
	}
	seen := map[string]int{}
	order := map[string][]string{}
	for round := 0; len(seen) < 2*count; round++ {
		require.Less(t, round, 6*count, "it gets on")
		listen := h.program(t, "robot", h.folder, "listen", "--json")
		out, err := listen.StdoutPipe()
		require.NoError(t, err)
		listen.Stderr = os.Stderr
		require.NoError(t, listen.Start())
		repeated := map[string]int{}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line printedLine
			require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
			if line.Type != "message" {
				continue
			}
			if seen[line.ID]++; seen[line.ID] > 1 {
				repeated[line.RoomID]++
			} else {
				order[line.RoomID] = append(order[line.RoomID], line.Text)
			}
			if len(seen)%3 == round%3 || len(seen) == 2*count {
				require.NoError(t, listen.Process.Kill())
			}
		}
		_ = listen.Wait()
		for room, times := range repeated {
			require.LessOrEqual(t, times, 1, room)
		}
	}
	for _, room := range []string{h.room, other.room} {
		require.Len(t, order[room], count)
		for i, text := range order[room] {
			require.Equal(t, strings.Repeat("i", i+1), text, "in order")
		}
	}
	rest := h.types(t, "robot", "", "poll", "--json")
	require.Equal(t, exitOK, rest.code, rest.err)
	for _, m := range ofType(printedLines(t, rest.out), "message") { // printed as it was killed, perhaps
		require.Equal(t, order[m.RoomID][count-1], m.Text)
	}
}

func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	for failures := 1; failures < 100; failures++ {
		pause := pauseAfter(failures)
		require.GreaterOrEqual(t, pause, firstAgain/2)
		require.Less(t, pause, longestAgain)
	}
	require.GreaterOrEqual(t, pauseAfter(50), longestAgain/2)
}

// Rooms are followed up to a bound, which is said once; those that this program cannot read do not
// count, and archived ones come last.
func TestRoomsAreBounded(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	f := &follower{
		con: console{err: &errs}, every: time.Minute, running: newRunning(nil), rooms: make(map[string]*followed),
		ended: make(chan ended), opening: rate.NewLimiter(0, 0),
	}
	found := make([]client.Room, 0, maxRooms+3)
	for i := range maxRooms + 3 {
		id := fmt.Sprintf("room %d", i)
		found = append(found, client.Room{RoomID: id})
		if i > 0 && i < maxRooms {
			f.rooms[id] = &followed{end: func() {}}
		}
	}
	f.rooms["room 1"] = &followed{refused: true}
	found[0].State = client.RoomArchived
	ctx, cancel := context.WithCancel(t.Context())
	defer f.working.Wait()
	defer cancel()
	for range 2 {
		require.LessOrEqual(t, f.enter(ctx, found), time.Minute)
		require.Equal(t, maxRooms, f.following())
		require.Equal(t, 1, strings.Count(errs.String(), "are not followed"), errs.String())
	}
	require.Contains(t, f.rooms, fmt.Sprintf("room %d", maxRooms))
	require.NotContains(t, f.rooms, "room 0", "it is archived")
}
