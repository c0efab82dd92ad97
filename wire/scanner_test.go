package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

func nested(open, inner, shut string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
}

var scans = []struct {
	name, data, broken string
}{
	{"empty object", `{}`, ""},
	{"every kind of value", `{"a":[1,-2.5e+7,true,false,null,"x",{},[]],"b":{"c":[[{"d":{}}]]}}`, ""},
	{"white space", " \t\r\n{ \"a\" \t: 1 ,\n\"b\":[ ] , \"c\":{ } } \r\n\t", ""},
	{"every escape", `{"a":"\"\\\/\b\f\n\r\t\u0041\u00e9\uFFFF\ud83d\ude00"}`, ""},
	{"the first and the last pair", `{"a":"\ud800\udc00\udbff\udfff"}`, ""},
	{"all lengths of UTF-8", `{"é":"ß€𐍈"}`, ""},
	{"noncharacters", `{"a":"` + "\uffff\ufffe\U0010ffff" + `"}`, ""},
	{"delete", "{\"a\":\"\x7f\"}", ""},
	{"depth 32", `{"a":` + nested("[", "", "]", 31) + `}`, ""},
	{"depth 32 of objects", nested(`{"a":`, "1", "}", 32), ""},
	{"depth 32 many times", `{"a":[` + strings.Repeat(nested("[", "", "]", 30)+",", 50) + `1]}`, ""},
	{"a big number", `{"a":` + strings.Repeat("9", 400) + `.0e-999}`, ""},
	{"nested names twice", `{"a":{"b":1,"b":2}}`, ""},

	{"nothing", ``, "not an object"},
	{"spaces", `   `, "not an object"},
	{"null", `null`, "not an object"},
	{"array", `[{}]`, "not an object"},
	{"string", `"{}"`, "not an object"},
	{"E10 byte order mark", "\ufeff{}", "not an object"},
	{"vertical tab", "\v{}", "not an object"},
	{"no-break space", "\u00a0{}", "not an object"},
	{"E10 two objects", `{}{}`, "trailing"},
	{"E10 junk after", `{} x`, "trailing"},
	{"E10 comma after", `{},`, "trailing"},
	{"E10 NUL after", "{}\x00", "trailing"},

	{"open", `{`, "syntax"},
	{"name only", `{"a"`, "syntax"},
	{"no colon", `{"a" 1}`, "syntax"},
	{"no value", `{"a":}`, "syntax"},
	{"no value at the end", `{"a":`, "syntax"},
	{"comma first", `{,"a":1}`, "syntax"},
	{"comma last", `{"a":1,}`, "syntax"},
	{"no comma", `{"a":1 "b":2}`, "syntax"},
	{"name of a number", `{1:1}`, "syntax"},
	{"bare name", `{a:1}`, "syntax"},
	{"single quotes", `{'a':1}`, "syntax"},
	{"comment", `{"a":1/*x*/}`, "syntax"},
	{"wrong closing", `{"a":[1}`, "syntax"},
	{"wrong closing of an object", `{"a":{"b":1]`, "syntax"},
	{"open array", `{"a":[`, "syntax"},
	{"comma first in array", `{"a":[,1]}`, "syntax"},
	{"comma last in array", `{"a":[1,]}`, "syntax"},
	{"comma last in inner object", `{"a":{"b":1,}}`, "syntax"},
	{"name in array", `{"a":["b":1]}`, "syntax"},
	{"value in inner object", `{"a":{1}}`, "syntax"},
	{"capital literal", `{"a":True}`, "syntax"},
	{"short literal", `{"a":tru}`, "syntax"},
	{"long literal", `{"a":nulll}`, "syntax"},
	{"NaN", `{"a":NaN}`, "syntax"},
	{"infinity", `{"a":-Infinity}`, "syntax"},
	{"plus", `{"a":+1}`, "syntax"},
	{"minus alone", `{"a":-}`, "syntax"},
	{"leading zero", `{"a":00}`, "syntax"},
	{"leading zero, negative", `{"a":-01}`, "syntax"},
	{"hexadecimal", `{"a":0x10}`, "syntax"},
	{"point first", `{"a":.5}`, "syntax"},
	{"point last", `{"a":1.}`, "syntax"},
	{"empty exponent", `{"a":1e}`, "syntax"},
	{"signed empty exponent", `{"a":1e+}`, "syntax"},
	{"open string", `{"a":"b`, "syntax"},
	{"escape at the end", `{"a":"b\`, "syntax"},
	{"unknown escape", `{"a":"\x41"}`, "syntax"},
	{"capital U", `{"a":"\U0041"}`, "syntax"},
	{"short \\u", `{"a":"\u004"}`, "syntax"},
	{"short \\u at the end", `{"a":"\u00`, "syntax"},
	{"bad digits", `{"a":"\u00g0"}`, "syntax"},
	{"raw line feed", "{\"a\":\"b\n\"}", "syntax"},
	{"raw NUL", "{\"a\":\"b\x00\"}", "syntax"},
	{"raw tab in a name", "{\"a\t\":1}", "syntax"},
	{"raw control after eight bytes", "{\"a\":\"12345678\x1f2345678\"}", "syntax"},

	{"F04 lone high surrogate", `{"a":"a\ud800b"}`, "surrogate"},
	{"F04 lone low surrogate", `{"a":"\udc00"}`, "surrogate"},
	{"F04 high surrogate last", `{"a":"\ud83d"}`, "surrogate"},
	{"F04 two high surrogates", `{"a":"\ud83d\ud83d"}`, "surrogate"},
	{"F04 halves the wrong way round", `{"a":"\ude00\ud83d"}`, "surrogate"},
	{"F04 high surrogate before a unit above the low ones", `{"a":"\ud83d\ue000"}`, "surrogate"},
	{"F04 high surrogate before a unit below the low ones", `{"a":"\udbff\ud7ff"}`, "surrogate"},
	{"F04 half a pair before another escape", `{"a":"\ud83d\n"}`, "surrogate"},
	{"F04 half a pair in a name", `{"\ud83d":1}`, "surrogate"},
	{"F04 half a pair deep inside", `{"a":[{"b":["\udfff"]}]}`, "surrogate"},

	{"F04 surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "utf8"},
	{"F04 lone FF", "{\"a\":\"\xff\"}", "utf8"},
	{"overlong slash", "{\"a\":\"\xc0\xaf\"}", "utf8"},
	{"cut rune", "{\"a\":\"\xe2\x82\"}", "utf8"},
	{"over U+10FFFF", "{\"a\":\"\xf4\x90\x80\x80\"}", "utf8"},
	{"bad byte in a name", "{\"\x80\":1}", "utf8"},
	{"bad byte deep inside", "{\"a\":[[\"12345678\x80\"]]}", "utf8"},

	{"B07 depth 33", `{"a":` + nested("[", "", "]", 32) + `}`, "depth"},
	{"B07 depth 33 of objects", nested(`{"a":`, "1", "}", 33), "depth"},
	{"B07 depth 33, then broken", `{"a":` + strings.Repeat("[", 32), "depth"},

	{"F03 twice", `{"a":1,"a":1}`, "duplicate"},
	{"F03 twice, known", `{"id":"a","id":"a"}`, "duplicate"},
	{"F03 twice by escapes", `{"id":"a","\u0069d":"a"}`, "duplicate"},
	{"F03 unknown twice by escapes", `{"\u0078":1,"x":2}`, "duplicate"},
	{"F03 twice by a surrogate pair", `{"😀":1,"\ud83d\ude00":2}`, "duplicate"},
	{"F03 empty name twice", `{"":1,"":2}`, "duplicate"},
	{"F03 the first of many twice", `{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"0":0}`, "duplicate"},
	{"F03 the last of many twice", `{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"9":9}`, "duplicate"},
	{"many names", `{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"10":9}`, ""},
	{"F01 names in two cases", `{"to":1,"TO":2,"To":3}`, ""},
}

func TestScanner(t *testing.T) {
	for _, test := range scans {
		t.Run(test.name, func(t *testing.T) {
			broken, _ := wire.Scan([]byte(test.data))
			require.Equal(t, test.broken, broken)
		})
	}
}

// Whatever stands where in a word of eight bytes, it is found.
func TestScannerFindsEveryByteInEveryPlace(t *testing.T) {
	for before := range 24 {
		for c := range 256 {
			for _, after := range []int{0, 3, 20} {
				text := strings.Repeat("x", before) + string([]byte{byte(c)}) + strings.Repeat("y", after)
				_, known := wire.Scan([]byte(`{"ct":"` + text + `"}`))
				if ok := c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf; ok {
					require.Equal(t, text, known["ct"])
				} else {
					require.NotContains(t, known, "ct", "byte %#x after %d bytes", c, before)
				}
			}
		}
	}
}

func TestScannerKnowsEveryName(t *testing.T) { require.Empty(t, wire.UnnamedMembers()) }

// B07: hostile input costs no more than honest input of the same size.
func TestHostileFramesAreCheap(t *testing.T) {
	for name, data := range map[string]string{
		"brackets":          strings.Repeat("[", wire.MaxMessage),
		"objects":           strings.Repeat(`{"a":`, 10_000),
		"brackets in file":  `{"file":` + strings.Repeat("[", wire.MaxMessage-8),
		"closed brackets":   `{"a":[` + strings.Repeat("[],", 20_000) + `0]}`,
		"unknown names":     manyNames(8000),
		"backslashes":       `{"ct":"` + strings.Repeat(`\\`, 32_000) + `"}`,
		"surrogate pairs":   `{"id":"` + strings.Repeat(`\ud83d\ude00`, 5_400) + `"}`,
		"two-byte runes":    `{"ct":"` + strings.Repeat(`é`, 32_000) + `"}`,
		"one id many times": `{` + strings.Repeat(`"id":"\u0061",`, 4_600) + `"v":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(data), wire.MaxMessage)
			var frame wire.ClientFrame
			began := time.Now()
			_ = wire.ParseClient([]byte(data), &frame)
			require.Less(t, time.Since(began), 100*time.Millisecond)
		})
	}
}

// FuzzScanner compares with encoding/json: what is accepted is valid JSON and read
// the same, and what is valid JSON and refused breaks a rule that can be seen.
func FuzzScanner(f *testing.F) {
	for _, test := range scans {
		f.Add([]byte(test.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		broken, known := wire.Scan(data)
		trimmed := bytes.TrimLeft(data, " \t\r\n")
		object := len(trimmed) > 0 && trimmed[0] == '{'
		switch broken {
		case "":
			require.True(t, json.Valid(data))
			require.True(t, utf8.Valid(data))
			require.True(t, object)
			require.LessOrEqual(t, depth(data), wire.MaxDepth)
			require.False(t, twice(t, data))
			sameMembers(t, data, known)
		case "not an object":
			require.False(t, object)
		case "syntax", "trailing":
			require.False(t, json.Valid(data))
		case "utf8":
			require.False(t, utf8.Valid(data))
		case "surrogate":
			require.Regexp(t, `\\u[dD][89a-fA-F]`, string(data))
		case "depth":
			require.Greater(t, depth(data), wire.MaxDepth)
		case "duplicate":
			require.True(t, twice(t, data))
		default:
			t.Fatalf("refused for %q", broken)
		}
	})
}

// depth counts brackets outside strings.
func depth(data []byte) (deepest int) {
	inside, open := false, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case inside && c == '\\':
			i++
		case inside:
		case c == '{' || c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return deepest
}

// twice reports whether a name of the top-level object is there twice.
func twice(t *testing.T, data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	_, err := d.Token()
	require.NoError(t, err)
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		require.NoError(t, err)
		text, ok := name.(string)
		require.True(t, ok)
		if seen[text] {
			return true
		}
		seen[text] = true
		var value json.RawMessage
		require.NoError(t, d.Decode(&value))
	}
	return false
}

func sameMembers(t *testing.T, data []byte, known map[string]string) {
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &members))
	for name, got := range known {
		want := string(members[name])
		if want[0] == '"' {
			require.NoError(t, json.Unmarshal(members[name], &want))
		}
		require.Equal(t, want, got, name)
		delete(members, name)
	}
	for _, name := range []string{"v", "id", "kind", "type", "file", "last_id"} {
		require.NotContains(t, members, name)
	}
}
