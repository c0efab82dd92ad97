package pgd_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg pgd.Config) *pgd.Server {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := pgd.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closeServer(s)) })
	return s
}

func closeServer(s *pgd.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Close(ctx)
}

func query[T any](t *testing.T, s *pgd.Server, sql string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

func TestSecondStartFindsData(t *testing.T) {
	dir := t.TempDir()
	first := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 1, query[int](t, first, "WITH x AS (SELECT 1 AS v) SELECT v FROM x"))
	query[string](t, first, "SELECT set_config('x.y', '1', false)")
	conn, err := pgx.Connect(t.Context(), first.URL())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS v")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, closeServer(first))

	second := start(t, pgd.Config{Dir: dir})
	require.Equal(t, 42, query[int](t, second, "SELECT v FROM kept"))
}
