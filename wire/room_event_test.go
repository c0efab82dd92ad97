package wire_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// roomEvent is an event of the type, with the members it has.
func roomEvent(t testing.TB, info wire.RoomEventInfo) wire.RoomEvent {
	t.Helper()
	e := wire.RoomEvent{EventID: event, Event: info.Event, RoomID: room, Version: 12}
	for _, member := range info.Members {
		switch member {
		case "participant_id":
			e.ParticipantID = sender
		case "device_id":
			e.DeviceID = recipient
		case "role":
			e.Role = "agent"
		case "epoch":
			e.Epoch = new(int64(0))
		case "remaining":
			e.Remaining = new(int64(9))
		default:
			require.Fail(t, "no member of RoomEvent: "+member)
		}
	}
	return e
}

// roomEventFrames are frames of every type, by the names of their golden files.
func roomEventFrames(t testing.TB) (frames map[string][]byte, parsed map[string]wire.ServerFrame) {
	t.Helper()
	frames, parsed = map[string][]byte{}, map[string]wire.ServerFrame{}
	for _, info := range wire.RoomEvents() {
		e, name := roomEvent(t, info), "room_event_"+string(info.Event)
		frame, err := wire.AppendRoomEvent(nil, change, true, e.AppendRow(nil))
		require.NoError(t, err)
		frames[name] = frame
		parsed[name] = wire.ServerFrame{Type: wire.ServerRoomEvent, StreamID: change.String(), Replay: wire.ReplayStored, RoomEvent: &e}
	}
	return frames, parsed
}

// A row has the members that the table names, and no other.
func TestRoomEventsHaveTheirMembers(t *testing.T) {
	for _, info := range wire.RoomEvents() {
		e := roomEvent(t, info)
		var row map[string]any
		require.NoError(t, json.Unmarshal(e.AppendRow(nil), &row))
		want := append([]string{"event_id", "event", "room_id", "version"}, info.Members...)
		var names []string
		for name := range row {
			names = append(names, name)
		}
		require.ElementsMatch(t, want, names, info.Event)
		require.Equal(t, string(info.Event), row["event"])
		require.NotEmpty(t, info.For)
		require.NotEmpty(t, info.Text)
	}
}

// The table has every constant once.
func TestRoomEventsAreAll(t *testing.T) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "room_event.go", nil, 0)
	require.NoError(t, err)
	var declared []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "RoomEventType" {
			for _, value := range spec.Values {
				text, ok := value.(*ast.BasicLit)
				require.True(t, ok)
				declared = append(declared, strings.Trim(text.Value, `"`))
			}
		}
		return true
	})
	var listed []string
	for _, info := range wire.RoomEvents() {
		listed = append(listed, string(info.Event))
	}
	require.Equal(t, declared, listed)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(listed))), len(declared))
}

// Whatever stands in a text comes back, as valid JSON.
func TestRoomEventRowsAreEscaped(t *testing.T) {
	e := wire.RoomEvent{
		EventID: `"`, Event: "\n", RoomID: `\`, ParticipantID: "é", DeviceID: "</script>\u2028", Role: "\x00\x1f",
		Version: wire.MaxInteger, Epoch: new(int64(wire.MaxInteger)), Remaining: new(int64(0)),
	}
	row := e.AppendRow([]byte("before"))
	require.Equal(t, `before{"event_id":"\"","event":"\u000a","room_id":"\\","participant_id":"é",`+
		`"device_id":"</script>`+"\u2028"+`","role":"\u0000\u001f","version":9007199254740991,"epoch":9007199254740991,"remaining":0}`, string(row))
	data, err := wire.AppendRoomEvent(nil, change, false, row[len("before"):])
	require.NoError(t, err)
	frame, err := wire.ParseServer(data)
	require.NoError(t, err)
	require.Equal(t, &e, frame.RoomEvent)
	require.Equal(t, wire.ReplayLive, frame.Replay)
}

// What a newer relay adds is no fault, and what is missing or of another type is one.
func TestParseRoomEvents(t *testing.T) {
	const head = `{"type":"room.event","stream_id":"1-5","replay":true,`
	frame, err := wire.ParseServer([]byte(head + `"event_id":"e","event":"topic_changed","room_id":"r","version":3,"topic":{"a":[1]}}`))
	require.NoError(t, err)
	require.Equal(t, &wire.RoomEvent{EventID: "e", Event: "topic_changed", RoomID: "r", Version: 3}, frame.RoomEvent)

	const whole = `"event_id":"e","event":"commit","room_id":"r","version":3`
	for name, members := range map[string]string{
		"no event_id":              `"event":"commit","room_id":"r","version":3`,
		"no event":                 `"event_id":"e","room_id":"r","version":3`,
		"no room_id":               `"event_id":"e","event":"commit","version":3`,
		"no version":               `"event_id":"e","event":"commit","room_id":"r"`,
		"version a string":         `"event_id":"e","event":"commit","room_id":"r","version":"3"`,
		"version negative":         `"event_id":"e","event":"commit","room_id":"r","version":-3`,
		"event a number":           `"event_id":"e","event":1,"room_id":"r","version":3`,
		"participant_id null":      whole + `,"participant_id":null`,
		"device_id a number":       whole + `,"device_id":1`,
		"role an object":           whole + `,"role":{}`,
		"epoch a string":           whole + `,"epoch":"1"`,
		"epoch null":               whole + `,"epoch":null`,
		"epoch a fraction":         whole + `,"epoch":1.0`,
		"remaining over MaxIntger": whole + `,"remaining":9007199254740992`,
		"epoch twice":              whole + `,"epoch":1,"ep\u006fch":1`,
	} {
		frame, err := wire.ParseServer([]byte(head + members + `}`))
		require.ErrorIs(t, err, wire.ErrServerFrame, name)
		require.Empty(t, frame, name)
	}
}

// A relay's row is always one that a client reads, and reads as it was.
func FuzzRoomEvent(f *testing.F) {
	for _, info := range wire.RoomEvents() {
		f.Add(event, string(info.Event), room, sender, recipient, "agent", uint64(3), uint64(1), uint64(9), uint8(3))
	}
	f.Add("\"", "\\\x00", "\xff", "é\u2028", "</", "", uint64(wire.MaxInteger), uint64(0), uint64(0), uint8(1))
	f.Fuzz(func(t *testing.T, id, kind, room, participant, device, role string, version, epoch, remaining uint64, has uint8) {
		if id == "" || kind == "" || room == "" {
			return
		}
		number := func(n uint64) int64 { return int64(n & wire.MaxInteger) }
		e := wire.RoomEvent{
			EventID: id, Event: wire.RoomEventType(kind), RoomID: room, Version: number(version),
			ParticipantID: participant, DeviceID: device, Role: role,
		}
		if has&1 != 0 {
			e.Epoch = new(number(epoch))
		}
		if has&2 != 0 {
			e.Remaining = new(number(remaining))
		}
		row := e.AppendRow(nil)
		require.True(t, json.Valid(row))
		data, err := wire.AppendRoomEvent(nil, change, false, row)
		require.NoError(t, err)
		if len(data) > wire.MaxServerMessage {
			return
		}
		frame, err := wire.ParseServer(data)
		require.NoError(t, err)
		for _, text := range []*string{&e.EventID, &e.RoomID, &e.ParticipantID, &e.DeviceID, &e.Role, (*string)(&e.Event)} {
			*text = string([]rune(*text)) // what is not UTF-8 is replaced
		}
		require.Equal(t, &e, frame.RoomEvent)
	})
}
