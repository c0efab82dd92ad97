// Package e2ee_test proves the primitives that the packages below take from the standard library,
// as they use them, with the vectors of Project Wycheproof. Those of X25519 and of
// XChaCha20-Poly1305 are with the packages that wrap them (pairwise, seal), Argon2id with
// client/keystore.
//
// The files in testdata are from github.com/c2sp/wycheproof v0.0.0-20260902155932-3fa63dd0344a
// (Apache License 2.0).
package e2ee_test

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors reads a file. One that is missing, or shorter than it says, fails the test.
func vectors[G any](t *testing.T, name string) []G {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	var file struct {
		NumberOfTests int
		TestGroups    []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &file))
	groups, tests := make([]G, len(file.TestGroups)), 0
	for i, raw := range file.TestGroups {
		require.NoError(t, json.Unmarshal(raw, &groups[i]))
		var count struct{ Tests []json.RawMessage }
		require.NoError(t, json.Unmarshal(raw, &count))
		tests += len(count.Tests)
	}
	require.Equal(t, file.NumberOfTests, tests)
	require.Positive(t, tests)
	return groups
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	require.NoError(t, err)
	return data
}

// RFC 8032.
func TestEd25519(t *testing.T) {
	t.Parallel()
	type group struct {
		PublicKey struct{ PK string }
		Tests     []struct {
			TcID             int
			Msg, Sig, Result string
		}
	}
	for _, g := range vectors[group](t, "ed25519_test.json") {
		key := ed25519.PublicKey(unhex(t, g.PublicKey.PK))
		for _, v := range g.Tests {
			require.Equal(t, v.Result == "valid", ed25519.Verify(key, unhex(t, v.Msg), unhex(t, v.Sig)), v.TcID)
		}
	}
}

// RFC 2104, as chains of message keys use it.
func TestHMAC(t *testing.T) {
	t.Parallel()
	type group struct {
		TagSize int
		Tests   []struct {
			TcID                  int
			Key, Msg, Tag, Result string
		}
	}
	for _, g := range vectors[group](t, "hmac_sha256_test.json") {
		for _, v := range g.Tests {
			mac := hmac.New(sha256.New, unhex(t, v.Key))
			mac.Write(unhex(t, v.Msg))
			require.Equal(t, v.Result == "valid", hmac.Equal(unhex(t, v.Tag), mac.Sum(nil)[:g.TagSize/8]), v.TcID)
		}
	}
}

// RFC 5869.
func TestHKDF(t *testing.T) {
	t.Parallel()
	type group struct {
		Tests []struct {
			TcID                         int
			IKM, Salt, Info, OKM, Result string
			Size                         int
		}
	}
	for _, g := range vectors[group](t, "hkdf_sha256_test.json") {
		for _, v := range g.Tests {
			okm, err := hkdf.Key(sha256.New, unhex(t, v.IKM), unhex(t, v.Salt), string(unhex(t, v.Info)), v.Size)
			if v.Result != "valid" {
				require.Error(t, err, v.TcID)
				continue
			}
			require.NoError(t, err, v.TcID)
			require.Equal(t, unhex(t, v.OKM), okm, v.TcID)
		}
	}
}
