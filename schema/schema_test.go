package schema_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	return conn
}

// list returns a query's rows, whose first column is text.
func list(t *testing.T, db *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return values
}

const allRelations = `SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1`

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	require.NoError(t, schema.Up(t.Context(), url))
	db := connect(t, url)
	made := list(t, db, allRelations)
	require.NoError(t, schema.Up(t.Context(), url), "again")
	require.NoError(t, schema.Down(t.Context(), url, 0))
	require.Equal(t, []string{"goose_db_version", "goose_db_version_id_seq", "goose_db_version_pkey"}, list(t, db, allRelations))
	require.Empty(t, list(t, db, `SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace`))
	require.NoError(t, schema.Up(t.Context(), url))
	require.Equal(t, made, list(t, db, allRelations))
}

func TestNodesThatStartTogether(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	var nodes sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		nodes.Go(func() { errs[i] = schema.Up(t.Context(), url) })
	}
	nodes.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, schema.Check(t.Context(), connect(t, url)))
}

func TestOtherVersions(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	db := connect(t, url)
	require.ErrorIs(t, schema.Check(t.Context(), db), schema.ErrOutdated, "empty")
	require.NoError(t, schema.Up(t.Context(), url))
	require.NoError(t, schema.Check(t.Context(), db))

	latest, err := schema.Latest()
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)", latest+1)
	require.NoError(t, err)
	require.ErrorIs(t, schema.Check(t.Context(), db), schema.ErrNewer)
	require.ErrorIs(t, schema.Up(t.Context(), url), schema.ErrNewer)

	_, err = db.Exec(t.Context(), "DELETE FROM goose_db_version WHERE version_id >= $1", latest)
	require.NoError(t, err)
	require.ErrorIs(t, schema.Check(t.Context(), db), schema.ErrOutdated)
}

// A migration that was released is never changed: databases that have it would differ
// from those that get it now. The file lists released migrations and their SHA-256.
func TestReleasedMigrationsAreFrozen(t *testing.T) {
	t.Parallel()
	released, err := os.ReadFile("testdata/released.sha256")
	require.NoError(t, err)
	sums := map[string]string{}
	for line := range strings.Lines(string(released)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, "line %q", line)
		sums[name] = sum
	}
	require.NotEmpty(t, sums)
	for name, want := range sums {
		text, err := fs.ReadFile(schema.Files(), name)
		require.NoError(t, err, "a released migration is missing")
		sum := sha256.Sum256(text)
		require.Equal(t, want, hex.EncodeToString(sum[:]), "%s was released: add another migration instead", name)
	}
}

func TestVersionsHaveNoGap(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(schema.Files(), "*.sql")
	require.NoError(t, err)
	latest, err := schema.Latest()
	require.NoError(t, err)
	require.Len(t, names, int(latest))
}
