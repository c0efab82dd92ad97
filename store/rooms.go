package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// MaxOpenRooms is how many rooms that a device made may be there without being archived.
const MaxOpenRooms = 10_000

// Rooms is what devices do with rooms (STATE, "Room Lifecycle"). Who acts is by: uuid.Nil
// is the operator, who may do everything; else an ACTIVE device of the tenant (ErrForbidden).
// A room's owners and the tenant's admin devices manage it, while they are ACTIVE; a member
// who is neither is ErrForbidden, and for any other device the room is ErrNotFound.
//
// Every change raises the room's version and puts into the outbox, in the same
// transaction, what members are told (wire.RoomEvent): RoomJoined; MemberRemoved, and
// RekeyRequired where keys have to change; ArchivedRoom; RoomReset; DeviceLinked.
//
// When somebody leaves an encrypted room, by whatever way, the room is REKEYING until those
// who stay use keys that the one who left does not know:
//   - sender_keys: each participant's generations of before are retired. The room is ACTIVE
//     again when everybody who had one has allocated a new one.
//   - mls: until a commit is accepted that removes everybody who left the group. Somebody
//     who was never in it knows no keys, and is no reason to change them.
//   - double_ratchet: the room is not activated any more, until the owner writes again.
//
// A room that nobody is in has no keys: it is ACTIVE, and its MLS group is over.
type Rooms interface {
	// OpenRoom makes a room whose owner is the ACTIVE human device by: ErrForbidden for any
	// other, ErrConflict where MaxOpenRooms that it made are not archived (calls at the same
	// time may each count without the others); else as Operator.CreateRoom and AddParticipant.
	OpenRoom(ctx context.Context, room NewRoom, by uuid.UUID) (Room, Participant, error)
	// RoomPage lists the rooms that the device is in, or with uuid.Nil all of the tenant, by
	// id, those after a room (uuid.Nil: from the first), at most limit (1 to MaxPage, else
	// ErrInvalid), and says whether more follow.
	RoomPage(ctx context.Context, tenant, device, after uuid.UUID, limit int) (rooms []Room, more bool, err error)
	// Membership finds a participant of the room, a former one too, and says when it left: the
	// zero time for one that is in it. ErrNotFound for one that never was.
	Membership(ctx context.Context, tenant, room, participant uuid.UUID) (p Participant, left time.Time, err error)
	// ArchiveRoom closes the room for good: nothing is stored in it any more, and members may
	// read on. ErrConflict in CREATED and ARCHIVED.
	ArchiveRoom(ctx context.Context, tenant, room, by uuid.UUID) (Room, error)
	// ResetRoom begins all encryption state anew (STATE, "Corrupt State"): every sender
	// generation is retired; an MLS group is over, no message of it fits any more, and the next
	// commit makes a new group; a direct room is not activated any more, and DeviceLinked says
	// who asked. In a room of scheme double_ratchet each member may do it (STATE, "Ratchet
	// Desync"). An MLS room that was REKEYING is ACTIVE then. ErrConflict in CREATED and
	// ARCHIVED, and for scheme none.
	ResetRoom(ctx context.Context, tenant, room, by uuid.UUID) (Room, error)
}
