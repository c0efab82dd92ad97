package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/fault"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

var fast = []testkit.Option{testkit.EnvelopesPerSecond(100_000), testkit.FramesPerSecond(1000)}

// edges starts an API node and two edges on one cluster of three NATS servers.
func edges(t *testing.T) (nats *testkit.Cluster, api, one, two *testkit.Relay) {
	t.Helper()
	nats = testkit.StartCluster(t)
	api = testkit.StartAPI(t, testkit.NATSURL(nats.URLs()), testkit.Replicas(3), testkit.NodeID("api"))
	start := func(id string) *testkit.Relay {
		return testkit.StartEdge(t, api, append(slices.Clone(fast), testkit.NATSURL(nats.EdgeURLs()), testkit.NodeID(id))...)
	}
	return nats, api, start("edge-one"), start("edge-two")
}

// One API node and two edges on R3 streams: delivery from edge to edge, presence, and
// every change of the API in force on each edge when it was answered (FAULTS H06 e, H08).
func TestEdges(t *testing.T) {
	t.Parallel()
	_, api, one, two := edges(t)
	requireReady(t, http.StatusOK, api, one, two)
	who := room(t, api, "agent", "agent", "owner", "agent", "agent")
	l := newLedger(t)
	a, b := online(t, one, who[0]), online(t, two, who[1])
	l.alive(a, b)
	l.alive(b, a)
	require.True(t, l.send(a, "to-all", who[1:]...))
	require.Equal(t, "to-all", envelopeID(t, b.delivered()))
	require.True(t, api.Presence(t, who[0].ID))

	// Nothing is accepted from whoever is gone, nothing comes to him, from the moment on that
	// the API has answered.
	removed, revoked := online(t, two, who[3]), online(t, two, who[4])
	api.Remove(t, who[3])
	generation(t, api, who[0], 1) // somebody left, who knows the keys of before
	generation(t, api, who[1], 1)
	require.True(t, l.send(a, "after-the-removal", who[1], who[2], who[4]))
	removed.closed(wire.CloseAuth)
	api.RevokeParticipant(t, who[4])
	before := slices.DeleteFunc(revoked.closed(wire.CloseAuth), func(f wire.ServerFrame) bool { return f.Type == wire.ServerRoomEvent })
	require.Empty(t, before[1:], "what was sent before, and nothing after")
	for _, s := range []*testkit.Relay{one, two} {
		refusedHello(t, s, client.Options{Token: who[3].Credential}, wire.CloseAuth)
		refusedHello(t, s, client.Options{Token: who[4].Credential}, wire.CloseAuth)
	}
	added := api.Join(t, who[0].Room, "agent")
	require.True(t, l.send(a, "after-a-joining", who[1], who[2], who[4], added))

	api.Freeze(t, true)
	a.closed(wire.CloseFrozen)
	b.closed(wire.CloseFrozen)
	refusedHello(t, one, client.Options{Token: who[0].Credential}, wire.CloseFrozen)
	api.Freeze(t, false)
	l.alive(online(t, two, who[0]), online(t, one, who[1]))
	l.check(one, who[0], who[1], who[2])
	l.check(two, who[0], who[1], who[2], added)
}

// The API node has no front, an edge has nothing but one (DESIGN section 2).
func TestRolesServeTheirOwn(t *testing.T) {
	t.Parallel()
	api := testkit.StartAPI(t)
	edge := testkit.StartEdge(t, api, fast...)
	status := func(s *testkit.Relay, path string) int {
		response, err := http.Get(s.URL() + path)
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode
	}
	require.Equal(t, http.StatusNotFound, status(api, "/v1/relay"))
	require.Equal(t, http.StatusUnauthorized, status(api, "/v1/rooms/"+api.Room(t, testkit.RoomOptions{})))
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/v1/status": http.StatusNotFound,
		"/v1/rooms": http.StatusNotFound, "/internal/v1/authenticate": http.StatusNotFound, "/openapi.json": http.StatusNotFound,
	} {
		require.Equal(t, want, status(edge, path), path)
	}
	for _, gone := range []string{"relay.sock", "postgres", "nats"} {
		require.NoFileExists(t, filepath.Join(edge.Data(), gone))
	}
}

// An API node's own NATS serves edges: the streams have several writers then. The same
// data folder goes on as a whole relay and as an API node again.
func TestEdgeOnEmbeddedNATS(t *testing.T) {
	t.Parallel()
	data, database := t.TempDir(), pgtest.URL(t)
	options := append([]testkit.Option{testkit.Data(data), testkit.Database(database)}, fast...)
	l := newLedger(t)
	var who []testkit.Participant
	asAPI := func(name string) {
		api := testkit.StartAPI(t, options...)
		if who == nil {
			who = room(t, api, "agent", "agent", "agent")
		}
		one, two := testkit.StartEdge(t, api, fast...), testkit.StartEdge(t, api, fast...)
		f := l.follow(two, who[2])
		var load sync.WaitGroup
		load.Go(func() { l.load(one, who[0], name+"-one", 60, who[1], who[2]) })
		load.Go(func() { l.load(two, who[1], name+"-two", 60, who[0], who[2]) })
		load.Wait()
		f.caughtUp()
		l.check(one, who...)
		for _, s := range []*testkit.Relay{one, two, api} {
			s.Stop(t)
		}
	}
	asAPI("first")
	whole := testkit.Start(t, options...)
	l.load(whole, who[0], "whole", 40, who[1], who[2])
	l.check(whole, who...)
	whole.Stop(t)
	asAPI("again")
}

// An edge whose link to the API breaks in each way: every envelope gets one true verdict,
// unavailable where it needs the API and queued where it does not; it is not ready, and
// recovers by itself (FAULTS E: a verdict for each, and a lost answer is not a refusal).
func TestEdgeLosesItsAPI(t *testing.T) {
	t.Parallel()
	api := testkit.StartAPI(t)
	link, err := fault.NewProxy(api.Addr())
	require.NoError(t, err)
	t.Cleanup(link.Close)
	edge := testkit.StartEdge(t, api, append(slices.Clone(fast), testkit.APIURL("http://"+link.Addr()), testkit.StoreTimeout(time.Second))...)
	who := room(t, api, "agent", "agent", "agent")
	l := newLedger(t)
	f := l.follow(edge, who[2])
	a := online(t, edge, who[0])
	require.True(t, l.send(a, "warm", who[1], who[2]))

	breaks := []struct {
		name  string
		start func()
	}{
		{"cut", link.Cut},
		{"requests-held", func() { link.Hold(fault.Requests) }},
		{"answers-held", func() { link.Hold(fault.Answers) }},
	}
	for _, way := range breaks {
		way.start()
		requireReady(t, http.StatusServiceUnavailable, edge)
		for n := range 3 {
			id := fmt.Sprintf("%s-%d", way.name, n)
			require.False(t, l.send(a, id, who[1], who[2]), id)
			require.Equal(t, wire.Unavailable, l.nackOf(id), id)
		}
		require.True(t, l.send(a, way.name+"-pairwise", who[1]), "nothing of it needs the API")
		refusedHello(t, edge, client.Options{Token: who[1].Credential}, wire.CloseQuota)
		link.Restore()
		attempt := 0
		require.Eventually(t, func() bool {
			attempt++
			return l.send(a, fmt.Sprintf("%s-back-%d", way.name, attempt), who[1], who[2])
		}, patience, poll, "it stores again, by itself")
		requireReady(t, http.StatusOK, edge)
	}

	// Answers that are lost: the API has stored what the edge calls unavailable. The same
	// bytes on a new connection are the same message.
	link.Hold(fault.Answers)
	require.False(t, l.send(a, "answer-lost", who[1], who[2]))
	link.Cut()
	link.Restore()
	l.retry(edge, who[0], "answer-lost")
	requireReady(t, http.StatusOK, edge)

	// A slow link only takes its time.
	var load sync.WaitGroup
	load.Go(func() { l.load(edge, who[1], "delayed", 40, who[0], who[2]) })
	for range 10 {
		link.Hold(fault.Requests)
		pause(t, 20*time.Millisecond)
		link.Restore()
	}
	load.Wait()
	f.caughtUp()
	l.check(edge, who...)
}

// An edge starts without the API, is not ready, asks clients to come again, and serves as
// soon as it is there.
func TestEdgeStartsBeforeItsAPI(t *testing.T) {
	t.Parallel()
	nats := testkit.StartBroker(t)
	api := testkit.StartAPI(t, testkit.NATSURL(nats.URL()))
	who := room(t, api, "agent", "agent")
	api.Stop(t)
	edge := testkit.StartEdge(t, api, fast...)
	requireReady(t, http.StatusServiceUnavailable, edge)
	refusedHello(t, edge, client.Options{Token: who[0].Credential}, wire.CloseQuota)
	api.StartAgain(t)
	requireReady(t, http.StatusOK, edge)
	alive(t, online(t, edge, who[0]), online(t, edge, who[1]))
}

// An edge is killed under load, also between the last write and the live push: those who
// are connected to another edge get what was stored, by catching up (DESIGN section 5).
func TestEdgeKilledBetweenStoreAndPush(t *testing.T) {
	t.Parallel()
	api := testkit.StartAPI(t)
	killed := testkit.StartEdgeApart(t, api, fast...)
	other := testkit.StartEdge(t, api, fast...)
	who := room(t, api, "agent", "agent", "agent", "agent")
	l := newLedger(t)
	f := l.follow(other, who[3])
	var load sync.WaitGroup
	var stop atomic.Bool
	for i, from := range who[:3] {
		p := connect(t, killed, from)
		load.Go(func() {
			for n := 0; !stop.Load(); n++ {
				l.send(p, fmt.Sprintf("sender%d-%d", i, n), who[3])
			}
		})
	}
	require.Eventually(t, func() bool { queued, _ := l.count(""); return queued > 50 }, patience, poll)
	killed.Kill()
	stop.Store(true)
	load.Wait()
	f.caughtUp()
	f.holdsInbox()
	killed.StartAgain(t)
	requireReady(t, http.StatusOK, killed)
	require.True(t, l.send(connect(t, killed, who[0]), "back", who[3]))
	f.caughtUp()
	l.check(other, who[3])
}

// A participant is revoked, and another removed, while their edge hears nothing from NATS:
// the API answers once that edge has certainly lost its lease, and from then on nothing is
// accepted from them and nothing delivered, before the link is back and after (FAULTS H06 f,
// H08).
func TestRevokedWhileTheEdgeIsCutOff(t *testing.T) {
	t.Parallel()
	nats := testkit.StartBroker(t)
	api := testkit.StartAPI(t, testkit.NATSURL(nats.URL()))
	link := testkit.Proxy(t, nats.URL())
	cutOff := testkit.StartEdge(t, api, append(slices.Clone(fast), testkit.NATSURL(link.URL()))...)
	other := testkit.StartEdge(t, api, fast...)
	who := room(t, api, "agent", "agent", "agent")
	l := newLedger(t)
	sender := online(t, other, who[0])
	revoked, removed := online(t, cutOff, who[1]), online(t, cutOff, who[2])
	l.alive(sender, revoked)
	l.alive(revoked, sender)
	l.alive(sender, removed)

	link.Hold(fault.Answers)
	var changes sync.WaitGroup
	changes.Go(func() { api.RevokeParticipant(t, who[1]) })
	changes.Go(func() { api.Remove(t, who[2]) })
	changes.Wait()
	require.True(t, l.send(sender, "after", who[1]), "its inbox is still there for another credential")
	for _, p := range []*peer{revoked, removed} {
		_ = p.conn.SendRaw(t.Context(), p.envelope("control", who[0].ID, "from-the-dead-"+p.who.ID)) // closed, or refused
		for {
			frame, err := p.receive()
			if err != nil {
				break
			}
			require.NotContains(t, []wire.ServerType{wire.ServerQueued, wire.ServerDeliver}, frame.Type, "%s", frame.Raw)
		}
	}
	link.Restore()
	requireReady(t, http.StatusOK, cutOff)
	for _, p := range who[1:] {
		refusedHello(t, cutOff, client.Options{Token: p.Credential}, wire.CloseAuth)
	}
	l.check(other, who[0])
}
