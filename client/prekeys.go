package client

import (
	"context"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
)

// RefillPrekeys publishes prekeys until the relay has enough of them, and renews the signed
// prekey when it is old. It may be repeated and called from several goroutines at once
// (FAULTS J10).
func (d *Device) RefillPrekeys(ctx context.Context) error { panic("contract") }

// takeBundle takes the prekey bundle of a device, unchecked: each call uses up a one-time prekey.
func (d *Device) takeBundle(ctx context.Context, device string) (ratchet.Bundle, error) {
	panic("contract")
}
