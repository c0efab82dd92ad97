package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/schema"
	"github.com/peerrelay/peerrelay/wire"
)

// PostgreSQL is told to stop while envelopes are in flight: each has one verdict, those that
// need no database are queued all the time, the node is not ready, and takes everything
// again by itself when the database is back, without a second row of anything (FAULTS E08).
func TestDatabaseStopsUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *pgd.Server {
		server, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, Roles: []string{schema.ServiceRole}})
		require.NoError(t, err)
		return server
	}
	stop := func(server *pgd.Server) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, server.Close(ctx))
	}
	database := start()
	t.Cleanup(func() { stop(database) })
	require.NoError(t, schema.Up(t.Context(), database.URL()))
	s := unlimited(t, testkit.Database(database.URL()), testkit.StoreTimeout(2*time.Second))
	who := room(t, s, "agent", "agent", "owner")
	a := newAccount(t)
	var senders sync.WaitGroup
	for i := range 4 {
		p := connect(t, s, who[0])
		senders.Go(func() {
			if err := a.load(p, fmt.Sprintf("sender-%d", i), 60, 2, who[1]); err != nil {
				t.Errorf("a database that is away closes no connection: %v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return a.total.Load() >= 60 }, patience, poll)
	stop(database)
	requireReady(t, http.StatusServiceUnavailable, s)
	senders.Wait()
	worksAgain := refusesReading(t, s, who)
	database = start()
	requireReady(t, http.StatusOK, s)
	worksAgain()

	for reason := range nackedBecause(a) {
		require.Equal(t, wire.Unavailable, reason)
	}
	for id, reason := range a.nacked {
		require.True(t, a.rooms[id], "%s needs no database and got %s", id, reason)
	}
	a.forgive()
	a.resend(s, who[0], 2)
	for _, p := range who[1:] {
		a.check(p, resumeOnce(t, s, p, "0").rows)
	}
	requireHistoryOnce(t, s, who[2], a)
}

// refusesReading says what must be refused while the database is away, and returns what
// must work when it is back.
func refusesReading(t *testing.T, s *testkit.Relay, who []testkit.Participant) (after func()) {
	t.Helper()
	status, body := ask(t, s, who[0], http.MethodGet, "/v1/sessions/"+who[0].Room+"/history", nil)
	require.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	return func() {
		t.Helper()
		session[any](t, s, who[0], http.MethodGet, "/history", nil, http.StatusOK)
		a, b := online(t, s, who[0]), online(t, s, who[1])
		sent := a.envelope("message", who[0].Room, "back")
		a.queued(sent, 2)
		require.Equal(t, string(sent), string(b.delivered().Envelope))
	}
}
