package boardseal

import (
	"crypto/ed25519"

	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

// HeaderSize is where the commitment begins.
const HeaderSize = headerSize

// FixedSize is where the recipients begin.
const FixedSize = fixedSize

// SealWith is Seal with a key and a nonce of a test.
func SealWith(own *pairwise.Own, header *Header, others []signed.Member, key [seal.KeySize]byte, nonce [seal.NonceSize]byte, text []byte) (*Sealed, error) {
	form, err := header.append(nil)
	if err != nil {
		return nil, err
	}
	recipients, err := recipientsOf(own, others)
	if err != nil {
		return nil, err
	}
	content, err := sealWith(own, form, recipients, key, nonce, text)
	if err != nil {
		return nil, err
	}
	return Sign(own, content), nil
}

// Sign signs any bytes as the content of an event.
func Sign(own *pairwise.Own, content []byte) *Sealed {
	return &Sealed{Content: content, Signature: ed25519.Sign(own.Identity, signedBytes(content))}
}
