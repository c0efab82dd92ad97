package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// RemoveParticipant implements store.Operator.
func (s *Store) RemoveParticipant(ctx context.Context, tenant, room, participant, by uuid.UUID) (store.Room, error) {
	return s.changeRoom(ctx, "remove participant", tenant, room, by,
		func(ctx context.Context, db sqlcgen.DBTX, room store.Room, who actor) (store.Room, error) {
			if who.participant != participant { // whoever leaves by itself asks nobody
				if err := who.mustManage(); err != nil {
					return store.Room{}, err
				}
			}
			return s.removeParticipant(ctx, db, room, participant)
		})
}

func (s *Store) removeParticipant(ctx context.Context, db sqlcgen.DBTX, room store.Room, participant uuid.UUID) (store.Room, error) {
	left, err := s.q.ParticipantLeave(ctx, db, room.Tenant, room.ID, participant)
	if err != nil {
		return store.Room{}, fmt.Errorf("participant: %w", mapError(err))
	}
	if _, err := s.revokeAll(ctx, db, room.Tenant, participant); err != nil {
		return store.Room{}, err
	}
	changed, err := s.loseMembers(ctx, db, room.Tenant, []sqlcgen.ParticipantsLeaveRow{sqlcgen.ParticipantsLeaveRow(left)})
	if err != nil {
		return store.Room{}, err
	}
	return changed[0], nil
}

// loseMembers is what follows for rooms, which are locked, that each lost one member: the
// one way of everybody who leaves (FAULTS BL-I06, BL-H08). However many rooms there are,
// it is a handful of statements. It returns the rooms as they are then, by id.
func (s *Store) loseMembers(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, left []sqlcgen.ParticipantsLeaveRow) ([]store.Room, error) {
	if len(left) == 0 {
		return nil, nil
	}
	leavers := make(map[uuid.UUID]sqlcgen.ParticipantsLeaveRow, len(left))
	ids := make([]uuid.UUID, 0, len(left))
	for _, member := range left {
		leavers[member.RoomID] = member
		ids = append(ids, member.RoomID)
	}
	rows, err := s.q.RoomsLoseMember(ctx, db, tenant, ids)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b sqlcgen.RoomsLoseMemberRow) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	if err := s.q.ParticipantsRetire(ctx, db, tenant, ids); err != nil {
		return nil, err
	}
	var deserted []uuid.UUID
	var events []due
	rooms := make([]store.Room, 0, len(rows))
	for _, row := range rows {
		room := roomLeft(row)
		rooms = append(rooms, room)
		if row.Occupied {
			events = append(events, farewell(room, leavers[room.ID])...)
		} else if room.Scheme == store.SchemeMLS {
			deserted = append(deserted, room.ID)
		}
	}
	if len(deserted) > 0 {
		if err := s.endGroups(ctx, db, tenant, deserted); err != nil {
			return nil, err
		}
	}
	return rooms, s.tell(ctx, db, tenant, events...)
}

func roomLeft(row sqlcgen.RoomsLoseMemberRow) store.Room {
	return roomOf(sqlcgen.RoomByIDRow{
		TenantID: row.TenantID, ID: row.ID, Kind: row.Kind, Scheme: row.Scheme, PrivateMessages: row.PrivateMessages,
		State: row.State, Version: row.Version, Activated: row.Activated, CreatedAt: row.CreatedAt,
	})
}

// farewell is what those who stay are told.
func farewell(room store.Room, left sqlcgen.ParticipantsLeaveRow) []due {
	events := []due{{room: room.ID, event: wire.RoomEvent{
		Event: wire.MemberRemoved, Version: room.Version,
		ParticipantID: left.ID.String(), DeviceID: left.DeviceID.String(),
	}}}
	if room.State == store.RoomRekeying {
		events = append(events, due{room: room.ID, event: wire.RoomEvent{Event: wire.RekeyRequired, Version: room.Version}})
	}
	return events
}
