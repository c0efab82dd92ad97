package wire_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	token = "5UxJVhn4eXnFGSWhEhuJpPZxPWqxB0Tz0k4Zpsm8ZgY"
	event = "018f6b1e-7f2a-7c3d-9a10-0123456789ae"
)

func golden(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.TrimSuffix(data, []byte("\n"))
}

func goldenPaths(t testing.TB, prefix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "frames", prefix+"*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

func frameName(path, prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), prefix), ".json")
}

// What this package appends for a client is what the golden files say.
func TestGoldenClientFrames(t *testing.T) {
	appended := map[string][]byte{
		"hello":        wire.AppendHello(nil, token, false),
		"hello_direct": wire.AppendHello(nil, token, true),
		"resume":       wire.AppendResume(nil, "1790000000000-41", 0),
		"resume_limit": wire.AppendResume(nil, "0", 100),
		"pong":         wire.AppendPong(nil, "17"),
	}
	parsed := map[string]wire.ClientFrame{
		"hello":        {Type: wire.FrameHello, Token: []byte(token)},
		"hello_direct": {Type: wire.FrameHello, Token: []byte(token), Direct: true},
		"resume":       {Type: wire.FrameResume, LastID: []byte("1790000000000-41")},
		"resume_limit": {Type: wire.FrameResume, LastID: []byte("0"), Limit: 100},
		"pong":         {Type: wire.FramePong, PongID: []byte("17")},
		"unknown":      {Type: wire.FrameUnknown, UnknownType: "typing"},
	}
	kinds := map[string]wire.Kind{"envelope": wire.KindControl, "envelope_message": wire.KindMessage, "envelope_notice": wire.KindNotice}
	seen := map[wire.FrameType]bool{}
	for _, path := range goldenPaths(t, "client_") {
		name, data := frameName(path, "client_"), golden(t, path)
		t.Run(name, func(t *testing.T) {
			if got, ok := appended[name]; ok {
				require.Equal(t, string(data), string(got))
			}
			var frame wire.ClientFrame
			require.NoError(t, wire.ParseClient(data, &frame))
			require.True(t, name == frame.Type.String() || strings.HasPrefix(name, frame.Type.String()+"_"))
			seen[frame.Type] = true
			if frame.Type == wire.FrameEnvelope {
				require.Nil(t, frame.Envelope.Check())
				require.Equal(t, kinds[name], frame.Envelope.Kind)
				return
			}
			require.Equal(t, parsed[name], frame)
		})
	}
	for frame := wire.FrameEnvelope; frame <= wire.FrameUnknown; frame++ {
		require.True(t, seen[frame], "no golden file for %s", frame)
	}
}

var (
	stream   = wire.StreamID{Incarnation: 1790000000000, Sequence: 42}
	oldest   = wire.StreamID{Incarnation: 1790000000000, Sequence: 40}
	hint     = wire.StreamID{Incarnation: 1790000000000, Sequence: 43}
	change   = wire.StreamID{Incarnation: 1790000000000, Sequence: 44}
	boardRow = []byte(`{"event_id":"` + event + `","card_id":"` + recipient + `","revision":5}`)
	// changeRow is of a type that this package does not know.
	changeRow = []byte(" {\"event_id\":\"" + event + "\",\"event\":\"topic_changed\",\"room_id\":\"" + room + "\",\"version\":12,\"topic\":1}")
)

func uuid(t testing.TB, text string) wire.UUID {
	t.Helper()
	id, ok := wire.ParseUUID([]byte(text))
	require.True(t, ok)
	return id
}

func serverFrames(t testing.TB) map[string][]byte {
	board, err := wire.AppendBoardUpdate(nil, hint, false, boardRow)
	require.NoError(t, err)
	roomEvent, err := wire.AppendRoomEvent(nil, change, true, changeRow)
	require.NoError(t, err)
	frames, _ := roomEventFrames(t)
	maps.Copy(frames, map[string][]byte{
		"welcome":               wire.AppendWelcome(nil, uuid(t, sender), uuid(t, room)),
		"deliver":               wire.AppendDeliver(nil, stream, true, golden(t, "testdata/frames/client_envelope.json")),
		"queued":                wire.AppendQueued(nil, []byte("m-1"), stream, uuid(t, recipient)),
		"nack":                  wire.AppendNack(nil, []byte("m-1"), wire.RateLimited),
		"nack_no_id":            wire.AppendNack(nil, nil, wire.InvalidEnvelope),
		"resume_complete":       wire.AppendResumeComplete(nil, 3, false),
		"resume_complete_more":  wire.AppendResumeComplete(nil, 100, true),
		"resync_required":       wire.AppendResyncRequired(nil, &oldest),
		"resync_required_empty": wire.AppendResyncRequired(nil, nil),
		"ping":                  wire.AppendPing(nil, 17),
		"error":                 wire.AppendError(nil, wire.UnknownFrame, "typing", "an envelope is sent without a type"),
		"error_no_type":         wire.AppendError(nil, wire.AlreadyAuthenticated, "", "hello was accepted before"),
		"board_update":          board,
		"room_event":            roomEvent,
	})
	return frames
}

func TestGoldenServerFrames(t *testing.T) {
	_, parsed := roomEventFrames(t)
	maps.Copy(parsed, map[string]wire.ServerFrame{
		"welcome":               {Type: wire.ServerWelcome, ParticipantID: sender, SessionID: room},
		"deliver":               {Type: wire.ServerDeliver, StreamID: "1790000000000-42", Replay: wire.ReplayStored, Envelope: golden(t, "testdata/frames/client_envelope.json")},
		"queued":                {Type: wire.ServerQueued, ID: "m-1", StreamID: "1790000000000-42", To: recipient},
		"nack":                  {Type: wire.ServerNack, ID: "m-1", Reason: wire.RateLimited},
		"nack_no_id":            {Type: wire.ServerNack, Reason: wire.InvalidEnvelope},
		"resume_complete":       {Type: wire.ServerResumeComplete, Replayed: 3},
		"resume_complete_more":  {Type: wire.ServerResumeComplete, Replayed: 100, More: true},
		"resync_required":       {Type: wire.ServerResyncRequired, OldestID: "1790000000000-40"},
		"resync_required_empty": {Type: wire.ServerResyncRequired},
		"ping":                  {Type: wire.ServerPing, ID: "17"},
		"error":                 {Type: wire.ServerError, Reason: wire.UnknownFrame, FrameType: "typing", Detail: "an envelope is sent without a type"},
		"error_no_type":         {Type: wire.ServerError, Reason: wire.AlreadyAuthenticated, Detail: "hello was accepted before"},
		"board_update":          {Type: wire.ServerBoardUpdate, StreamID: "1790000000000-43", Replay: wire.ReplayLive, EventID: event, CardID: recipient, Revision: 5},
		"room_event": {
			Type: wire.ServerRoomEvent, StreamID: "1790000000000-44", Replay: wire.ReplayStored,
			RoomEvent: &wire.RoomEvent{EventID: event, Event: "topic_changed", RoomID: room, Version: 12},
		},
		"unknown": {Type: wire.ServerUnknown},
	})
	appended, seen := serverFrames(t), map[wire.ServerType]bool{}
	for _, path := range goldenPaths(t, "server_") {
		name, data := frameName(path, "server_"), golden(t, path)
		t.Run(name, func(t *testing.T) {
			if name != "unknown" {
				require.Equal(t, string(data), string(appended[name]))
			}
			frame, err := wire.ParseServer(data)
			require.NoError(t, err)
			seen[frame.Type] = true
			require.Equal(t, string(data), string(frame.Raw))
			file := strings.ReplaceAll(frame.Type.String(), ".", "_")
			require.True(t, name == file || strings.HasPrefix(name, file+"_"))
			if frame.Type != wire.ServerUnknown {
				require.Equal(t, frame.Type.String(), frame.TypeName)
			}
			frame.Raw, frame.TypeName = nil, ""
			require.Equal(t, parsed[name], frame)
		})
	}
	for frame := wire.ServerWelcome; frame <= wire.ServerUnknown; frame++ {
		require.True(t, seen[frame], "no golden file for %s", frame)
	}
	for name := range appended {
		require.FileExists(t, filepath.Join("testdata", "frames", "server_"+name+".json"))
	}
}
