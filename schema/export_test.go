package schema

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

var Down = down

// UpTo brings an older database to a version that is not the latest, as an older program did.
func UpTo(ctx context.Context, url string, version int64) error {
	return withProvider(url, func(db *sql.DB, provider *goose.Provider) error {
		if err := ensureRoles(ctx, db); err != nil {
			return err
		}
		_, err := provider.UpTo(ctx, version)
		return err
	})
}
