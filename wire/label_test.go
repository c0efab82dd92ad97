package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// FAULTS F07, F08: the API asks the same rules of names and types as the file header does.
func TestLabelsOfFiles(t *testing.T) {
	for limit, valid := range map[int]func(string) bool{wire.MaxFileName: wire.ValidFileName, wire.MaxMIMEType: wire.ValidMIMEType} {
		for _, good := range []string{"a", strings.Repeat("😀", limit), strings.Repeat("e\u0301", limit/2), "\u202e\u200b\u2066\ufeff\u200d"} {
			require.True(t, valid(good), "%q", good)
		}
		for _, bad := range []string{"", strings.Repeat("😀", limit+1), strings.Repeat("e\u0301", limit/2+1), "a\xff", "\xed\xa0\x80"} {
			require.False(t, valid(bad), "%q", bad)
		}
		for r := range rune(0xa0) {
			require.Equal(t, r >= ' ' && r < 0x7f, valid(string(r)), "%U", r)
		}
		require.False(t, valid("a\u2028b"))
		require.False(t, valid("a\u2029b"))
	}
}

func TestValidID(t *testing.T) {
	for _, good := range []string{"m", "!~", strings.Repeat("x", wire.MaxIDLength)} {
		require.True(t, wire.ValidID([]byte(good)), good)
	}
	for _, bad := range []string{"", "a b", "é", "\x7f", "\x00", strings.Repeat("x", wire.MaxIDLength+1)} {
		require.False(t, wire.ValidID([]byte(bad)), "%q", bad)
	}
}
