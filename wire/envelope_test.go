package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// check parses a well-formed envelope and returns what Check says of it.
func check(t *testing.T, data string) (*wire.Envelope, *wire.Error) {
	t.Helper()
	var frame wire.ClientFrame
	require.NoError(t, wire.ParseClient([]byte(data), &frame))
	require.Equal(t, wire.FrameEnvelope, frame.Type)
	return &frame.Envelope, frame.Envelope.Check()
}

func file(name, mimeType, size string) string {
	return `"file":{"name":` + name + `,"mimeType":` + mimeType + `,"sizeBytes":` + size + `}`
}

func TestEnvelopesThatPass(t *testing.T) {
	for name, data := range map[string]string{
		"the least":               envelope(wellFormed...),
		"white space around":      " \n" + envelope(wellFormed...) + "\t\r\n",
		"id of 1":                 with(`"id":"~"`),
		"id of 128":               with(`"id":"` + strings.Repeat("!", 128) + `"`),
		"id by escapes":           with(`"id":"\u006d\"\\\/"`),
		"name by escapes":         strings.Replace(with(), `"id"`, `"\u0069d"`, 1),
		"kind by escapes":         with(`"kind":"c\u006fntrol"`),
		"largest integers":        with(`"gen":9007199254740991`, `"seq":9007199254740991`, `"ts":9007199254740991`),
		"least integers":          with(`"gen":0`, `"seq":0`, `"ts":0`),
		"foreign ids":             with(`"session_id":""`, `"from":"*"`, `"to":"a.b > $JS"`), // C10: the relay refuses them
		"kid":                     with(`"kid":"abcXYZ019-_AAAAAAAAAAA"`),
		"empty texts":             with(`"nonce":""`, `"ct":""`, `"sig":""`, `"enc":""`, `"hdr":""`),
		"unknown members":         with(`"TO":5`, `"":null`, `"reply_to":{"a":1,"a":2}`, `"token":"x"`),
		"U+0000 elsewhere":        with(`"unknown":"\u0000"`),
		"expiry of a message":     with(`"expires_at":1`),
		"notice":                  with(`"kind":"notice"`, `"expires_at":1790000000000`),
		"notice with all it may":  with(`"kind":"notice"`, `"expires_at":1`, `"sig":"s"`, `"kid":"AAAAAAAAAAAAAAAAAAAAAA"`),
		"F07 name of 255":         with(file(`"`+strings.Repeat("\U0001F600", 255)+`"`, `"a"`, `0`)),
		"F07 mimeType of 127":     with(file(`"a"`, `"`+strings.Repeat("ß", 127)+`"`, `1`)),
		"F07 name of 255 escapes": with(file(`"`+strings.Repeat(`\ud83d\ude00`, 255)+`"`, `"a"`, `0`)),
		"F07 family":              with(file(`"👩‍👩‍👧"`, `"a"`, `0`)),
		"F08 inert marks":         with(file(`"\u202e\u200b\u2066\ufeff\u200d"`, `"\u202e"`, `0`)),
		"F04 U+FFFD as sent":      with(file(`"a\ufffdb"`, `"�"`, `0`)),
		"file in any order":       with(`"file": { "sizeBytes" : 700000 , "name" : "a" , "mime\u0054ype" : "b" } `),
		"F09 sizeBytes 0":         with(file(`"a"`, `"b"`, `0`)),
		"F09 sizeBytes 700000":    with(file(`"a"`, `"b"`, `700000`)),
	} {
		t.Run(name, func(t *testing.T) {
			e, refused := check(t, data)
			require.Nil(t, refused)
			require.Equal(t, data, string(e.Raw))
			require.NotEmpty(t, e.ID)
			require.NoError(t, judge([]byte(data)))
		})
	}
	for _, kind := range []wire.Kind{wire.KindMessage, wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest} {
		e, refused := check(t, with(`"kind":"`+kind.String()+`"`))
		require.Nil(t, refused)
		require.Equal(t, kind, e.Kind)
	}
}

func TestEnvelopesThatAreRefused(t *testing.T) {
	notice := replace(wellFormed, `"kind":"notice"`, `"expires_at":1790000000000`)
	for _, test := range []struct {
		name, detail, data string
	}{
		{"empty object", "kind is", `{}`},
		{"F01 control frame in capitals", "kind is", `{"Type":"resume","last_id":"$"}`},
		{"v 0", "v is", with(`"v":0`)},
		{"v 2", "v is", with(`"v":2`)},
		{"v 1.0", "v is", with(`"v":1.0`)},
		{"v string", "v is", with(`"v":"1"`)},
		{"v null", "v is", with(`"v":null`)},
		{"id empty", "id is", with(`"id":""`)},
		{"id of 129", "id is", with(`"id":"` + strings.Repeat("x", 129) + `"`)},
		{"id with space", "id is", with(`"id":"a b"`)},
		{"id with delete", "id is", with(`"id":"a\u007f"`)},
		{"id beyond ASCII", "id is", with(`"id":"é"`)},
		{"id with line feed", "id is", with(`"id":"a\n"`)},
		{"id null", "a string", with(`"id":null`)},
		{"id number", "a string", with(`"id":5`)},
		{"F06 U+0000 in id", "U+0000", with(`"id":"a\u0000"`)},
		{"F06 U+0000 in nonce", "U+0000", with(`"nonce":"\u0000"`)},
		{"F06 U+0000 in ct", "U+0000", with(`"ct":"\u0000"`)},
		{"F06 U+0000 in kid", "U+0000", with(`"kid":"AAAAAAAAAAAAAAAAAAAAA\u0000"`)},
		{"F06 U+0000 in sig", "U+0000", with(`"sig":"\u0000"`)},
		{"F06 U+0000 in to", "U+0000", with(`"to":"\u0000"`)},
		{"session_id null", "a string", with(`"session_id":null`)},
		{"from object", "a string", with(`"from":{}`)},
		{"to array", "a string", with(`"to":["` + recipient + `"]`)},
		{"to null", "a string", with(`"to":null`)},
		{"nonce number", "a string", with(`"nonce":1`)},
		{"ct null", "a string", with(`"ct":null`)},
		{"sig null", "a string", with(`"sig":null`)},
		{"enc true", "a string", with(`"enc":true`)},
		{"hdr object", "a string", with(`"hdr":{}`)},
		{"kid null", "a string", with(`"kid":null`)},
		{"kid of 21", "kid is", with(`"kid":"AAAAAAAAAAAAAAAAAAAAA"`)},
		{"kid of 23", "kid is", with(`"kid":"AAAAAAAAAAAAAAAAAAAAAAA"`)},
		{"kid in base64", "kid is", with(`"kid":"AAAAAAAAAAAAAAAAAAAAA+"`)},
		{"kid padded", "kid is", with(`"kid":"AAAAAAAAAAAAAAAAAAAAA="`)},
		{"kind unknown", "kind is", with(`"kind":"deliver"`)},
		{"kind in capitals", "kind is", with(`"kind":"Message"`)},
		{"kind empty", "kind is", with(`"kind":""`)},
		{"kind null", "kind is", with(`"kind":null`)},
		{"F09 seq 2^53", "integer", with(`"seq":9007199254740992`)},
		{"F09 seq 2^64-1", "integer", with(`"seq":18446744073709551615`)},
		{"F09 seq 2^64", "integer", with(`"seq":18446744073709551616`)},
		{"seq negative", "integer", with(`"seq":-1`)},
		{"seq minus zero", "integer", with(`"seq":-0`)},
		{"seq 1.0", "integer", with(`"seq":1.0`)},
		{"seq 1e3", "integer", with(`"seq":1e3`)},
		{"seq string", "integer", with(`"seq":"1"`)},
		{"gen null", "integer", with(`"gen":null`)},
		{"ts true", "integer", with(`"ts":true`)},
		{"expires_at string", "integer", with(`"expires_at":"1"`)},
		{"expires_at null", "integer", with(`"expires_at":null`)},

		{"file null", "file is", with(`"file":null`)},
		{"file array", "file is", with(`"file":[]`)},
		{"file string", "file is", with(`"file":"a"`)},
		{"file empty", "file does", with(`"file":{}`)},
		{"file without name", "file does", with(`"file":{"mimeType":"a","sizeBytes":1}`)},
		{"file without mimeType", "file does", with(`"file":{"name":"a","sizeBytes":1}`)},
		{"file without sizeBytes", "file does", with(`"file":{"name":"a","mimeType":"a"}`)},
		{"file with another member", "file does", with(`"file":{"name":"a","mimeType":"a","sizeBytes":1,"x":1}`)},
		{"F01 Name", "file does", with(`"file":{"Name":"a","mimeType":"a","sizeBytes":1}`)},
		{"F03 sizeBytes twice", "file does", with(`"file":{"name":"a","mimeType":"a","sizeBytes":1,"sizeBytes":1}`)},
		{"F03 name twice by escapes", "file does", with(`"file":{"name":"a","mimeType":"a","sizeBytes":1,"n\u0061me":"a"}`)},
		{"F07 name empty", "file.name", with(file(`""`, `"a"`, `1`))},
		{"F07 name of 256", "file.name", with(file(`"`+strings.Repeat("\U0001F600", 256)+`"`, `"a"`, `1`))},
		{"F07 name of 510", "file.name", with(file(`"`+strings.Repeat("e\u0301", 255)+`"`, `"a"`, `1`))},
		{"name null", "file.name", with(file(`null`, `"a"`, `1`))},
		{"name number", "file.name", with(file(`1`, `"a"`, `1`))},
		{"F07 mimeType empty", "file.mimeType", with(file(`"a"`, `""`, `1`))},
		{"F07 mimeType of 128", "file.mimeType", with(file(`"a"`, `"`+strings.Repeat("ß", 128)+`"`, `1`))},
		{"mimeType null", "file.mimeType", with(file(`"a"`, `null`, `1`))},

		{"notice without expires_at", "expires_at", with(`"kind":"notice"`)},
		{"notice with file", "notice has a member", envelope(append(notice, file(`"a"`, `"a"`, `1`))...)},
		{"notice with enc", "notice has a member", envelope(append(notice, `"enc":"pairwise"`)...)},
		{"notice with hdr", "notice has a member", envelope(append(notice, `"hdr":"a"`)...)},
		{"notice with an unknown member", "notice has a member", envelope(append(notice, `"x":1`)...)},
		{"notice with a control frame's member", "notice has a member", envelope(append(notice, `"token":"x"`)...)},
		{"F01 notice with Kid", "notice has a member", envelope(append(notice, `"Kid":"AAAAAAAAAAAAAAAAAAAAAA"`)...)},
	} {
		t.Run(test.name, func(t *testing.T) { requireRefused(t, test.data, test.detail) })
	}
	for _, name := range []string{"v", "id", "session_id", "from", "to", "kind", "gen", "seq", "ts", "nonce", "ct"} {
		t.Run("without "+name, func(t *testing.T) {
			detail := "missing"
			if name == "kind" {
				detail = "kind is"
			}
			requireRefused(t, without(name), detail)
		})
	}
	// F09
	for _, size := range []string{`700001`, `-1`, `-0`, `1.0`, `7e5`, `7.0e5`, `0.5`, `700000.0000000000001`, `1e400`, `18446744073709551617`, `"5"`, `true`, `null`, `[]`} {
		t.Run("F09 sizeBytes "+size, func(t *testing.T) { requireRefused(t, with(file(`"a"`, `"b"`, size)), "file.sizeBytes") })
	}
	// F08
	forbidden := []rune{0x7F, 0x2028, 0x2029}
	for r := range rune(0x20) {
		forbidden = append(forbidden, r, 0x80+r)
	}
	for _, r := range forbidden {
		t.Run(fmt.Sprintf("F08 %U", r), func(t *testing.T) {
			escaped := fmt.Sprintf(`"a\u%04xb"`, r)
			requireRefused(t, with(file(escaped, `"b"`, `1`)), "file.name")
			requireRefused(t, with(file(`"a"`, escaped, `1`)), "file.mimeType")
			if r >= ' ' { // raw ones are no JSON
				requireRefused(t, with(file(`"a`+string(r)+`b"`, `"b"`, `1`)), "file.name")
				requireRefused(t, with(file(`"a"`, `"a`+string(r)+`b"`, `1`)), "file.mimeType")
			}
		})
	}
}

func requireRefused(t *testing.T, data, detail string) {
	t.Helper()
	_, refused := check(t, data)
	require.NotNil(t, refused)
	require.Equal(t, wire.InvalidEnvelope, refused.Code)
	require.Contains(t, refused.Detail, detail)
	require.Error(t, judge([]byte(data)))
}

// DESIGN section 6, "Admission": viewers and the rate are judged before the shape,
// and their nacks need the id, a viewer's also the kind.
func TestRefusedEnvelopesKeepWhatCouldBeRead(t *testing.T) {
	e, refused := check(t, with(`"kind":"notice"`, `"file":null`, `"v":2`, `"to":5`, `"seq":-1`))
	require.NotNil(t, refused)
	require.Equal(t, "m-1", string(e.ID))
	require.Equal(t, wire.KindNotice, e.Kind)
	require.Equal(t, sender, string(e.From))
	require.EqualValues(t, 7, e.Gen)

	e, refused = check(t, with(`"id":"a b"`))
	require.NotNil(t, refused)
	require.Nil(t, e.ID, "an id that is not one is not echoed")
}

func TestCheckNamesEveryRule(t *testing.T) {
	for _, e := range wire.Faults() {
		require.Equal(t, wire.InvalidEnvelope, e.Code)
		require.NotEmpty(t, e.Detail)
	}
	require.Nil(t, new(wire.Envelope).Check())
}

// judge says by other means than the scanner whether a well-formed envelope with
// unique names keeps the rules of shape: an oracle for the tests.
func judge(data []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	for _, name := range []string{"v", "id", "session_id", "from", "to", "kind", "gen", "seq", "ts", "nonce", "ct"} {
		if members[name] == nil {
			return errors.New(name + " is missing")
		}
	}
	for _, name := range []string{"id", "session_id", "from", "to", "kind", "nonce", "ct", "kid", "sig", "enc", "hdr"} {
		if text, err := stringOf(members[name], `""`); err != nil || strings.Contains(text, "\x00") {
			return errors.New(name + " is no string")
		}
	}
	for _, name := range []string{"v", "gen", "seq", "ts", "expires_at"} {
		if n, err := integerOf(members[name], 1<<53-1); err != nil || name == "v" && n != 1 {
			return errors.New(name + " is no integer")
		}
	}
	id, _ := stringOf(members["id"], "")
	if len(id) < 1 || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r < 33 || r > 126 }) {
		return errors.New("id")
	}
	if kid, _ := stringOf(members["kid"], `"0123456789012345678901"`); len(kid) != 22 || strings.Trim(kid, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return errors.New("kid")
	}
	kind, _ := stringOf(members["kind"], "")
	switch kind {
	case "message", "senderkey", "control", "key_request":
	case "notice":
		if members["expires_at"] == nil {
			return errors.New("expires_at")
		}
		for name := range members {
			if !slices.Contains(strings.Fields("v id session_id from to kind gen seq ts expires_at nonce ct sig kid"), name) {
				return errors.New("notice has " + name)
			}
		}
	default:
		return errors.New("kind")
	}
	if members["file"] != nil {
		return judgeFile(members["file"])
	}
	return nil
}

func judgeFile(data []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || len(members) != 3 || members["name"] == nil || members["mimeType"] == nil || members["sizeBytes"] == nil {
		return errors.New("file")
	}
	if strings.Count(string(data), ":")-strings.Count(string(members["name"]), ":")-strings.Count(string(members["mimeType"]), ":") != 3 {
		return errors.New("a member of file twice")
	}
	for name, limit := range map[string]int{"name": 255, "mimeType": 127} {
		text, err := stringOf(members[name], "")
		runes := []rune(text)
		if err != nil || len(runes) < 1 || len(runes) > limit {
			return errors.New(name)
		}
		for _, r := range runes {
			if r < 0x20 || r == 0x7F || r >= 0x80 && r < 0xA0 || r == 0x2028 || r == 0x2029 {
				return errors.New(name)
			}
		}
	}
	_, err := integerOf(members["sizeBytes"], 700_000)
	return err
}

func stringOf(raw json.RawMessage, absent string) (text string, err error) {
	if raw == nil {
		raw = json.RawMessage(absent)
	}
	if len(raw) == 0 || raw[0] != '"' {
		return "", errors.New("no string")
	}
	return text, json.Unmarshal(raw, &text)
}

func integerOf(raw json.RawMessage, limit uint64) (uint64, error) {
	if raw == nil {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err == nil && n > limit {
		err = errors.New("too large")
	}
	return n, err
}
