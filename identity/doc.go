// Package identity is what devices prove with their keys: which public keys are
// accepted, what is signed on enrolling and signing in, and the fingerprint that people
// compare. Server and client share it.
//
// Every signed byte string begins with a label of its purpose and a zero byte, so that
// no signature serves for another purpose.
package identity
