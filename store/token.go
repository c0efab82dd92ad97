package store

import (
	"crypto/rand"
	"encoding/base64"

	"golang.org/x/crypto/blake2b"
)

// tokenEncoding is canonical base64url without padding: each token has one text form.
var tokenEncoding = base64.RawURLEncoding.Strict()

const (
	tokenBytes = 32
	tokenText  = 43 // characters of the text form
)

// NewToken returns a 256-bit random token in its text form and the hash it is
// stored under (DESIGN section 9).
func NewToken() (string, TokenHash) {
	raw := make([]byte, tokenBytes)
	rand.Read(raw)
	return tokenEncoding.EncodeToString(raw), blake2b.Sum256(raw)
}

// HashToken returns the hash a token is stored under. It reports false for
// anything but the one canonical text form of 256 bits.
func HashToken(text []byte) (TokenHash, bool) {
	if len(text) != tokenText {
		return TokenHash{}, false
	}
	var raw [tokenBytes]byte
	if n, err := tokenEncoding.Decode(raw[:], text); err != nil || n != tokenBytes {
		return TokenHash{}, false
	}
	return blake2b.Sum256(raw[:]), true
}
