// Package schema holds the database's migrations and brings a database up to date.
//
// Migrations run as the user of the given URL, who owns the database. The relay then
// works as ServiceRole, or as DeviceRole where a device acts for itself. Both own
// nothing, and row-level security binds them (DESIGN section 4). Where the owner may
// create roles, Up creates them; where it may not, an administrator does so once:
//
//	CREATE ROLE relay_service LOGIN NOINHERIT NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
//	CREATE ROLE relay_device NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
//	GRANT relay_device TO relay_service;
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

const (
	// ServiceRole is the role that the relay works as.
	ServiceRole = "relay_service"
	// DeviceRole is the role of a transaction in which a device acts for itself. It only
	// reads. ServiceRole may become it and inherits nothing from it.
	DeviceRole = "relay_device"
)

// Errors that an operator can act upon.
var (
	// ErrNewer: the database was migrated by a newer relay than this one.
	ErrNewer = errors.New("the database is newer than this program")
	// ErrOutdated: the database lacks migrations that this program has.
	ErrOutdated = errors.New("the database is older than this program; run the migrations")
	// ErrRole: ServiceRole or DeviceRole is missing, or not what it should be, and can't
	// be mended with the rights at hand.
	ErrRole = errors.New("the relay's database roles can't be set up")
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
		if err := ensureRoles(ctx, db); err != nil {
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
