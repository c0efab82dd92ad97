package signed_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

type vector struct {
	About        string
	IdentitySeed string `json:"identity_seed"`
	Identity     string
	Key          string
	Plaintext    string
	AAD          string
	Signed       string
	Envelope     string
	Spelled      string
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var file struct{ Envelopes []vector }
	require.NoError(t, json.Unmarshal(text, &file))
	require.Len(t, file.Envelopes, 8)
	return file.Envelopes
}

// What another implementation made is read here, and made here byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.About, func(t *testing.T) {
			t.Parallel()
			private := ed25519.NewKeyFromSeed(unhex(t, v.IdentitySeed))
			require.Equal(t, v.Identity, hex.EncodeToString(private[32:]))
			key := [seal.KeySize]byte(unhex(t, v.Key))
			plaintext := unhex(t, v.Plaintext)
			from := member(t, alice, private)
			expected := &signed.Expected{SessionID: room, From: from, Self: bob}
			for _, raw := range []string{v.Envelope, v.Spelled} {
				m, err := signed.Read([]byte(raw), expected)
				require.NoError(t, err)
				require.Equal(t, v.AAD, string(m.AAD()))
				opened := m.CT
				if len(m.Nonce) != 0 {
					opened, err = m.Open(key)
					require.NoError(t, err)
				}
				require.Equal(t, plaintext, append([]byte{}, opened...))

				aad, err := m.Envelope.AAD(m.Nonce)
				require.NoError(t, err)
				require.Equal(t, v.AAD, string(aad))
				ct := plaintext
				if len(m.Nonce) != 0 {
					ct = seal.WithNonce(key, [seal.NonceSize]byte(m.Nonce), plaintext, aad)
				}
				made, err := m.Sign(private, m.Nonce, ct)
				require.NoError(t, err)
				require.Equal(t, v.Envelope, string(made))
			}
			signature, form := unhexSignature(t, v.Envelope), unhex(t, v.Signed)
			require.True(t, ed25519.Verify(ed25519.PublicKey(private[32:]), form, signature))
		})
	}
}
