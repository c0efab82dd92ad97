package e2e_test

import (
	"net/http"
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
