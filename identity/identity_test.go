package identity_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
)

func goodPrivate(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// goodKeys are accepted keys, the same ones for the same seed.
func goodKeys(t testing.TB, seed byte) *identity.Keys {
	t.Helper()
	private := goodPrivate(seed)
	agreement, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{seed + 1}, 32))
	require.NoError(t, err)
	return keysOf(private, agreement)
}

func keysOf(private ed25519.PrivateKey, agreement *ecdh.PrivateKey) *identity.Keys {
	var keys identity.Keys
	copy(keys.Identity[:], private[ed25519.SeedSize:])
	keys.Agreement = [32]byte(agreement.PublicKey().Bytes())
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	return &keys
}

// What another implementation made is made here, too, and accepted.
func TestVectors(t *testing.T) {
	t.Parallel()
	accepted := readVectors(t).Accepted
	require.NotEmpty(t, accepted)
	for _, v := range accepted {
		private := ed25519.NewKeyFromSeed(unhex(t, v.IdentitySeed, 32))
		agreement, err := ecdh.X25519().NewPrivateKey(unhex(t, v.AgreementPrivate, 32))
		require.NoError(t, err)
		keys := keysOf(private, agreement)
		require.Equal(t, v.Identity, hex.EncodeToString(keys.Identity[:]))
		require.Equal(t, v.Agreement, hex.EncodeToString(keys.Agreement[:]))
		require.Equal(t, v.AgreementSignature, hex.EncodeToString(keys.AgreementSignature[:]))
		require.NoError(t, keys.Check())
		require.Equal(t, v.Fingerprint, keys.Fingerprint())

		token, nonce, device := bytes32(t, v.Token), bytes32(t, v.Nonce), [16]byte(unhex(t, v.Device, 16))
		enrollment := identity.SignEnrollment(private, token, keys)
		require.Equal(t, v.EnrollmentSignature, hex.EncodeToString(enrollment[:]))
		require.True(t, identity.VerifyEnrollment(token, keys, enrollment))
		signIn := identity.SignIn(private, nonce, device)
		require.Equal(t, v.SignInSignature, hex.EncodeToString(signIn[:]))
		require.True(t, identity.VerifySignIn(keys.Identity, nonce, device, signIn))
	}
}

// The public keys of RFC 8032 section 7.1 and RFC 7748 section 6.1 are accepted.
func TestKeysOfTheRFCs(t *testing.T) {
	t.Parallel()
	agreements := []string{
		"8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
		"de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
	}
	for _, v := range []struct{ seed, public string }{
		{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"},
		{"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"},
		{"f5e5767cf153319517630f226876b86c8160cc583bc013744c6bf255f5cc0ee5", "278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e"},
		{"833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42", "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf"},
	} {
		private := ed25519.NewKeyFromSeed(unhex(t, v.seed, 32))
		require.Equal(t, v.public, hex.EncodeToString(private[32:]))
		for _, agreement := range agreements {
			keys := identity.Keys{Identity: bytes32(t, v.public), Agreement: bytes32(t, agreement)}
			keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
			require.NoError(t, keys.Check())
		}
	}
}

// Keys as devices make them are never refused.
func TestFreshKeysAreAccepted(t *testing.T) {
	t.Parallel()
	for range 50 {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
		require.NoError(t, err)
		require.NoError(t, keysOf(private, agreement).Check())
	}
}

// A signature serves for the one purpose, key, token, nonce and device it was made for
// (FAULTS BL-H09).
func TestSignaturesAreBound(t *testing.T) {
	t.Parallel()
	private, keys, others := goodPrivate(1), goodKeys(t, 1), goodKeys(t, 2)
	token, nonce, device := [32]byte{1}, [32]byte{2}, [16]byte{3}
	signatures := map[string][64]byte{
		"agreement":  keys.AgreementSignature,
		"enrollment": identity.SignEnrollment(private, token, keys),
		"sign-in":    identity.SignIn(private, nonce, device),
	}
	for purpose, signature := range signatures {
		moved := *keys
		moved.AgreementSignature = signature
		require.Equal(t, purpose == "agreement", moved.Check() == nil, purpose)
		require.Equal(t, purpose == "enrollment", identity.VerifyEnrollment(token, keys, signature), purpose)
		require.Equal(t, purpose == "sign-in", identity.VerifySignIn(keys.Identity, nonce, device, signature), purpose)
	}

	enrollment, signIn := signatures["enrollment"], signatures["sign-in"]
	require.False(t, identity.VerifyEnrollment([32]byte{9}, keys, enrollment), "another invite")
	require.False(t, identity.VerifyEnrollment(token, others, enrollment), "other keys")
	otherAgreement := *keys
	otherAgreement.Agreement = others.Agreement
	otherAgreement.AgreementSignature = identity.SignAgreement(private, others.Agreement)
	require.NoError(t, otherAgreement.Check())
	require.False(t, identity.VerifyEnrollment(token, &otherAgreement, enrollment), "another agreement key")
	require.False(t, identity.VerifySignIn(others.Identity, nonce, device, signIn), "another device's key")
	require.False(t, identity.VerifySignIn(keys.Identity, [32]byte{9}, device, signIn), "another nonce")
	require.False(t, identity.VerifySignIn(keys.Identity, nonce, [16]byte{9}, signIn), "another device")
}

// A proof over the same bytes without the label, or with another version's, is none: what a
// device signs elsewhere, an envelope say, is no proof.
func TestLabelIsSigned(t *testing.T) {
	t.Parallel()
	private, keys, token := goodPrivate(1), goodKeys(t, 1), [32]byte{1}
	bare := slices.Concat(token[:], keys.Identity[:], keys.Agreement[:])
	for _, label := range []string{"", "peerrelay/enroll/v1", "peerrelay/enroll/v2\x00", "peerrelay/sign-in/v1\x00"} {
		signature := [64]byte(ed25519.Sign(private, append([]byte(label), bare...)))
		require.False(t, identity.VerifyEnrollment(token, keys, signature), label)
	}
	signature := [64]byte(ed25519.Sign(private, append([]byte("peerrelay/enroll/v1\x00"), bare...)))
	require.True(t, identity.VerifyEnrollment(token, keys, signature))
}

// No bit of a signature can be changed, and S has one form: S plus the order of the
// group, which fits the same equation, is refused (RFC 8032 section 5.1.7).
func TestSignaturesHaveOneForm(t *testing.T) {
	t.Parallel()
	private, keys, token := goodPrivate(1), goodKeys(t, 1), [32]byte{1}
	good := identity.SignEnrollment(private, token, keys)
	for bit := range 512 {
		signature := good
		signature[bit/8] ^= 1 << (bit % 8)
		require.False(t, identity.VerifyEnrollment(token, keys, signature), "bit %d", bit)
		changed := *keys
		changed.AgreementSignature[bit/8] ^= 1 << (bit % 8)
		require.ErrorIs(t, changed.Check(), identity.ErrKeys, "bit %d", bit)
	}
	stretched := *keys
	addOrder(t, stretched.AgreementSignature[32:])
	require.ErrorIs(t, stretched.Check(), identity.ErrKeys)
}

// addOrder adds the order of the base point to a little-endian number of 32 bytes.
func addOrder(t *testing.T, scalar []byte) {
	t.Helper()
	order, ok := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	require.True(t, ok)
	slices.Reverse(scalar)
	new(big.Int).Add(new(big.Int).SetBytes(scalar), order).FillBytes(scalar)
	slices.Reverse(scalar)
}

// FuzzCheck: no keys make Check panic, and those it accepts have the one encoding, give
// a secret and fit their signature. With sign the fuzzer gets past the signature.
func FuzzCheck(f *testing.F) {
	good := goodKeys(f, 1)
	f.Add(good.Identity[:], good.Agreement[:], good.AgreementSignature[:], false)
	f.Add(good.Identity[:], make([]byte, 32), good.AgreementSignature[:], true)
	f.Add([]byte{1}, []byte{9}, []byte{1}, false)
	private := goodPrivate(1)
	peer, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{5}, 32))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, key, agreement, signature []byte, sign bool) {
		var keys identity.Keys
		copy(keys.Identity[:], key)
		copy(keys.Agreement[:], agreement)
		copy(keys.AgreementSignature[:], signature)
		if sign {
			copy(keys.Identity[:], private[32:])
			keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
		}
		identity.VerifyEnrollment([32]byte{}, &keys, keys.AgreementSignature)
		if err := keys.Check(); err != nil {
			require.ErrorIs(t, err, identity.ErrKeys)
			return
		}
		require.Less(t, keys.Agreement[31], byte(0x80))
		public, err := ecdh.X25519().NewPublicKey(keys.Agreement[:])
		require.NoError(t, err)
		_, err = peer.ECDH(public)
		require.NoError(t, err)
		require.True(t, ed25519.Verify(keys.Identity[:], append([]byte("peerrelay/agreement-key/v1\x00"), keys.Agreement[:]...), keys.AgreementSignature[:]))
		require.Len(t, keys.Fingerprint(), 24)
	})
}

func BenchmarkCheck(b *testing.B) {
	keys := goodKeys(b, 1)
	for b.Loop() {
		if err := keys.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
