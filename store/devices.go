package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// DeviceKind says whose a device is.
type DeviceKind string

// Kinds of devices.
const (
	DeviceHuman DeviceKind = "human"
	DeviceAgent DeviceKind = "agent"
)

// DeviceKeys are the public keys a device enrolls with.
type DeviceKeys struct {
	Identity           [32]byte // Ed25519
	Agreement          [32]byte // X25519
	AgreementSignature [64]byte // by Identity over Agreement
}

// Device is a device as stored.
type Device struct {
	ID          uuid.UUID
	Tenant      uuid.UUID
	Kind        DeviceKind
	Label       string
	State       DeviceState
	Admin       bool
	Keys        *DeviceKeys // nil: made by the operator, without keys
	Fingerprint string      // what people compare; empty without keys
	CreatedAt   time.Time
	ApprovedAt  *time.Time
	RevokedAt   *time.Time
}

// Limits of enrollment (STATE, "Invite Token States") and of signing in.
const (
	MaxInviteTTL     = 10 * time.Minute
	MaxFailedProofs  = 10  // the last of them revokes the invite
	MaxDeviceLabel   = 128 // Unicode code points
	MaxPendingInvite = 100 // usable invites of a tenant

	ChallengeTTL  = 60 * time.Second
	MaxChallenges = 8  // of a device; a new one ends the oldest
	MaxTokens     = 64 // valid access tokens of a device; a new one ends the oldest
)

// InviteState is the state of an invite (STATE, "Invite Token States").
type InviteState string

// States of an invite.
const (
	InviteCreated  InviteState = "CREATED"
	InviteConsumed InviteState = "CONSUMED"
	InviteExpired  InviteState = "EXPIRED"
	InviteRevoked  InviteState = "REVOKED"
)

// InviteEvent moves an invite from state to state.
type InviteEvent string

// Events of an invite.
const (
	InviteConsume InviteEvent = "consume"
	InviteExpire  InviteEvent = "expire"
	InviteRevoke  InviteEvent = "revoke"
)

// NewInvite describes an invite to create.
type NewInvite struct {
	Tenant    uuid.UUID
	CreatedBy uuid.UUID // an ACTIVE admin device; uuid.Nil: the operator
	Kind      DeviceKind
	Admin     bool // the device is an admin and needs no approval of another one
	Token     TokenHash
	TTL       time.Duration // at most MaxInviteTTL
}

// Invite is a stored invite, without its token.
type Invite struct {
	ID        uuid.UUID
	Tenant    uuid.UUID
	Kind      DeviceKind
	Admin     bool
	State     InviteState
	ExpiresAt time.Time
}

// Enrollment is a submission whose proof of possession was found good by the caller.
type Enrollment struct {
	Token TokenHash
	Kind  DeviceKind // must be the invite's
	Label string     // at most MaxDeviceLabel, all of which may be shown on one line; may be empty
	Keys  DeviceKeys
	// Fingerprint is that of Keys, at most 64 characters (package identity).
	Fingerprint string
}

// Enrollments creates and consumes invites.
type Enrollments interface {
	// CreateInvite: ErrInvalid for the kind or a ttl outside (0, MaxInviteTTL];
	// ErrForbidden for a creator who is no ACTIVE admin of the tenant; ErrNotFound for the
	// tenant; ErrConflict for a token that was used before, or MaxPendingInvite usable ones.
	CreateInvite(ctx context.Context, invite NewInvite) (Invite, error)
	// RevokeInvite: after it returned nobody enrolls with the invite. ErrNotFound; ErrConflict
	// where it was consumed. An expired or revoked one is no error.
	RevokeInvite(ctx context.Context, tenant, invite uuid.UUID) error
	// Enroll consumes the invite and makes the device in one transaction, by the
	// database's clock: PENDING, or APPROVED where the invite is an admin's. Whatever
	// is wrong (unknown, expired, revoked, consumed, made by a device that is no ACTIVE admin
	// now, another kind, a label that is none, an identity key that is enrolled in the
	// tenant), the error is ErrUnauthenticated itself; the
	// invite is then as it was. ErrInvalid for a missing fingerprint, a fault of the caller.
	Enroll(ctx context.Context, e Enrollment) (Device, error)
	// ProofFailed counts a submission with a bad proof against the invite, if the token is
	// one of a usable invite, and revokes it with the MaxFailedProofs-th.
	ProofFailed(ctx context.Context, token TokenHash) error
	// HasAdmin reports whether the tenant has an admin device that is APPROVED, ACTIVE or
	// SUSPENDED.
	HasAdmin(ctx context.Context, tenant uuid.UUID) (bool, error)
}

// DeviceChange is a committed change of a device and what it took away.
type DeviceChange struct {
	Device       Device
	Rooms        []Room      // whose roster or state changed, as they are now, by ID
	Participants []uuid.UUID // memberships that ended (or, suspended, that are cut off)
	Credentials  []uuid.UUID // credentials that are not valid any more
}

// Devices moves devices through their states (STATE, "Device Lifecycle States"). Each
// move is refused, in this order and changing nothing: ErrForbidden for a by that is
// neither uuid.Nil, the operator, nor an ACTIVE admin device of the tenant; ErrNotFound for
// the device; ErrConflict for a state that does not allow it.
type Devices interface {
	// Device: ErrNotFound.
	Device(ctx context.Context, tenant, device uuid.UUID) (Device, error)
	// DeviceKeys returns the public keys of those of the devices that the tenant has, whatever
	// their state, and that have some.
	DeviceKeys(ctx context.Context, tenant uuid.UUID, devices []uuid.UUID) (map[uuid.UUID]DeviceKeys, error)
	// DevicePage lists at most limit devices (1 to MaxPage, else ErrInvalid) by CreatedAt
	// then ID, those after a device (uuid.Nil: from the first; ErrNotFound), and says whether
	// more follow; state "" is all of them, ErrInvalid an unknown one. A walk may miss devices
	// that enroll meanwhile.
	DevicePage(ctx context.Context, tenant uuid.UUID, state DeviceState, after uuid.UUID, limit int) (devices []Device, more bool, err error)
	// ApproveDevice: ErrInvalid, whatever the state, for a fingerprint that is not the
	// device's; a device without keys has none to compare.
	ApproveDevice(ctx context.Context, tenant, device, by uuid.UUID, fingerprint string) (Device, error)
	// ActivateDevice is the key-exchange init of an APPROVED device (APPROVED to ACTIVE); for
	// an ACTIVE one it does nothing.
	ActivateDevice(ctx context.Context, tenant, device uuid.UUID) (Device, error)
	// SuspendDevice ends nothing for good: while it lasts no credential and no access token
	// of the device is valid, and no invite that it made. The change names the memberships and valid credentials cut off.
	SuspendDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
	// ReinstateDevice ends a suspension; what did not expire meanwhile is valid again.
	ReinstateDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
	// RevokeDevice is final: one transaction ends every membership, credential, access
	// token and invite that it made, raises the version of every room the device was in and moves those that are
	// encrypted, and ACTIVE, to REKEYING. No join, credential, sign-in or approval that runs at
	// the same time survives it.
	RevokeDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
}

// SignIns lets devices sign in (DESIGN section 9, "Who calls"). Whoever signs in names the
// device alone: its tenant is found by its id. Where there is no such device the tenant that
// is given takes its place, in the same way, so that an answer does not tell.
type SignIns interface {
	// NewChallenge stores the hash of a nonce for a device, for ChallengeTTL; unknown devices
	// get one too, so that nobody learns which exist. It ends the oldest beyond MaxChallenges,
	// since a refusal would let anybody keep a device from signing in. ErrNotFound for a
	// tenant there is not, ErrConflict for a nonce the device has.
	NewChallenge(ctx context.Context, otherwise, device uuid.UUID, nonce TokenHash) error
	// SignIn consumes the nonce, whatever comes of it, and stores an access token for an
	// APPROVED or ACTIVE device: ErrUnauthenticated itself whatever is wrong with the caller's
	// words. verify is asked whether the signature fits the device's identity key; it may be
	// asked again and must not call the store. ErrInvalid for a ttl that is not positive,
	// ErrConflict for a token that was used before. It ends the oldest token beyond MaxTokens.
	SignIn(ctx context.Context, otherwise, device uuid.UUID, nonce, token TokenHash, ttl time.Duration, verify func(identity [32]byte) bool) (expires time.Time, err error)
	// AuthenticateDevice returns the device of an access token that is valid now, in state
	// APPROVED or ACTIVE; else ErrUnauthenticated itself.
	AuthenticateDevice(ctx context.Context, token TokenHash) (Device, error)
}
