package signed_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

func nested(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{}`: `{}`,
		" {\n\"b\" : 1 ,\t\"a\":[ true , false , null ]}\r\n": `{"a":[true,false,null],"b":1}`,
		// RFC 8785, section 3.2.3: names are sorted by their UTF-16 code units.
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`: `{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		// RFC 8785, section 3.2.2.2, the string.
		`{"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}`: `{"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"a":0,"b":9007199254740991}`:                                `{"a":0,"b":9007199254740991}`,
		`{"a":{"a":1},"b":{"a":2}}`:                                   `{"a":{"a":1},"b":{"a":2}}`,
		`{"\u0000":"\u0000\u007f"}`:                                   `{"\u0000":"\u0000` + "\x7f" + `"}`,
		nested(wire.MaxDepth):                                         nested(wire.MaxDepth),
	} {
		form, err := signed.Canonical([]byte(raw))
		require.NoError(t, err, raw)
		require.Equal(t, want, string(form))
	}
}

func TestWhatHasNoCanonicalForm(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"nothing":                     "",
		"white space":                 " ",
		"array":                       `[]`,
		"string":                      `"a"`,
		"null":                        `null`,
		"cut":                         `{"a":1`,
		"cut in a name":               `{"a`,
		"something behind":            `{}{}`,
		"a letter behind":             `{} x`,
		"a zero behind":               "{}\x00",
		"byte order mark":             "\xef\xbb\xbf{}",
		"comment":                     `{}//`,
		"comma":                       `{"a":1,}`,
		"single quotes":               `{'a':1}`,
		"name twice":                  `{"a":1,"a":1}`,
		"name twice, escaped":         `{"a":1,"\u0061":1}`,
		"name twice, surrogates":      `{"😀":1,"\ud83d\ude00":1}`,
		"name twice, inside":          `{"a":{"b":1,"b":1}}`,
		"name twice, in an array":     `{"a":[{"b":1,"c":2,"b":1}]}`,
		"high surrogate":              `{"a":"\ud83d"}`,
		"high surrogate, then text":   `{"a":"\ud83dx"}`,
		"high surrogate twice":        `{"a":"\ud83d\ud83d"}`,
		"low surrogate":               `{"a":"\ude00"}`,
		"surrogate in a name":         `{"\ud83d":1}`,
		"bad UTF-8":                   "{\"a\":\"\xff\"}",
		"bad UTF-8 in a name":         "{\"\xff\":1}",
		"overlong UTF-8":              "{\"a\":\"\xc0\xaf\"}",
		"surrogate as UTF-8":          "{\"a\":\"\xed\xa0\xbd\"}",
		"cut UTF-8":                   "{\"a\":\"\xe2\x82\"}",
		"line break in a string":      "{\"a\":\"\n\"}",
		"unknown escape":              `{"a":"\x41"}`,
		"negative":                    `{"a":-1}`,
		"negative zero":               `{"a":-0}`,
		"fraction":                    `{"a":1.0}`,
		"exponent":                    `{"a":7e5}`,
		"leading zero":                `{"a":01}`,
		"2^53":                        `{"a":9007199254740992}`,
		"2^64":                        `{"a":18446744073709551616}`,
		"2^64+1":                      `{"a":18446744073709551617}`,
		"very long":                   `{"a":` + strings.Repeat("9", 400) + `}`,
		"NaN":                         `{"a":NaN}`,
		"fraction, inside":            `{"a":[[{"b":0.5}]]}`,
		"one level too deep":          nested(wire.MaxDepth + 1),
		"one level too deep, objects": strings.Repeat(`{"a":`, wire.MaxDepth) + "{}" + strings.Repeat("}", wire.MaxDepth),
		"very deep":                   nested(100_000),
		"too long":                    `{"a":"` + strings.Repeat("a", signed.MaxCanonical) + `"}`,
	} {
		form, err := signed.Canonical([]byte(raw))
		require.ErrorIs(t, err, signed.ErrCanonical, name)
		require.Nil(t, form)
		require.Less(t, len(err.Error()), 120)
	}
	_, err := signed.Canonical([]byte(`{"secret":0.5}`))
	require.NotContains(t, err.Error(), "secret")
}

// The form of a form is itself, two programs agree on it, and the relay reads it.
func FuzzCanonical(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add([]byte(v.Envelope))
		f.Add([]byte(v.Spelled))
	}
	f.Add([]byte(nested(wire.MaxDepth)))
	f.Add([]byte(nested(wire.MaxDepth + 1)))
	for _, text := range []string{`{"a":"\u0000\ud83d\ude00\/","\ufb33":1,"\ud83d\ude00":2}`, `{"a":9007199254740992}`, `{"a":1,"\u0061":1}`, `{"":{}}`, `{"a":-0}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		form, err := signed.Canonical(raw)
		require.Equal(t, before, raw)
		if err != nil {
			require.ErrorIs(t, err, signed.ErrCanonical)
			return
		}
		require.LessOrEqual(t, len(form), len(raw))
		again, err := signed.Canonical(form)
		require.NoError(t, err)
		require.Equal(t, form, again)

		other := jsontext.Value(bytes.Clone(raw))
		require.NoError(t, other.Canonicalize())
		require.Equal(t, string(other), string(form))

		var frame wire.ClientFrame
		if len(raw) <= wire.MaxMessage && !bytes.Contains(form, []byte(`"type":`)) {
			require.NoError(t, wire.ParseClient(raw, &frame))
		}
	})
}
