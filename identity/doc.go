// Package identity is what devices prove with their keys: which public keys are
// accepted, what is signed on enrolling and signing in and of prekeys, and the fingerprint
// that people compare. Server and client share it.
//
// Every signed or hashed byte string begins with a label of its purpose and a zero
// byte, and everything after the label has a fixed length, so that no signature serves
// for another purpose and none can be read in two ways:
//
//	agreement      "peerrelay/agreement-key/v1" 0 agreement(32)
//	enrollment     "peerrelay/enroll/v1"        0 token(32) identity(32) agreement(32)
//	sign-in        "peerrelay/sign-in/v1"       0 nonce(32) device(16)
//	signed prekey  "peerrelay/signed-prekey/v1" 0 id(4) prekey(32)
//	fingerprint    "peerrelay/fingerprint/v1"   0 identity(32) agreement(32)
//
// The id of a prekey is big-endian. Signatures are Ed25519 (RFC 8032), of the identity
// key. testdata/vectors.json has examples for programs in other languages, made by another
// implementation.
package identity
