// Package e2ee is how clients encrypt what the relay carries. Each package below it is one
// scheme or one part of all of them, knows no network and no files, and is proven by test
// vectors of others:
//
//	content    what is inside of messages: texts, files, and files in several messages
//	seal       XChaCha20-Poly1305 with a random nonce, as all schemes use it
//	signed     canonical JSON (RFC 8785) and the signature of envelopes
//	pairwise   private messages and key exchange between two members: direction keys
//	senderkey  messages to a room: one chain for each sender, with repair
//	ratchet    direct rooms: X3DH and the Double Ratchet
//	boardseal  events of the Board: sealed once for everybody in the room
//
// A received message never changes a state before it was authenticated, and what is wrong
// with it is a typed error.
package e2ee
