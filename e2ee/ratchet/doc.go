// Package ratchet encrypts direct rooms: X3DH and the Double Ratchet of an owner and an agent
// (STATE, "1:1 Messaging"; signal.org/docs/specifications/x3dh and .../doubleratchet).
//
// The owner begins (Begin, Sessions.Begin) with the bundle that the agent published, while
// the agent may be offline. The agent has nothing to send with until it opened a message of
// the owner: Seal is ErrNotActivated. Every message has a key of its own, which is deleted
// with its use, and every turn of the conversation brings new key pairs.
//
// # Keys
//
// The secret of X3DH, with the initiator's agreement key IA and ephemeral key E, and the
// responder's agreement key IB, signed prekey S and one-time prekey O, which may be missing:
//
//	HKDF-SHA256(salt 0 × 32, 0xFF × 32 ‖ DH(IA,S) ‖ DH(E,IB) ‖ DH(E,S) [‖ DH(E,O)],
//	            "peerrelay/x3dh/v1" 0, 32 bytes)
//
// Agreement keys are X25519 keys of their own, which the Ed25519 identity key signed. It is
// the first root key, and S is the responder's first ratchet key. From there
//
//	root'(32) ‖ chain(32) = HKDF-SHA256(salt root, DH, "peerrelay/ratchet-root/v1" 0)
//	message key           = HMAC-SHA256(chain, 01)
//	chain'                = HMAC-SHA256(chain, 02)
//
// A message is sealed with XChaCha20-Poly1305 (package seal) under a random nonce of 24
// bytes. Its additional data is the AD of X3DH and, behind it, key, PN and N of the header:
//
//	"peerrelay/x3dh-ad/v1" 0
//	initiator: identity(32) agreement(32)   responder: identity(32) agreement(32)
//	ephemeral(32) signed prekey id(4) one-time prekey id(4) started(8)
//	length of the room's id(2) room's id
//
// so that nothing of another room, of other devices or of another session opens. All
// integers are big-endian.
//
// # Header
//
//	version(1) = 1   flags(1) = 1 with the X3DH part, else 0
//	session(16)      SHA-256("peerrelay/x3dh-session/v1" 0 ‖ AD of X3DH), its first 16 bytes
//	key(32)          the sender's ratchet key
//	PN(4) N(4)       length of its chain before; the message's number in this one
//	identity(32) ephemeral(32) signed prekey id(4) one-time prekey id(4) started(8)
//
// The last line is the X3DH part: the owner sends it until it opened an answer. Ids are
// 1 to 2^31-1, and a one-time prekey of 0 is none. Started is when the owner began, in Unix
// milliseconds, and rises with each session: it says which of two is newer, whatever the
// order in which their messages arrive.
//
// # What is refused
//
// A message works on a copy of the state, which replaces it after the tag verified. It has
// to be of a session that is known or begins with it, at most MaxSkip ahead in its chain,
// with keys that identity.CheckAgreement accepts. Keys of messages that did not come yet are
// kept, MaxSkipped in all: the oldest are dropped for new ones.
//
// Repair decides when a session is given up and both begin anew (STATE, "Ratchet Desync").
package ratchet
