package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Errors of every implementation. Anything else means that the answer is not
// known, and callers refuse (fail closed).
var (
	ErrNotFound        = errors.New("not found")
	ErrUnauthenticated = errors.New("credential is not valid")
	ErrConflict        = errors.New("the state changed or does not allow this")
)

// Credentials answers hello.
type Credentials interface {
	// Authenticate returns what the credential with this token hash proves, now, by
	// the database's clock. Unknown, expired, revoked, of a removed participant or
	// of a device that is not ACTIVE: ErrUnauthenticated, without saying which.
	Authenticate(ctx context.Context, token TokenHash) (Identity, error)

	// ValidCredentials returns the subset of ids that would authenticate now. A
	// node asks it after its link to the others was lost.
	ValidCredentials(ctx context.Context, tenant uuid.UUID, ids []uuid.UUID) ([]uuid.UUID, error)
}

// Rosters answers who is in a room.
type Rosters interface {
	// Roster returns the room and its current participants from one snapshot.
	// ErrNotFound when the tenant has no such room.
	Roster(ctx context.Context, tenant, room uuid.UUID) (Roster, error)
}

// History is the window of session-addressed envelopes.
type History interface {
	// AppendMessage stores the message durably before it returns. The same id, sender and
	// bytes again: Appended.Duplicate. The same id with other bytes or of another
	// sender: a *wire.Error with HistoryConflict. Other typed refusals are
	// *wire.Error too. On any other error the message may or may not be stored.
	// Concurrent calls share commits. The message's slices are not used after the
	// call returns.
	AppendMessage(ctx context.Context, m Message) (Appended, error)
}

// NewRoom describes a room to create.
type NewRoom struct {
	Tenant          uuid.UUID
	Kind            RoomKind
	Scheme          Scheme
	PrivateMessages PrivateMessages
}

// NewParticipant describes a membership to create. A zero Device makes a new,
// already ACTIVE local device (operator socket only).
type NewParticipant struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	Device uuid.UUID
	Role   Role
}

// Operator is what the operator commands change (DESIGN section 8). Every change
// of a room or roster raises Room.Version in the same transaction; the caller
// announces it to all nodes before it answers.
type Operator interface {
	// DefaultTenant returns the tenant operator commands act in, made at first use.
	DefaultTenant(ctx context.Context) (uuid.UUID, error)

	CreateRoom(ctx context.Context, room NewRoom) (Room, error)
	// FindRoom: ErrNotFound when the tenant has no such room.
	FindRoom(ctx context.Context, tenant, room uuid.UUID) (Room, error)
	// FindParticipant: ErrNotFound; a removed participant is not found.
	FindParticipant(ctx context.Context, tenant, participant uuid.UUID) (Participant, error)

	// AddParticipant: ErrNotFound for the room or device; ErrConflict for a device that
	// is not ACTIVE, is already in the room, an archived room, a full room
	// (MaxParticipants) or a direct room that has its two participants or that role.
	AddParticipant(ctx context.Context, p NewParticipant) (Participant, error)
	// RemoveParticipant ends the membership and every credential of it; the returned
	// room has the new version. ErrNotFound when it is not a current participant of that room.
	RemoveParticipant(ctx context.Context, tenant, room, participant uuid.UUID) (Room, error)

	// MintCredential stores a credential for a current participant of an ACTIVE device.
	MintCredential(ctx context.Context, tenant, participant uuid.UUID, kind CredentialKind, token TokenHash, ttl time.Duration) (Credential, error)
	// RevokeCredential returns the revoked credentials: none when it was revoked or expired
	// before, ErrNotFound when there never was one.
	RevokeCredential(ctx context.Context, tenant, credential uuid.UUID) ([]Credential, error)
	// RevokeParticipantCredentials revokes all of a participant's credentials.
	RevokeParticipantCredentials(ctx context.Context, tenant, participant uuid.UUID) ([]Credential, error)

	// SetFrozen freezes or thaws the tenant's network and returns nothing else; setting
	// what is already so is no error.
	SetFrozen(ctx context.Context, tenant uuid.UUID, frozen bool) error
	Frozen(ctx context.Context, tenant uuid.UUID) (bool, error)
}

// MaxParticipants bounds a room, so that a fan-out fits one atomic JetStream batch
// (1,000 messages) with room to spare; above it adding a member is refused.
const MaxParticipants = 500

// Store is the sum of the roles.
type Store interface {
	Credentials
	Rosters
	History
	Operator
	// Ping reports whether the store answers and accepts writes.
	Ping(ctx context.Context) error
}
