package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// TestOpenRefusesPrivileges gives the relay's roles what they must not have, one thing at a
// time, on a server of its own since roles belong to a whole server.
func TestOpenRefusesPrivileges(t *testing.T) {
	t.Parallel()
	server, err := pgd.Start(t.Context(), pgd.Config{Dir: t.TempDir(), Roles: []string{"stranger"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, schema.Up(t.Context(), server.URL()))
	db := newOwner(server.URL())
	open := func() error {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL()})
		if err == nil {
			s.Close()
		}
		return err
	}
	require.NoError(t, open())
	for _, c := range []struct{ name, give, take string }{
		{"superuser", "ALTER ROLE relay_service SUPERUSER", "ALTER ROLE relay_service NOSUPERUSER"},
		{"bypassrls", "ALTER ROLE relay_service BYPASSRLS", "ALTER ROLE relay_service NOBYPASSRLS"},
		{"a table of its own", "ALTER TABLE rooms OWNER TO relay_service", "ALTER TABLE rooms OWNER TO relay_owner"},
		{"the owner's membership", "GRANT relay_owner TO relay_service", "REVOKE relay_owner FROM relay_service"},
		{"a device role that is a superuser", "ALTER ROLE relay_device SUPERUSER", "ALTER ROLE relay_device NOSUPERUSER"},
		{"a device role with bypassrls", "ALTER ROLE relay_device BYPASSRLS", "ALTER ROLE relay_device NOBYPASSRLS"},
		{"a table of the device role's", "ALTER TABLE rooms OWNER TO relay_device", "ALTER TABLE rooms OWNER TO relay_owner"},
		{"the device role's membership", "GRANT relay_owner TO relay_device", "REVOKE relay_owner FROM relay_device"},
		{"a table without policies", "CREATE TABLE later (id int)", "DROP TABLE later"},
		{"policies that are not forced", "ALTER TABLE rooms NO FORCE ROW LEVEL SECURITY", "ALTER TABLE rooms FORCE ROW LEVEL SECURITY"},
		{"policies that are off", "ALTER TABLE rooms DISABLE ROW LEVEL SECURITY", "ALTER TABLE rooms ENABLE ROW LEVEL SECURITY"},
	} {
		db.exec(t, c.give)
		require.ErrorIs(t, open(), postgres.ErrPrivileged, c.name)
		db.exec(t, c.take)
		require.NoError(t, open(), c.name)
	}

	db.exec(t, "CREATE ROLE stranger LOGIN")
	_, err = postgres.Open(t.Context(), postgres.Config{URL: server.URLAs("stranger")})
	require.ErrorIs(t, err, postgres.ErrRole)
}

func TestOpenChecksVersion(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.EmptyURL(t)})
	require.ErrorIs(t, err, schema.ErrOutdated)

	newer := pgtest.URL(t)
	newOwner(newer).exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)")
	_, err = postgres.Open(t.Context(), postgres.Config{URL: newer})
	require.ErrorIs(t, err, schema.ErrNewer)
}

func TestOpenRefusesConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []postgres.Config{
		{},
		{URL: "postgres://localhost:notaport/x"},
		{URL: "postgres://localhost/x", MaxConns: -1},
		{URL: "postgres://localhost/x", History: postgres.HistoryConfig{BatchRows: -1}},
	} {
		_, err := postgres.Open(t.Context(), cfg)
		require.Error(t, err)
	}
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://user:pa$$word@localhost:notaport/x"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "pa$$word")
}

// The store works as the service role on every connection, whoever logged in.
func TestConnectionsAreTheServiceRoles(t *testing.T) {
	t.Parallel()
	s := pgtest.Store(t)
	for range 3 {
		var role, tenant string
		require.NoError(t, s.Pool().AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			return c.QueryRow(t.Context(), "SELECT current_user, coalesce(current_setting('relay.tenant', true), '')").Scan(&role, &tenant)
		}))
		require.Equal(t, schema.ServiceRole, role)
		require.Empty(t, tenant)
	}
}

// A pooler that is not in session mode hands out sessions that nobody prepared.
func TestTransactionsAreTheServiceRoles(t *testing.T) {
	t.Parallel()
	s := pgtest.Store(t, conns(1))
	for _, session := range []string{"SET ROLE relay_service", "SET ROLE relay_device", "RESET ROLE"} {
		_, err := s.Pool().Exec(t.Context(), session)
		require.NoError(t, err)
		role, err := s.ActingRole(t.Context(), uuid.Nil)
		require.NoError(t, err)
		require.Equal(t, schema.ServiceRole, role, session)
	}
}

func TestPingNoticesReadOnly(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	require.NoError(t, pgtest.Open(t, url).Ping(t.Context()))
	db := newOwner(url)
	db.exec(t, "ALTER DATABASE "+pgx.Identifier{query[string](t, db, "SELECT current_database()::text")}.Sanitize()+" SET default_transaction_read_only = on")
	require.Error(t, pgtest.Open(t, url).Ping(t.Context()))
}
