package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Pool lets tests look at the connections' own state.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// HistoryDepth is how many messages wait for a flusher.
func (s *Store) HistoryDepth() int { return s.history.depth() }

// TracesDepth is how many traces wait for a flusher.
func (s *Store) TracesDepth() int { return s.traces.depth() }

// MappedConstraints are the constraints that mapError knows.
func MappedConstraints() []string { return slices.Sorted(maps.Keys(constraintErrors)) }

// PruneLock is the key of the lock that one node prunes under.
const PruneLock int64 = pruneLock

// RoomByIDSQL is what FindRoom sends.
const RoomByIDSQL = sqlcgen.RoomByID

// MoveRoom takes one step of the room's state machine.
func (s *Store) MoveRoom(ctx context.Context, tenant, room uuid.UUID, event store.RoomEvent) (state store.RoomState, err error) {
	err = s.call(ctx, "move room", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		row, err := s.q.RoomMove(ctx, db, tenant, room, string(event))
		state = store.RoomState(row.State)
		return err
	})
	return state, err
}

// MoveDevice takes one step of the device's state machine.
func (s *Store) MoveDevice(ctx context.Context, tenant, device uuid.UUID, event store.DeviceEvent) (state store.DeviceState, err error) {
	err = s.call(ctx, "move device", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		row, err := s.q.DeviceMove(ctx, db, tenant, device, string(event))
		state = store.DeviceState(row.State)
		return err
	})
	return state, err
}

// ActingRole is the role in which the service's transactions run.
func (s *Store) ActingRole(ctx context.Context, tenant uuid.UUID) (role string, err error) {
	err = s.call(ctx, "ask for the role", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		return db.QueryRow(ctx, "SELECT current_user::text").Scan(&role)
	})
	return role, err
}
