package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Bounds of the MLS delivery service.
const (
	MaxKeyPackage       = 16 << 10 // bytes
	MaxKeyPackagesAdded = 100      // of one call
	MaxKeyPackages      = 200      // of a device, not handed out and not expired
	LowKeyPackages      = 10       // fewer are left: KeyPackagesLow
	MaxKeyPackageLife   = 90 * 24 * time.Hour
	MaxCommit           = 128 << 10 // bytes
	MaxWelcome          = 512 << 10 // bytes
	MaxGroupInfo        = 512 << 10 // bytes
	MaxGroupID          = 255       // bytes
	MaxCommitAdds       = 100       // participants that one commit adds
	KeptCommits         = 1000      // of a room; older ones are gone
	KeptGroupIDs        = 1000      // of a room, which no new group of it has
)

// KeyPackage is one, as uploaded (RFC 9420 section 10). The server does not read it.
type KeyPackage struct {
	Ref        [32]byte // BLAKE2b-256 of Bytes
	Bytes      []byte   // an MLSMessage with a KeyPackage
	LastResort bool     // handed out when there is no other, again and again
	ExpiresAt  time.Time
}

// KeyPackageStock is what a device has left.
type KeyPackageStock struct {
	Available  int // to be handed out once, not expired
	LastResort bool
}

// ClaimedKeyPackage is a package handed out for one participant.
type ClaimedKeyPackage struct {
	Participant uuid.UUID
	Device      uuid.UUID
	KeyPackage  KeyPackage
}

// ExhaustedError says whose key packages there are none of.
type ExhaustedError struct{ Participant uuid.UUID }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("participant %s has no key package left", e.Participant)
}

// Is makes it an ErrConflict.
func (*ExhaustedError) Is(target error) bool { return target == ErrConflict }

// KeyPackages keeps what devices are added to groups with. Time is the database's.
type KeyPackages interface {
	// AddKeyPackages stores those that the APPROVED or ACTIVE device does not have yet; one
	// that was uploaded before, handed out or not, is left as it is until it expires. (Of those
	// handed out the device keeps 1,000.) A last-resort package replaces the one before. ErrInvalid for none, too many, a size, an ExpiresAt that is
	// past or beyond MaxKeyPackageLife; ErrConflict beyond MaxKeyPackages, or for the device's
	// state; ErrNotFound.
	AddKeyPackages(ctx context.Context, tenant, device uuid.UUID, packages []KeyPackage) (KeyPackageStock, error)
	// KeyPackageStock: ErrNotFound for the device.
	KeyPackageStock(ctx context.Context, tenant, device uuid.UUID) (KeyPackageStock, error)
	// ClaimKeyPackages hands out one package for each of these other participants (1 to
	// MaxCommitAdds, each once, else ErrInvalid), or none at all. by is a device whose
	// participant may commit: a member of the MLS room who is no viewer (ErrNotFound for
	// others, ErrForbidden for a viewer). ErrNotFound for a participant who is not in the
	// room; an *ExhaustedError for one without a package; ErrConflict for a room of another
	// scheme, a *wire.Error with RoomIsArchived. No package is handed out twice, whatever happens
	// at the same time, but for last-resort ones. Where that, or their age, leaves fewer than
	// LowKeyPackages: KeyPackagesLow for that participant in this room.
	ClaimKeyPackages(ctx context.Context, tenant, room, by uuid.UUID, participants []uuid.UUID) ([]ClaimedKeyPackage, error)
}

// NewCommit is a commit on its way into a group (RFC 9420 section 12.4), as one unit with
// what belongs to it.
type NewCommit struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	By     uuid.UUID // device
	// Epoch is the room's epoch that the commit was made in. It is the group's own epoch, as in
	// the commit, plus Group.Base; AcceptCommit compares.
	Epoch      uint64
	GroupEpoch uint64 // as in the commit
	GroupID    []byte // as in the commit
	// External: the committer joins by it, also anew (RFC 9420 section 12.4.3.2).
	External  bool
	Commit    []byte      // an MLSMessage
	GroupInfo []byte      // an MLSMessage, of the epoch that the commit makes
	Welcome   []byte      // an MLSMessage for Added; nil when that is empty
	Added     []uuid.UUID // participants, at most MaxCommitAdds
	// Removed: participants, former ones too, at most MaxParticipants. One who is in Added too
	// joins anew.
	Removed []uuid.UUID
}

// Group is the MLS group of a room.
type Group struct {
	Room    uuid.UUID
	Epoch   uint64      // of the room: the gen of messages. It never falls, whatever is reset.
	Base    uint64      // Epoch is the group's own epoch plus this
	ID      []byte      // nil: there is no group yet, or none since a reset
	Info    []byte      // newest GroupInfo; nil without a group
	Members []uuid.UUID // participants that are in the group, former ones too whose removal is pending
	Pending []uuid.UUID // former participants whom a commit has to remove
}

// Commit is an accepted one.
type Commit struct {
	Epoch  uint64    // that it made
	Sender uuid.UUID // participant
	Bytes  []byte
	At     time.Time
}

// Welcome is what a participant joins with.
type Welcome struct {
	Epoch uint64 // that it joins in
	Bytes []byte
}

// EpochError says that a commit is not for the epoch the room is in.
type EpochError struct{ Current uint64 }

func (e *EpochError) Error() string {
	return fmt.Sprintf("the room is in epoch %d", e.Current)
}

// Is makes it an ErrConflict.
func (*EpochError) Is(target error) bool { return target == ErrConflict }

// Groups is the delivery service of MLS rooms: it orders commits and keeps what members
// fetch (RFC 9750 section 5). For a device that is not in the room everything is
// ErrNotFound; by is as in Rooms, without operator and admins who are no members.
type Groups interface {
	// AcceptCommit stores the commit, its group info and its welcome, moves the room to the
	// next epoch, and tells (CommitAccepted, and WelcomeWaits to each of Added), all or nothing.
	// The first commit of an epoch wins; for any other one an *EpochError. The same bytes of
	// the same sender again, while they are kept: the epoch they made, with nothing changed.
	// The first commit, of group epoch 0, makes the group.
	//
	// ErrInvalid for sizes, the welcome without Added or the other way round, or somebody named
	// twice in one list. Then, the first that holds: ErrForbidden for a viewer; ErrConflict for
	// the scheme; a *wire.Error with RoomIsArchived; the *EpochError; ErrForbidden for a committer who is not
	// in the group, unless it is External or makes the group; ErrConflict for External without
	// a group, another group id, or a GroupEpoch that is not Epoch less Base; ErrInvalid for the
	// committer in Added, or in Removed unless it is External; ErrNotFound for one of Added who
	// is not in the room, or of Removed who never was; ErrConflict for one of Added who is in
	// the group already and not in Removed, or the id of one of the room's newest KeptGroupIDs
	// groups.
	// Where nobody is left whose removal is pending, a REKEYING room is ACTIVE again.
	AcceptCommit(ctx context.Context, c NewCommit) (epoch uint64, err error)
	// CommitPage returns commits in the order of their epochs, those that made an epoch after
	// this one, at most limit (1 to MaxPage, else ErrInvalid) and about 4 MiB, and whether more
	// follow. An *EpochError when the one that follows is not kept any more, for an epoch of
	// before a reset, and for one that the room has not reached.
	CommitPage(ctx context.Context, tenant, room, by uuid.UUID, after uint64, limit int) (commits []Commit, more bool, err error)
	// Group: with ID nil when there is none.
	Group(ctx context.Context, tenant, room, by uuid.UUID) (Group, error)
	// Welcome returns the newest welcome of the device's participant: ErrNotFound without one.
	// It stays until another commit adds or removes the participant, or it joins by one of its
	// own, a reset or the end of the membership.
	Welcome(ctx context.Context, tenant, room, by uuid.UUID) (Welcome, error)
	// ReportCommit notes that a participant cannot apply the commit that made this epoch, and
	// tells (CommitReported): once since it joined the group, as it can apply none that
	// follows either, and nothing of a commit before that. So nobody, a viewer least, fills the
	// inboxes of others with reports. Nothing else changes: an owner may reset the
	// room. ErrNotFound for a commit that is not kept, a *wire.Error with RoomIsArchived.
	ReportCommit(ctx context.Context, tenant, room, by uuid.UUID, epoch uint64) error
}
