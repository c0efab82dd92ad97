// Package senderkey encrypts what goes to a whole room of scheme sender_keys (RELAY,
// "Sender-key identity compatibility"): each sender has one chain of message keys and gives
// it to every other member over pairwise envelopes.
//
//	Outgoing    all of a participant's own keys in a room: who has them, when to change them
//	Sender      one generation of them
//	Membership  who is in the room, who was given a generation, and whether it is over
//	Receivers   the keys of the others
//	Repair      asking for a key that is missing or wrong: three times, a minute apart
//
// # Keys
//
// A generation begins with a chain key of 32 random bytes at iteration 0. HMAC is
// HMAC-SHA256 (RFC 2104), and the byte is all of its message:
//
//	message key = HMAC(chain key, 0x01)
//	next chain key = HMAC(chain key, 0x02)
//
// A message key serves for one message. A generation has at most MaxIterations messages. Its
// kid is 16 random bytes, written as 22 characters of base64url, and its gen is allocated by
// the relay for that kid.
//
// # Messages
//
//	ct = iteration(4, big-endian) ‖ XChaCha20-Poly1305(message key, nonce, plaintext, iteration(4) ‖ aad)
//
// The iteration travels in front, since envelopes have no member for it and the relay takes no
// hdr in these rooms. aad is the canonical envelope without ct and sig (package signed makes
// it); as it names the nonce, the caller draws that first. Whoever has a chain key can make
// messages of it, so a message counts only under its sender's signature: Receivers open
// nothing that is not verified.
//
// # Payloads
//
// All are canonical JSON (RFC 8785) in UTF-8, and what is written in any other way is refused:
//
//	{"ck":"…43…","gen":7,"iteration":0,"kid":"…22…","type":"sender_key","v":1}   in senderkey
//	{"gen":7,"id":"…22…","kid":"…22…","type":"key_request","v":1}                 in key_request
//	{"gen":7,"kid":"…22…","type":"key_unavailable","v":1}                         in key_request
//
// Bytes are base64url without padding. "kid" is left out by peers that have none; their keys
// are found by sender and gen. "id" is random, so that a request is answered once.
//
// # Saving
//
// Each state is to be saved before what it did is seen outside: a Sender before its message is
// sent, Receivers together with the message they opened, Repair before the request is sent.
// Otherwise a key is used twice, a message is lost or shown twice, or too much is asked. No
// state is safe for concurrent use. Go cannot reliably wipe memory, so old keys may linger in
// that of the process; none is in any error or printed form.
//
// # Limits
//
// The cipher does not commit to its key, and keys are given out one by one: a member can
// give different ones to different members, who then read different messages under one
// signature. A sender keeps what it needs to give away its last RepairWindow messages again,
// until Settle.
package senderkey
