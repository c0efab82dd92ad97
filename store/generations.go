package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Bounds of sender generations.
const (
	MaxSessionKey   = 1024 // bytes of a published session key
	KeptGenerations = 100  // of a participant; older ones are gone, and count as allocated still
)

// NewGeneration publishes a sender key's public part and asks for its gen (RELAY,
// "Sender-key identity compatibility").
type NewGeneration struct {
	Tenant      uuid.UUID
	Room        uuid.UUID
	Participant uuid.UUID
	KID         [16]byte
	SessionKey  []byte // public, opaque to the server; 1 to MaxSessionKey bytes
}

// Generation is an allocated one.
type Generation struct {
	Participant uuid.UUID
	Gen         uint64 // rises per participant and room, from 1
	KID         [16]byte
	SessionKey  []byte
	AllocatedAt time.Time
	Again       bool // AllocateGeneration: it was allocated by an earlier call
	// Rekeyed says of AllocateGeneration that the room was REKEYING, waited for nobody else and
	// is ACTIVE with this, in version RoomVersion (else 0).
	Rekeyed     bool
	RoomVersion int64
}

// Generations allocates sender generations.
type Generations interface {
	// AllocateGeneration returns the next gen of the participant, or, for a kid among its
	// newest KeptGenerations with the same key, the gen of then. ErrConflict for that kid with
	// another key or an archived room; ErrForbidden for a viewer; ErrNotFound for the room
	// or a participant who is not a current one; ErrInvalid for the key. A gen of then may be
	// retired (see Rooms); a new one never is. The first allocation after which no participant
	// who had a generation waits for a new one moves a REKEYING room of sender keys to ACTIVE,
	// in the same transaction.
	AllocateGeneration(ctx context.Context, g NewGeneration) (Generation, error)
	// CurrentGenerations returns the newest generation of each current participant that
	// has one. ErrNotFound: no such room.
	CurrentGenerations(ctx context.Context, tenant, room uuid.UUID) ([]Generation, error)
}
