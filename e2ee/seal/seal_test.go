package seal_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
)

// wycheproof is testdata/xchacha20_poly1305_test.json, as it stands in
// github.com/c2sp/wycheproof v0.0.0-20260902155932-3fa63dd0344a (Apache License 2.0).
type wycheproof struct {
	NumberOfTests int
	TestGroups    []struct {
		IVSize, KeySize, TagSize int
		Tests                    []struct {
			TcID                               int
			Key, IV, AAD, Msg, CT, Tag, Result string
			Comment                            string
		}
	}
}

func TestWycheproof(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/xchacha20_poly1305_test.json")
	require.NoError(t, err)
	var vectors wycheproof
	require.NoError(t, json.Unmarshal(text, &vectors))
	valid, invalid, others := 0, 0, 0
	for _, group := range vectors.TestGroups {
		require.Equal(t, 8*seal.KeySize, group.KeySize)
		require.Equal(t, 8*seal.Overhead, group.TagSize)
		for _, v := range group.Tests {
			if group.IVSize != 8*seal.NonceSize {
				require.Equal(t, "invalid", v.Result)
				others++ // there is no such nonce here
				continue
			}
			key, nonce := [seal.KeySize]byte(unhex(t, v.Key)), [seal.NonceSize]byte(unhex(t, v.IV))
			msg, aad := unhex(t, v.Msg), unhex(t, v.AAD)
			sealed := append(unhex(t, v.CT), unhex(t, v.Tag)...)
			opened, err := seal.Open(key, nonce, sealed, aad)
			if v.Result != "valid" {
				require.Equal(t, "invalid", v.Result)
				require.ErrorIs(t, err, seal.ErrOpen, "%d %s", v.TcID, v.Comment)
				require.Nil(t, opened)
				invalid++
				continue
			}
			require.NoError(t, err, "%d %s", v.TcID, v.Comment)
			require.True(t, bytes.Equal(msg, opened), v.TcID)
			require.Equal(t, sealed, seal.WithNonce(key, nonce, msg, aad), v.TcID)
			valid++
		}
	}
	require.Equal(t, []int{246, 60, 9}, []int{valid, invalid, others})
	require.Equal(t, vectors.NumberOfTests, valid+invalid+others)
}

// draft-irtf-cfrg-xchacha-03, appendix A.3.1.
func TestDraft(t *testing.T) {
	t.Parallel()
	key := [seal.KeySize]byte(unhex(t, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"))
	nonce := [seal.NonceSize]byte(unhex(t, "404142434445464748494a4b4c4d4e4f5051525354555657"))
	aad := unhex(t, "50515253c0c1c2c3c4c5c6c7")
	const text = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."
	ct := seal.WithNonce(key, nonce, []byte(text), aad)
	require.Equal(t, "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"+
		"2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff921f9664c97637da9768812f615c68b13b52e"+
		"c0875924c1c7987947deafd8780acf49", hex.EncodeToString(ct))
}

// Every bit counts, of everything, and nothing is left out at the end.
func TestTamperedTextIsRefused(t *testing.T) {
	t.Parallel()
	key := [seal.KeySize]byte{1}
	aad := []byte("who and where")
	nonce, ct := seal.Seal(key, []byte("what"), aad)
	refused := func(key [seal.KeySize]byte, nonce [seal.NonceSize]byte, ct, aad []byte) {
		t.Helper()
		opened, err := seal.Open(key, nonce, ct, aad)
		require.Equal(t, seal.ErrOpen, err)
		require.Nil(t, opened)
	}
	for i := range 8 * len(ct) {
		refused(key, nonce, flipped(ct, i), aad)
	}
	for i := range 8 * len(aad) {
		refused(key, nonce, ct, flipped(aad, i))
	}
	for i := range 8 * len(nonce) {
		refused(key, [seal.NonceSize]byte(flipped(nonce[:], i)), ct, aad)
	}
	for i := range 8 * len(key) {
		refused([seal.KeySize]byte(flipped(key[:], i)), nonce, ct, aad)
	}
	for n := range ct {
		refused(key, nonce, ct[:n], aad)
	}
	refused(key, nonce, append(bytes.Clone(ct), 0), aad)
	refused(key, nonce, nil, aad)
	refused(key, nonce, ct, nil)

	opened, err := seal.Open(key, nonce, ct, aad)
	require.NoError(t, err)
	require.Equal(t, "what", string(opened))
}

func TestArgumentsAreLeftAlone(t *testing.T) {
	t.Parallel()
	backing := []byte("plaintext, and what is behind it in memory, and more of it")
	before := bytes.Clone(backing)
	nonce, ct := seal.Seal([seal.KeySize]byte{2}, backing[:9], nil)
	require.Equal(t, before, backing)
	require.Len(t, ct, 9+seal.Overhead)
	sealed := append(bytes.Clone(ct), "behind"...)
	_, err := seal.Open([seal.KeySize]byte{2}, nonce, sealed[:len(ct)], nil)
	require.NoError(t, err)
	require.Equal(t, append(bytes.Clone(ct), "behind"...), sealed)
}

func TestEmptyTextIsSealed(t *testing.T) {
	t.Parallel()
	nonce, ct := seal.Seal([seal.KeySize]byte{3}, nil, nil)
	require.Len(t, ct, seal.Overhead)
	opened, err := seal.Open([seal.KeySize]byte{3}, nonce, ct, nil)
	require.NoError(t, err)
	require.Empty(t, opened)
	require.NotNil(t, opened)
}

func TestNoncesAreDrawn(t *testing.T) {
	t.Parallel()
	seen := map[[seal.NonceSize]byte]bool{{}: true}
	for range 1000 {
		nonce, _ := seal.Seal([seal.KeySize]byte{4}, nil, nil)
		require.False(t, seen[nonce])
		seen[nonce] = true
	}
}

func flipped(b []byte, bit int) []byte {
	b = bytes.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func BenchmarkSeal1KiB(b *testing.B) {
	key, text := [seal.KeySize]byte{1}, make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		seal.Seal(key, text, nil)
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	key := [seal.KeySize]byte{1}
	nonce, ct := seal.Seal(key, make([]byte, 1024), nil)
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := seal.Open(key, nonce, ct, nil); err != nil {
			b.Fatal(err)
		}
	}
}
