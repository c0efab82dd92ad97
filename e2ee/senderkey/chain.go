package senderkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// MaxIterations is how many messages a generation has, so that a later key of it can be
// checked against an earlier one in bounded time. The last iteration is one less.
const MaxIterations = 1 << 14

// prefixSize is that of the iteration in front of each ciphertext.
const prefixSize = 4

// Overhead is how many bytes longer than its plaintext a ciphertext is.
const Overhead = prefixSize + seal.Overhead

type chainKey [32]byte

func (k *chainKey) derive(b byte) (out [32]byte) {
	mac := hmac.New(sha256.New, k[:])
	_, _ = mac.Write([]byte{b}) // hashes have no errors
	mac.Sum(out[:0])
	return out
}

func (k *chainKey) message() [seal.KeySize]byte { return k.derive(1) }

func (k *chainKey) next() chainKey { return k.derive(2) }

// after is the chain key that many steps later.
func (k *chainKey) after(steps uint32) chainKey {
	key := *k
	for range steps {
		key = key.next()
	}
	return key
}

func (k *chainKey) equal(other *chainKey) bool { return hmac.Equal(k[:], other[:]) }

// bind is the additional data: the iteration and what the caller has.
func bind(iteration uint32, aad []byte) []byte {
	bound := make([]byte, 0, prefixSize+len(aad))
	bound = binary.BigEndian.AppendUint32(bound, iteration)
	return append(bound, aad...)
}

// KID names a sender key: 16 random bytes. The zero KID is that of peers that have none.
type KID [16]byte

var encoding = base64.RawURLEncoding.Strict()

// NewKID reads one from random.
func NewKID(random io.Reader) (kid KID, err error) {
	if _, err := io.ReadFull(random, kid[:]); err != nil {
		return KID{}, fmt.Errorf("new kid: %w", err)
	}
	return kid, nil
}

// ParseKID reads 22 characters of base64url, in their one form. ErrPayload for others, and
// for the zero KID.
func ParseKID(text string) (kid KID, err error) {
	if !parseBytes(kid[:], text) || kid == (KID{}) {
		return KID{}, fmt.Errorf("kid: %w", ErrPayload)
	}
	return kid, nil
}

func (k KID) String() string { return encoding.EncodeToString(k[:]) }

// parseBytes fills dst from its one base64url form.
func parseBytes(dst []byte, text string) bool {
	if len(text) != encoding.EncodedLen(len(dst)) {
		return false
	}
	raw, err := encoding.DecodeString(text)
	if err != nil || len(raw) != len(dst) { // a line break is skipped by the decoder
		return false
	}
	copy(dst, raw)
	return true
}

// Key says which key: the sender's participant id, its kid, and its gen. Where there is a
// KID it alone tells a sender's keys apart.
type Key struct {
	Sender string
	KID    KID
	Gen    uint64
}

// id has no gen where there is a kid, so that false ones do not make it another key.
func (k Key) id() Key {
	if k.KID != (KID{}) {
		k.Gen = 0
	}
	return k
}

// validParticipant reports whether a participant id is one that an envelope could have.
func validParticipant(id string) bool { return wire.ValidID([]byte(id)) }
