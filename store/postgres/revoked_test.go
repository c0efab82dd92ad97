package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

// Of a device that is revoked nothing is left that could be taken for valid, also by whoever
// looks at those tables alone: no access token, and no invite that it made.
func TestNothingOfARevokedDeviceIsLeft(t *testing.T) {
	t.Parallel()
	e := newEnrolling(t)
	admin := e.device(t, 1)
	_, err := e.s.ActivateDevice(t.Context(), e.tenant, admin.ID)
	require.NoError(t, err)
	nonce, token := store.TokenHash{2}, store.TokenHash{3}
	require.NoError(t, e.s.NewChallenge(t.Context(), e.tenant, admin.ID, nonce))
	_, err = e.s.SignIn(t.Context(), e.tenant, admin.ID, nonce, token, time.Hour, func([32]byte) bool { return true })
	require.NoError(t, err)
	_, err = e.s.CreateInvite(t.Context(), store.NewInvite{
		Tenant: e.tenant, CreatedBy: admin.ID, Kind: store.DeviceAgent, Token: store.TokenHash{4}, TTL: store.MaxInviteTTL,
	})
	require.NoError(t, err)
	valid := func() int {
		return query[int](t, e.db, `SELECT (SELECT count(*) FROM device_tokens WHERE revoked_at IS NULL)
			+ (SELECT count(*) FROM invites WHERE state = 'CREATED')`)
	}
	require.Equal(t, 2, valid())
	_, err = e.s.RevokeDevice(t.Context(), e.tenant, admin.ID, uuid.Nil)
	require.NoError(t, err)
	require.Zero(t, valid())
	require.Equal(t, store.InviteRevoked, e.state(t, 4))
}
