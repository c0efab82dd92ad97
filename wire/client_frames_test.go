package wire_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	sender    = "018f6b1e-7f2a-7c3d-9a10-0123456789ab"
	recipient = "018f6b1e-7f2a-7c3d-9a10-0123456789ac"
	room      = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
)

// An envelope as tests take it apart: each part is one member.
func envelope(parts ...string) string { return "{" + strings.Join(parts, ",") + "}" }

var wellFormed = []string{
	`"v":1`, `"id":"m-1"`, `"session_id":"` + room + `"`, `"from":"` + sender + `"`, `"to":"` + recipient + `"`,
	`"kind":"message"`, `"gen":7`, `"seq":12`, `"ts":1790000000000`, `"nonce":"bm9uY2U"`, `"ct":"Y3Q"`,
}

// with returns a well-formed envelope in which the given members replace those of
// the same name, or are added.
func with(parts ...string) string { return envelope(replace(wellFormed, parts...)...) }

// without returns a well-formed envelope that lacks the named members.
func without(names ...string) string {
	var left []string
	for _, part := range wellFormed {
		keep := true
		for _, name := range names {
			keep = keep && !strings.HasPrefix(part, `"`+name+`":`)
		}
		if keep {
			left = append(left, part)
		}
	}
	return envelope(left...)
}

func replace(members []string, parts ...string) []string {
	out := append([]string(nil), members...)
next:
	for _, part := range parts {
		name, _, _ := strings.Cut(part, ":")
		for i := range out {
			if strings.HasPrefix(out[i], name+":") {
				out[i] = part
				continue next
			}
		}
		out = append(out, part)
	}
	return out
}

func TestParseClientReadsAnEnvelope(t *testing.T) {
	data := with(`"kid":"AAAAAAAAAAAAAAAAAAAAAA"`, `"sig":"c2ln"`, `"enc":"pairwise"`, `"hdr":"aGRy"`, `"expires_at":1790000000001`,
		`"file":{"name":"a b.txt","mimeType":"text/plain","sizeBytes":700000}`, `"later":[{"a":null}]`)
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient([]byte(data), &frame))
	require.Equal(t, wire.FrameEnvelope, frame.Type)
	e := &frame.Envelope
	require.Nil(t, e.Check())
	require.Equal(t, data, string(e.Raw))
	require.Equal(t, "m-1", string(e.ID))
	require.Equal(t, room, string(e.SessionID))
	require.Equal(t, sender, string(e.From))
	require.Equal(t, recipient, string(e.To))
	require.Equal(t, "AAAAAAAAAAAAAAAAAAAAAA", string(e.KID))
	require.Equal(t, "pairwise", string(e.Enc))
	require.Equal(t, wire.KindMessage, e.Kind)
	require.Equal(t, []uint64{7, 12, 1790000000000, 1790000000001}, []uint64{e.Gen, e.Seq, e.TS, e.ExpiresAt})
	require.Equal(t, wire.File{Name: []byte("a b.txt"), MIMEType: []byte("text/plain"), SizeBytes: 700_000}, e.File)
	require.Equal(t, wire.MemberUnknown<<1-1, e.Members)
}

func TestParseClientReadsControlFrames(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want wire.ClientFrame
	}{
		"hello":            {`{"type":"hello","token":"abc"}`, wire.ClientFrame{Type: wire.FrameHello, Token: []byte("abc")}},
		"hello direct":     {`{"token":"abc","direct":true,"type":"hello"}`, wire.ClientFrame{Type: wire.FrameHello, Token: []byte("abc"), Direct: true}},
		"hello indirect":   {` {"type":"hello","token":"","direct":false,"new":[]} `, wire.ClientFrame{Type: wire.FrameHello, Token: []byte{}}},
		"resume":           {`{"type":"resume","last_id":"$"}`, wire.ClientFrame{Type: wire.FrameResume, LastID: []byte("$")}},
		"resume limited":   {`{"type":"resume","last_id":"0","limit":500}`, wire.ClientFrame{Type: wire.FrameResume, LastID: []byte("0"), Limit: 500}},
		"escaped":          {`{"\u0074ype":"res\u0075me","last\u005fid":"\u0024"}`, wire.ClientFrame{Type: wire.FrameResume, LastID: []byte("$")}},
		"pong":             {`{"id":"17","type":"pong"}`, wire.ClientFrame{Type: wire.FramePong, PongID: []byte("17")}},
		"unknown":          {`{"type":"deliver","envelope":{}}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: "deliver"}},
		"unknown, twice":   {`{"type":"deliver","a":1,"a":2}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: "deliver"}},
		"type as a number": {`{"type":5,"id":"a"}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: "5"}},
		"type null":        {`{"type":null}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: "null"}},
		"type an object":   {`{"type":{"a":[1, 2]}}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: `{"a":[1, 2]}`}},
		"long type":        {`{"type":"` + strings.Repeat("x", 63) + `éé"}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: strings.Repeat("x", 63)}},
		"type of 64 bytes": {`{"type":"` + strings.Repeat("é", 32) + `"}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: strings.Repeat("é", 32)}},
		"capital Hello":    {`{"type":"Hello","token":"a"}`, wire.ClientFrame{Type: wire.FrameUnknown, UnknownType: "Hello"}},
	} {
		t.Run(name, func(t *testing.T) {
			frame := wire.ClientFrame{Type: wire.FramePong, PongID: []byte("left over"), Limit: 3, UnknownType: "left over"}
			require.NoError(t, wire.ParseClient([]byte(test.data), &frame))
			require.Equal(t, test.want, frame)
		})
	}
}

// manyNames returns a well-formed envelope with n unknown members more.
func manyNames(n int) string {
	parts := make([]string, 0, n+len(wellFormed))
	for i := range n {
		parts = append(parts, `"`+strconv.FormatInt(int64(i), 36)+`":1`)
	}
	return envelope(append(parts, wellFormed...)...)
}

func TestParseClientRefuses(t *testing.T) {
	deep := strings.Repeat("[", wire.MaxDepth) + strings.Repeat("]", wire.MaxDepth)
	for name, test := range map[string]struct {
		data string
		want wire.FrameError // without Detail
	}{
		"not JSON":                   {`hello`, wire.FrameError{Code: wire.InvalidEnvelope}},
		"nothing":                    {``, wire.FrameError{Code: wire.InvalidEnvelope}},
		"too large":                  {with() + strings.Repeat(" ", wire.MaxMessage), wire.FrameError{Code: wire.InvalidEnvelope}},
		"E10 two frames":             {with() + `{"type":"resume","last_id":"0"}`, wire.FrameError{Code: wire.InvalidEnvelope, EnvelopeID: []byte("m-1")}},
		"E10 junk after":             {with() + ` x`, wire.FrameError{Code: wire.InvalidEnvelope, EnvelopeID: []byte("m-1")}},
		"E10 byte order mark":        {"\ufeff" + with(), wire.FrameError{Code: wire.InvalidEnvelope}},
		"broken after the id":        {`{"id":"a","v":`, wire.FrameError{Code: wire.InvalidEnvelope, EnvelopeID: []byte("a")}},
		"broken before the id":       {`{"v":,"id":"a"}`, wire.FrameError{Code: wire.InvalidEnvelope}},
		"broken in the id":           {`{"id":"a`, wire.FrameError{Code: wire.InvalidEnvelope}},
		"broken, id is none":         {`{"id":"a b","v":`, wire.FrameError{Code: wire.InvalidEnvelope}},
		"B07 too deep, id known":     {`{"id":"a","x":` + deep + `}`, wire.FrameError{Code: wire.InvalidEnvelope, EnvelopeID: []byte("a")}},
		"F04 id with half a pair":    {with(`"id":"a\ud800"`), wire.FrameError{Code: wire.InvalidEnvelope}},
		"F04 name with half a pair":  {with(file(`"a\ud800b"`, `"a"`, `1`)), wire.FrameError{Code: wire.InvalidEnvelope, EnvelopeID: []byte("m-1")}},
		"F03 session_id twice":       {envelope(append(wellFormed, `"session_id":"`+room+`"`)...), wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope, EnvelopeID: []byte("m-1")}},
		"F03 file twice":             {with(file(`"a"`, `"b"`, `1`), `"\u0066ile":null`), wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope, EnvelopeID: []byte("m-1")}},
		"F03 unknown twice":          {`{"x":1,"x":1,"id":"last"}`, wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope, EnvelopeID: []byte("last")}},
		"F03 id twice, the same":     {with(`"\u0069d":"m-1"`), wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope, EnvelopeID: []byte("m-1")}},
		"F03 id twice, different":    {with(`"\u0069d":"m-2"`), wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope}},
		"F03 id twice, one a number": {with(`"\u0069d":1`), wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameEnvelope}},

		"hello without token":     {`{"type":"hello"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"hello with token null":   {`{"type":"hello","token":null}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"hello with token number": {`{"type":"hello","token":5}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"hello with direct 1":     {`{"type":"hello","token":"a","direct":1}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"hello with direct null":  {`{"type":"hello","token":"a","direct":null}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"F03 hello twice token":   {`{"type":"hello","token":"a","token":"a"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"F03 unknown name twice":  {`{"a":1,"a":1,"type":"hello","token":"a"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameHello}},
		"broken hello":            {`{"type":"hello","token":"a"`, wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameHello}},
		"F03 type twice":          {`{"type":"resume","type":"resume","last_id":"0"}`, wire.FrameError{Code: wire.InvalidFrame}},
		"F03 two unknown types":   {`{"type":"a","type":"b"}`, wire.FrameError{Code: wire.InvalidFrame}},

		"resume without last_id":    {`{"type":"resume"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"F01 resume with Last_id":   {`{"type":"resume","Last_id":"0"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"D09 last_id null":          {`{"type":"resume","last_id":null}`, wire.FrameError{Code: wire.InvalidCursor, Type: wire.FrameResume}},
		"D09 last_id number":        {`{"type":"resume","last_id":5}`, wire.FrameError{Code: wire.InvalidCursor, Type: wire.FrameResume}},
		"limit 0":                   {`{"type":"resume","last_id":"0","limit":0}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit 501":                 {`{"type":"resume","last_id":"0","limit":501}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit -1":                  {`{"type":"resume","last_id":"0","limit":-1}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit 1.0":                 {`{"type":"resume","last_id":"0","limit":1.0}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit 1e2":                 {`{"type":"resume","last_id":"0","limit":1e2}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit string":              {`{"type":"resume","last_id":"0","limit":"1"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit null":                {`{"type":"resume","last_id":"0","limit":null}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"limit over 64 bits":        {`{"type":"resume","last_id":"0","limit":18446744073709551617}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FrameResume}},
		"pong without id":           {`{"type":"pong"}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FramePong}},
		"pong with a number":        {`{"type":"pong","id":17}`, wire.FrameError{Code: wire.InvalidFrame, Type: wire.FramePong}},
		"pong is no envelope":       {`{"type":"pong","id":"17"} x`, wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FramePong}},
		"broken frame of some type": {`{"id":"a","type":"x",}`, wire.FrameError{Code: wire.InvalidEnvelope, Type: wire.FrameUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			var frame wire.ClientFrame
			err := wire.ParseClient([]byte(test.data), &frame)
			var got *wire.FrameError
			require.ErrorAs(t, err, &got)
			require.NotEmpty(t, got.Detail)
			require.Contains(t, err.Error(), string(got.Code))
			got.Detail = ""
			require.Equal(t, test.want, *got)
		})
	}
}

// A05: the exact limit of a message belongs to the front, but the parser holds it
// too.
func TestParseClientHoldsTheLimitOfAMessage(t *testing.T) {
	data := sized(wire.MaxMessage)
	require.Len(t, data, wire.MaxMessage)
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient(data, &frame))
	require.Nil(t, frame.Envelope.Check())

	require.Error(t, wire.ParseClient(sized(wire.MaxMessage+1), &frame))
}

func TestUnknownTypesAreCutBetweenRunes(t *testing.T) {
	text := "aé€𐍈b"
	for n := range 12 {
		cut := wire.CutString(text, n)
		require.LessOrEqual(t, len(cut), n)
		require.True(t, strings.HasPrefix(text, cut))
		require.True(t, utf8.ValidString(cut))
	}
}

// F09, D09: cursors are compared as numbers and read strictly.
func TestCursors(t *testing.T) {
	for text, want := range map[string]wire.Cursor{
		"$":                              {Kind: wire.CursorNew},
		"0":                              {Kind: wire.CursorAll},
		"0-0":                            {Kind: wire.CursorAt},
		"1790000000000-9007199254740993": {Kind: wire.CursorAt, ID: wire.StreamID{Incarnation: 1790000000000, Sequence: 9007199254740993}},
		"18446744073709551615-18446744073709551615": {Kind: wire.CursorAt, ID: wire.StreamID{Incarnation: math.MaxUint64, Sequence: math.MaxUint64}},
	} {
		got, err := wire.ParseCursor([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		if want.Kind == wire.CursorAt {
			require.Equal(t, text, got.ID.String())
		}
	}
	for _, text := range []string{"", "999", "-", "1-", "-1", "1--1", "1-2-3", " 5", "05", "1-05", "01-5", "5e0-1", "0x5-1", "+1-1", "1-1 ", "18446744073709551616-1", "1-18446744073709551616", "$1", "１-1"} {
		_, err := wire.ParseCursor([]byte(text))
		require.ErrorIs(t, err, wire.ErrInvalidCursor, text)
	}
	rising := []wire.StreamID{{Incarnation: 1, Sequence: 999}, {Incarnation: 1, Sequence: 1000}, {Incarnation: 2}}
	for i, a := range rising {
		for j, b := range rising {
			require.Equal(t, cmp.Compare(i, j), a.Compare(b))
		}
	}
}

// C10: only one text form of an id exists, so no id can be subject syntax.
func TestUUIDs(t *testing.T) {
	id, ok := wire.ParseUUID([]byte(sender))
	require.True(t, ok)
	require.Equal(t, sender, string(wire.AppendUUID(nil, id)))
	for _, text := range []string{"", "a.b", "*", ">", strings.ToUpper(sender), sender + "0", sender[1:], "{" + sender[2:] + "}", strings.ReplaceAll(sender, "-", ""), "g" + sender[1:], strings.Replace(sender, "-", "_", 1)} {
		_, ok := wire.ParseUUID([]byte(text))
		require.False(t, ok, text)
	}
}

func FuzzParseClient(f *testing.F) {
	for _, test := range scans {
		f.Add([]byte(test.data))
	}
	for _, path := range goldenPaths(f, "client_") {
		f.Add(golden(f, path))
	}
	f.Add([]byte(with(file(`"\u00e9"`, `"text/plain"`, `5`), `"kid":"AAAAAAAAAAAAAAAAAAAAAA"`, `"x":"\ud83d\ude00"`)))
	f.Add([]byte(`{"type":"resume","last_id":5,"limit":0}`))
	f.Add([]byte(`{"type":{"\u0000":"` + strings.Repeat("€", 40) + `"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		frame := wire.ClientFrame{Type: wire.FramePong, PongID: []byte("left over")}
		err := wire.ParseClient(data, &frame)
		require.Equal(t, before, data)
		if err != nil {
			var refused *wire.FrameError
			require.ErrorAs(t, err, &refused)
			require.Contains(t, []wire.Code{wire.InvalidEnvelope, wire.InvalidFrame, wire.InvalidCursor}, refused.Code)
			require.NotEmpty(t, refused.Detail)
			return
		}
		require.True(t, json.Valid(data))
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &members))
		require.Equal(t, members["type"] == nil, frame.Type == wire.FrameEnvelope)
		switch frame.Type {
		case wire.FrameEnvelope:
			require.Equal(t, data, frame.Envelope.Raw)
			require.Equal(t, judge(data) == nil, frame.Envelope.Check() == nil, "%v, but %v", judge(data), frame.Envelope.Check())
		case wire.FrameHello:
			require.JSONEq(t, string(members["token"]), string(quoted(t, frame.Token)))
		case wire.FrameResume:
			require.JSONEq(t, string(members["last_id"]), string(quoted(t, frame.LastID)))
			require.True(t, frame.Limit >= 0 && frame.Limit <= wire.MaxResumeLimit)
		case wire.FramePong:
			require.JSONEq(t, string(members["id"]), string(quoted(t, frame.PongID)))
		case wire.FrameUnknown:
			require.LessOrEqual(t, len(frame.UnknownType), wire.MaxUnknownType)
			require.True(t, utf8.ValidString(frame.UnknownType))
		default:
			t.Fatalf("type %d", frame.Type)
		}
	})
}

func quoted(t *testing.T, text []byte) []byte {
	t.Helper()
	out, err := json.Marshal(string(text))
	require.NoError(t, err)
	return out
}
