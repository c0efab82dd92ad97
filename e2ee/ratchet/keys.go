package ratchet

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/peerrelay/peerrelay/identity"
)

// Labels of what is derived.
const (
	labelX3DH    = "peerrelay/x3dh/v1\x00"
	labelAD      = "peerrelay/x3dh-ad/v1\x00"
	labelSession = "peerrelay/x3dh-session/v1\x00"
	labelRoot    = "peerrelay/ratchet-root/v1\x00"
)

// Device is what a device knows of itself. It is not printed.
type Device struct {
	Keys      identity.Keys // public
	Agreement [32]byte      // the private key of Keys.Agreement (RFC 7748)
}

// Format keeps the private key out of texts.
func (Device) Format(f fmt.State, _ rune) { hide(f, "device keys") }

func hide(w io.Writer, what string) { fmt.Fprint(w, what+" (not shown)") }

// checkDevice returns ErrDevice unless the private key is that of the public one.
func checkDevice(d *Device) error {
	public, err := publicKey(d.Agreement)
	if err != nil || public != d.Keys.Agreement {
		return ErrDevice
	}
	return nil
}

// draw reads from the source of randomness; none is the system's.
func draw(source io.Reader, into []byte) error {
	if source == nil {
		source = rand.Reader
	}
	_, err := io.ReadFull(source, into)
	return err
}

// pair is a key pair of X25519.
type pair struct{ private, public [32]byte }

func newPair(source io.Reader) (p pair, err error) {
	if err = draw(source, p.private[:]); err != nil {
		return pair{}, err
	}
	p.public, err = publicKey(p.private)
	return p, err
}

func publicKey(private [32]byte) ([32]byte, error) {
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(key.PublicKey().Bytes()), nil
}

// dh is X25519. An all-zero secret is an error (RFC 7748 section 6.1); whether the public
// key is canonical is the caller's to check.
func dh(private, public [32]byte) ([32]byte, error) {
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return [32]byte{}, err
	}
	other, err := ecdh.X25519().NewPublicKey(public[:])
	if err != nil {
		return [32]byte{}, err
	}
	secret, err := key.ECDH(other)
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(secret), nil
}

// rootStep is KDF_RK.
func rootStep(root, secret [32]byte) (next, chain [32]byte) {
	both := derive(secret[:], root[:], labelRoot, 64)
	return [32]byte(both[:32]), [32]byte(both[32:])
}

// chainStep is KDF_CK.
func chainStep(chain [32]byte) (next, message [32]byte) {
	return mac(chain, 2), mac(chain, 1)
}

func mac(key [32]byte, input byte) (sum [32]byte) {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte{input})
	h.Sum(sum[:0])
	return sum
}

// derive is HKDF-SHA256 (RFC 5869).
func derive(secret, salt []byte, info string, length int) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, info, length)
	if err != nil {
		panic("ratchet: " + err.Error()) // lengths are constants, far below the limit
	}
	return key
}
