package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		url := pgtest.URL(t)
		return subject(pgtest.Open(t, url, mls), newOwner(url))
	})
}

func mls(c *postgres.Config) { c.MLS = true }

func TestMLSIsOffByDefault(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	storetest.TestMLSOff(t, subject(pgtest.Open(t, url), newOwner(url)))
}

// subject is a store with the owner's means to do what no interface does yet.
func subject(s store.Store, db *owner) storetest.Subject {
	return storetest.Subject{
		Store: s,
		NewTenant: func(t *testing.T) uuid.UUID {
			id := uuid.Must(uuid.NewV7())
			db.exec(t, "INSERT INTO tenants (id, name) VALUES ($1, $2)", id, id.String())
			return id
		},
		NewDevice: func(t *testing.T, tenant uuid.UUID, state store.DeviceState) uuid.UUID {
			id := uuid.Must(uuid.NewV7())
			db.exec(t, "INSERT INTO devices (tenant_id, id, kind, state) VALUES ($1, $2, 'agent', $3)", tenant, id, string(state))
			return id
		},
		SetDeviceState: func(t *testing.T, tenant, device uuid.UUID, state store.DeviceState) {
			db.exec(t, "UPDATE devices SET state = $3, revoked_at = CASE WHEN $3 = 'REVOKED' THEN now() END WHERE tenant_id = $1 AND id = $2",
				tenant, device, string(state))
		},
		ArchiveRoom: func(t *testing.T, tenant, room uuid.UUID) {
			_, err := s.ArchiveRoom(t.Context(), tenant, room, uuid.Nil)
			require.NoError(t, err)
		},
		SetRoomState: func(t *testing.T, tenant, room uuid.UUID, state store.RoomState) {
			db.exec(t, "UPDATE rooms SET state = $3 WHERE tenant_id = $1 AND id = $2", tenant, room, string(state))
		},
		SetEpoch: func(t *testing.T, tenant, room uuid.UUID, epoch uint64) {
			db.exec(t, `INSERT INTO mls_groups (tenant_id, room_id, epoch, group_id, group_info) VALUES ($1, $2, $3, 'id', 'info')
				ON CONFLICT ON CONSTRAINT mls_groups_pk DO UPDATE SET epoch = $3, updated_at = now()`, tenant, room, int64(epoch))
		},
		HistoryRows: func(t *testing.T, tenant, room uuid.UUID) int {
			return query[int](t, db, "SELECT count(*) FROM session_history WHERE tenant_id = $1 AND room_id = $2", tenant, room)
		},
	}
}

// owner is the database's owner, whom no policy binds. Each use is a connection of its
// own, so that tests may use it at once.
type owner struct{ url string }

func newOwner(url string) *owner { return &owner{url} }

func (o *owner) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func (o *owner) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func query[T any](t *testing.T, o *owner, sql string, args ...any) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}
