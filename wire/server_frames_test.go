package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// RELAY: an older relay sends no replay member, and later ones may add members.
func TestParseServerAllowsOlderAndNewerRelays(t *testing.T) {
	frame, err := wire.ParseServer([]byte(`{"type":"deliver","stream_id":"1700000000000-0","envelope":{}}`))
	require.NoError(t, err)
	require.Equal(t, wire.ReplayUnmarked, frame.Replay)

	frame, err = wire.ParseServer([]byte(`{"new":{"a":1,"a":2},"to":"x","stream_id":"1-2","id":"\u0061","type":"queued"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "1-2", "x"}, []string{frame.ID, frame.StreamID, frame.To})

	frame, err = wire.ParseServer([]byte(`{"type":"welcome\u0021"}`))
	require.NoError(t, err)
	require.Equal(t, wire.ServerUnknown, frame.Type)
	require.Equal(t, "welcome!", frame.TypeName)
	require.Equal(t, "unknown", frame.Type.String())
}

// RELAY: the relay preserves the original envelope bytes, and so does the reader.
func TestDeliverKeepsTheSentBytes(t *testing.T) {
	for name, sent := range map[string]string{
		"plain":         with(),
		"white space":   " \t{ \"v\" : 1 }\r\n ",
		"escapes":       `{"a":"\u003c\/é"}`,
		"deepest":       nested(`{"a":`, `1`, `}`, wire.MaxDepth),
		"big numbers":   `{"a":1.0e400,"b":12345678901234567890}`,
		"largest":       string(sized(wire.MaxMessage)),
		"member inside": `{"envelope":{"type":"deliver"},"stream_id":"9-9"}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, replay := range []bool{false, true} {
				data := wire.AppendDeliver(nil, stream, replay, []byte(sent))
				frame, err := wire.ParseServer(data)
				require.NoError(t, err)
				require.Equal(t, sent, string(frame.Envelope))
				require.Equal(t, replay, frame.Replay == wire.ReplayStored)
				require.Equal(t, stream.String(), frame.StreamID)
			}
		})
	}
}

func TestParseServerRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"not JSON":                   `welcome`,
		"two frames":                 `{"type":"ping","id":"1"}{}`,
		"no type":                    `{"id":"1"}`,
		"type of a number":           `{"type":1}`,
		"Type":                       `{"Type":"ping","id":"1"}`,
		"id twice":                   `{"type":"ping","id":"1","id":"1"}`,
		"welcome, no session":        `{"type":"welcome","participant_id":"a"}`,
		"ping, id a number":          `{"type":"ping","id":1}`,
		"deliver, no stream_id":      `{"type":"deliver","replay":true,"envelope":{}}`,
		"D09 stream_id a number":     `{"type":"deliver","stream_id":5,"replay":true,"envelope":{}}`,
		"D09 stream_id of one part":  `{"type":"deliver","stream_id":"5","replay":true,"envelope":{}}`,
		"deliver, replay a string":   `{"type":"deliver","stream_id":"1-5","replay":"true","envelope":{}}`,
		"deliver, replay null":       `{"type":"deliver","stream_id":"1-5","replay":null,"envelope":{}}`,
		"deliver, no envelope":       `{"type":"deliver","stream_id":"1-5","replay":true}`,
		"deliver, envelope a string": `{"type":"deliver","stream_id":"1-5","replay":true,"envelope":"{}"}`,
		"deliver, too deep":          `{"type":"deliver","stream_id":"1-5","replay":true,"envelope":` + nested(`{"a":`, `1`, `}`, wire.MaxDepth+1) + `}`,
		"queued, no to":              `{"type":"queued","id":"a","stream_id":"1-5"}`,
		"nack, no reason":            `{"type":"nack","id":"a"}`,
		"nack, id null":              `{"type":"nack","id":null,"reason":"unavailable"}`,
		"replayed a float":           `{"type":"resume_complete","replayed":1.0}`,
		"replayed negative":          `{"type":"resume_complete","replayed":-1}`,
		"more a number":              `{"type":"resume_complete","replayed":1,"more":1}`,
		"no oldest_id":               `{"type":"resync_required"}`,
		"oldest_id empty":            `{"type":"resync_required","oldest_id":""}`,
		"error, no reason":           `{"type":"error","detail":"x"}`,
		"board, revision a string":   `{"type":"board.update","stream_id":"1-5","replay":true,"event_id":"a","card_id":"b","revision":"1"}`,
		"board, no event_id":         `{"type":"board.update","stream_id":"1-5","replay":true,"card_id":"b","revision":1}`,
		"room event, no stream_id":   `{"type":"room.event","replay":true}`,
		"too large":                  `{"type":"x"}` + strings.Repeat(" ", wire.MaxServerMessage),
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := wire.ParseServer([]byte(data))
			require.ErrorIs(t, err, wire.ErrServerFrame)
			require.Empty(t, frame)
		})
	}
}

func TestRowsAreSplicedAsTheyAre(t *testing.T) {
	for row, want := range map[string]string{
		`{}`:             `{"type":"room.event","stream_id":"1790000000000-42","replay":false}`,
		"\n { } \n":      "{\"type\":\"room.event\",\"stream_id\":\"1790000000000-42\",\"replay\":false } \n",
		`{"a":1.0}`:      `{"type":"room.event","stream_id":"1790000000000-42","replay":false,"a":1.0}`,
		` {"id":"\/é"} `: `{"type":"room.event","stream_id":"1790000000000-42","replay":false,"id":"\/é"} `,
	} {
		got, err := wire.AppendRoomEvent(nil, stream, false, []byte(row))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.True(t, json.Valid(got))
	}
	// Anybody who may write to the stream by hand can have put these there.
	for _, row := range []string{``, `null`, `[]`, `{`, `{}{}`, `{"type":"deliver"}`, `{"stream_id":"1-1"}`, `{"r\u0065play":true}`, `{"a":1,"a":1}`, "{\"a\":\"\xff\"}"} {
		for _, add := range []func([]byte, wire.StreamID, bool, []byte) ([]byte, error){wire.AppendRoomEvent, wire.AppendBoardUpdate} {
			got, err := add([]byte("before"), stream, true, []byte(row))
			require.ErrorIs(t, err, wire.ErrInvalidRow, row)
			require.Equal(t, "before", string(got))
		}
	}
}

func TestErrorsEchoTheTypeWithinBounds(t *testing.T) {
	data := wire.AppendError(nil, wire.UnknownFrame, strings.Repeat("é", 40), "a \"detail\"\n")
	frame, err := wire.ParseServer(data)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", 32), frame.FrameType)
	require.Equal(t, "a \"detail\"\n", frame.Detail)
	require.JSONEq(t, `{"type":"error","reason":"unknown_frame","frame_type":"","detail":"d"}`,
		string(wire.AppendError(nil, wire.UnknownFrame, "", "d")), "a type there was, if an empty one")
}

// F04: nothing is repaired that was well formed, and what was not is valid text.
func FuzzAppendedText(f *testing.F) {
	for _, text := range []string{"", "m-1", "\"\\/\b\x00\x1f\x7f", "é€𐍈\u2028", "\xff\xed\xa0\x80", "a\xe2\x82", "\ufffd"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data := wire.AppendPong(nil, text)
		require.True(t, utf8.Valid(data))
		var pong struct{ Type, ID string }
		require.NoError(t, json.Unmarshal(data, &pong))
		require.Equal(t, string([]rune(text)), pong.ID)

		var frame wire.ClientFrame
		if len(data) <= wire.MaxMessage {
			require.NoError(t, wire.ParseClient(data, &frame))
			require.Equal(t, pong.ID, string(frame.PongID))
		}
		cut := wire.CutString(text, len(text)/2)
		require.True(t, strings.HasPrefix(text, cut))
		require.True(t, utf8.ValidString(cut) || !utf8.ValidString(text))
	})
}

func FuzzParseServer(f *testing.F) {
	for _, path := range goldenPaths(f, "server_") {
		f.Add(golden(f, path))
	}
	f.Add([]byte(`{"type":"deliver","stream_id":"1-2","envelope": { "a" : 1 } , "replay" : false}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := wire.ParseServer(data)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrServerFrame)
			return
		}
		require.True(t, json.Valid(data))
		var members struct {
			Type     string          `json:"type"`
			Envelope json.RawMessage `json:"envelope"`
		}
		if again := appendAgain(t, &frame); again != nil {
			second, err := wire.ParseServer(again)
			require.NoError(t, err)
			first := frame
			first.Raw, second.Raw = nil, nil
			require.Equal(t, first, second)
		}
		if frame.Type == wire.ServerDeliver && json.Unmarshal(data, &members) == nil && members.Type == "deliver" {
			require.Equal(t, string(members.Envelope), strings.Trim(string(frame.Envelope), " \t\r\n"))
		}
	})
}

// appendAgain makes the frame once more from its parts, where this package can.
func appendAgain(t *testing.T, frame *wire.ServerFrame) []byte {
	id, ok := wire.ParseStreamID([]byte(frame.StreamID))
	switch {
	case frame.Type == wire.ServerDeliver && frame.Replay != wire.ReplayUnmarked:
		require.True(t, ok)
		return wire.AppendDeliver(nil, id, frame.Replay == wire.ReplayStored, frame.Envelope)
	case frame.Type == wire.ServerRoomEvent && frame.Replay != wire.ReplayUnmarked:
		if e := frame.RoomEvent; e.EventID != "" && e.Event != "" && e.RoomID != "" {
			again, err := wire.AppendRoomEvent(nil, id, frame.Replay == wire.ReplayStored, e.AppendRow(nil))
			require.NoError(t, err)
			return again
		}
	case frame.Type == wire.ServerQueued:
		if to, ok := wire.ParseUUID([]byte(frame.To)); ok {
			return wire.AppendQueued(nil, []byte(frame.ID), id, to)
		}
	case frame.Type == wire.ServerResumeComplete:
		return wire.AppendResumeComplete(nil, frame.Replayed, frame.More)
	case frame.Type == wire.ServerError && len(frame.FrameType) <= wire.MaxUnknownType && len(frame.Reason) > 0:
		if _, known := wire.Lookup(frame.Reason); known {
			return wire.AppendError(nil, frame.Reason, frame.FrameType, frame.Detail)
		}
	case frame.Type == wire.ServerResyncRequired:
		if oldest, ok := wire.ParseStreamID([]byte(frame.OldestID)); ok {
			return wire.AppendResyncRequired(nil, &oldest)
		}
		return wire.AppendResyncRequired(nil, nil)
	}
	return nil
}
