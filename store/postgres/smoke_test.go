package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestSmoke(t *testing.T) {
	s := pgtest.Store(t)
	ctx := t.Context()
	tenant, err := s.DefaultTenant(ctx)
	require.NoError(t, err)
	room, err := s.CreateRoom(ctx, store.NewRoom{Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeNone, PrivateMessages: store.PrivateAllowed})
	require.NoError(t, err)
	p, err := s.AddParticipant(ctx, store.NewParticipant{Tenant: tenant, Room: room.ID, Role: store.RoleAgent})
	require.NoError(t, err)
	hash := store.TokenHash{1}
	c, err := s.MintCredential(ctx, tenant, p.ID, store.CredentialSession, hash, time.Hour)
	require.NoError(t, err)
	id, err := s.Authenticate(ctx, hash)
	require.NoError(t, err)
	require.Equal(t, c.ID, id.Credential)
	_, err = s.Authenticate(ctx, store.TokenHash{2})
	require.ErrorIs(t, err, store.ErrUnauthenticated)
	roster, err := s.Roster(ctx, tenant, room.ID)
	require.NoError(t, err)
	require.Len(t, roster.Participants, 1)
	m := store.Message{Tenant: tenant, Room: room.ID, Sender: p.ID, ID: "x", Kind: wire.KindMessage, Bytes: []byte("hello")}
	a, err := s.AppendMessage(ctx, m)
	require.NoError(t, err)
	require.False(t, a.Duplicate)
	a, err = s.AppendMessage(ctx, m)
	require.NoError(t, err)
	require.True(t, a.Duplicate)
	m.Bytes = []byte("hello!")
	_, err = s.AppendMessage(ctx, m)
	require.ErrorIs(t, err, &wire.Error{Code: wire.HistoryConflict})
	require.NoError(t, s.Ping(ctx))
	_, err = s.PruneHistory(ctx)
	require.NoError(t, err)
}
