package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// A request that lasts must not take the time that the sockets, NATS and PostgreSQL
// need to end in order.
func TestStopDuringALongRequest(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t)
	who := room(t, s, "agent", "agent")
	p := online(t, s, who[0])
	trace, err := http.Get(s.PrivateURL() + "/debug/pprof/trace?seconds=40") // comes bit by bit
	require.NoError(t, err)
	defer func() { require.NoError(t, trace.Body.Close()) }()
	began := time.Now()
	s.Stop(t)
	require.Less(t, time.Since(began), patience/2)
	p.closed(wire.CloseGoingAway)
}

// The stop signal for the API node, and for an edge, with envelopes in flight: the process
// ends well, each envelope has at most one verdict, every queued row is there, and the same
// bytes sent again make neither a second row nor a second row of history (FAULTS E08).
func TestStopSignalsOfEdgeAndAPI(t *testing.T) {
	t.Parallel()
	broker := testkit.StartBroker(t)
	api := testkit.StartApart(t, testkit.Role("api"), testkit.NATSURL(broker.URL()))
	edge := testkit.StartEdgeApart(t, api, fast...)
	who := room(t, api, "agent", "agent", "owner")
	for name, stopped := range map[string]*testkit.Relay{"api": api, "edge": edge} {
		a := newAccount(t)
		var senders sync.WaitGroup
		for i := range 4 {
			p := connect(t, edge, who[0])
			senders.Go(func() {
				if err := a.load(p, fmt.Sprintf("%s-%d", name, i), 60, 2, who[1]); err != nil {
					requireClose(t, err, wire.CloseGoingAway)
				}
			})
		}
		require.Eventually(t, func() bool { return a.total.Load() >= 60 }, patience, poll)
		stopped.Stop(t)
		senders.Wait()
		stopped.StartAgain(t)
		requireReady(t, http.StatusOK, api, edge)
		for reason := range nackedBecause(a) {
			require.Contains(t, []wire.Code{wire.Unavailable, wire.Partial}, reason)
		}
		a.forgive()
		a.resend(edge, who[0], 2)
		for _, p := range who[1:] {
			a.check(p, resumeOnce(t, edge, p, "0").rows)
		}
		requireHistoryOnce(t, api, who[2], a)
	}
}

func nackedBecause(a *account) map[wire.Code]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	reasons := make(map[wire.Code]bool)
	for _, reason := range a.nacked {
		reasons[reason] = true
	}
	return reasons
}

// forgive forgets the nacks of session messages, so that their bytes are sent again, which
// RELAY allows after them.
func (a *account) forgive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.rooms {
		if a.rooms[id] {
			delete(a.nacked, id)
		}
	}
}

// requireHistoryOnce demands that history has every session message of the account once.
func requireHistoryOnce(t *testing.T, s *testkit.Relay, who testkit.Participant, a *account) {
	t.Helper()
	times := make(map[string]int)
	for cursor := ""; ; {
		page := session[struct {
			Messages []struct {
				MessageID string `json:"message_id"`
				Envelope  []byte `json:"envelope"`
			} `json:"messages"`
			NextCursor string `json:"next_cursor"`
		}](t, s, who, http.MethodGet, "/history?limit=500"+cursor, nil, http.StatusOK)
		for _, m := range page.Messages {
			if sent, mine := a.sent[m.MessageID]; mine {
				require.Equal(t, sent, string(m.Envelope))
				times[m.MessageID]++
			}
		}
		if page.NextCursor == "" {
			break
		}
		cursor = "&cursor=" + page.NextCursor
	}
	for id, sent := range a.rooms {
		if sent {
			require.Equal(t, 1, times[id], id)
		}
	}
}
