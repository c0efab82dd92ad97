package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// sharedPair is two nodes on one external NATS and one database, in a tenant of the test's
// own, for tests that leave them as they are.
func sharedPair(t *testing.T) (broker *testkit.Broker, one, two *testkit.Relay) {
	t.Helper()
	return testkit.SharedPair(t, shareable()...)
}

// pair starts two nodes on one external NATS and one database.
func pair(t *testing.T) (broker *testkit.Broker, one, two *testkit.Relay) {
	t.Helper()
	broker = testkit.StartBroker(t)
	database := pgtest.URL(t)
	start := func(id string) *testkit.Relay {
		return unlimited(t, testkit.NATSURL(broker.URL()), testkit.Database(database), testkit.NodeID(id))
	}
	return broker, start("one"), start("two")
}

// DESIGN section 5, "Live push": the same way for the node that wrote and for others.
func TestDeliveryAcrossNodes(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	who := room(t, one, "agent", "agent", "owner")
	a, b, c := online(t, one, who[0]), online(t, two, who[1]), online(t, two, who[2])
	for n := range 30 {
		from, to := a, b
		if n%2 == 1 {
			from, to = b, a
		}
		sent := from.envelope("message", from.who.Room, fmt.Sprintf("m%d", n))
		ids := from.queued(sent, 2)
		for _, p := range []*peer{to, c} {
			got := p.delivered()
			require.Equal(t, string(sent), string(got.Envelope))
			require.Equal(t, ids[p.who.ID], got.StreamID)
		}
	}
	require.Len(t, resumeOnce(t, one, who[2], "0").rows, 30)
}

// DESIGN section 6, "Freshness": a change that was answered is in force on every node.
func TestChangesReachOtherNodes(t *testing.T) {
	t.Parallel()
	_, one, two := sharedPair(t)
	who := room(t, one, "agent", "agent", "agent", "agent")
	sender, victim, other, kept := online(t, two, who[0]), online(t, two, who[1]), online(t, two, who[2]), online(t, one, who[3])
	sender.queued(sender.envelope("message", sender.who.Room, "warm"), 3)
	began := time.Now()
	one.RevokeParticipant(t, who[1])
	one.Remove(t, who[2])
	generation(t, one, who[0], 1) // somebody left, who knows the keys of before
	generation(t, one, who[3], 1)
	victim.closed(wire.CloseAuth)
	other.closed(wire.CloseAuth)
	t.Logf("revoked across nodes within %s", time.Since(began))
	require.NotContains(t, sender.queued(sender.envelope("message", sender.who.Room, "after"), 2), who[2].ID)
	refusedHello(t, two, client.Options{Token: who[1].Credential}, wire.CloseAuth)

	added := one.Join(t, who[0].Room, "agent")
	require.Contains(t, sender.queued(sender.envelope("message", sender.who.Room, "joined"), 3), added.ID)

	two.Freeze(t, true)
	kept.closed(wire.CloseFrozen)
	refusedHello(t, one, client.Options{Token: who[3].Credential}, wire.CloseFrozen)
	two.Freeze(t, false)
	alive(t, online(t, one, who[0]), online(t, two, who[3]))
}

// FAULTS C07, E03: while NATS is away every envelope gets one nack, the node is not
// ready, and nothing of it turns up later; when it is back nobody stays deaf.
func TestShortLossOfNATS(t *testing.T) {
	t.Parallel()
	broker, one, two := pair(t)
	who := room(t, one, "agent", "agent")
	a, b := online(t, one, who[0]), online(t, two, who[1])
	alive(t, a, b)

	broker.Stop()
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusServiceUnavailable }, patience, 10*time.Millisecond)
	a.nackedOrCut(a.envelope("control", who[1].ID, "lost-control"), wire.Unavailable)
	broker.Start(t)
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusOK && two.Ready(t) == http.StatusOK }, patience, 10*time.Millisecond)

	// Sockets that were closed resume; those that stayed open are not deaf.
	a, b = reopened(t, one, a), reopened(t, two, b)
	alive(t, a, b)
	for _, row := range resumeOnce(t, two, who[1], "0").rows {
		require.NotContains(t, string(row.Envelope), "lost-control")
	}
}

// nackedOrCut is nacked, unless the node could not renew its lease for so long, on a slow
// machine, that it has closed the connection: then it reports that.
func (p *peer) nackedOrCut(frame []byte, reason wire.Code) (cut bool) {
	p.t.Helper()
	_ = p.conn.SendRaw(p.t.Context(), frame)
	got, err := p.receive()
	if err != nil {
		requireClose(p.t, err, wire.CloseGoingAway)
		return true
	}
	require.Equal(p.t, wire.ServerNack, got.Type, "frame %s", got.Raw)
	require.Equal(p.t, reason, got.Reason)
	return false
}

// reopened returns a connection that works: this one, or a new one where it was closed.
func reopened(t *testing.T, s *testkit.Relay, p *peer) *peer {
	t.Helper()
	if p.conn.SendRaw(t.Context(), []byte(`{"type":"are-you-there"}`)) == nil {
		if frame, err := p.conn.Receive(t.Context()); err == nil {
			require.Equal(t, wire.ServerError, frame.Type, "nothing was delivered late: %s", frame.Raw)
			return p
		}
	}
	return online(t, s, p.who)
}

// A node that cannot renew its lease closes its sockets, so that nobody is served by
// what it no longer knows.
func TestLongLossOfNATS(t *testing.T) {
	t.Parallel()
	broker, one, _ := pair(t)
	who := room(t, one, "agent", "agent")
	a := online(t, one, who[0])
	broker.Stop()
	a.closed(wire.CloseGoingAway)
	refusedHello(t, one, client.Options{Token: who[0].Credential}, wire.CloseQuota)
	broker.Start(t)
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusOK }, patience, 10*time.Millisecond)
	alive(t, online(t, one, who[0]), online(t, one, who[1]))
}

// A session message whose inboxes could not be written is partial; the same bytes on a
// new connection complete it (DESIGN section 7).
func TestPartialIsCompletedByTheSameBytes(t *testing.T) {
	t.Parallel()
	broker, one, two := pair(t)
	who := room(t, one, "agent", "agent", "agent")
	a, b := online(t, one, who[0]), online(t, two, who[1])
	alive(t, a, b)
	broker.Stop()
	sent := a.envelope("message", a.who.Room, "halfway")
	a.nackedOrCut(sent, wire.Partial)
	broker.Start(t)
	require.Eventually(t, func() bool { return one.Ready(t) == http.StatusOK && two.Ready(t) == http.StatusOK }, patience, 10*time.Millisecond)

	first := connect(t, one, who[0]).queued(sent, 2)
	require.Equal(t, first, connect(t, two, who[0]).queued(sent, 2), "and once more, on another node, at the same places")
	for _, p := range who[1:] {
		rows := resumeOnce(t, two, p, "0").rows
		require.Equal(t, string(sent), string(rows[len(rows)-1].Envelope))
		require.Equal(t, first[p.ID], rows[len(rows)-1].StreamID)
	}
}
