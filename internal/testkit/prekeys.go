package testkit

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/identity"
)

// Prekey is a one-time prekey, or with Signature a signed one, as JSON has it.
type Prekey struct {
	ID        uint32 `json:"id"`
	Key       string `json:"key"`
	Signature string `json:"signature,omitempty"`
}

// Prekeys is the body of PUT /v1/devices/me/prekeys.
type Prekeys struct {
	Signed  *Prekey  `json:"signed_prekey,omitempty"`
	OneTime []Prekey `json:"one_time_prekeys,omitempty"`
}

// NewPrekey makes a one-time prekey.
func NewPrekey(t testing.TB, id uint32) Prekey {
	t.Helper()
	return Prekey{ID: id, Key: base64.StdEncoding.EncodeToString(x25519(t))}
}

// SignedPrekey makes a signed prekey of the device.
func (d *Device) SignedPrekey(t testing.TB, id uint32) *Prekey {
	t.Helper()
	return d.SignedPrekeyOf(id, [32]byte(x25519(t)))
}

// SignedPrekeyOf signs any 32 bytes.
func (d *Device) SignedPrekeyOf(id uint32, key [32]byte) *Prekey {
	signature := identity.SignPrekey(d.Private, id, key)
	return &Prekey{
		ID: id, Key: base64.StdEncoding.EncodeToString(key[:]), Signature: base64.StdEncoding.EncodeToString(signature[:]),
	}
}

// Prekeys makes a signed prekey of the device with id 1 and so many one-time prekeys, with
// ids from 1.
func (d *Device) Prekeys(t testing.TB, oneTime int) Prekeys {
	t.Helper()
	p := Prekeys{Signed: d.SignedPrekey(t, 1)}
	for id := range uint32(oneTime) {
		p.OneTime = append(p.OneTime, NewPrekey(t, id+1))
	}
	return p
}

func x25519(t testing.TB) []byte {
	t.Helper()
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	return private.PublicKey().Bytes()
}
