// Package schema holds the database's migrations and brings a database up to date.
//
// Migrations run as the user of the given URL, who owns the database. The relay then
// works as ServiceRole, which owns nothing and which row-level security binds
// (DESIGN section 4). Where the owner may create roles, Up creates that role; where it
// may not, an administrator does so once:
//
//	CREATE ROLE relay_service LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
//	GRANT relay_service TO <owner of the database>;
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// ServiceRole is the role that the relay works as.
const ServiceRole = "relay_service"

// Errors that an operator can act upon.
var (
	// ErrNewer: the database was migrated by a newer relay than this one.
	ErrNewer = errors.New("the database is newer than this program")
	// ErrOutdated: the database lacks migrations that this program has.
	ErrOutdated = errors.New("the database is older than this program; run the migrations")
	// ErrRole: the service role is missing and can't be made with the rights at hand.
	ErrRole = errors.New("the service role can't be set up")
)

//go:embed *.sql
var files embed.FS

// Files returns the migrations.
func Files() fs.FS { return files }

// Latest returns the version this program brings a database to.
func Latest() (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("list migrations: %w", errors.Join(err, fs.ErrNotExist))
	}
	number, _, _ := strings.Cut(names[len(names)-1], "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read version of %s: %w", names[len(names)-1], err)
	}
	return version, nil
}

// Up brings the database at url to Latest, as the url's user. It holds a lock, so that
// nodes which start together migrate one after the other. Errors: ErrNewer, ErrRole.
func Up(ctx context.Context, url string) error {
	return withProvider(url, func(db *sql.DB, provider *goose.Provider) error {
		if err := ensureServiceRole(ctx, db); err != nil {
			return err
		}
		current, target, err := provider.GetVersions(ctx)
		if err != nil {
			return fmt.Errorf("read version: %w", err)
		}
		if current > target {
			return fmt.Errorf("version %d, this program knows %d: %w", current, target, ErrNewer)
		}
		if _, err := provider.Up(ctx); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		return nil
	})
}

// down undoes every migration after version; for tests, since data goes with it.
func down(ctx context.Context, url string, version int64) error {
	return withProvider(url, func(_ *sql.DB, provider *goose.Provider) error {
		_, err := provider.DownTo(ctx, version)
		return err
	})
}

func withProvider(url string, do func(*sql.DB, *goose.Provider) error) (err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read database URL: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 10))
	if err != nil {
		return fmt.Errorf("make migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return do(db, provider)
}

// Querier is the one method of a connection that Check needs.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check returns ErrNewer or ErrOutdated when the database is not at Latest. The service
// role may call it.
func Check(ctx context.Context, db Querier) error {
	latest, err := Latest()
	if err != nil {
		return err
	}
	var version int64
	err = db.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&version)
	switch {
	case hasCode(err, undefinedTable):
		return ErrOutdated
	case err != nil:
		return fmt.Errorf("read version: %w", err)
	case version > latest:
		return fmt.Errorf("version %d, this program knows %d: %w", version, latest, ErrNewer)
	case version < latest:
		return fmt.Errorf("version %d, this program needs %d: %w", version, latest, ErrOutdated)
	}
	return nil
}
