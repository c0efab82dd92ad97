package relay

import (
	"net/netip"

	"github.com/peerrelay/peerrelay/wire"
)

// Conn is what the protocol core needs of a connection; relay/front implements
// it. All methods may be called from any goroutine, and none blocks on the peer.
type Conn interface {
	// Send queues one text message; msg is copied before Send returns. It reports
	// false when the connection is closed or closing. When the queue is over
	// MaxQueueFrames or MaxQueueBytes the connection closes itself with 1008
	// queue_full.
	Send(msg []byte) bool

	// Queue is Send without the writing, for frames that belong together and share
	// one write. Flush, Send and the end of a Message call write them; one of these
	// must follow.
	Queue(msg []byte) bool

	// Flush writes what Queue left.
	Flush()

	// Close sends what is queued, then a close frame, and ends the connection
	// within a bounded time whatever the peer does. Nothing that follows in the
	// read buffer is handed over. Only the first call counts. With
	// wire.CloseAuth what is queued is dropped instead: after a revocation was
	// answered, nothing more is delivered.
	Close(code wire.CloseCode, reason string)

	// Authenticated moves the connection out of the pre-authentication count of
	// its address and lifts the hello deadline.
	Authenticated()

	// WhenDrained calls f once, on a goroutine of the front, as soon as fewer than
	// bytes bytes wait to be written; also when the connection closes. At most one
	// f is held at a time. This is how a replay waits for a slow reader without a
	// goroutine.
	WhenDrained(bytes int, f func())

	// RemoteAddr is the peer's address.
	RemoteAddr() netip.AddrPort
}

// Handler makes the protocol side of connections.
type Handler interface {
	// Open is called once for each upgraded connection, before any message.
	Open(c Conn) Peer
}

// Peer is the protocol side of one connection. Message calls of one connection
// come one at a time and in order; Closed comes once, after the last of them.
type Peer interface {
	// Message handles one complete text message of at most wire.MaxMessage bytes of
	// valid UTF-8. It may block while it stores; msg is valid only until it
	// returns.
	Message(msg []byte)

	// Closed says the connection is gone, and with which code it was closed (0 when
	// the peer vanished).
	Closed(code wire.CloseCode)
}
