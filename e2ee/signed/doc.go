// Package signed builds and reads the envelopes that clients sign (DESIGN section 6,
// "Envelope"; RELAY).
//
// The signature is Ed25519 (RFC 8032), by the sender's identity key, over
//
//	"peerrelay/envelope/v1" 0 canonical(envelope without sig)
//
// and what the cipher authenticates beside the text is
//
//	canonical(envelope without ct and sig)
//
// in which the nonce is. canonical is RFC 8785 of JSON that holds strings, true, false, null and
// integers from 0 to 2^53-1, in objects and arrays up to 32 deep, no name twice in an
// object. The relay keeps the bytes it was given; these are canonical as this package makes
// them, and may be anything with the same canonical form as it reads them.
//
// nonce, ct, sig and hdr are base64 of the standard alphabet with padding, kid is base64url
// without; each of them in its one spelling.
//
// The order of reading: canonical form, signature, names, values, context. Nothing that was
// not signed by the expected participant, for the expected room and recipient, is returned
// (FAULTS J05).
package signed
