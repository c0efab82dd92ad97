package identity_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
)

// What another implementation signed is signed here, too, and accepted.
func TestPrekeyVectors(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Accepted {
		private := ed25519.NewKeyFromSeed(unhex(t, v.IdentitySeed, 32))
		prekey := bytes32(t, v.Prekey)
		require.NoError(t, identity.CheckAgreement(prekey))
		signature := identity.SignPrekey(private, v.PrekeyID, prekey)
		require.Equal(t, v.PrekeySignature, hex.EncodeToString(signature[:]))
		require.True(t, identity.VerifyPrekey(bytes32(t, v.Identity), v.PrekeyID, prekey, signature))
	}
}

// A signature serves for the id, key and device it was made for, and for no other purpose
// (FAULTS BL-H09).
func TestPrekeySignaturesAreBound(t *testing.T) {
	t.Parallel()
	private, keys, others := goodPrivate(1), goodKeys(t, 1), goodKeys(t, 2)
	prekey := others.Agreement
	good := identity.SignPrekey(private, 7, prekey)
	require.True(t, identity.VerifyPrekey(keys.Identity, 7, prekey, good))
	require.False(t, identity.VerifyPrekey(keys.Identity, 8, prekey, good), "another id")
	require.False(t, identity.VerifyPrekey(keys.Identity, 7<<24, prekey, good), "the id's bytes the other way round")
	require.False(t, identity.VerifyPrekey(keys.Identity, 7, keys.Agreement, good), "another key")
	require.False(t, identity.VerifyPrekey(others.Identity, 7, prekey, good), "another device's key")
	for bit := range 512 {
		changed := good
		changed[bit/8] ^= 1 << (bit % 8)
		require.False(t, identity.VerifyPrekey(keys.Identity, 7, prekey, changed), "bit %d", bit)
	}
	stretched := good
	addOrder(t, stretched[32:])
	require.False(t, identity.VerifyPrekey(keys.Identity, 7, prekey, stretched), "S has one form")

	bare := slices.Concat([]byte{0, 0, 0, 7}, prekey[:])
	for _, label := range []string{"", "peerrelay/signed-prekey/v1", "peerrelay/signed-prekey/v2\x00", "peerrelay/agreement-key/v1\x00"} {
		signature := [64]byte(ed25519.Sign(private, append([]byte(label), bare...)))
		require.False(t, identity.VerifyPrekey(keys.Identity, 7, prekey, signature), label)
	}
	require.False(t, identity.VerifyPrekey(keys.Identity, 7, prekey, identity.SignAgreement(private, prekey)))
	moved := *keys
	moved.Agreement, moved.AgreementSignature = prekey, good
	require.ErrorIs(t, moved.Check(), identity.ErrKeys, "a prekey is no agreement key")
}

// Every X25519 key that the vectors name is refused, signed or not (FAULTS BL-H10).
func TestPrekeysThatAreRefused(t *testing.T) {
	t.Parallel()
	keys := goodKeys(t, 1)
	refused := readVectors(t).RefusedAgreementKeys
	require.NotEmpty(t, refused)
	for _, r := range refused {
		prekey := bytes32(t, r.Key)
		require.ErrorIs(t, identity.CheckAgreement(prekey), identity.ErrKeys, "%s %s", r.Reason, r.Key)
		signature := identity.SignPrekey(goodPrivate(1), 7, prekey)
		require.False(t, identity.VerifyPrekey(keys.Identity, 7, prekey, signature), "%s %s", r.Reason, r.Key)
	}
}
