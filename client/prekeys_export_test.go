package client

import (
	"context"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
)

// TakeBundle is what a session asks for.
func (d *Device) TakeBundle(ctx context.Context, device string) (ratchet.Bundle, error) {
	return d.takeBundle(ctx, device)
}

// PrekeyStock is what the relay has.
func (d *Device) PrekeyStock(ctx context.Context) (encryption.PrekeyStock, error) {
	return d.prekeyStock(ctx)
}

// Store is the device's key store.
func (d *Device) Store() *keystore.Store { return d.store }
