package identity

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
)

const labelSignedPrekey = "peerrelay/signed-prekey/v1\x00"

// CheckAgreement returns an error that is ErrKeys unless the X25519 key is canonical and
// gives no all-zero secret, as Keys.Check demands of an agreement key. Every prekey has
// to pass it, one-time prekeys too, whose owner does not sign them.
func CheckAgreement(key [32]byte) error {
	if !acceptAgreement(key) {
		return fmt.Errorf("X25519 key: %w", ErrKeys)
	}
	return nil
}

// SignPrekey signs a medium-term X25519 key and its id (X3DH, "signed prekey").
func SignPrekey(key ed25519.PrivateKey, id uint32, prekey [32]byte) (signature [64]byte) {
	return sign(key, prekeyMessage(id, prekey))
}

// VerifyPrekey reports whether the signature fits id and key. It is false, too, for a key
// that CheckAgreement refuses, whoever signed it. The identity key is one that Check
// accepted when the device enrolled; it is not looked at again.
func VerifyPrekey(identity [32]byte, id uint32, prekey [32]byte, signature [64]byte) bool {
	return acceptAgreement(prekey) && verify(identity, signature, prekeyMessage(id, prekey))
}

func prekeyMessage(id uint32, prekey [32]byte) []byte {
	return message(labelSignedPrekey, binary.BigEndian.AppendUint32(nil, id), prekey[:])
}
