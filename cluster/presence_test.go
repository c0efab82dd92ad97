package cluster_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/cluster"
)

func TestPresence(t *testing.T) {
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	two, _, _ := join(t, b.url())
	since := time.UnixMilli(1_750_000_000_123).UTC()
	here, there, nowhere := uuid.New(), uuid.New(), uuid.New()
	require.NoError(t, one.PutPresence(cluster.Presence{Participant: here, Since: since, RTT: 3 * time.Millisecond}))
	require.NoError(t, two.PutPresence(cluster.Presence{Participant: there, Since: since}))
	require.Eventually(t, func() bool {
		found, err := one.Lookup(t.Context(), []uuid.UUID{here, there, nowhere})
		return err == nil && len(found) == 2
	}, soon, 10*time.Millisecond)
	found, err := two.Lookup(t.Context(), []uuid.UUID{here})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.WithinDuration(t, time.Now(), found[0].Seen, soon, "when the entry was written")
	require.Equal(t, []cluster.Presence{{
		Participant: here, Node: one.ID(), Since: since, RTT: 3 * time.Millisecond, Seen: found[0].Seen,
	}}, found)

	require.NoError(t, one.DeletePresence(here))
	require.Eventually(t, func() bool {
		found, err := two.Lookup(t.Context(), []uuid.UUID{here})
		return err == nil && len(found) == 0
	}, soon, 10*time.Millisecond)
	found, err = two.Lookup(t.Context(), []uuid.UUID{nowhere})
	require.NoError(t, err)
	require.Empty(t, found)
	found, err = two.Lookup(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = two.Lookup(t.Context(), make([]uuid.UUID, 1001))
	require.Error(t, err)
}

// The bucket is in memory: a broker that starts anew has none.
func TestPresenceBucketGone(t *testing.T) {
	b := newBroker(t)
	node, _, nc := join(t, b.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "KV_"+cluster.PresenceBucket))
	here := uuid.New()
	require.Eventually(t, func() bool {
		require.NoError(t, node.PutPresence(cluster.Presence{Participant: here, Since: time.Now()}))
		found, err := node.Lookup(t.Context(), []uuid.UUID{here})
		return err == nil && len(found) == 1
	}, soon, 20*time.Millisecond)
}

// An entry for each of very many idle connections must stay cheap.
func TestPresenceMemoryPerEntry(t *testing.T) {
	const entries = 20_000
	b := newBroker(t)
	nc, err := nats.Connect("", nats.InProcessServer(b.server))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	node := startNode(t, testConfig(nc, &recorder{}))
	ids := make([]uuid.UUID, entries)
	for i := range ids {
		ids[i] = uuid.New()
	}
	before := heap()
	for round := range 3 { // refreshed as heartbeats do
		for _, id := range ids {
			require.NoError(t, node.PutPresence(cluster.Presence{Participant: id, Since: time.Now(), RTT: time.Duration(round) * time.Millisecond}))
		}
		require.NoError(t, nc.Flush())
	}
	require.Eventually(t, func() bool {
		found, err := node.Lookup(t.Context(), ids[entries-1:])
		return err == nil && len(found) == 1 && found[0].RTT == 2*time.Millisecond
	}, soon, 10*time.Millisecond)
	perEntry := (int64(heap()) - int64(before)) / entries
	t.Logf("%d B per entry", perEntry)
	require.Less(t, perEntry, int64(700))
	runtime.KeepAlive(ids)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
