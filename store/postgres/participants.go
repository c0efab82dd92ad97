package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
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
// commits; before it the device's (see the query DevicesLock).
func (s *Store) addParticipant(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant) (store.Participant, error) {
	device, err := s.activeDevice(ctx, db, p)
	if err != nil {
		return store.Participant{}, err
	}
	room, err := s.q.RoomLock(ctx, db, p.Tenant, p.Room)
	if err != nil {
		return store.Participant{}, fmt.Errorf("room: %w", mapError(err))
	}
	roles, err := s.q.ParticipantRoles(ctx, db, p.Tenant, p.Room)
	if err != nil {
		return store.Participant{}, err
	}
	if err := hasPlace(store.RoomKind(room.Kind), roles, p.Role); err != nil {
		return store.Participant{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Participant{}, fmt.Errorf("make id: %w", err)
	}
	joined, err := s.q.ParticipantCreate(ctx, db, sqlcgen.ParticipantCreateParams{
		TenantID: p.Tenant, ID: id, RoomID: p.Room, DeviceID: device, Role: string(p.Role),
	})
	if err != nil {
		return store.Participant{}, err
	}
	_, err = s.q.RoomMove(ctx, db, p.Tenant, p.Room, string(store.RoomMembersAdded))
	if isNoRows(err) {
		return store.Participant{}, fmt.Errorf("%s does not allow %s: %w", room.State, store.RoomMembersAdded, store.ErrConflict)
	}
	if err != nil {
		return store.Participant{}, err
	}
	return store.Participant{ID: id, Tenant: p.Tenant, Room: p.Room, Device: device, Role: p.Role, JoinedAt: joined.UTC()}, nil
}

// hasPlace says whether a room with participants of these roles takes one more.
func hasPlace(kind store.RoomKind, roles []string, role store.Role) error {
	if len(roles) >= store.MaxParticipants {
		return fmt.Errorf("the room has %d participants: %w", len(roles), store.ErrConflict)
	}
	if kind != store.RoomDirect {
		return nil
	}
	if role == store.RoleViewer {
		return fmt.Errorf("a direct room has no viewers: %w", store.ErrConflict)
	}
	for _, taken := range roles {
		if isAgent(store.Role(taken)) == isAgent(role) {
			return fmt.Errorf("the direct room has its %s: %w", taken, store.ErrConflict)
		}
	}
	return nil
}

func isAgent(role store.Role) bool { return role == store.RoleAgent }

// activeDevice returns the device to add, which stays ACTIVE until the transaction
// ends; where none is named it makes a local one.
func (s *Store) activeDevice(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant) (uuid.UUID, error) {
	if p.Device == uuid.Nil {
		return s.createLocalDevice(ctx, db, p)
	}
	state, err := s.q.DeviceLock(ctx, db, p.Tenant, p.Device)
	if err != nil {
		return uuid.Nil, fmt.Errorf("device: %w", mapError(err))
	}
	if store.DeviceState(state) != store.DeviceActive {
		return uuid.Nil, fmt.Errorf("the device is %s: %w", state, store.ErrConflict)
	}
	return p.Device, nil
}

func (s *Store) createLocalDevice(ctx context.Context, db sqlcgen.DBTX, p store.NewParticipant) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make id: %w", err)
	}
	kind := "human"
	if isAgent(p.Role) {
		kind = "agent"
	}
	return id, s.q.DeviceCreate(ctx, db, sqlcgen.DeviceCreateParams{
		TenantID: p.Tenant, ID: id, Label: "local", Kind: kind, State: string(store.DeviceActive),
	})
}

// RemoveParticipant implements store.Operator.
func (s *Store) RemoveParticipant(ctx context.Context, tenant, room, participant, by uuid.UUID) (store.Room, error) {
	var changed store.Room
	err := s.transaction(ctx, "remove participant", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		changed, err = s.removeParticipant(ctx, db, tenant, room, participant)
		return err
	})
	if err != nil {
		return store.Room{}, err
	}
	return changed, nil
}

func (s *Store) removeParticipant(ctx context.Context, db sqlcgen.DBTX, tenant, room, participant uuid.UUID) (store.Room, error) {
	row, err := s.q.RoomLock(ctx, db, tenant, room)
	if err != nil {
		return store.Room{}, fmt.Errorf("room: %w", mapError(err))
	}
	left, err := s.q.ParticipantLeave(ctx, db, tenant, room, participant)
	if err != nil {
		return store.Room{}, err
	}
	if left == 0 {
		return store.Room{}, fmt.Errorf("participant: %w", store.ErrNotFound)
	}
	if _, err := s.revokeAll(ctx, db, tenant, participant); err != nil {
		return store.Room{}, err
	}
	changed := roomOf(sqlcgen.RoomByIDRow(row))
	changed.Version, err = s.afterRemoval(ctx, db, changed)
	return changed, err
}

// afterRemoval is where a removal will move an encrypted room to REKEYING (event
// store.RoomMemberRemoved, query RoomMove), once there is a rekey that ends it. Until
// then the room stays as it is and only its version rises.
func (s *Store) afterRemoval(ctx context.Context, db sqlcgen.DBTX, room store.Room) (int64, error) {
	return s.q.RoomTouch(ctx, db, room.Tenant, room.ID)
}
