package identity_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"filippo.io/edwards25519"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
)

// vectors is testdata/vectors.json.
type vectors struct {
	Accepted []struct {
		IdentitySeed        string `json:"identity_seed"`
		AgreementPrivate    string `json:"agreement_private"`
		Identity            string `json:"identity"`
		Agreement           string `json:"agreement"`
		AgreementSignature  string `json:"agreement_signature"`
		Fingerprint         string `json:"fingerprint"`
		Token               string `json:"token"`
		EnrollmentSignature string `json:"enrollment_signature"`
		Nonce               string `json:"nonce"`
		Device              string `json:"device"`
		SignInSignature     string `json:"sign_in_signature"`
		PrekeyID            uint32 `json:"prekey_id"`
		Prekey              string `json:"prekey"`
		PrekeySignature     string `json:"prekey_signature"`
	} `json:"accepted"`
	RefusedIdentityKeys  []refusedKey `json:"refused_identity_keys"`
	RefusedAgreementKeys []refusedKey `json:"refused_agreement_keys"`
}

type refusedKey struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

func bytes32(t *testing.T, text string) [32]byte {
	t.Helper()
	return [32]byte(unhex(t, text, 32))
}

func unhex(t *testing.T, text string, size int) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, raw, size)
	return raw
}

// Whatever else is right with it, an identity key that the vectors name is refused: the
// 14 encodings of points of small order, every encoding of a number of 2^255-19 and
// more, points outside the prime-order group, and numbers that are no point
// (FAULTS BL-H10).
func TestIdentityKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	refused := readVectors(t).RefusedIdentityKeys
	require.Len(t, refused, 14+34+7+4)
	for _, r := range refused {
		t.Run(r.Reason+" "+r.Key, func(t *testing.T) {
			t.Parallel()
			keys := goodKeys(t, 1)
			keys.Identity = bytes32(t, r.Key)
			err := keys.Check()
			require.ErrorIs(t, err, identity.ErrKeys)
			require.ErrorContains(t, err, "identity key:")
		})
	}
}

// An agreement key that the vectors name is refused though the identity key signed it.
func TestAgreementKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	refused := readVectors(t).RefusedAgreementKeys
	require.Len(t, refused, 14+36)
	for _, r := range refused {
		t.Run(r.Reason+" "+r.Key, func(t *testing.T) {
			t.Parallel()
			keys := goodKeys(t, 1)
			keys.Agreement = bytes32(t, r.Key)
			keys.AgreementSignature = identity.SignAgreement(goodPrivate(1), keys.Agreement)
			err := keys.Check()
			require.ErrorIs(t, err, identity.ErrKeys)
			require.ErrorContains(t, err, "agreement key:")
			require.NotContains(t, err.Error(), "signature of")
		})
	}
}

// Under the neutral element anybody makes a signature that fits every message, which
// the standard library accepts: R the neutral element, S zero. It opens nothing.
func TestForgedUnderTheNeutralElement(t *testing.T) {
	t.Parallel()
	var keys identity.Keys
	keys.Identity = [32]byte{1}
	keys.Agreement = goodKeys(t, 1).Agreement
	keys.AgreementSignature = [64]byte{1}
	require.True(t, ed25519.Verify(keys.Identity[:], []byte("anything"), keys.AgreementSignature[:]))
	require.ErrorIs(t, keys.Check(), identity.ErrKeys)
	require.False(t, identity.VerifyEnrollment([32]byte{7}, &keys, [64]byte{1}))
}

// The refused points with a small-order part are what they are said to be: beside the
// seven of them, the same point without that part is accepted.
func TestMixedOrderIsWhatIsRefused(t *testing.T) {
	t.Parallel()
	keys := goodKeys(t, 1)
	require.NoError(t, keys.Check())
	good, err := new(edwards25519.Point).SetBytes(keys.Identity[:])
	require.NoError(t, err)
	eight := new(edwards25519.Point).MultByCofactor(good)
	mixed := 0
	for _, r := range readVectors(t).RefusedIdentityKeys {
		if r.Reason != "small-order part" {
			continue
		}
		raw := bytes32(t, r.Key)
		point, err := new(edwards25519.Point).SetBytes(raw[:])
		require.NoError(t, err)
		require.Equal(t, 1, eight.Equal(new(edwards25519.Point).MultByCofactor(point)))
		mixed++
	}
	require.Equal(t, 7, mixed)
}
