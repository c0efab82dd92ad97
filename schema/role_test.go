package schema_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/store/postgres"
)

// TestExternalServer works as an operator does who got a database on someone's server:
// its owner is no superuser. Roles belong to a whole server, so this one is its own.
func TestExternalServer(t *testing.T) {
	t.Parallel()
	const operator = "operator"
	server, err := pgd.Start(t.Context(), pgd.Config{Dir: t.TempDir(), Roles: []string{operator, schema.ServiceRole}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.WithoutCancel(t.Context()))) })
	admin := connect(t, server.URL())
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE ROLE operator LOGIN NOSUPERUSER")
	newDatabase := func(name string) string {
		exec("CREATE DATABASE " + name + " OWNER operator")
		u, err := url.Parse(server.URLAs(operator))
		require.NoError(t, err)
		u.Path = "/" + name
		return u.String()
	}

	first := newDatabase("first")
	err = schema.Up(t.Context(), first)
	require.ErrorIs(t, err, schema.ErrRole)
	hint := err.Error()
	require.Contains(t, hint, "CREATE ROLE relay_service")
	require.Contains(t, hint, "CREATE ROLE relay_device")

	// The administrator runs what the error says.
	from, to := strings.Index(hint, "CREATE ROLE"), strings.LastIndex(hint, ";")
	exec(strings.ReplaceAll(hint[from:to], "<this user>", operator))
	require.NoError(t, schema.Up(t.Context(), first))
	opened := pgtest.Open(t, first)
	require.NoError(t, opened.Ping(t.Context()))
	_, err = opened.DefaultTenant(t.Context())
	require.NoError(t, err)

	// The service role may also connect by itself.
	require.NoError(t, pgtest.Open(t, pgtest.As(t, first, schema.ServiceRole)).Ping(t.Context()))

	// One that may create roles needs no administrator.
	opened.Close()
	require.NoError(t, schema.Down(t.Context(), first, 0))
	exec("DROP ROLE relay_service")
	exec("DROP ROLE relay_device")
	exec("ALTER ROLE operator CREATEROLE")
	second := newDatabase("second")
	require.NoError(t, schema.Up(t.Context(), second))
	require.NoError(t, pgtest.Open(t, second).Ping(t.Context()))

	// Roles that are not apart are mended by who may, and are an error else.
	for _, spoil := range []string{
		"REVOKE relay_device FROM relay_service",
		"REVOKE relay_device FROM relay_service; ALTER ROLE relay_service INHERIT; GRANT relay_device TO relay_service",
	} {
		exec("ALTER ROLE operator NOCREATEROLE")
		exec(spoil)
		require.ErrorIs(t, schema.Up(t.Context(), second), schema.ErrRole, spoil)
		_, err = postgres.Open(t.Context(), postgres.Config{URL: second})
		require.ErrorIs(t, err, postgres.ErrRole, spoil)
		exec("ALTER ROLE operator CREATEROLE")
		require.NoError(t, schema.Up(t.Context(), second), spoil)
		require.NoError(t, pgtest.Open(t, second).Ping(t.Context()), spoil)
	}
}
