package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// outboxLock makes claims follow one another ("relayhnt" in no particular encoding; the
// number must only be ours).
const outboxLock = 0x72656c6179686e74

// ClaimRows implements store.Outbox.
func (s *Store) ClaimRows(ctx context.Context, limit int, lease time.Duration) ([]store.OutboxRow, error) {
	if limit < 1 || lease <= 0 {
		return nil, fmt.Errorf("claim outbox rows: %d for %s: %w", limit, lease, store.ErrInvalid)
	}
	var rows []store.OutboxRow
	err := s.onConn(ctx, "claim outbox rows", func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, err = claimRows(ctx, conn, limit, lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b store.OutboxRow) int {
		return cmp.Or(bytes.Compare(a.Room[:], b.Room[:]), cmp.Compare(a.Position, b.Position))
	})
	return rows, nil
}

// claimRows is one round trip; the rows come in no order.
func claimRows(ctx context.Context, conn *pgx.Conn, limit int, lease time.Duration) ([]store.OutboxRow, error) {
	batch := &pgx.Batch{}
	before := asMaintenance().queue(batch) + 1
	batch.Queue(sqlcgen.OutboxTurn, int64(outboxLock))
	batch.Queue(sqlcgen.OutboxClaim, lease.Seconds(), int64(limit))
	results := conn.SendBatch(ctx, batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			return nil, errors.Join(err, results.Close())
		}
	}
	found, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r store.OutboxRow, err error) {
		var to uuid.NullUUID
		err = row.Scan(&r.Tenant, &r.Room, &r.Position, &r.Kind, &to, &r.Payload)
		r.To = to.UUID
		return r, err
	})
	return rows, errors.Join(err, results.Close())
}

// SettleRows implements store.Outbox.
func (s *Store) SettleRows(ctx context.Context, settled []store.OutboxRow) error {
	if len(settled) == 0 {
		return nil
	}
	var (
		tenants, rooms []uuid.UUID
		positions      []int64
	)
	for _, row := range settled {
		tenants, rooms, positions = append(tenants, row.Tenant), append(rooms, row.Room), append(positions, row.Position)
	}
	return s.onConn(ctx, "settle outbox rows", func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		asMaintenance().queue(batch)
		batch.Queue(sqlcgen.OutboxTurn, int64(outboxLock))
		batch.Queue(sqlcgen.OutboxSettle, tenants, rooms, positions)
		batch.Queue(sqlcgen.OutboxProgress, tenants, rooms)
		return conn.SendBatch(ctx, batch).Close()
	})
}

// WaitingRows implements store.Outbox.
func (s *Store) WaitingRows(ctx context.Context, most int) (waiting int, err error) {
	err = s.call(ctx, "count outbox rows", asMaintenance(), func(ctx context.Context, db sqlcgen.DBTX) error {
		count, err := s.q.OutboxCount(ctx, db, int64(most))
		waiting = int(count)
		return err
	})
	return waiting, err
}

// due is a room event on its way into the outbox.
type due struct {
	room  uuid.UUID
	to    uuid.UUID // uuid.Nil: whoever is in the room when it is written
	event wire.RoomEvent
}

// tell puts room events into the outbox, in the transaction of the change they tell of.
// It names the room and gives each an id.
func (s *Store) tell(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, events ...due) error {
	if len(events) == 0 {
		return nil
	}
	ask := sqlcgen.OutboxAddParams{TenantID: tenant, Kind: wire.ServerRoomEvent.String()}
	for i := range events {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make id: %w", err)
		}
		event := events[i].event
		event.EventID, event.RoomID = id.String(), events[i].room.String()
		ask.RoomIDs = append(ask.RoomIDs, events[i].room)
		ask.ParticipantIds = append(ask.ParticipantIds, events[i].to)
		ask.Payloads = append(ask.Payloads, event.AppendRow(nil))
	}
	return s.q.OutboxAdd(ctx, db, ask)
}
