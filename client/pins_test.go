package client

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

const pinnedID = "01980000-0000-7000-8000-00000000000a"

func someKeys(t *testing.T) identity.Keys {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := identity.Keys{Identity: [32]byte(public), Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	return keys
}

func emptyStore(t *testing.T) *keystore.Store {
	t.Helper()
	dir := t.TempDir()
	secret, err := keystore.NewKeyFile(filepath.Join(dir, "key-file"))
	require.NoError(t, err)
	store, err := keystore.Create(filepath.Join(dir, "keys"), secret)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// in runs one Update, and returns its error.
func in(store *keystore.Store, do func(tx *keystore.Tx) error) error { return store.Update(do) }

func pinned(t *testing.T, store *keystore.Store) (p pin, found bool) {
	t.Helper()
	require.NoError(t, store.View(func(tx *keystore.Tx) error { p, found = pinnedDevice(tx, pinnedID); return nil }))
	return p, found
}

func pins(keys identity.Keys) func(tx *keystore.Tx) error {
	return func(tx *keystore.Tx) error { _, err := pinDevice(tx, pinnedID, keys); return err }
}

func verifies(keys identity.Keys) func(tx *keystore.Tx) error {
	return func(tx *keystore.Tx) error { return verifyDevice(tx, pinnedID, keys) }
}

func compares(fingerprint string) func(tx *keystore.Tx) error {
	return func(tx *keystore.Tx) error { return verifyFingerprint(tx, pinnedID, fingerprint) }
}

// FAULTS J05: the first keys of a device are its keys, whatever the relay shows later.
func TestTheFirstKeysStay(t *testing.T) {
	store, first, other := emptyStore(t), someKeys(t), someKeys(t)
	_, found := pinned(t, store)
	require.False(t, found)
	for range 2 {
		require.NoError(t, in(store, pins(first)))
	}
	mixed := first
	mixed.Agreement, mixed.AgreementSignature = other.Agreement, other.AgreementSignature
	unsigned := first
	unsigned.AgreementSignature[0] ^= 1
	for _, changed := range []identity.Keys{other, mixed, {}} {
		require.ErrorIs(t, in(store, pins(changed)), ErrKeysChanged)
		require.ErrorIs(t, in(store, verifies(changed)), ErrKeysChanged)
	}
	require.ErrorIs(t, in(store, pins(unsigned)), identity.ErrKeys)
	require.ErrorIs(t, in(store, compares(other.Fingerprint())), ErrKeysChanged)
	require.ErrorIs(t, in(store, compares("none")), identity.ErrFingerprint)
	known, found := pinned(t, store)
	require.True(t, found)
	require.Equal(t, pin{Keys: first, Fingerprint: first.Fingerprint()}, known)

	require.NoError(t, in(store, verifies(first)))
	require.NoError(t, in(store, pins(first)))
	known, _ = pinned(t, store)
	require.Equal(t, pin{Keys: first, Fingerprint: first.Fingerprint(), Verified: true}, known, "and stays compared")
}

func TestKeysThatAreNotAcceptedAreNotPinned(t *testing.T) {
	store := emptyStore(t)
	bad := someKeys(t)
	bad.AgreementSignature[0] ^= 1
	require.ErrorIs(t, in(store, pins(bad)), identity.ErrKeys)
	require.ErrorIs(t, in(store, verifies(bad)), identity.ErrKeys)
	_, found := pinned(t, store)
	require.False(t, found)
}

// A fingerprint that was approved stands for its keys before they are seen.
func TestAFingerprintStandsForKeysThatWereNotSeen(t *testing.T) {
	store, keys, other := emptyStore(t), someKeys(t), someKeys(t)
	require.NoError(t, in(store, compares("  "+keys.Fingerprint()+" ")))
	known, found := pinned(t, store)
	require.True(t, found)
	require.Equal(t, pin{Fingerprint: keys.Fingerprint(), Verified: true}, known)
	for _, change := range []func(tx *keystore.Tx) error{pins(other), verifies(other), compares(other.Fingerprint())} {
		require.ErrorIs(t, in(store, change), ErrKeysChanged)
	}
	known, _ = pinned(t, store)
	require.Equal(t, pin{Fingerprint: keys.Fingerprint(), Verified: true}, known)

	require.NoError(t, in(store, pins(keys)))
	known, _ = pinned(t, store)
	require.Equal(t, pin{Keys: keys, Fingerprint: keys.Fingerprint(), Verified: true}, known)
	require.NoError(t, in(store, compares(keys.Fingerprint())))
}

// What is not understood is neither believed nor replaced: that would be a first time again.
func TestAPinThatIsDamagedStays(t *testing.T) {
	store, keys := emptyStore(t), someKeys(t)
	for _, value := range []string{"", "\x00", "\x01short", "\x06" + keys.Fingerprint(), "\x00" + keys.Fingerprint(), "\x02" + "????-2XPD-9VWE-R4TN-BA3C"} {
		require.NoError(t, in(store, func(tx *keystore.Tx) error {
			return tx.Put(keystore.Peers, pinPrefix+pinnedID, []byte(value))
		}))
		known, found := pinned(t, store)
		require.True(t, found, "%q", value)
		require.Equal(t, pin{}, known, "%q", value)
		for _, change := range []func(tx *keystore.Tx) error{pins(keys), verifies(keys), compares(keys.Fingerprint())} {
			require.ErrorIs(t, in(store, change), errPin, "%q", value)
		}
	}
}

func TestOnlyDevicesArePinned(t *testing.T) {
	store, keys := emptyStore(t), someKeys(t)
	for _, id := range []string{"", "robot", pinnedID + "0"} {
		require.ErrorIs(t, in(store, func(tx *keystore.Tx) error { _, err := pinDevice(tx, id, keys); return err }), ErrID)
	}
}

// A relay that invents devices makes nobody be forgotten.
func TestPinsAreBounded(t *testing.T) {
	const bound = 65_536
	store, keys := emptyStore(t), someKeys(t)
	id := func(n int) string { return fmt.Sprintf("01980000-0000-7000-8000-%012x", n) }
	many := func(from, to int) error {
		return in(store, func(tx *keystore.Tx) error {
			for n := from; n < to; n++ {
				if err := verifyFingerprint(tx, id(n), keys.Fingerprint()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < bound; from += bound / 16 {
		require.NoError(t, many(from, from+bound/16))
	}
	require.ErrorIs(t, many(bound, bound+1), keystore.ErrFull)
	require.NoError(t, in(store, func(tx *keystore.Tx) error { _, err := pinDevice(tx, id(7), keys); return err }), "who is known is served")
}
