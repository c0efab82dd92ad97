package client

import (
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

// pin is what is remembered of another device.
type pin struct {
	Keys     identity.Keys
	Verified bool // a person compared the fingerprint on this device
}

// pinDevice remembers the keys of a device the first time they are seen. It returns
// ErrKeysChanged, and keeps the first ones, when they are others than those.
func pinDevice(tx *keystore.Tx, device string, keys identity.Keys) (pin, error) { panic("contract") }

// pinnedDevice returns what is remembered of a device.
func pinnedDevice(tx *keystore.Tx, device string) (pin, bool) { panic("contract") }

// verifyDevice remembers keys whose fingerprint a person compared.
func verifyDevice(tx *keystore.Tx, device string, keys identity.Keys) error { panic("contract") }
