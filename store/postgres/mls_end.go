package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// endGroups ends the MLS groups of rooms, which are locked, and takes an epoch for that: no
// message of them fits any more, nobody is in them, and no welcome leads there. The next
// commit of a room makes a new group.
func (s *Store) endGroups(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, rooms []uuid.UUID) error {
	if len(rooms) == 0 {
		return nil
	}
	if err := s.q.GroupsEnd(ctx, db, tenant, rooms); err != nil {
		return err
	}
	if err := s.q.GroupsMembersEnd(ctx, db, tenant, rooms); err != nil {
		return err
	}
	return s.q.WelcomesEnd(ctx, db, tenant, rooms)
}

// resetGroup ends the MLS group of a room, which is locked, if it has one, and returns the
// epoch of the room, which no message fits.
func (s *Store) resetGroup(ctx context.Context, db sqlcgen.DBTX, tenant, room uuid.UUID) (epoch int64, err error) {
	if err := s.endGroups(ctx, db, tenant, []uuid.UUID{room}); err != nil {
		return 0, err
	}
	group, err := s.q.GroupByRoom(ctx, db, tenant, room)
	if isNoRows(err) { // it never had one
		return 0, nil
	}
	return group.Epoch, err
}
