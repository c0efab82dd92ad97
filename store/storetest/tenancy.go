package storetest

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// newName is a tenant's name that no other test has.
func newName() string { return "t-" + uuid.NewString() }

func testTenancy(t *testing.T, s Subject) {
	ctx := t.Context()
	name := newName()
	_, err := s.Store.TenantByName(ctx, name)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.Store.TenantByName(ctx, name)
	require.ErrorIs(t, err, store.ErrNotFound, "asking makes none")

	made, err := s.Store.CreateTenant(ctx, name)
	require.NoError(t, err)
	require.NotEqual(t, uuid.Nil, made.ID)
	require.False(t, made.CreatedAt.IsZero())
	require.Equal(t, store.Tenant{ID: made.ID, Name: name, CreatedAt: made.CreatedAt}, made)
	_, err = s.Store.CreateTenant(ctx, name)
	require.ErrorIs(t, err, store.ErrConflict)
	require.NoError(t, s.Store.SetFrozen(ctx, made.ID, true))
	found, err := s.Store.TenantByName(ctx, name)
	require.NoError(t, err)
	made.Frozen = true
	require.Equal(t, made, found)

	for _, bad := range []string{"", "-a", ".a", "_a", "A", "a b", "a\x00", "ä", "a\n", "a/b", strings.Repeat("a", store.MaxTenantName+1)} {
		_, err := s.Store.CreateTenant(ctx, bad)
		require.ErrorIs(t, err, store.ErrInvalid, "%q", bad)
		_, err = s.Store.TenantByName(ctx, bad)
		require.ErrorIs(t, err, store.ErrNotFound, "%q", bad)
	}
	_, err = s.Store.CreateTenant(ctx, "0."+strings.ReplaceAll(uuid.NewString(), "-", "_")+strings.Repeat("z", store.MaxTenantName-38))
	require.NoError(t, err)
}

func testTenantPages(t *testing.T, s Subject) {
	ctx := t.Context()
	want := map[string]bool{}
	for range 5 {
		made, err := s.Store.CreateTenant(ctx, newName())
		require.NoError(t, err)
		want[made.Name] = true
	}
	after := ""
	for more := true; more; {
		var page []store.Tenant
		var err error
		page, more, err = s.Store.TenantPage(ctx, after, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 2)
		for _, tenant := range page {
			require.Greater(t, tenant.Name, after, "by name")
			after = tenant.Name
			delete(want, tenant.Name)
		}
	}
	require.Empty(t, want)
	for _, limit := range []int{-1, 0, store.MaxPage + 1} {
		_, _, err := s.Store.TenantPage(ctx, "", limit)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, _, err := s.Store.TenantPage(ctx, "A", 1)
	require.ErrorIs(t, err, store.ErrInvalid)
}

func testCursorKeys(t *testing.T, s Subject) {
	keys := map[[16]byte]bool{}
	for range 2 {
		tenant := s.NewTenant(t)
		key, err := s.Store.CursorKey(t.Context(), tenant)
		require.NoError(t, err)
		again, err := s.Store.CursorKey(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, key, again)
		keys[key] = true
	}
	require.Len(t, keys, 2, "a key of its own")
	_, err := s.Store.CursorKey(t.Context(), newID(t))
	require.ErrorIs(t, err, store.ErrNotFound)
}

// testSignInFindsTheTenant: who signs in names the device alone (DESIGN section 9).
func testSignInFindsTheTenant(t *testing.T, s Subject) {
	f, elsewhere := newFixture(t, s), newFixture(t, s)
	ctx := t.Context()
	device := f.enrolled(t, true)
	nonce, token := newHash(), newHash()
	require.NoError(t, s.Store.NewChallenge(ctx, elsewhere.tenant, device.ID, nonce))
	_, err := s.Store.SignIn(ctx, elsewhere.tenant, device.ID, nonce, token, hour, anyone)
	require.NoError(t, err)
	got, err := s.Store.AuthenticateDevice(ctx, token)
	require.NoError(t, err)
	require.Equal(t, f.tenant, got.Tenant)

	nobody, nonce := newID(t), newHash()
	require.NoError(t, s.Store.NewChallenge(ctx, elsewhere.tenant, nobody, nonce))
	require.ErrorIs(t, s.Store.NewChallenge(ctx, elsewhere.tenant, nobody, nonce), store.ErrConflict)
	_, err = s.Store.SignIn(ctx, elsewhere.tenant, nobody, nonce, newHash(), hour, anyone)
	require.Equal(t, store.ErrUnauthenticated, err)
}
