package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
)

// Keys are the public keys of a device.
type Keys struct {
	Identity           [32]byte // Ed25519 (RFC 8032)
	Agreement          [32]byte // X25519 (RFC 7748)
	AgreementSignature [64]byte // by Identity over Agreement
}

// ErrKeys says that keys are not accepted.
var ErrKeys = errors.New("keys are not canonical, of small order, or not signed")

// Labels of what is signed and hashed.
const (
	labelAgreement   = "peerrelay/agreement-key/v1\x00"
	labelEnroll      = "peerrelay/enroll/v1\x00"
	labelSignIn      = "peerrelay/sign-in/v1\x00"
	labelFingerprint = "peerrelay/fingerprint/v1\x00"
)

// Check returns an error that is ErrKeys, and names the key, unless
//
//   - the identity key is the canonical encoding of a point of the prime-order group
//     other than its neutral element,
//   - the agreement key is canonical (below 2^255-19, RFC 7748 section 5) and gives no
//     all-zero secret (section 6.1), and
//   - the identity key signed the agreement key.
//
// Keys that are made as RFC 8032 and RFC 7748 say always pass.
func (k *Keys) Check() error {
	if !acceptIdentity(k.Identity) {
		return fmt.Errorf("identity key: %w", ErrKeys)
	}
	if !acceptAgreement(k.Agreement) {
		return fmt.Errorf("agreement key: %w", ErrKeys)
	}
	if !verify(k.Identity, k.AgreementSignature, agreementMessage(k.Agreement)) {
		return fmt.Errorf("signature of the agreement key: %w", ErrKeys)
	}
	return nil
}

// SignAgreement signs an agreement key. Like all signers here it panics for a private
// key that does not have 64 bytes.
func SignAgreement(key ed25519.PrivateKey, agreement [32]byte) (signature [64]byte) {
	return sign(key, agreementMessage(agreement))
}

// SignEnrollment proves the possession of the identity key to the holder of an invite's
// token (its 32 bytes).
func SignEnrollment(key ed25519.PrivateKey, token [32]byte, keys *Keys) (signature [64]byte) {
	return sign(key, enrollmentMessage(token, keys))
}

// VerifyEnrollment reports whether the proof fits token and keys. It is false, too, for
// keys that Check refuses, whoever made the proof.
func VerifyEnrollment(token [32]byte, keys *Keys, signature [64]byte) bool {
	return keys.Check() == nil && verify(keys.Identity, signature, enrollmentMessage(token, keys))
}

// SignIn signs a nonce for a device id (its 16 bytes).
func SignIn(key ed25519.PrivateKey, nonce [32]byte, device [16]byte) (signature [64]byte) {
	return sign(key, signInMessage(nonce, device))
}

// VerifySignIn reports whether the signature fits. The identity key is one that Check
// accepted when the device enrolled; it is not looked at again.
func VerifySignIn(identity, nonce [32]byte, device [16]byte, signature [64]byte) bool {
	return verify(identity, signature, signInMessage(nonce, device))
}

func agreementMessage(agreement [32]byte) []byte {
	return message(labelAgreement, agreement[:])
}

func enrollmentMessage(token [32]byte, keys *Keys) []byte {
	return message(labelEnroll, token[:], keys.Identity[:], keys.Agreement[:])
}

func signInMessage(nonce [32]byte, device [16]byte) []byte {
	return message(labelSignIn, nonce[:], device[:])
}

// message is the label and, without anything between them, the parts.
func message(label string, parts ...[]byte) []byte {
	m := make([]byte, 0, 128)
	m = append(m, label...)
	for _, part := range parts {
		m = append(m, part...)
	}
	return m
}

func sign(key ed25519.PrivateKey, message []byte) [64]byte {
	return [64]byte(ed25519.Sign(key, message))
}

// verify is strict about S (RFC 8032 section 5.1.7) and, as it compares encodings,
// about R.
func verify(identity [32]byte, signature [64]byte, message []byte) bool {
	return ed25519.Verify(identity[:], message, signature[:])
}
