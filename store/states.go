package store

import "fmt"

// RoomState is the state of a room (STATE, "Room State Machine").
type RoomState string

// States of a room.
const (
	RoomCreated  RoomState = "CREATED"
	RoomActive   RoomState = "ACTIVE"
	RoomRekeying RoomState = "REKEYING"
	RoomArchived RoomState = "ARCHIVED"
)

// DeviceState is the state of a device (STATE, "Device Lifecycle States").
type DeviceState string

// States of a device.
const (
	DevicePending   DeviceState = "PENDING"
	DeviceApproved  DeviceState = "APPROVED"
	DeviceActive    DeviceState = "ACTIVE"
	DeviceSuspended DeviceState = "SUSPENDED"
	DeviceRevoked   DeviceState = "REVOKED"
)

// RoomEvent moves a room from state to state.
type RoomEvent string

// Events of a room.
const (
	RoomMembersAdded  RoomEvent = "members_added"
	RoomMemberRemoved RoomEvent = "member_removed"
	RoomRekeyed       RoomEvent = "rekey_complete"
	RoomArchive       RoomEvent = "archive"
)

// DeviceEvent moves a device from state to state.
type DeviceEvent string

// Events of a device.
const (
	DeviceApprove   DeviceEvent = "approve"
	DeviceActivate  DeviceEvent = "key_exchange_init"
	DeviceSuspend   DeviceEvent = "suspend"
	DeviceReinstate DeviceEvent = "reinstate"
	DeviceRevoke    DeviceEvent = "revoke"
)

type move[S, E ~string] struct {
	From  S
	Event E
}

// The transition tables. The schema holds the same moves (table
// state_transition); a test compares the two.
var (
	roomMoves = map[move[RoomState, RoomEvent]]RoomState{
		{RoomCreated, RoomMembersAdded}:   RoomActive,
		{RoomActive, RoomMembersAdded}:    RoomActive,
		{RoomActive, RoomMemberRemoved}:   RoomRekeying,
		{RoomRekeying, RoomMembersAdded}:  RoomRekeying,
		{RoomRekeying, RoomMemberRemoved}: RoomRekeying,
		{RoomRekeying, RoomRekeyed}:       RoomActive,
		{RoomActive, RoomArchive}:         RoomArchived,
	}
	inviteMoves = map[move[InviteState, InviteEvent]]InviteState{
		{InviteCreated, InviteConsume}: InviteConsumed,
		{InviteCreated, InviteExpire}:  InviteExpired,
		{InviteCreated, InviteRevoke}:  InviteRevoked,
	}
	deviceMoves = map[move[DeviceState, DeviceEvent]]DeviceState{
		{DevicePending, DeviceApprove}:     DeviceApproved,
		{DeviceApproved, DeviceActivate}:   DeviceActive,
		{DeviceActive, DeviceSuspend}:      DeviceSuspended,
		{DeviceActive, DeviceRevoke}:       DeviceRevoked,
		{DeviceSuspended, DeviceReinstate}: DeviceActive,
	}
)

// Next returns the state an event leads to, or ErrConflict where the table has no such move.
func (s RoomState) Next(e RoomEvent) (RoomState, error) { return next(roomMoves, s, e) }

// Next returns the state an event leads to, or ErrConflict where the table has no such move.
func (s DeviceState) Next(e DeviceEvent) (DeviceState, error) { return next(deviceMoves, s, e) }

// Next returns the state an event leads to, or ErrConflict where the table has no such move.
func (s InviteState) Next(e InviteEvent) (InviteState, error) { return next(inviteMoves, s, e) }

func next[S, E ~string](moves map[move[S, E]]S, from S, event E) (S, error) {
	to, ok := moves[move[S, E]{from, event}]
	if !ok {
		return "", fmt.Errorf("%s does not allow %s: %w", from, event, ErrConflict)
	}
	return to, nil
}
