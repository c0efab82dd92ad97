package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// heldDevices are devices that stay as they are until the transaction ends.
type heldDevices map[uuid.UUID]sqlcgen.DevicesHoldRow

// holdDevices holds devices, and by, who acts: the operator (uuid.Nil) or an ACTIVE
// device. It comes before any lock of a room (see the query DevicesLock).
func (s *Store) holdDevices(ctx context.Context, db sqlcgen.DBTX, tenant, by uuid.UUID, devices ...uuid.UUID) (heldDevices, error) {
	held := make(heldDevices)
	if by != uuid.Nil {
		devices = append(devices, by)
	}
	if len(devices) == 0 {
		return held, nil
	}
	rows, err := s.q.DevicesHold(ctx, db, tenant, devices)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		held[row.ID] = row
	}
	if by != uuid.Nil && !held.active(by) {
		return nil, &store.RefusalError{Reason: "only an ACTIVE device may do this", Err: store.ErrForbidden}
	}
	return held, nil
}

// active reports whether there is such a device, in state ACTIVE.
func (h heldDevices) active(device uuid.UUID) bool {
	return store.DeviceState(h[device].State) == store.DeviceActive
}

// actor is who changes a room.
type actor struct {
	device      uuid.UUID // uuid.Nil: the operator
	admin       bool
	participant uuid.UUID // that the device is in the room; uuid.Nil: none
	role        store.Role
}

// manages: a room's owners and the tenant's admins do (STATE, "Room Lifecycle"; store.Rooms).
func (a actor) manages() bool {
	return a.device == uuid.Nil || a.admin || a.role == store.RoleOwner
}

// mustManage is the refusal of a member who does not.
func (a actor) mustManage() error {
	if a.manages() {
		return nil
	}
	return store.ErrNotManager
}

// lockRoom makes changes of the room follow one another, and says what by, who is held, is
// in it. For a device that is neither an admin nor a member there is no such room.
func (s *Store) lockRoom(ctx context.Context, db sqlcgen.DBTX, tenant, room, by uuid.UUID, held heldDevices) (store.Room, actor, error) {
	row, err := s.q.RoomLock(ctx, db, tenant, room)
	if err != nil {
		return store.Room{}, actor{}, fmt.Errorf("room: %w", mapError(err))
	}
	who := actor{device: by, admin: held[by].Admin}
	if by == uuid.Nil {
		return roomOf(sqlcgen.RoomByIDRow(row)), who, nil
	}
	member, err := s.q.ParticipantOfDevice(ctx, db, tenant, room, by)
	switch {
	case err == nil:
		who.participant, who.role = member.ID, store.Role(member.Role)
	case !isNoRows(err):
		return store.Room{}, actor{}, err
	case !who.admin:
		return store.Room{}, actor{}, fmt.Errorf("room: %w", store.ErrNotFound)
	}
	return roomOf(sqlcgen.RoomByIDRow(row)), who, nil
}

// changeRoom changes a room in one transaction.
func (s *Store) changeRoom(ctx context.Context, step string, tenant, room, by uuid.UUID,
	change func(ctx context.Context, db sqlcgen.DBTX, room store.Room, who actor) (store.Room, error),
) (changed store.Room, err error) {
	err = s.transaction(ctx, step, asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		held, err := s.holdDevices(ctx, db, tenant, by)
		if err != nil {
			return err
		}
		now, who, err := s.lockRoom(ctx, db, tenant, room, by, held)
		if err != nil {
			return err
		}
		changed, err = change(ctx, db, now, who)
		return err
	})
	if err != nil {
		return store.Room{}, err
	}
	return changed, nil
}

// moveRoom takes one step of the room's state machine.
func (s *Store) moveRoom(ctx context.Context, db sqlcgen.DBTX, room store.Room, event store.RoomEvent) (store.Room, error) {
	row, err := s.q.RoomMove(ctx, db, room.Tenant, room.ID, string(event))
	if isNoRows(err) {
		return store.Room{}, fmt.Errorf("%s: %w", event, room.State.Conflict())
	}
	if err != nil {
		return store.Room{}, err
	}
	room.State, room.Version = store.RoomState(row.State), row.Version
	return room, nil
}
