package store

import (
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// Role is what a participant may do in its room (DESIGN section 6, "Kinds").
type Role string

// Roles of participants.
const (
	RoleOwner      Role = "owner"      // human: all kinds but notice
	RoleController Role = "controller" // human: all kinds but notice
	RoleAgent      Role = "agent"      // all kinds
	RoleViewer     Role = "viewer"     // reads only
)

// Valid reports whether r is one of the four roles.
func (r Role) Valid() bool {
	switch r {
	case RoleOwner, RoleController, RoleAgent, RoleViewer:
		return true
	}
	return false
}

// Scheme is how a room's content is encrypted.
type Scheme string

// Schemes of rooms.
const (
	SchemeSenderKeys    Scheme = "sender_keys"
	SchemeMLS           Scheme = "mls"
	SchemeDoubleRatchet Scheme = "double_ratchet" // direct rooms
	SchemeNone          Scheme = "none"
)

// RoomKind tells group rooms from direct (1:1) ones.
type RoomKind string

// Kinds of rooms.
const (
	RoomGroup  RoomKind = "group"
	RoomDirect RoomKind = "direct"
)

// PrivateMessages is a room's immutable policy for agent-to-agent messages. The
// zero value is a missing policy, which never means allowed (RELAY).
type PrivateMessages string

// The two policies.
const (
	PrivateAllowed PrivateMessages = "allowed"
	PrivateRefused PrivateMessages = "refused"
)

// CredentialKind tells session credentials from development ones, which alone may
// open a development connection (hello with direct: true).
type CredentialKind string

// Kinds of credentials.
const (
	CredentialSession     CredentialKind = "session"
	CredentialDevelopment CredentialKind = "development"
)

// TokenHash is the BLAKE2b-256 of a token; tokens themselves are never stored.
type TokenHash [32]byte

// Room is a room as stored.
type Room struct {
	ID              uuid.UUID
	Tenant          uuid.UUID
	Kind            RoomKind
	Scheme          Scheme
	PrivateMessages PrivateMessages
	State           RoomState
	Version         int64 // rises with every change of the room or its roster
	// Activated says, in a direct room, that its owner has written first (STATE, "Session
	// Establishment"), since it was last started anew.
	Activated bool
	CreatedAt time.Time
}

// Participant is the membership of a device in a room.
type Participant struct {
	ID       uuid.UUID
	Tenant   uuid.UUID
	Room     uuid.UUID
	Device   uuid.UUID
	Role     Role
	JoinedAt time.Time
}

// Roster is a room with its current participants: what admission looks up.
type Roster struct {
	Room         Room
	Participants []Participant // current ones only, by JoinedAt then ID
}

// Identity is what a valid credential proves (the answer to hello).
type Identity struct {
	Tenant      uuid.UUID
	Room        uuid.UUID
	Participant uuid.UUID
	Device      uuid.UUID
	Credential  uuid.UUID
	Role        Role
	Kind        CredentialKind
	ExpiresAt   time.Time
	Frozen      bool // the tenant's network is frozen: close 1012
}

// Credential is a minted credential, without its token.
type Credential struct {
	ID          uuid.UUID
	Tenant      uuid.UUID
	Room        uuid.UUID
	Participant uuid.UUID
	Kind        CredentialKind
	ExpiresAt   time.Time
}

// Message is a session-addressed envelope on its way into history.
type Message struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	Sender uuid.UUID // participant
	ID     string    // the envelope's id, unique per room
	Kind   wire.Kind
	Gen    uint64
	KID    string // empty when the envelope has none
	Enc    string // empty when the envelope has none
	Hdr    bool   // the envelope has a ratchet header
	Bytes  []byte // the envelope exactly as sent
}

// Appended is history's answer to an accepted message.
type Appended struct {
	// Duplicate is true when the same bytes of the same sender were stored before:
	// the message is the same message, and its fan-out is completed, not repeated.
	Duplicate bool
}
