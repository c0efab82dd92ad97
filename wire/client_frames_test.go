package wire_test

import (
	"strings"
	"testing"

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
