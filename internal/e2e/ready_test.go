package e2e_test

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// A database that answers but stores nothing (a full disk, for example) is not ready,
// until it stores again.
func TestNotReadyWhileHistoryRefuses(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	s := unlimited(t, testkit.Database(database))
	owner, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer func() { require.NoError(t, owner.Close(t.Context())) }()
	who := room(t, s, "agent", "agent")
	p := connect(t, s, who[0])
	requireReady(t, http.StatusOK, s)

	_, err = owner.Exec(t.Context(), "REVOKE INSERT ON session_history FROM relay_service")
	require.NoError(t, err)
	p.nacked(p.envelopeWith("message", p.who.Room, "refused", padding(10)), wire.Unavailable)
	requireReady(t, http.StatusServiceUnavailable, s)

	_, err = owner.Exec(t.Context(), "GRANT INSERT ON session_history TO relay_service")
	require.NoError(t, err)
	p.queued(p.envelopeWith("message", p.who.Room, "stored", padding(10)), 1)
	requireReady(t, http.StatusOK, s)
}
