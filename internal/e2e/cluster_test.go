package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
	"github.com/peerrelay/peerrelay/wire"
)

// clustered starts two whole nodes on one cluster of three NATS servers, three copies of
// each stream, and one database.
func clustered(t *testing.T) (nats *testkit.Cluster, one, two *testkit.Relay) {
	t.Helper()
	nats = testkit.StartCluster(t)
	database := pgtest.URL(t)
	start := func(id string) *testkit.Relay {
		return unlimited(t, testkit.NATSURL(nats.URLs()), testkit.Replicas(3), testkit.Database(database), testkit.NodeID(id))
	}
	return nats, start("one"), start("two")
}

// streamOf is the stream that holds a participant's inbox.
func streamOf(t *testing.T, s *testkit.Relay, who testkit.Participant) string {
	t.Helper()
	var answer struct {
		Stream string `json:"stream"`
	}
	s.Call(t, http.MethodGet, "/v1/participants/"+who.ID+"/inbox", nil, &answer)
	require.NotEmpty(t, answer.Stream)
	return answer.Stream
}

// Two whole nodes on three NATS servers with R3 streams: delivery, order and changes across
// nodes (DESIGN sections 2 and 5), and the server that leads the inboxes is killed under
// load: each envelope has one true verdict, and nothing is lost or there twice.
func TestClusterLosesItsLeader(t *testing.T) {
	t.Parallel()
	nats, one, two := clustered(t)
	who := room(t, one, "agent", "agent", "agent")
	a, b := online(t, one, who[0]), online(t, two, who[1])
	l := newLedger(t)
	l.alive(a, b)
	l.alive(b, a)
	a.leave()
	b.leave()

	followers := []*follower{l.follow(one, who[2]), l.follow(two, who[2])}
	var load sync.WaitGroup
	var done atomic.Bool
	for i, s := range []*testkit.Relay{one, two} {
		load.Go(func() {
			for round := 0; !done.Load(); round++ {
				queued, partial := l.count(wire.Partial)
				if queued+partial < 400 { // all rows have to stay in the inboxes
					from, to := who[i], []testkit.Participant{who[1-i], who[2]}
					l.load(s, from, fmt.Sprintf("node%d-round%d", i, round), 2, to...)
				}
				pause(t, 200*time.Millisecond) // without a leader the refusals come at once
			}
		})
	}
	queuedBeyond := func(n int) func() bool {
		return func() bool { queued, _ := l.count(""); return queued > n }
	}
	require.Eventually(t, queuedBeyond(20), patience, poll)
	leader := nats.Leader(t, streamOf(t, one, who[2]))
	nats.Kill(leader)
	before, _ := l.count("")
	require.Eventually(t, queuedBeyond(before+20), 2*patience, poll, "it goes on without that server")
	nats.Start(t, leader)
	requireReady(t, http.StatusOK, one, two)
	done.Store(true)
	load.Wait()
	_, unavailable := l.count(wire.Unavailable)
	_, partial := l.count(wire.Partial)
	queued, _ := l.count("")
	t.Logf("%d queued, %d unavailable, %d partial", queued, unavailable, partial)

	for i := range 2 { // who has sent it, sends it again
		l.complete(one, who[i])
	}
	for _, f := range followers {
		f.caughtUp()
	}
	l.check(one, who...)
	l.check(two, who...)
}

// A follower that stands still for up to two seconds and comes back behind the others must
// not answer a reader with what it has missed: whoever has seen queued, and reconnects at
// once with the cursor from before, gets the row (FAULTS C09). The reading node talks to
// that follower only.
func TestFollowerThatLagsBehind(t *testing.T) {
	t.Parallel()
	nats := testkit.StartCluster(t)
	database := pgtest.URL(t)
	options := []testkit.Option{testkit.Replicas(3), testkit.Database(database)}
	writer := unlimited(t, append(options, testkit.NATSURL(nats.URLs()), testkit.NodeID("writer"))...)
	who := room(t, writer, "agent", "agent", "agent", "agent", "agent")
	slow := nats.Follower(t, streamOf(t, writer, who[0]))
	reader := unlimited(t, append(options, testkit.NATSURL(nats.URL(slow)), testkit.NodeID("reader"))...)

	l := newLedger(t)
	stop := make(chan struct{})
	var pausing sync.WaitGroup
	pausing.Go(func() {
		random := rand.New(rand.NewPCG(9, 9))
		for {
			nats.Pause(t, slow)
			pause(t, time.Duration(random.Int64N(int64(2*time.Second))))
			nats.Continue(t, slow)
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(random.Int64N(int64(100 * time.Millisecond)))):
			}
		}
	})
	var rounds sync.WaitGroup
	for i, to := range who[1:] {
		rounds.Go(func() { readsWhatIsQueued(t, l, writer, reader, who[0], to, fmt.Sprintf("reader%d", i), 10) })
	}
	rounds.Wait()
	close(stop)
	pausing.Wait()
	l.check(writer, who...)
	l.check(reader, who...)
}

// readsWhatIsQueued sends to a participant through one node and lets it resume at once on
// another, from the row before, again and again.
func readsWhatIsQueued(t *testing.T, l *ledger, writer, reader *testkit.Relay, from, to testkit.Participant, name string, rounds int) {
	cursor := "0"
	for round := range rounds {
		id := fmt.Sprintf("%s-%d", name, round)
		conn, err := client.Dial(t.Context(), writer.RelayURL(), client.Options{Token: from.Credential})
		if err != nil {
			t.Errorf("%s: %v", id, err)
			return
		}
		p := &peer{t: t, conn: conn, who: from}
		stored := l.send(p, id, to)
		_ = conn.Close()
		if !stored {
			continue // its node has lost the stopped server, too
		}
		l.mu.Lock()
		want := l.entries[id].queued[to.ID]
		l.mu.Unlock()
		if got := rowAfter(t, reader, to, cursor); got != want {
			t.Errorf("%s: queued as %s, the first row after %s is %q", id, want, cursor, got)
			return
		}
		cursor = want
	}
}

// rowAfter is the id of the first row that a resume from a cursor brings; connections that
// the node refuses or closes, because it knows nothing for certain, count for nothing.
func rowAfter(t *testing.T, s *testkit.Relay, who testkit.Participant, cursor string) string {
	for range 2000 {
		conn, err := client.Dial(t.Context(), s.RelayURL(), client.Options{Token: who.Credential})
		if err != nil {
			pause(t, poll)
			continue
		}
		first, complete := "", false
		if conn.Resume(t.Context(), cursor, 0) == nil {
			first, complete = firstRow(t, conn)
		}
		_ = conn.Close()
		if complete {
			return first
		}
		pause(t, poll)
	}
	return "no connection"
}

func firstRow(t *testing.T, conn *client.Conn) (first string, complete bool) {
	for {
		frame, err := conn.Receive(t.Context())
		switch {
		case err != nil:
			return "", false
		case frame.Type == wire.ServerDeliver && first == "":
			first = frame.StreamID
		case frame.Type == wire.ServerResumeComplete:
			return first, true
		}
	}
}

// A shutdown while most NATS servers are gone: nobody answers, and each part still gets its
// time, so that the process ends well (FAULTS E08).
func TestShutdownWithoutALeader(t *testing.T) {
	t.Parallel()
	nats := testkit.StartCluster(t)
	s := unlimited(t, testkit.Replicas(3), testkit.NATSURL(nats.URLs()))
	who := room(t, s, "agent", "agent")
	a := online(t, s, who[0])
	nats.Kill(0)
	nats.Kill(1)
	a.send(a.envelope("control", who[1].ID, "in-flight"))
	s.Stop(t)
	before := a.closed(wire.CloseGoingAway)
	require.LessOrEqual(t, len(before), 1)
	for _, frame := range before {
		require.Equal(t, wire.ServerNack, frame.Type, "%s", frame.Raw)
	}
}
