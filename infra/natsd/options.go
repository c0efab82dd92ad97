package natsd

import (
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// Handlers are told about a connection; each may be nil. They run on goroutines of the
// client library, one at a time, and must not block.
type Handlers struct {
	Disconnected func(*nats.Conn, error)
	Reconnected  func(*nats.Conn)
	Closed       func(*nats.Conn)
	Error        func(*nats.Conn, *nats.Subscription, error) // slow consumer, permissions
}

// ConnOptions is how every connection of the relay behaves, to the embedded server and
// to an external one:
//
//   - It reconnects for ever, first at once and then with jittered waits up to a second.
//   - While it is not connected, publishing fails at once. The client library would keep
//     such messages and send them later, when their sender has long been told that they
//     failed.
//   - A dead link is seen within six seconds.
func ConnOptions(name string, h Handlers) []nats.Option {
	return []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.ReconnectBufSize(-1),
		nats.Timeout(2 * time.Second),
		nats.PingInterval(2 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(5 * time.Second),
		nats.DrainTimeout(5 * time.Second),
		nats.PermissionErrOnSubscribe(true),
		nats.DisconnectErrHandler(h.Disconnected),
		nats.ReconnectHandler(h.Reconnected),
		nats.ClosedHandler(h.Closed),
		nats.ErrorHandler(h.Error),
	}
}

// reconnectDelay is the wait after all servers were tried attempts times in vain: 50 ms
// doubling to one second, less a random half of it.
func reconnectDelay(attempts int) time.Duration {
	d := min(50*time.Millisecond<<min(max(attempts-1, 0), 10), time.Second)
	return d - rand.N(d/2)
}
