package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/fault"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres"
	"github.com/peerrelay/peerrelay/store/remote"
)

// link is an edge's store, the API it asks, and the network between them.
type link struct {
	store   *postgres.Store
	proxy   *fault.Proxy
	edge    *remote.Store
	service service
	member  store.Participant
	token   store.TokenHash // of a credential of member
}

// impatient has calls of an API that does not answer end soon.
func impatient(cfg *remote.Config) { cfg.Timeout = time.Second }

func newLink(t *testing.T, options ...func(*remote.Config)) *link {
	t.Helper()
	l := &link{store: pgtest.Store(t)}
	l.service = serve(t, l.store)
	var err error
	l.proxy, err = fault.NewProxy(strings.TrimPrefix(l.service.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(l.proxy.Close)
	through := service{&httptest.Server{URL: "http://" + l.proxy.Addr()}, l.service.token}
	l.edge = open(t, through, options...)
	tenant, err := l.store.DefaultTenant(t.Context())
	require.NoError(t, err)
	room, err := l.store.CreateRoom(t.Context(), store.NewRoom{
		Tenant: tenant, Kind: store.RoomGroup, Scheme: store.SchemeSenderKeys, PrivateMessages: store.PrivateAllowed,
	})
	require.NoError(t, err)
	l.member, err = l.store.AddParticipant(t.Context(), store.NewParticipant{Tenant: tenant, Room: room.ID, Role: store.RoleAgent})
	require.NoError(t, err)
	_, l.token = store.NewToken()
	_, err = l.store.MintCredential(t.Context(), tenant, l.member.ID, store.CredentialSession, l.token, time.Hour)
	require.NoError(t, err)
	return l
}

// all makes every call there is, at once, and returns their errors.
func (l *link) all(ctx context.Context, id string) map[string]error {
	calls := map[string]func() error{
		"authenticate": func() error { _, err := l.edge.Authenticate(ctx, l.token); return err },
		"roster":       func() error { _, err := l.edge.Roster(ctx, l.member.Tenant, l.member.Room); return err },
		"versions": func() error {
			_, err := l.edge.RoomVersions(ctx, l.member.Tenant, []uuid.UUID{l.member.Room})
			return err
		},
		"credentials": func() error {
			_, err := l.edge.ValidCredentials(ctx, l.member.Tenant, []uuid.UUID{l.member.ID})
			return err
		},
		"history": func() error { _, err := l.edge.AppendMessage(ctx, envelopeOf(l.member, id, "x")); return err },
		"ping":    func() error { return l.edge.Ping(ctx) },
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	errs := make(map[string]error)
	for name, do := range calls {
		running.Go(func() {
			err := do()
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	running.Wait()
	return errs
}

// An API that is away, hangs, or loses its answers: each call fails within its time, as
// not knowing, and the same store works again when the API does.
func TestAPIIsAway(t *testing.T) {
	t.Parallel()
	l := newLink(t, impatient)
	works := func(id string) bool {
		for _, err := range l.all(t.Context(), id) {
			if err != nil {
				return false
			}
		}
		return true
	}
	require.Eventually(t, func() bool { return works("before-" + uuid.NewString()) }, patience, 10*time.Millisecond)
	for name, breaks := range map[string]func(){
		"cut":             l.proxy.Cut,
		"requests lost":   func() { l.proxy.Hold(fault.Requests) },
		"answers lost":    func() { l.proxy.Hold(fault.Answers) },
		"both held, then": func() { l.proxy.Hold(fault.Requests); l.proxy.Hold(fault.Answers) },
	} {
		breaks()
		for round := range 2 {
			for call, err := range l.all(t.Context(), fmt.Sprintf("%s-%d", strings.Fields(name)[0], round)) {
				opaque(t, err, name, call)
			}
		}
		l.proxy.Restore()
		require.Eventually(t, func() bool { return works("after-" + uuid.NewString()) }, patience, 10*time.Millisecond, name)
	}
}

// A commit whose answer was lost may have happened: the same call again finds out, and
// there is one row (DESIGN section 7).
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	m := envelopeOf(l.member, "lost", "x")
	l.proxy.Hold(fault.Answers)
	lost := make(chan error, 1)
	go func() {
		_, err := l.edge.AppendMessage(t.Context(), m)
		lost <- err
	}()
	require.Eventually(t, func() bool {
		rows, _, err := l.store.HistoryPage(t.Context(), l.member.Tenant, l.member.Room, store.Page{Limit: 1})
		return err == nil && len(rows) == 1
	}, patience, 10*time.Millisecond)
	l.proxy.Cut() // so that the answer itself never comes
	opaque(t, <-lost)
	l.proxy.Restore()
	var err error
	var again store.Appended
	require.Eventually(t, func() bool {
		again, err = l.edge.AppendMessage(t.Context(), m)
		return err == nil
	}, patience, 10*time.Millisecond)
	require.True(t, again.Duplicate, "it had been stored")
	_, err = l.edge.AppendMessage(t.Context(), envelopeOf(l.member, "lost", "y"))
	refusedAs(t, err, "history_conflict")
}

// A node starts while the API is away, and asks nothing before it is asked.
func TestOpenAsksNothing(t *testing.T) {
	t.Parallel()
	s := openTo(t, "http://127.0.0.1:1", func(cfg *remote.Config) { cfg.Timeout = time.Second })
	opaque(t, s.Ping(t.Context()))
}

// A wrong service token is no answer about what was asked.
func TestWrongServiceToken(t *testing.T) {
	t.Parallel()
	log := &buffer{}
	l := newLink(t, func(cfg *remote.Config) {
		cfg.Token, _ = store.NewToken()
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	for range 2 {
		for call, err := range l.all(t.Context(), "m") {
			opaque(t, err, call)
		}
	}
	require.Equal(t, 1, strings.Count(log.String(), "the API refuses this node"), "the operator reads why, once")
	rows, _, err := l.store.HistoryPage(t.Context(), l.member.Tenant, l.member.Room, store.Page{Limit: 1})
	if err == nil { // else: not built yet
		require.Empty(t, rows)
	}
}

// Thousands of ids are asked for in parts that the API takes.
func TestManyIDs(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	ids := make([]uuid.UUID, 2500)
	for i := range ids {
		ids[i] = uuid.New()
	}
	ids[2400] = l.member.Room
	versions, err := l.edge.RoomVersions(t.Context(), l.member.Tenant, ids)
	require.NoError(t, err)
	require.Len(t, versions, 1)
	require.Contains(t, versions, l.member.Room)
	valid, err := l.edge.ValidCredentials(t.Context(), l.member.Tenant, ids)
	require.NoError(t, err)
	require.Empty(t, valid)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	token, _ := store.NewToken()
	for name, cfg := range map[string]remote.Config{
		"no URL":               {Token: token},
		"another scheme":       {URL: "ftp://x", Token: token},
		"no scheme":            {URL: "127.0.0.1:8787", Token: token},
		"a user":               {URL: "http://user:secret@x", Token: token},
		"a query":              {URL: "http://x?a=secret", Token: token},
		"a path":               {URL: "http://x/internal", Token: token},
		"no URL at all":        {URL: "http://%zz:secret@x", Token: token},
		"no token":             {URL: "http://x"},
		"another token":        {URL: "http://x", Token: "secret"},
		"a negative timeout":   {URL: "http://x", Token: token, Timeout: -1},
		"a negative queue":     {URL: "http://x", Token: token, Queue: -1},
		"a negative in-flight": {URL: "http://x", Token: token, InFlight: -1},
	} {
		_, err := remote.Open(cfg)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "secret", name)
		require.NotContains(t, err.Error(), token, name)
	}
}

// FAULTS H05: the service token is in no error, log line or metric, and a participant's
// token does not even reach this store.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	log := &buffer{}
	registry := prometheus.NewRegistry()
	h := newHostile(t)
	token, hash := store.NewToken()
	s := open(t, service{h.Server, token}, func(cfg *remote.Config) {
		cfg.Logger, cfg.Registerer = slog.New(slog.NewTextHandler(log, nil)), registry
	})
	var said string
	for _, answer := range []string{"", raw(500, `{"error":"internal"}`), raw(401, ""), raw(307, "", "Location: http://127.0.0.1:1/")} {
		h.says(answer)
		for _, a := range appends {
			said += a.do(t.Context(), s).Error()
		}
		_, err := s.Authenticate(t.Context(), hash)
		said += err.Error()
	}
	require.Equal(t, 1, strings.Count(log.String(), "the API does not answer"), "once, however many calls fail")
	said += log.String()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		said += f.String()
	}
	require.NotContains(t, said, token)
	require.NotContains(t, said, fmt.Sprintf("%x", hash))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	n, err := testutil.GatherAndCount(registry, "relay_edge_appends_total", "relay_edge_call_seconds", "relay_edge_queue_depth")
	require.NoError(t, err)
	require.Equal(t, 12+8+2, n)
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// The API is asked with HTTPS where its URL says so, and only when its certificate is
// one this machine trusts.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.StartTLS()
	t.Cleanup(server.Close)
	require.True(t, strings.HasPrefix(server.URL, "https://"))
	opaque(t, openTo(t, server.URL).Ping(t.Context()))
	trusting := openTo(t, server.URL, func(cfg *remote.Config) { cfg.Transport = server.Client().Transport })
	require.NoError(t, trusting.Ping(t.Context()))
}

// A proxy of the environment sees nothing of it: the token would go to whoever runs it.
func TestNoProxyOfTheEnvironment(t *testing.T) {
	proxy := newHostile(t)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	s := openTo(t, "http://192.0.2.1:9", func(cfg *remote.Config) { cfg.Timeout = 200 * time.Millisecond })
	opaque(t, s.Ping(t.Context()))
	require.Zero(t, proxy.requests.Load())
}
