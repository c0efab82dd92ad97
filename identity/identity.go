package identity

import (
	"crypto/ed25519"
	"errors"
)

// Keys are the public keys of a device.
type Keys struct {
	Identity           [32]byte // Ed25519 (RFC 8032)
	Agreement          [32]byte // X25519 (RFC 7748)
	AgreementSignature [64]byte // by Identity over Agreement
}

// ErrKeys says that keys are not accepted.
var ErrKeys = errors.New("keys are not canonical, of small order, or not signed")

var (
	_ = ed25519.Verify
)

// Check returns ErrKeys unless both keys are canonical encodings of points of large
// order and the agreement key is signed by the identity key.
func (k *Keys) Check() error { return ErrKeys }

// Fingerprint is what people compare: five groups of four characters.
func (k *Keys) Fingerprint() string { return "" }

// SignAgreement signs an agreement key.
func SignAgreement(key ed25519.PrivateKey, agreement [32]byte) (signature [64]byte) { return signature }

// SignEnrollment proves the possession of the identity key to the holder of an invite's
// token (its 32 bytes).
func SignEnrollment(key ed25519.PrivateKey, token [32]byte, keys *Keys) (signature [64]byte) {
	return signature
}

// VerifyEnrollment reports whether the proof fits token and keys.
func VerifyEnrollment(token [32]byte, keys *Keys, signature [64]byte) bool { return false }

// SignIn signs a nonce for a device id (its 16 bytes).
func SignIn(key ed25519.PrivateKey, nonce [32]byte, device [16]byte) (signature [64]byte) {
	return signature
}

// VerifySignIn reports whether the signature fits.
func VerifySignIn(identity, nonce [32]byte, device [16]byte, signature [64]byte) bool { return false }
