package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func TestTokenHasOneTextForm(t *testing.T) {
	t.Parallel()
	text, hash := store.NewToken()
	got, ok := store.HashToken([]byte(text))
	require.True(t, ok)
	require.Equal(t, hash, got)
	other, otherHash := store.NewToken()
	require.NotEqual(t, text, other)
	require.NotEqual(t, hash, otherHash)

	// BLAKE2b-256 of 32 zero bytes.
	zero, ok := store.HashToken([]byte(strings.Repeat("A", 43)))
	require.True(t, ok)
	require.Equal(t, []byte{0x89, 0xeb, 0x0d, 0x6a, 0x8a, 0x69, 0x1d, 0xae}, zero[:8])

	for name, bad := range map[string]string{
		"empty":               "",
		"padded":              text + "=",
		"short":               text[:42],
		"long":                text + "A",
		"bits after the last": strings.Repeat("A", 42) + "B",
		"line break inside":   text[:20] + "\n" + text[21:],
		"line break at end":   text[:42] + "\n",
		"space":               " " + text[1:],
		"standard alphabet":   strings.Repeat("A", 42) + "/",
		"NUL":                 text[:42] + "\x00",
	} {
		_, ok := store.HashToken([]byte(bad))
		require.False(t, ok, name)
	}
}
