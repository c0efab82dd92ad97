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
	ErrInvalid         = errors.New("invalid argument")
	ErrForbidden       = errors.New("not allowed in this role")
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
	// sender: a *wire.Error with HistoryConflict. A shape that history does not take (a
	// notice, an id that is not 1 to 128 printable ASCII characters, no bytes or more
	// than wire.MaxMessage): a *wire.Error with MalformedRequest. Refused without being
	// stored, too: ErrNotFound for a room the tenant does not have or a sender who is
	// not a current participant of it, a *wire.Error with RoomIsArchived.
	//
	// What does not fit the room's scheme is refused with the codes of RELAY ("When the
	// API refuses the store"): MLSSchemeDisabled in an MLS room while MLS is off;
	// SchemeMismatch for a message in a room of scheme none, a marker (kid, enc, hdr) the
	// scheme does not have, or sender-key distribution where there are no sender keys;
	// for a message in an MLS room MLSRemovalPending while the room is REKEYING, MLSRetired
	// for a gen before the room's epoch, MLSUnknown for one after it or where there is no
	// group. In a room of sender keys that somebody left since the sender joined, a message
	// under a gen that was allocated before: MLSRetired; under one that was not allocated:
	// MLSUnknown. An agent's message in a direct room whose owner has not written first:
	// NotActivated; the owner's first message activates it, in the same transaction, and
	// ends the REKEYING of a room of scheme double_ratchet. On any other
	// error the message may or may not be stored, and the same call again finds out.
	//
	// Concurrent calls share commits. A call whose context ends while its message is
	// being written waits for the outcome, which is bounded. The message's slices are
	// not used after the call returns.
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
// already ACTIVE local device, for the operator only.
type NewParticipant struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	Device uuid.UUID
	Role   Role
	// By is the device that adds it and manages the room (see Rooms); zero: the operator.
	By uuid.UUID
}

// Operator is what the operator commands change (DESIGN section 8). Every change
// of a room or roster raises Room.Version in the same transaction; the caller
// announces it to all nodes before it answers.
type Operator interface {
	// DefaultTenant returns the tenant operator commands act in, made at first use.
	DefaultTenant(ctx context.Context) (uuid.UUID, error)

	// CreateRoom makes a room in state CREATED: ErrNotFound for the tenant, ErrInvalid
	// for an unknown or missing kind, scheme or policy, or for the double ratchet
	// outside a direct room.
	CreateRoom(ctx context.Context, room NewRoom) (Room, error)
	// FindRoom: ErrNotFound when the tenant has no such room.
	FindRoom(ctx context.Context, tenant, room uuid.UUID) (Room, error)
	// FindParticipant: ErrNotFound; a removed participant is not found.
	FindParticipant(ctx context.Context, tenant, participant uuid.UUID) (Participant, error)

	// AddParticipant: ErrInvalid for the role; ErrForbidden for who asks (see Rooms);
	// ErrNotFound for the room or device; ErrConflict for a device that is not ACTIVE, is
	// already in the room, or is not of the kind that the role is for (owner and controller are
	// human devices, agents agent devices, viewers either), an archived room, a full room
	// (MaxParticipants) or a direct room, which takes one owner or controller and one agent,
	// that has its two participants or that role. The first participant makes a CREATED room
	// ACTIVE. A device that was removed may be added again, as another participant. RoomJoined
	// tells everybody in the room.
	AddParticipant(ctx context.Context, p NewParticipant) (Participant, error)
	// RemoveParticipant ends the membership and every credential of it; the returned
	// room has the new version, and is REKEYING where its members have to change keys (see
	// Rooms). by is the device that asks, uuid.Nil the operator; its own participant it may
	// remove in any role, and the last owner may leave: admins manage the room then.
	// ErrNotFound when it is not a current participant of that room.
	RemoveParticipant(ctx context.Context, tenant, room, participant, by uuid.UUID) (Room, error)

	// MintCredential stores a credential for a current participant of an ACTIVE device:
	// ErrNotFound for the participant, ErrConflict for the device's state or a token
	// that was used before, ErrInvalid for the kind or a ttl that is not positive.
	MintCredential(ctx context.Context, tenant, participant uuid.UUID, kind CredentialKind, token TokenHash, ttl time.Duration) (Credential, error)
	// RevokeCredential returns the revoked credentials: none when it was revoked or expired
	// before, ErrNotFound when there never was one, or it ended so long ago that it is forgotten.
	// by is the device that asks, for which there are only its own, or uuid.Nil, the operator.
	RevokeCredential(ctx context.Context, tenant, credential, by uuid.UUID) ([]Credential, error)
	// RevokeParticipantCredentials revokes all of a participant's credentials and
	// returns those it revoked; ErrNotFound when the tenant never had that participant.
	RevokeParticipantCredentials(ctx context.Context, tenant, participant uuid.UUID) ([]Credential, error)

	// SetFrozen freezes or thaws the tenant's network; setting what is already so is no
	// error. ErrNotFound for the tenant.
	SetFrozen(ctx context.Context, tenant uuid.UUID, frozen bool) error
	// Frozen: ErrNotFound for the tenant.
	Frozen(ctx context.Context, tenant uuid.UUID) (bool, error)
}

// MaxParticipants bounds a room, so that a fan-out fits one atomic JetStream batch
// (1,000 messages) with room to spare; above it adding a member is refused.
const MaxParticipants = 500

// Versions lets a node notice changes whose announcement it missed.
type Versions interface {
	// RoomVersions returns Room.Version of those of the rooms that the tenant has.
	RoomVersions(ctx context.Context, tenant uuid.UUID, rooms []uuid.UUID) (map[uuid.UUID]int64, error)
}

// Edge is what a node without a database asks of one that has it: store/remote
// answers it over HTTP.
type Edge interface {
	Credentials
	Rosters
	Versions
	History
	TraceWriter
	NoticeWriter
	// Ping reports whether the store answers and accepts writes.
	Ping(ctx context.Context) error
}

// Store is the sum of the roles.
type Store interface {
	Edge
	HistoryReader
	TraceReader
	NoticeReader
	Rules
	Generations
	Enrollments
	Devices
	SignIns
	Operator
	Tenants
	Rooms
	KeyPackages
	Groups
	Prekeys
	Outbox
}
