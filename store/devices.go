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

// Limits of enrollment (STATE, "Invite Token States").
const (
	MaxInviteTTL     = 10 * time.Minute
	MaxFailedProofs  = 10  // the last of them revokes the invite
	MaxDeviceLabel   = 128 // Unicode code points
	MaxPendingInvite = 100 // usable invites of a tenant
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
	Label string
	Keys  DeviceKeys
}

// Enrollments creates and consumes invites.
type Enrollments interface {
	// CreateInvite: ErrInvalid for the kind or a ttl outside (0, MaxInviteTTL];
	// ErrForbidden for a creator who is no ACTIVE admin; ErrConflict for a token that was
	// used before, or MaxPendingInvite usable ones.
	CreateInvite(ctx context.Context, invite NewInvite) (Invite, error)
	// RevokeInvite: after it returned nobody enrolls with the invite. ErrNotFound; ErrConflict
	// where it was consumed. An expired or revoked one is no error.
	RevokeInvite(ctx context.Context, tenant, invite uuid.UUID) error
	// Enroll consumes the invite and makes the device in one transaction, by the
	// database's clock: PENDING, or APPROVED where the invite is an admin's. Whatever
	// is wrong (unknown, expired, revoked, consumed, another kind, a key that is
	// enrolled), the error is ErrUnauthenticated; the invite is then as it was.
	Enroll(ctx context.Context, e Enrollment) (Device, error)
	// ProofFailed counts a submission with a bad proof against the invite, if the token is
	// one, and revokes it with the MaxFailedProofs-th.
	ProofFailed(ctx context.Context, token TokenHash) error
	// HasAdmin reports whether the tenant has an admin device that is APPROVED, ACTIVE or
	// SUSPENDED.
	HasAdmin(ctx context.Context, tenant uuid.UUID) (bool, error)
}

// DeviceChange is a committed change of a device and what it took away.
type DeviceChange struct {
	Device       Device
	Rooms        []Room      // whose roster or state changed, with their new versions
	Participants []uuid.UUID // memberships that ended (or, suspended, that are cut off)
	Credentials  []uuid.UUID // credentials that are not valid any more
}

// Devices moves devices through their states (STATE, "Device Lifecycle States").
type Devices interface {
	// Device: ErrNotFound.
	Device(ctx context.Context, tenant, device uuid.UUID) (Device, error)
	// DevicePage lists devices by CreatedAt then ID; state "" is all of them.
	DevicePage(ctx context.Context, tenant uuid.UUID, state DeviceState, after uuid.UUID, limit int) (devices []Device, more bool, err error)
	// ApproveDevice: ErrInvalid for a fingerprint that is not the device's; ErrConflict for
	// the state; by is as in NewInvite.CreatedBy, ErrForbidden.
	ApproveDevice(ctx context.Context, tenant, device, by uuid.UUID, fingerprint string) (Device, error)
	// ActivateDevice is the key-exchange init of an APPROVED device (APPROVED to ACTIVE); for
	// an ACTIVE one it does nothing.
	ActivateDevice(ctx context.Context, tenant, device uuid.UUID) (Device, error)
	SuspendDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
	ReinstateDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
	// RevokeDevice is final: one transaction ends every membership and credential and access
	// token, and moves every room the device was in to REKEYING where it is encrypted.
	RevokeDevice(ctx context.Context, tenant, device, by uuid.UUID) (DeviceChange, error)
}

// SignIns lets devices sign in (DESIGN section 9, "Who calls").
type SignIns interface {
	// NewChallenge stores a nonce for a device, for 60 s; unknown devices get one too, so
	// that nobody learns which exist.
	NewChallenge(ctx context.Context, tenant, device uuid.UUID, nonce TokenHash) error
	// SignIn consumes the nonce and stores an access token for an APPROVED or ACTIVE
	// device, once: ErrUnauthenticated whatever is wrong. verify is asked whether the
	// signature fits the device's identity key.
	SignIn(ctx context.Context, tenant, device uuid.UUID, nonce, token TokenHash, ttl time.Duration, verify func(identity [32]byte) bool) (expires time.Time, err error)
	// AuthenticateDevice returns the device of an access token that is valid now, in state
	// APPROVED or ACTIVE; else ErrUnauthenticated.
	AuthenticateDevice(ctx context.Context, token TokenHash) (Device, error)
}
