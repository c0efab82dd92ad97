package identity

import (
	"crypto/ecdh"

	"filippo.io/edwards25519"
)

// acceptIdentity reports whether key is the one encoding of a point of prime order.
//
// Small orders are refused because one signature then fits many messages. Points with
// a small-order component beside a large one are refused, too: no honest key has one
// (RFC 8032 multiplies the base point), and verifiers that multiply by the cofactor and
// those that don't disagree about their signatures, so a device could sign what one
// peer accepts and another one refuses. That costs one scalar multiplication.
func acceptIdentity(key [32]byte) bool {
	point, err := new(edwards25519.Point).SetBytes(key[:])
	if err != nil {
		return false // no point of the curve
	}
	if [32]byte(point.Bytes()) != key {
		return false // another encoding of a point that has one already
	}
	return point.Equal(edwards25519.NewIdentityPoint()) == 0 && torsionFree(point)
}

// torsionFree reports whether l·point is the neutral element, l being the order of the
// base point. As a scalar l is zero, so (l-1)·point is computed, which must be -point.
func torsionFree(point *edwards25519.Point) bool {
	multiple := new(edwards25519.Point).ScalarMult(minusOne(), point)
	return multiple.Equal(new(edwards25519.Point).Negate(point)) == 1
}

// minusOne is l-1.
func minusOne() *edwards25519.Scalar {
	one, err := edwards25519.NewScalar().SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		panic("identity: 1 is no scalar") // it is one
	}
	return edwards25519.NewScalar().Negate(one)
}

// acceptAgreement reports whether key is the one encoding of a coordinate that gives a
// secret. Multiples of the cofactor send exactly the points of small order, of the
// curve and of its twist, to zero (RFC 7748 section 6.1); the private key is any fixed
// one, as it is clamped to such a multiple.
func acceptAgreement(key [32]byte) bool {
	if !belowPrime(key) {
		return false
	}
	private, err := ecdh.X25519().NewPrivateKey(make([]byte, 32))
	if err != nil {
		return false
	}
	public, err := ecdh.X25519().NewPublicKey(key[:])
	if err != nil {
		return false
	}
	_, err = private.ECDH(public)
	return err == nil
}

// belowPrime reports whether key, little-endian, is below 2^255-19: neither with the top
// bit, which X25519 ignores, nor one of the 19 numbers that it reduces.
func belowPrime(key [32]byte) bool {
	if key[31] != 0x7f {
		return key[31] < 0x7f
	}
	for _, b := range key[1:31] {
		if b != 0xff {
			return true
		}
	}
	return key[0] < 0xed
}
