// Package port finds ports for servers that tests stop and start again.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports below those that systems give to outgoing connections. One of those could be
// somebody's by the time a server comes back to it.
const first, count = 10_000, 10_000

// given are the ports that this process has got. It is package state because they are the
// process's.
var given sync.Map //nolint:gochecknoglobals // see above

// Free returns a port of the loopback address that nobody listens on, another one each time.
func Free(t testing.TB) int {
	t.Helper()
	for range count {
		port := first + rand.IntN(count)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.Fail(t, "no free port")
	return 0
}

// Address is a free port of the loopback address.
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Free(t))
}
