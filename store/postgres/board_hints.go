package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// hintLock makes claims follow one another ("relayhnt" in no particular encoding; the
// number must only be ours).
const hintLock = 0x72656c6179686e74

// ClaimHints implements board.Store.
func (s *Store) ClaimHints(ctx context.Context, limit int, lease time.Duration) ([]board.Hint, error) {
	if limit < 1 || lease <= 0 {
		return nil, fmt.Errorf("claim hints: %d for %s: %w", limit, lease, store.ErrInvalid)
	}
	var hints []board.Hint
	err := s.onConn(ctx, "claim hints", func(ctx context.Context, conn *pgx.Conn) (err error) {
		hints, err = claimHints(ctx, conn, limit, lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(hints, func(a, b board.Hint) int {
		return cmp.Or(slices.Compare(a.Room[:], b.Room[:]), cmp.Compare(a.Sequence, b.Sequence))
	})
	return hints, nil
}

// claimHints is one round trip; the rows come in no order.
func claimHints(ctx context.Context, conn *pgx.Conn, limit int, lease time.Duration) ([]board.Hint, error) {
	batch := &pgx.Batch{}
	before := asMaintenance().queue(batch) + 1
	batch.Queue(sqlcgen.BoardHintTurn, int64(hintLock))
	batch.Queue(sqlcgen.BoardHintClaim, lease.Seconds(), int64(limit))
	results := conn.SendBatch(ctx, batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			return nil, errors.Join(err, results.Close())
		}
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	hints, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h board.Hint, err error) {
		return h, row.Scan(&h.Tenant, &h.Room, &h.Sequence, &h.Event, &h.Card, &h.Revision)
	})
	return hints, errors.Join(err, results.Close())
}

// SettleHints implements board.Store.
func (s *Store) SettleHints(ctx context.Context, hints []board.Hint) error {
	if len(hints) == 0 {
		return nil
	}
	var (
		tenants, rooms []uuid.UUID
		sequences      []int64
	)
	for _, h := range hints {
		tenants, rooms, sequences = append(tenants, h.Tenant), append(rooms, h.Room), append(sequences, h.Sequence)
	}
	return s.call(ctx, "settle hints", asMaintenance(), func(ctx context.Context, db sqlcgen.DBTX) error {
		_, err := s.q.BoardHintSettle(ctx, db, tenants, rooms, sequences)
		return err
	})
}

// WaitingHints implements board.Store.
func (s *Store) WaitingHints(ctx context.Context, most int) (waiting int, err error) {
	err = s.call(ctx, "count hints", asMaintenance(), func(ctx context.Context, db sqlcgen.DBTX) error {
		count, err := s.q.BoardHintCount(ctx, db, int64(most))
		waiting = int(count)
		return err
	})
	return waiting, err
}
