package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Roster implements store.Rosters.
func (s *Store) Roster(ctx context.Context, tenant, room uuid.UUID) (store.Roster, error) {
	var rows []sqlcgen.RoomRosterRow
	err := s.call(ctx, "look up roster", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.RoomRoster(ctx, db, tenant, room)
		if err == nil && len(rows) == 0 {
			err = store.ErrNotFound
		}
		return err
	})
	if err != nil {
		return store.Roster{}, err
	}
	return rosterOf(rows), nil
}

func rosterOf(rows []sqlcgen.RoomRosterRow) store.Roster {
	first := rows[0]
	roster := store.Roster{Room: roomOf(sqlcgen.RoomByIDRow{
		TenantID: first.TenantID, ID: first.ID, Kind: first.Kind, Scheme: first.Scheme,
		PrivateMessages: first.PrivateMessages, State: first.State, Version: first.Version, Activated: first.Activated, CreatedAt: first.CreatedAt,
	})}
	for _, row := range rows {
		if !row.ParticipantID.Valid { // the one row of an empty room
			break
		}
		roster.Participants = append(roster.Participants, store.Participant{
			ID: row.ParticipantID.UUID, Tenant: row.TenantID, Room: row.ID, Device: row.DeviceID.UUID,
			Role: store.Role(*row.Role), JoinedAt: row.JoinedAt.UTC(),
		})
	}
	return roster
}

func roomOf(row sqlcgen.RoomByIDRow) store.Room {
	return store.Room{
		ID: row.ID, Tenant: row.TenantID, Kind: store.RoomKind(row.Kind), Scheme: store.Scheme(row.Scheme),
		PrivateMessages: store.PrivateMessages(row.PrivateMessages), State: store.RoomState(row.State),
		Version: row.Version, Activated: row.Activated, CreatedAt: row.CreatedAt.UTC(),
	}
}

// RoomVersions implements store.Versions.
func (s *Store) RoomVersions(ctx context.Context, tenant uuid.UUID, rooms []uuid.UUID) (map[uuid.UUID]int64, error) {
	if len(rooms) == 0 {
		return nil, nil
	}
	var rows []sqlcgen.RoomVersionsRow
	err := s.call(ctx, "look up room versions", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.RoomVersions(ctx, db, tenant, rooms)
		return err
	})
	if err != nil {
		return nil, err
	}
	versions := make(map[uuid.UUID]int64, len(rows))
	for _, row := range rows {
		versions[row.ID] = row.Version
	}
	return versions, nil
}

// CreateRoom implements store.Operator.
func (s *Store) CreateRoom(ctx context.Context, room store.NewRoom) (created store.Room, err error) {
	err = s.call(ctx, "create room", asService(room.Tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		created, err = s.createRoom(ctx, db, room, uuid.Nil)
		return err
	})
	if err != nil {
		return store.Room{}, err
	}
	return created, nil
}

// createRoom makes a room of a device, or with uuid.Nil of the operator.
func (s *Store) createRoom(ctx context.Context, db sqlcgen.DBTX, room store.NewRoom, maker uuid.UUID) (store.Room, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return store.Room{}, fmt.Errorf("make id: %w", err)
	}
	row, err := s.q.RoomCreate(ctx, db, sqlcgen.RoomCreateParams{
		TenantID: room.Tenant, ID: id, Kind: string(room.Kind), Scheme: string(room.Scheme),
		PrivateMessages: string(room.PrivateMessages), MadeBy: uuid.NullUUID{UUID: maker, Valid: maker != uuid.Nil},
	})
	return roomOf(sqlcgen.RoomByIDRow(row)), err
}

// FindRoom implements store.Operator.
func (s *Store) FindRoom(ctx context.Context, tenant, room uuid.UUID) (store.Room, error) {
	var row sqlcgen.RoomByIDRow
	err := s.call(ctx, "find room", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.RoomByID(ctx, db, tenant, room)
		return err
	})
	if err != nil {
		return store.Room{}, err
	}
	return roomOf(row), nil
}
