package remote_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/store/remote"
	"github.com/peerrelay/peerrelay/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

// The suite over the whole way: client, network, HTTP server, routes, PostgreSQL.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.RunEdge(t, func(t *testing.T) storetest.Subject {
		url := pgtest.URL(t)
		s := pgtest.Open(t, url)
		return subject(s, open(t, serve(t, s)), owner{url})
	})
}

// subject is a store with the owner's means to do what no interface does yet.
func subject(s store.Store, edge store.Edge, db owner) storetest.Subject {
	return storetest.Subject{
		Store: s,
		Edge:  edge,
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
		HistoryRows: func(t *testing.T, tenant, room uuid.UUID) (n int) {
			db.queryRow(t, &n, "SELECT count(*) FROM session_history WHERE tenant_id = $1 AND room_id = $2", tenant, room)
			return n
		},
	}
}

// owner is the database's owner, whom no policy binds.
type owner struct{ url string }

func (o owner) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.url)
	require.NoError(t, err)
	return conn
}

func (o owner) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn := o.connect(t)
	defer conn.Close(t.Context())
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (o owner) queryRow(t *testing.T, into any, sql string, args ...any) {
	t.Helper()
	conn := o.connect(t)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(into))
}

// service is an API with a store behind it, as a node with the role api has.
type service struct {
	*httptest.Server

	token string
}

// unused stands for the parts of an API that its internal endpoints do not need.
type unused struct {
	api.Announcer
	api.Inboxes
}

func newAPI(t testing.TB, s api.Store, token store.TokenHash) http.Handler {
	t.Helper()
	a, err := api.New(api.Config{
		Store: s, Announcer: unused{}, Inboxes: unused{}, ServiceToken: token,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	return a.Public()
}

func serve(t testing.TB, s *postgres.Store) service {
	t.Helper()
	token, hash := store.NewToken()
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.Server(newAPI(t, s, hash), slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	return service{server, token}
}

// open returns a store that asks the service; options change its configuration.
func open(t testing.TB, s service, options ...func(*remote.Config)) *remote.Store {
	t.Helper()
	cfg := remote.Config{URL: s.URL, Token: s.token, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, option := range options {
		option(&cfg)
	}
	edge, err := remote.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(edge.Close)
	return edge
}

const patience = time.Minute
