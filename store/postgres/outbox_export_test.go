package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// Due is a room event for the participant To; uuid.Nil: for everybody.
type Due struct {
	Room, To uuid.UUID
	Event    wire.RoomEvent
}

// Tell puts the events into the outbox in a transaction of their own, which commits when
// after returns no error.
func (s *Store) Tell(ctx context.Context, tenant uuid.UUID, after func() error, events ...Due) error {
	rows := make([]due, 0, len(events))
	for _, e := range events {
		rows = append(rows, due{room: e.Room, to: e.To, event: e.Event})
	}
	return s.transaction(ctx, "tell", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		if err := s.tell(ctx, db, tenant, rows...); err != nil {
			return err
		}
		return after()
	})
}
