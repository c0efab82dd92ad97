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

// What makes the roles, and what an administrator runs who does it instead.
const (
	createServiceRole = "CREATE ROLE " + ServiceRole + " LOGIN NOINHERIT NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"
	createDeviceRole  = "CREATE ROLE " + DeviceRole + " NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"
	grantDeviceRole   = "GRANT " + DeviceRole + " TO " + ServiceRole
	grantServiceRole  = "GRANT " + ServiceRole + " TO "
)

// ensureRoles makes both roles exist, the service role able to become DeviceRole, and
// the current user able to become either. Roles belong to the whole server, so another
// database's relay may have made them.
func ensureRoles(ctx context.Context, db *sql.DB) error {
	if err := ensureRole(ctx, db, ServiceRole, createServiceRole); err != nil {
		return err
	}
	if err := ensureRole(ctx, db, DeviceRole, createDeviceRole); err != nil {
		return err
	}
	if err := ensureApart(ctx, db); err != nil {
		return err
	}
	err := become(ctx, db, ServiceRole)
	if hasCode(err, insufficientPrivilege) {
		if _, err = db.ExecContext(ctx, grantServiceRole+"CURRENT_USER"); err != nil {
			return roleError("grant "+ServiceRole+" to the database's owner", err)
		}
		err = become(ctx, db, ServiceRole)
	}
	if err = errors.Join(err, become(ctx, db, DeviceRole)); err != nil {
		return fmt.Errorf("become the relay's roles: %w", err)
	}
	return nil
}

func ensureRole(ctx context.Context, db *sql.DB, role, create string) error {
	var exists bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)", role).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for role %s: %w", role, err)
	}
	if exists {
		return nil
	}
	if _, err = db.ExecContext(ctx, create); err != nil && !hasCode(err, duplicateObject, uniqueViolation) {
		return roleError("create "+role, err)
	}
	return nil
}

// ensureApart makes the service role a member of DeviceRole that does not inherit from
// it. (A grant keeps what the member was when it was made: PostgreSQL 16 and later.)
func ensureApart(ctx context.Context, db *sql.DB) error {
	apart, err := areApart(ctx, db)
	if err != nil || apart {
		return err
	}
	for _, mend := range []string{
		"ALTER ROLE " + ServiceRole + " NOINHERIT",
		"REVOKE " + DeviceRole + " FROM " + ServiceRole,
		grantDeviceRole,
	} {
		if _, failed := db.ExecContext(ctx, mend); failed != nil {
			// Another node may have been first.
			if apart, err = areApart(ctx, db); err != nil || apart {
				return err
			}
			return roleError("make "+ServiceRole+" a member of "+DeviceRole+" that inherits nothing from it", failed)
		}
	}
	return nil
}

func areApart(ctx context.Context, db *sql.DB) (apart bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT pg_catalog.pg_has_role($1::name, $2::name, 'MEMBER')"+
		" AND NOT pg_catalog.pg_has_role($1::name, $2::name, 'USAGE')", ServiceRole, DeviceRole).Scan(&apart)
	if err != nil {
		return false, fmt.Errorf("compare the relay's roles: %w", err)
	}
	return apart, nil
}

// become tries to, and leaves the connection as it was.
func become(ctx context.Context, db *sql.DB, role string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "SET LOCAL ROLE "+role)
	return errors.Join(err, tx.Rollback())
}

func roleError(step string, err error) error {
	if !hasCode(err, insufficientPrivilege) {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%w: not allowed to %s; let an administrator run: %s; %s; %s; %s<this user>; (%w)",
		ErrRole, step, createServiceRole, createDeviceRole, grantDeviceRole, grantServiceRole, err)
}
