package store

import (
	"context"

	"github.com/google/uuid"
)

// Bounds of prekeys.
const (
	MaxPrekeys  = 100       // one-time prekeys of a device that are not handed out
	LowPrekeys  = 10        // fewer are left: PrekeysLow
	MaxPrekeyID = 1<<31 - 1 // ids are 1 to this
)

// SignedPrekey is a device's medium-term X25519 key (X3DH).
type SignedPrekey struct {
	ID        uint32
	Key       [32]byte
	Signature [64]byte // by the identity key (package identity)
}

// OneTimePrekey is an X25519 key that is handed out once.
type OneTimePrekey struct {
	ID  uint32
	Key [32]byte
}

// PrekeyStock is what a device has left.
type PrekeyStock struct {
	SignedID uint32 // 0: there is none
	LastID   uint32 // of the newest one-time prekey that was ever uploaded
	OneTime  int    // not handed out
}

// PrekeyBundle is what an X3DH session is begun with (STATE, "Session Establishment").
type PrekeyBundle struct {
	Device  Device // with Keys
	Signed  SignedPrekey
	OneTime *OneTimePrekey // nil: all are handed out, and the session is begun without one
}

// Prekeys keeps the prekeys of devices.
type Prekeys interface {
	// PublishPrekeys replaces the signed prekey, where one is given, and adds one-time
	// prekeys. Ids of one-time prekeys rise, and one is never stored again: whatever is not
	// above the highest id uploaded before is left out, handed out or not, so that a call may
	// be repeated. Ids of signed prekeys rise, too, so that an old call that comes late does
	// not bring an old key back; the same one again is no error. All or nothing: ErrConflict
	// for an id that is stored with another key, a key that is stored under another id, a
	// signed prekey before the stored one, more than MaxPrekeys, or a device that is neither
	// APPROVED nor ACTIVE; ErrInvalid for an id, or ids or keys that are not distinct;
	// ErrNotFound.
	PublishPrekeys(ctx context.Context, tenant, device uuid.UUID, signed *SignedPrekey, oneTime []OneTimePrekey) (PrekeyStock, error)
	// PrekeyStock: ErrNotFound for the device.
	PrekeyStock(ctx context.Context, tenant, device uuid.UUID) (PrekeyStock, error)
	// TakePrekeyBundle hands out one one-time prekey, the one with the lowest id, to nobody
	// else ever. by is another ACTIVE device that shares a room, which is not archived, with
	// the ACTIVE device; for all others, and for a device without keys or without a signed
	// prekey, ErrNotFound. When fewer than LowPrekeys become left, and when none is, PrekeysLow
	// for the device in a room that the two share, a direct one if there is one.
	TakePrekeyBundle(ctx context.Context, tenant, device, by uuid.UUID) (PrekeyBundle, error)
}
