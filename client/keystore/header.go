package keystore

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/peerrelay/peerrelay/e2ee/seal"
)

const (
	magic   = "PEERKEYS"
	version = 1

	saltSize   = 16
	sumAt      = sector - sha256.Size
	nonceAt    = 36
	wrappedAt  = nonceAt + seal.NonceSize
	wrappedEnd = wrappedAt + keySize + seal.Overhead

	labelHeader = "peerrelay/keystore-header/v1\x00"
	labelLength = "peerrelay/keystore-length/v1\x00"
	labelBody   = "peerrelay/keystore-body/v1\x00"
)

// header is the first sector of a file. Its last 32 bytes are the hash of those before
// them in every version, so that damage is told from a newer version.
type header struct {
	kind    kind
	cost    cost // of a passphrase; zero for a key file
	salt    [saltSize]byte
	nonce   [seal.NonceSize]byte
	wrapped [keySize + seal.Overhead]byte
}

// newHeader is one for files that this secret opens; seal makes it one file's.
func newHeader(secret Secret, c cost) (*header, error) {
	h := &header{kind: secret.kind}
	switch secret.kind {
	case kindPassphrase:
		if err := c.check(); err != nil {
			return nil, err
		}
		h.cost = c
	case kindKeyFile:
	default:
		return nil, ErrSecret
	}
	_, _ = rand.Read(h.salt[:]) // never fails: the program ends instead (package crypto/rand)
	return h, nil
}

func (h *header) marshal() []byte {
	b := make([]byte, 0, sector)
	b = append(b, magic...)
	b = append(b, version, byte(h.kind), h.cost.threads, 0)
	b = binary.BigEndian.AppendUint32(b, h.cost.passes)
	b = binary.BigEndian.AppendUint32(b, h.cost.memory)
	b = append(b, h.salt[:]...)
	b = append(b, h.nonce[:]...)
	b = append(b, h.wrapped[:]...)
	b = append(b, make([]byte, sumAt-len(b))...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// parseHeader returns ErrDamaged, ErrVersion or ErrCost for what is not to be used.
func parseHeader(b []byte) (*header, error) {
	if len(b) != sector || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("header: %w", ErrDamaged)
	}
	if sum := sha256.Sum256(b[:sumAt]); !bytes.Equal(sum[:], b[sumAt:]) {
		return nil, fmt.Errorf("header: %w", ErrDamaged)
	}
	if b[8] > version {
		return nil, ErrVersion
	}
	h := &header{kind: kind(b[9])}
	h.cost = cost{threads: b[10], passes: binary.BigEndian.Uint32(b[12:]), memory: binary.BigEndian.Uint32(b[16:])}
	copy(h.salt[:], b[20:])
	copy(h.nonce[:], b[nonceAt:])
	copy(h.wrapped[:], b[wrappedAt:])
	if !bytes.Equal(h.marshal(), b) { // another version, or something where zeros belong
		return nil, fmt.Errorf("header: %w", ErrDamaged)
	}
	switch {
	case h.kind == kindPassphrase:
		return h, h.cost.check()
	case h.kind == kindKeyFile && h.cost == cost{}:
		return h, nil
	}
	return nil, fmt.Errorf("header: %w", ErrDamaged)
}

func (h *header) aad() []byte { return append([]byte(labelHeader), h.marshal()[:nonceAt]...) }

// seal draws the key of a new file.
func (h *header) seal(key [keySize]byte) (fileKey [keySize]byte) {
	_, _ = rand.Read(fileKey[:])
	h.nonce = seal.NewNonce()
	copy(h.wrapped[:], seal.WithNonce(key, h.nonce, fileKey[:], h.aad()))
	return fileKey
}

// open returns ErrWrongSecret when the key is not the one that sealed it.
func (h *header) open(key [keySize]byte) (fileKey [keySize]byte, err error) {
	plain, err := seal.Open(key, h.nonce, h.wrapped[:], h.aad())
	if err != nil {
		return fileKey, ErrWrongSecret
	}
	copy(fileKey[:], plain)
	return fileKey, nil
}

// keys are those of one file.
type keys struct {
	id     [sha256.Size]byte // the hash in the header
	length [keySize]byte
	body   [keySize]byte
}

func (h *header) keys(fileKey [keySize]byte) (k keys, err error) {
	copy(k.id[:], h.marshal()[sumAt:])
	for label, into := range map[string]*[keySize]byte{labelLength: &k.length, labelBody: &k.body} {
		derived, err := hkdf.Key(sha256.New, fileKey[:], k.id[:], label, keySize)
		if err != nil {
			return k, fmt.Errorf("derive the keys of the file: %w", err)
		}
		copy(into[:], derived)
	}
	return k, nil
}
