// Package seal encrypts and authenticates with XChaCha20-Poly1305
// (draft-irtf-cfrg-xchacha-03), the one cipher of all schemes (STATE, "Encryption Details").
//
// A nonce has 192 random bits, so that any number of them may be drawn for one key. Sealed
// text is as long as the plain one and a tag of 16 bytes, which is its end. The additional
// data is authenticated and not part of it: what opens a text has to have the same bytes.
package seal

import (
	"crypto/rand"
	"errors"

	"golang.org/x/crypto/chacha20poly1305"
)

// Sizes in bytes.
const (
	KeySize   = chacha20poly1305.KeySize    // 32
	NonceSize = chacha20poly1305.NonceSizeX // 24
	Overhead  = chacha20poly1305.Overhead   // 16
)

// ErrOpen says that a sealed text is not what somebody with the key made for this nonce and
// additional data. It does not say which of them is wrong, nor does it name any of them.
var ErrOpen = errors.New("the sealed text is not authentic")

// Seal draws a nonce, encrypts plaintext and authenticates it with aad. Nothing of its
// arguments is kept or changed.
func Seal(key [KeySize]byte, plaintext, aad []byte) (nonce [NonceSize]byte, ct []byte) {
	nonce = NewNonce()
	return nonce, WithNonce(key, nonce, plaintext, aad)
}

// NewNonce draws a nonce, for WithNonce, where the additional data names it.
func NewNonce() (nonce [NonceSize]byte) {
	_, _ = rand.Read(nonce[:]) // never fails: the program ends instead (package crypto/rand)
	return nonce
}

// WithNonce is Seal with a nonce that NewNonce has just drawn. The same nonce twice with one
// key reveals both texts and lets others forge.
func WithNonce(key [KeySize]byte, nonce [NonceSize]byte, plaintext, aad []byte) []byte {
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic("seal: " + err.Error()) // a key has its size by its type
	}
	return aead.Seal(make([]byte, 0, len(plaintext)+Overhead), nonce[:], plaintext, aad)
}

// Open returns what was sealed, in memory of its own, or nil and ErrOpen.
func Open(key [KeySize]byte, nonce [NonceSize]byte, ct, aad []byte) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic("seal: " + err.Error()) // a key has its size by its type
	}
	if len(ct) < Overhead {
		return nil, ErrOpen
	}
	plaintext, err := aead.Open(make([]byte, 0, len(ct)-Overhead), nonce[:], ct, aad)
	if err != nil {
		return nil, ErrOpen
	}
	return plaintext, nil
}
