package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// FindParticipant implements store.Operator.
func (s *Store) FindParticipant(ctx context.Context, tenant, participant uuid.UUID) (store.Participant, error) {
	var row sqlcgen.ParticipantByIDRow
	err := s.call(ctx, "find participant", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.ParticipantByID(ctx, db, tenant, participant)
		return err
	})
	if err != nil {
		return store.Participant{}, err
	}
	return store.Participant{
		ID: row.ID, Tenant: row.TenantID, Room: row.RoomID, Device: row.DeviceID,
		Role: store.Role(row.Role), JoinedAt: row.JoinedAt.UTC(),
	}, nil
}

// AddParticipant implements store.Operator.
func (s *Store) AddParticipant(ctx context.Context, p store.NewParticipant) (store.Participant, error) {
	if !p.Role.Valid() {
		return store.Participant{}, fmt.Errorf("add participant: role %q: %w", p.Role, store.ErrInvalid)
	}
	if p.By != uuid.Nil && p.Device == uuid.Nil {
		return store.Participant{}, fmt.Errorf("add participant: only the operator makes local devices: %w", store.ErrForbidden)
	}
	var added store.Participant
	err := s.transaction(ctx, "add participant", asService(p.Tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		added, err = s.addParticipant(ctx, db, p)
		return err
	})
	if err != nil {
		return store.Participant{}, err
	}
	return added, nil
}

// addParticipant holds the room's lock, so that what it counts stays true until it
// commits; before it the devices'.
func (s *Store) addParticipant(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant) (store.Participant, error) {
	var named []uuid.UUID
	if p.Device != uuid.Nil {
		named = append(named, p.Device)
	}
	held, err := s.holdDevices(ctx, db, p.Tenant, p.By, named...)
	if err != nil {
		return store.Participant{}, err
	}
	room, who, err := s.lockRoom(ctx, db, p.Tenant, p.Room, p.By, held)
	if err != nil {
		return store.Participant{}, err
	}
	if err := who.mustManage(); err != nil {
		return store.Participant{}, err
	}
	device, err := s.memberDevice(ctx, db, p, held)
	if err != nil {
		return store.Participant{}, err
	}
	roles, err := s.q.ParticipantRoles(ctx, db, p.Tenant, p.Room)
	if err != nil {
		return store.Participant{}, err
	}
	if err := hasPlace(room.Kind, roles, p.Role); err != nil {
		return store.Participant{}, err
	}
	added, _, err := s.join(ctx, db, room, device, p.Role)
	return added, err
}

// join makes the device, which is held, a member of the room, which is locked, and tells
// everybody in it. It returns the room as it is then.
func (s *Store) join(ctx context.Context, db sqlcgen.DBTX, room store.Room, device uuid.UUID, role store.Role) (store.Participant, store.Room, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.Participant{}, store.Room{}, fmt.Errorf("make id: %w", err)
	}
	joined, err := s.q.ParticipantCreate(ctx, db, sqlcgen.ParticipantCreateParams{
		TenantID: room.Tenant, ID: id, RoomID: room.ID, DeviceID: device, Role: string(role),
	})
	if err != nil {
		return store.Participant{}, store.Room{}, err
	}
	room, err = s.moveRoom(ctx, db, room, store.RoomMembersAdded)
	if err != nil {
		return store.Participant{}, store.Room{}, err
	}
	p := store.Participant{ID: id, Tenant: room.Tenant, Room: room.ID, Device: device, Role: role, JoinedAt: joined.UTC()}
	return p, room, s.tell(ctx, db, room.Tenant, due{room: room.ID, event: wire.RoomEvent{
		Event: wire.RoomJoined, Version: room.Version,
		ParticipantID: id.String(), DeviceID: device.String(), Role: string(role),
	}})
}

// hasPlace says whether a room with participants of these roles takes one more.
func hasPlace(kind store.RoomKind, roles []string, role store.Role) error {
	if len(roles) >= store.MaxParticipants {
		return conflict("the room has %d participants, as many as it may", len(roles))
	}
	if kind != store.RoomDirect {
		return nil
	}
	if role == store.RoleViewer {
		return conflict("a direct room has no viewers")
	}
	for _, taken := range roles {
		if isAgent(store.Role(taken)) == isAgent(role) {
			return conflict("the direct room has its %s already", taken)
		}
	}
	return nil
}

// conflict is an ErrConflict that says why.
func conflict(format string, values ...any) error {
	return &store.RefusalError{Reason: fmt.Sprintf(format, values...), Err: store.ErrConflict}
}

func isAgent(role store.Role) bool { return role == store.RoleAgent }

// memberDevice returns the device to add, one of those held; where none is named it makes
// a local one.
func (s *Store) memberDevice(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant, held heldDevices) (uuid.UUID, error) {
	if p.Device == uuid.Nil {
		return s.createLocalDevice(ctx, db, p)
	}
	device, known := held[p.Device]
	switch {
	case !known:
		return uuid.Nil, fmt.Errorf("device: %w", store.ErrNotFound)
	case !held.active(p.Device):
		return uuid.Nil, store.DeviceState(device.State).Conflict("")
	case p.Role != store.RoleViewer && kindOf(p.Role) != store.DeviceKind(device.Kind):
		return uuid.Nil, conflict("a device of kind %s is no %s", device.Kind, p.Role)
	}
	return p.Device, nil
}

// kindOf is the kind of device that a role is for, where it is for one.
func kindOf(role store.Role) store.DeviceKind {
	if isAgent(role) {
		return store.DeviceAgent
	}
	return store.DeviceHuman
}

func (s *Store) createLocalDevice(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make id: %w", err)
	}
	return id, s.q.DeviceCreate(ctx, db, sqlcgen.DeviceCreateParams{
		TenantID: p.Tenant, ID: id, Label: "local", Kind: string(kindOf(p.Role)), State: string(store.DeviceActive),
	})
}
