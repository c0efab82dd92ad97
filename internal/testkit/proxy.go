package testkit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/fault"
)

// Proxied is a link to a NATS server that a test breaks.
type Proxied struct{ *fault.Proxy }

// Proxy puts a link that can break before the NATS server at url.
func Proxy(t testing.TB, url string) Proxied {
	t.Helper()
	p, err := fault.NewProxy(strings.TrimPrefix(url, "nats://"))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return Proxied{p}
}

// URL is where clients of the server connect to.
func (p Proxied) URL() string { return "nats://" + p.Addr() }
