package postgres

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// acting says on whose behalf a transaction runs (schema, 00001_settings.sql).
type acting struct {
	apply sqlcgen.SettingsApplyParams
	// adopt is the statement that then takes the tenant from what has the hash token.
	adopt string
	token []byte
	lock  *lock
}

// lock is a statement that a call sends before its own, in the same round trip and
// transaction, for the row locks that it takes. What the call's statement then sees is
// newer than any wait for them.
type lock struct {
	sql  string
	args []any
}

// holdingRoom is who, with the room held until the transaction ends: whatever else is
// written in it or changes it comes before or after. For call only.
func (a acting) holdingRoom(tenant, room uuid.UUID) acting {
	a.lock = &lock{sqlcgen.RoomHold, []any{tenant, room}}
	return a
}

// asService acts for the relay itself inside a tenant.
func asService(tenant uuid.UUID) acting {
	return acting{apply: sqlcgen.SettingsApplyParams{Tenant: tenant.String(), Actor: "service"}}
}

// asBearer acts in the tenant of the credential with this token hash, or in none.
func asBearer(token store.TokenHash) acting { return adopting(sqlcgen.SettingsAdoptTenant, token) }

// asInvited acts in the tenant of the invite with this token hash, or in none.
func asInvited(token store.TokenHash) acting {
	return adopting(sqlcgen.SettingsAdoptInvitesTenant, token)
}

// asSignedIn acts in the tenant of the access token with this hash, or in none.
func asSignedIn(token store.TokenHash) acting {
	return adopting(sqlcgen.SettingsAdoptDevicesTenant, token)
}

func adopting(statement string, token store.TokenHash) acting {
	return acting{
		apply: sqlcgen.SettingsApplyParams{Token: hex.EncodeToString(token[:])},
		adopt: statement, token: token[:],
	}
}

// asFounder sees and may create the tenant of that name.
func asFounder(tenantName string) acting {
	return acting{apply: sqlcgen.SettingsApplyParams{TenantName: tenantName}}
}

// asMaintenance sees which tenants there are.
func asMaintenance() acting {
	return acting{apply: sqlcgen.SettingsApplyParams{Actor: "maintenance"}}
}

// queue adds the statements that make the rest of the batch act so; it returns how
// many they are.
func (a acting) queue(b *pgx.Batch) int {
	before := b.Len()
	b.Queue(sqlcgen.SettingsApply, a.apply.Tenant, a.apply.Actor, a.apply.Token, a.apply.TenantName)
	if a.adopt != "" {
		b.Queue(a.adopt, a.token)
	}
	if a.lock != nil {
		b.Queue(a.lock.sql, a.lock.args...)
	}
	return b.Len() - before
}

// call runs one statement as who, in one round trip, within the store's timeout. do
// may run again and must call the database once.
func (s *Store) call(ctx context.Context, step string, who acting, do func(ctx context.Context, db sqlcgen.DBTX) error) error {
	return s.onConn(ctx, step, func(ctx context.Context, conn *pgx.Conn) error {
		return do(ctx, roundTrip{conn, who})
	})
}

// transaction runs several statements as who in one transaction, within the store's
// timeout. do may run again.
func (s *Store) transaction(ctx context.Context, step string, who acting, do func(ctx context.Context, db sqlcgen.DBTX) error) error {
	return s.onConn(ctx, step, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.q.SettingsApply(ctx, tx, who.apply); err != nil {
				return err
			}
			if who.adopt != "" {
				if _, err := tx.Exec(ctx, who.adopt, who.token); err != nil {
					return err
				}
			}
			return do(ctx, tx)
		})
	})
}

// onConn lends do a connection, within the store's timeout, and maps its error.
func (s *Store) onConn(ctx context.Context, step string, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.lend(ctx, do); err != nil {
		return fmt.Errorf("%s: %w", step, mapError(err))
	}
	return nil
}

// lend runs do with a connection. Where that turned out to be dead before anything was
// sent, as all of the pool are after a restart of the server, it takes another one.
func (s *Store) lend(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	for range s.cfg.MaxConns {
		if err := s.lendOnce(ctx, do); !pgconn.SafeToRetry(err) || ctx.Err() != nil {
			return err
		}
	}
	return s.lendOnce(ctx, do)
}

// lendOnce runs do with a connection, and once more with the same one where the
// failure was one that repeating mends.
func (s *Store) lendOnce(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("get a connection: %w", err)
	}
	defer conn.Release()
	err = do(ctx, conn.Conn())
	if worthRepeating(err) {
		err = do(ctx, conn.Conn())
	}
	return err
}

// roundTrip is a database handle whose every statement is a transaction of its own:
// settings, statement and commit travel together.
type roundTrip struct {
	conn *pgx.Conn
	who  acting
}

var _ sqlcgen.DBTX = roundTrip{}

// send sends a statement and reads the answers up to its own.
func (t roundTrip) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	batch := &pgx.Batch{}
	settings := t.who.queue(batch)
	batch.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, batch)
	for range settings {
		if _, err := results.Exec(); err != nil {
			results.Close()
			return nil, err
		}
	}
	return results, nil
}

func (t roundTrip) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results, err := t.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

func (t roundTrip) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, err := t.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		results.Close()
		return nil, err
	}
	return &committedRows{Rows: rows, results: results}, nil
}

func (t roundTrip) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	results, err := t.send(ctx, sql, args)
	return committedRow{results, err}
}

// committedRows reads to the end of the transaction, so that Err knows of a failed commit.
type committedRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
	done    bool
}

func (r *committedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *committedRows) Close() {
	r.Rows.Close()
	if !r.done {
		r.done = true
		r.err = r.results.Close()
	}
}

func (r *committedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type committedRow struct {
	results pgx.BatchResults
	err     error
}

func (r committedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.results.QueryRow().Scan(dest...)
	if closeErr := r.results.Close(); err == nil {
		err = closeErr
	}
	return err
}
