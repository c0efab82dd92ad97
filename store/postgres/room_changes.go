package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

var errNoRoomMaker = &store.RefusalError{Reason: "only an ACTIVE device of a person makes rooms", Err: store.ErrForbidden}

// OpenRoom implements store.Rooms.
func (s *Store) OpenRoom(ctx context.Context, room store.NewRoom, by uuid.UUID) (store.Room, store.Participant, error) {
	if by == uuid.Nil {
		return store.Room{}, store.Participant{}, fmt.Errorf("open room: no device is named: %w", store.ErrForbidden)
	}
	var opened store.Room
	var owner store.Participant
	err := s.transaction(ctx, "open room", asService(room.Tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		held, err := s.holdDevices(ctx, db, room.Tenant, by)
		if err != nil {
			return err
		}
		if store.DeviceKind(held[by].Kind) != store.DeviceHuman {
			return errNoRoomMaker
		}
		open, err := s.q.RoomsOpenOfMaker(ctx, db, room.Tenant, by, store.MaxOpenRooms)
		if err != nil {
			return err
		}
		if open >= store.MaxOpenRooms {
			return conflict("the device has made %d rooms that are not archived: archive some of them first", open)
		}
		created, err := s.createRoom(ctx, db, room, by)
		if err != nil {
			return err
		}
		owner, opened, err = s.join(ctx, db, created, by, store.RoleOwner)
		return err
	})
	if err != nil {
		return store.Room{}, store.Participant{}, err
	}
	return opened, owner, nil
}

// RoomPage implements store.Rooms.
func (s *Store) RoomPage(ctx context.Context, tenant, device, after uuid.UUID, limit int) ([]store.Room, bool, error) {
	if err := (store.Page{Limit: limit}).Check(); err != nil {
		return nil, false, err
	}
	var rows []sqlcgen.RoomPageRow
	err := s.call(ctx, "list rooms", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		if device == uuid.Nil {
			rows, err = s.q.RoomPage(ctx, db, tenant, after, int32(limit)+1)
			return err
		}
		theirs, err := s.q.RoomPageOfDevice(ctx, db, sqlcgen.RoomPageOfDeviceParams{
			TenantID: tenant, DeviceID: device, After: after, Page: int32(limit) + 1,
		})
		rows = convertAll(theirs, func(row sqlcgen.RoomPageOfDeviceRow) sqlcgen.RoomPageRow { return sqlcgen.RoomPageRow(row) })
		return err
	})
	if err != nil {
		return nil, false, err
	}
	rooms := make([]store.Room, 0, len(rows))
	for _, row := range rows[:min(len(rows), limit)] {
		rooms = append(rooms, roomOf(sqlcgen.RoomByIDRow(row)))
	}
	return rooms, len(rows) > limit, nil
}

// ArchiveRoom implements store.Rooms.
func (s *Store) ArchiveRoom(ctx context.Context, tenant, room, by uuid.UUID) (store.Room, error) {
	return s.changeRoom(ctx, "archive room", tenant, room, by, s.archive)
}

// archive: a room that is closed needs no new keys, so that it does not wait for them.
func (s *Store) archive(ctx context.Context, db sqlcgen.DBTX, room store.Room, who actor) (_ store.Room, err error) {
	if err := who.mustManage(); err != nil {
		return store.Room{}, err
	}
	if room.State == store.RoomRekeying {
		if room, err = s.moveRoom(ctx, db, room, store.RoomRekeyed); err != nil {
			return store.Room{}, err
		}
	}
	if room, err = s.moveRoom(ctx, db, room, store.RoomArchive); err != nil {
		return store.Room{}, err
	}
	return room, s.tell(ctx, db, room.Tenant, due{room: room.ID, event: wire.RoomEvent{
		Event: wire.ArchivedRoom, Version: room.Version,
	}})
}

// ResetRoom implements store.Rooms.
func (s *Store) ResetRoom(ctx context.Context, tenant, room, by uuid.UUID) (store.Room, error) {
	return s.changeRoom(ctx, "reset room", tenant, room, by, s.reset)
}

func (s *Store) reset(ctx context.Context, db sqlcgen.DBTX, room store.Room, who actor) (store.Room, error) {
	if room.Scheme != store.SchemeDoubleRatchet { // there either of the two may find its session broken
		if err := who.mustManage(); err != nil {
			return store.Room{}, err
		}
	}
	row, err := s.q.RoomReset(ctx, db, room.Tenant, room.ID)
	if isNoRows(err) {
		return store.Room{}, whyNotReset(room)
	}
	if err != nil {
		return store.Room{}, err
	}
	room = roomOf(sqlcgen.RoomByIDRow(row))
	if err := s.q.ParticipantsRetire(ctx, db, room.Tenant, []uuid.UUID{room.ID}); err != nil {
		return store.Room{}, err
	}
	began := wire.RoomEvent{Event: wire.RoomReset, Version: room.Version}
	if room.Scheme == store.SchemeMLS {
		epoch, err := s.resetGroup(ctx, db, room.Tenant, room.ID)
		if err != nil {
			return store.Room{}, err
		}
		began.Epoch = &epoch
	}
	events := []due{{room: room.ID, event: began}}
	if room.Kind == store.RoomDirect {
		events = append(events, linked(room, who))
	}
	return room, s.tell(ctx, db, room.Tenant, events...)
}

// whyNotReset: a room without encryption has none to begin anew, whatever its state.
func whyNotReset(room store.Room) error {
	if room.Scheme == store.SchemeNone {
		return conflict("a room of scheme %s has no encryption to begin anew", room.Scheme)
	}
	return room.State.Conflict()
}

// linked says that a session of two starts anew, and who asked: the operator has no device.
func linked(room store.Room, who actor) due {
	event := wire.RoomEvent{Event: wire.DeviceLinked, Version: room.Version}
	if who.participant != uuid.Nil {
		event.ParticipantID = who.participant.String()
	}
	if who.device != uuid.Nil {
		event.DeviceID = who.device.String()
	}
	return due{room: room.ID, event: event}
}
