package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs (PostgreSQL, appendix A).
const (
	undefinedTable        = "42P01"
	undefinedObject       = "42704"
	duplicateObject       = "42710"
	uniqueViolation       = "23505"
	invalidParameter      = "22023" // SET ROLE to a role that does not exist
	insufficientPrivilege = "42501"
)

func hasCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(codes, pgErr.Code)
}

// ensureServiceRole makes ServiceRole exist and the current user able to become it.
// Roles belong to the whole server, so another database's relay may have made it.
func ensureServiceRole(ctx context.Context, db *sql.DB) error {
	err := becomeServiceRole(ctx, db)
	if hasCode(err, undefinedObject, invalidParameter) {
		_, err = db.ExecContext(ctx, "CREATE ROLE "+ServiceRole+
			" LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION")
		if err != nil && !hasCode(err, duplicateObject, uniqueViolation) {
			return roleError("create it", err)
		}
		err = becomeServiceRole(ctx, db)
	}
	if hasCode(err, insufficientPrivilege) {
		if _, err = db.ExecContext(ctx, "GRANT "+ServiceRole+" TO CURRENT_USER"); err != nil {
			return roleError("grant it to the database's owner", err)
		}
		err = becomeServiceRole(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("become the service role: %w", err)
	}
	return nil
}

// becomeServiceRole tries to, and leaves the connection as it was.
func becomeServiceRole(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "SET LOCAL ROLE "+ServiceRole)
	return errors.Join(err, tx.Rollback())
}

func roleError(step string, err error) error {
	if !hasCode(err, insufficientPrivilege) {
		return fmt.Errorf("service role: %s: %w", step, err)
	}
	return fmt.Errorf("%w: not allowed to %s; let an administrator run: "+
		"CREATE ROLE %[3]s LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE; "+
		"GRANT %[3]s TO <this user>; (%[4]v)", ErrRole, step, ServiceRole, err)
}
