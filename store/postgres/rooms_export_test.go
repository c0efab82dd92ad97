package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// counting counts the statements that go through it.
type counting struct {
	sqlcgen.DBTX

	n *int
}

func (c counting) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	*c.n++
	return c.DBTX.Exec(ctx, sql, args...)
}

func (c counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	*c.n++
	return c.DBTX.Query(ctx, sql, args...)
}

func (c counting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	*c.n++
	return c.DBTX.QueryRow(ctx, sql, args...)
}

// RevokeCounting is RevokeDevice by the operator, and how many statements took what the
// device had.
func (s *Store) RevokeCounting(ctx context.Context, tenant, device uuid.UUID) (change store.DeviceChange, statements int, err error) {
	change, err = s.changeDevice(ctx, "revoke device", tenant, device, uuid.Nil, store.DeviceRevoke,
		func(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (store.DeviceChange, error) {
			statements = 0
			return s.strip(ctx, counting{db, &statements}, tenant, device)
		})
	return change, statements, err
}
