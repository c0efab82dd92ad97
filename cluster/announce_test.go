package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/cluster"
)

func TestAnnounceReachesEveryNode(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, r1, nc := join(t, b.url())
	_, r2, _ := join(t, b.url())
	_, r3, _ := join(t, b.url())
	watch, err := nc.SubscribeSync("control.>")
	require.NoError(t, err)

	c := change(7)
	c.Removed, c.Credentials = []uuid.UUID{uuid.New()}, []uuid.UUID{uuid.New(), uuid.New()}
	require.NoError(t, one.Announce(withTimeout(t, soon), c))
	for _, r := range []*recorder{r1, r2, r3} {
		require.Equal(t, []cluster.Change{c}, r.changes(), "in force when Announce returns, and whole")
	}
	msg, err := watch.NextMsg(soon)
	require.NoError(t, err)
	require.Equal(t, "control."+c.Room.String(), msg.Subject)

	frozen := cluster.Change{Tenant: uuid.New(), Frozen: true}
	require.NoError(t, one.Announce(withTimeout(t, soon), frozen))
	require.Equal(t, []cluster.Change{c, frozen}, r3.changes())
	for first := msg.Subject; msg.Subject == first; { // may be repeated
		msg, err = watch.NextMsg(soon)
		require.NoError(t, err)
	}
	require.Equal(t, "control.tenant."+frozen.Tenant.String(), msg.Subject)
}

func TestAnnounceWaitsForABlockedNode(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, r1, _ := join(t, b.url())
	_, r2, _ := join(t, b.url())
	release := make(chan struct{})
	r2.apply = func(ctx context.Context, _ cluster.Change) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// The blocked node keeps its lease, so only the caller's patience ends the wait.
	err := one.Announce(withTimeout(t, time.Second), change(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return r1.has(1) }, soon, time.Millisecond)
	require.False(t, r2.has(1))

	done := make(chan error, 1)
	go func() { done <- one.Announce(withTimeout(t, soon), change(2)) }()
	require.Never(t, func() bool { return len(done) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
	close(release)
	require.NoError(t, <-done)
	require.True(t, r2.has(2))
}

func TestAnnounceOutlivesANodeWithoutLink(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, nc := join(t, b.url())
	l := newLink(t, b.url()[len("nats://"):])
	two, r2, _ := join(t, l.url(), runsOut)
	require.NoError(t, one.Announce(withTimeout(t, soon), change(1)))
	l.set(true)
	require.NoError(t, one.Announce(withTimeout(t, soon), change(2)))
	require.False(t, two.Held(), "an announcement that was answered leaves no node that accepts without it")
	require.False(t, r2.has(2))
	require.Len(t, leaseKeys(t, nc), 1, "a node that is gone is waited for once")
	require.NoError(t, one.Announce(withTimeout(t, soon), change(3)))
}

func TestAnnounceComesAgainAfterAnApplyError(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	_, r2, _ := join(t, b.url())
	var calls atomic.Int64
	r2.apply = func(context.Context, cluster.Change) error {
		if calls.Add(1) < 3 {
			return errRefused
		}
		return nil
	}
	require.NoError(t, one.Announce(withTimeout(t, soon), change(1)))
	require.GreaterOrEqual(t, calls.Load(), int64(3))
	require.True(t, r2.has(1))
}

func TestAnnounceReportsAFailureHere(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, r1, _ := join(t, b.url())
	_, r2, _ := join(t, b.url())
	r1.apply = func(context.Context, cluster.Change) error { return errRefused }
	require.ErrorIs(t, one.Announce(withTimeout(t, soon), change(1)), errRefused)
	require.True(t, r2.has(1), "the others are told all the same")
}

func TestAnnounceConcurrently(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	var nodes []*cluster.Node
	var recorders []*recorder
	var busy sync.Map // room -> being applied
	for range 3 {
		node, r, _ := join(t, b.url())
		r.apply = func(_ context.Context, c cluster.Change) error {
			key := fmt.Sprintf("%p %s", r, c.Room)
			if _, twice := busy.LoadOrStore(key, true); twice {
				panic("two changes of one room at once")
			}
			busy.Delete(key)
			return nil
		}
		nodes, recorders = append(nodes, node), append(recorders, r)
	}
	rooms := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	tenant := uuid.New()
	var wg sync.WaitGroup
	errs := make(chan error, 90)
	ctx := withTimeout(t, soon)
	for i, node := range nodes {
		for k := range 30 {
			wg.Go(func() {
				errs <- node.Announce(ctx, cluster.Change{Tenant: tenant, Room: rooms[k%3], Version: int64(1 + i*100 + k)})
			})
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	for i := range nodes {
		for k := range 30 {
			for _, r := range recorders {
				require.True(t, r.has(int64(1+i*100+k)))
			}
		}
	}
}

func TestAnnounceSplitsManyIDs(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	_, r2, _ := join(t, b.url())
	c := change(1)
	want := make(map[uuid.UUID]bool)
	for range 9001 {
		id := uuid.New()
		c.Credentials = append(c.Credentials, id)
		want[id] = true
	}
	require.NoError(t, one.Announce(withTimeout(t, soon), c))
	for _, part := range r2.changes() {
		for _, id := range part.Credentials {
			delete(want, id)
		}
	}
	require.Empty(t, want)
}

func TestMalformedControlMessagesAreIgnored(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	_, r2, nc := join(t, b.url())
	room, tenant := uuid.New(), uuid.New()
	good := fmt.Sprintf(`{"announcement":"%s","origin":"x","change":{"tenant":"%s","room":"%s","version":5}}`, uuid.New(), tenant, room)
	for _, bad := range []string{
		``, `{`, `null`, `[]`, `"x"`, good + `{}`, good + ` x`,
		`{"announcement":"` + uuid.NewString() + `","origin":"x","change":{"tenant":"` + tenant.String() + `","room":"` + room.String() + `","Version":5}}`,
		`{"announcement":"` + uuid.NewString() + `","origin":"x","change":{"tenant":"` + tenant.String() + `","room":"` + room.String() + `","version":5,"version":6}}`,
		`{"announcement":"` + uuid.NewString() + `","origin":"x","change":{"room":"` + room.String() + `","version":5}}`,
		`{"announcement":"` + uuid.NewString() + `","origin":"x","change":{"tenant":"` + tenant.String() + `","room":"a.b","version":5}}`,
		string(bytes.Repeat([]byte("["), 600<<10)),
	} {
		require.NoError(t, nc.Publish("control."+room.String(), []byte(bad)))
	}
	require.NoError(t, nc.Publish("control."+uuid.NewString(), []byte(good)), "another room's subject")
	require.NoError(t, nc.Publish("control.x", []byte(good)))
	require.NoError(t, nc.Publish("control."+room.String(), []byte(good)))
	require.Eventually(t, func() bool { return r2.has(5) }, soon, 5*time.Millisecond)
	require.Len(t, r2.changes(), 1, "only the well-formed one")
	require.NoError(t, one.Announce(withTimeout(t, soon), change(6)), "and the node still listens")
}

func TestCloseWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	two, _, _ := join(t, b.url())
	require.NoError(t, two.Close(withTimeout(t, soon)))
	require.NoError(t, one.Announce(withTimeout(t, soon), change(1)), "long before a lease runs out")
}

func TestNodesComeAndGoDuringAnnouncements(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _, _ := join(t, b.url())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			nc, err := nats.Connect(b.url())
			if err != nil {
				return
			}
			if node, err := cluster.Start(context.Background(), testConfig(nc, &recorder{})); err == nil {
				_ = node.Close(context.Background())
			}
			nc.Close()
		}
	})
	for i := range 30 {
		require.NoError(t, one.Announce(withTimeout(t, soon), change(int64(i+1))))
	}
	close(stop)
	wg.Wait()
}

func BenchmarkAnnounceAlone(b *testing.B) {
	server := newBroker(b)
	nc, err := nats.Connect("", nats.InProcessServer(server.server))
	require.NoError(b, err)
	defer nc.Close()
	node := startNode(b, testConfig(nc, &recorder{}))
	c := change(1)
	for b.Loop() {
		if err := node.Announce(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHeld(b *testing.B) {
	node, _, _ := join(b, newBroker(b).url())
	for b.Loop() {
		if !node.Held() {
			b.Fatal("not held")
		}
	}
}
