package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
)

// peerAs runs one command line against a real relay.
func peerAs(t *testing.T, s *testkit.Relay, who testkit.Participant, stdin string, args ...string) outcome {
	t.Helper()
	t.Setenv("PEER_URL", s.RelayURL())
	t.Setenv("PEER_CREDENTIAL", who.Credential)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, args, console{in: strings.NewReader(stdin), out: &out, err: &errs, program: "peer"})
	require.NoError(t, ctx.Err())
	return outcome{code, out.String(), errs.String()}
}

// heard waits until the last who joined has heard of it, so that no room event is on its
// way any more.
func heard(t *testing.T, s *testkit.Relay, last testkit.Participant) {
	t.Helper()
	for patience := time.Now().Add(time.Minute); ; {
		got := peerAs(t, s, last, "", "raw", "listen", "--after", "0", "--no-follow", "--json")
		if slices.ContainsFunc(got.lines(), func(line string) bool {
			return strings.Contains(line, `"event":"room_joined"`) && strings.Contains(line, last.ID)
		}) {
			return
		}
		require.True(t, time.Now().Before(patience), "%s", got.out)
	}
}

// withoutEvents leaves out what the relay says of the room.
func (o outcome) withoutEvents() []string {
	return slices.DeleteFunc(o.lines(), func(line string) bool {
		return strings.Contains(line, `"type":"room.event"`) || strings.Contains(line, "  room.event ")
	})
}

func TestSendAndListenOnARealRelay(t *testing.T) {
	s := testkit.Shared(t)
	room := s.Room(t, testkit.RoomOptions{})
	alice, bob, carol := s.Join(t, room, "agent"), s.Join(t, room, "agent"), s.Join(t, room, "owner")

	template := peerAs(t, s, alice, "", "raw", "template", "--size", "700")
	require.Equal(t, exitOK, template.code, template.err)
	sent := peerAs(t, s, alice, template.out, "raw", "send", "--json", "--recipients", "2")
	require.Equal(t, exitOK, sent.code, sent.err)
	require.Len(t, sent.lines(), 2, "a receipt for Bob and one for Carol")

	sent = peerAs(t, s, alice, "", "raw", "send", "--json", "--count", "4", "--kind", "control", "--to", bob.ID, "--size", "65536")
	require.Equal(t, exitOK, sent.code, sent.err)
	require.Len(t, sent.lines(), 4)

	got := peerAs(t, s, bob, "", "raw", "listen", "--after", "0", "--limit", "2", "--no-follow", "--json")
	require.Equal(t, exitOK, got.code, got.err)
	lines := got.withoutEvents()
	require.Len(t, lines, 6, "five rows in pages of two, and the end")
	require.Contains(t, lines[0], strings.TrimSpace(template.out), "every byte as it was sent")
	for i, line := range sent.lines() {
		var receipt, row struct {
			StreamID string `json:"stream_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &receipt))
		require.NoError(t, json.Unmarshal([]byte(lines[i+1]), &row))
		require.Equal(t, receipt.StreamID, row.StreamID)
	}
	got = peerAs(t, s, carol, "", "raw", "listen", "--after", "0", "--no-follow")
	require.Equal(t, exitOK, got.code, got.err)
	require.Len(t, got.withoutEvents(), 1)
}

func TestRefusalsOfARealRelay(t *testing.T) {
	s := testkit.Shared(t)
	room := s.Room(t, testkit.RoomOptions{PrivateMessages: "refused"})
	alice, bob, viewer := s.Join(t, room, "agent"), s.Join(t, room, "agent"), s.Join(t, room, "viewer")

	got := peerAs(t, s, viewer, "", "raw", "send", "--count", "1")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.out, "read_only: A viewer may not send.")
	require.Contains(t, got.err, "1008")

	got = peerAs(t, s, alice, "", "raw", "send", "--count", "1", "--to", bob.ID)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.out, "private_refused: The room refuses private messages between agents.")

	got = peerAs(t, s, alice, "not an envelope\n{\"type\":\"shout\"}\n", "raw", "send", "--json")
	require.Equal(t, exitFailed, got.code)
	require.Equal(t, []string{
		`{"verdict":"nack","id":"","reason":"invalid_envelope"}`,
		`{"verdict":"nack","id":"","reason":"unknown_frame"}`,
	}, got.lines())

	alice.Credential = "wrong"
	for _, command := range []string{"listen", "send", "template"} {
		got = peerAs(t, s, alice, "{}", "raw", command)
		require.Equal(t, exitFailed, got.code, command)
		require.Contains(t, got.err, "4403 authentication failed", command)
		require.NotContains(t, got.err, "wrong", command)
	}
}

// RELAY, "Sender-key identity compatibility", and STATE, "Room Lifecycle": who goes on sending
// after somebody left gets a new generation, and the room is ACTIVE when everybody has who had one.
func TestSendAllocatesAGenerationWhereTheOldOneIsRetired(t *testing.T) {
	s := testkit.Shared(t)
	room := s.Room(t, testkit.RoomOptions{})
	owner, stays, leaves := s.Join(t, room, "owner"), s.Join(t, room, "agent"), s.Join(t, room, "agent")
	state := func() string {
		var now struct {
			State string `json:"state"`
		}
		s.Call(t, http.MethodGet, "/v1/rooms/"+room, nil, &now)
		return now.State
	}
	for i, who := range []testkit.Participant{owner, stays} {
		made, err := client.AllocateGeneration(t.Context(), s.RelayURL(), who.Credential, room, [16]byte{byte(i)}, []byte("key"))
		require.NoError(t, err)
		require.EqualValues(t, 1, made.Gen)
	}
	got := peerAs(t, s, owner, "", "raw", "send", "--count", "2")
	require.Equal(t, exitOK, got.code, got.err)
	require.NotContains(t, got.err, "generation", "nobody left")

	s.Remove(t, leaves)
	require.Equal(t, "REKEYING", state())
	got = peerAs(t, s, owner, "", "raw", "send", "--count", "1", "--gen", "1")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.out, "mls_generation_retired", "one that was named is the caller's business")

	got = peerAs(t, s, owner, "", "raw", "send", "--count", "3", "--recipients", "1")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	require.Len(t, got.lines(), 3, "of the refused one nothing is printed")
	require.Contains(t, got.err, "sending under new generation 2\n")
	require.Equal(t, "REKEYING", state(), "one who had a generation has no new one")
	got = peerAs(t, s, stays, "", "raw", "send", "--count", "1")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	require.Equal(t, "ACTIVE", state())

	viewer := s.Join(t, room, "viewer")
	s.Remove(t, stays)
	got = peerAs(t, s, viewer, "", "raw", "send", "--count", "1")
	require.Equal(t, exitFailed, got.code)
	require.NotContains(t, got.err, "new generation")
}

// FAULTS D01, D06: the next resume names the last row of an ordered replay, and
// nothing is shown twice or missed over a restart of the relay.
func TestListenAcrossARestart(t *testing.T) {
	s := testkit.Start(t)
	room := s.Room(t, testkit.RoomOptions{})
	alice, bob := s.Join(t, room, "agent"), s.Join(t, room, "agent")
	heard(t, s, bob)
	send := func(count int) {
		got := peerAs(t, s, alice, "", "raw", "send", "--count", fmt.Sprint(count), "--to", "room", "--recipients", "1")
		require.Equal(t, exitOK, got.code, got.err)
	}
	send(2) // old rows, which "$" leaves out

	t.Setenv("PEER_CREDENTIAL", bob.Credential)
	shown, printed := io.Pipe()
	done := make(chan int, 1)
	go func() {
		args := []string{"raw", "listen", "--url", s.RelayURL(), "--credential", bob.Credential, "--json", "--exit-after", "5", "--timeout", "60s"}
		done <- run(t.Context(), args, console{in: strings.NewReader(""), out: printed, err: io.Discard, program: "peer"})
		printed.Close()
	}()
	rows := make(chan string, 16)
	go func() {
		defer close(rows)
		for decoder := json.NewDecoder(shown); ; {
			var frame struct {
				Type     string `json:"type"`
				StreamID string `json:"stream_id"`
			}
			if decoder.Decode(&frame) != nil {
				return
			}
			rows <- frame.Type + " " + frame.StreamID
		}
	}()
	require.Equal(t, "resume_complete ", <-rows)
	send(3)
	seen := map[string]bool{<-rows: true, <-rows: true, <-rows: true}
	s.Stop(t)
	s.StartAgain(t)
	send(2) // perhaps before Bob is back
	for row := range rows {
		if strings.HasPrefix(row, "deliver ") {
			require.False(t, seen[row], "%s is shown twice", row)
			seen[row] = true
		}
	}
	require.Len(t, seen, 5)
	require.Equal(t, exitOK, <-done)
}
