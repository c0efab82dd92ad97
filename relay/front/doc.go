// Package front is the WebSocket side of the relay: it upgrades HTTP requests,
// turns bytes into messages and messages into bytes, and closes connections for
// what RFC 6455 and DESIGN section 6 forbid. It knows nothing of the relay
// protocol: that is a relay.Handler.
//
// On Linux a plain TCP connection is taken away from Go's net package and served
// by epoll: while it is idle it is one small struct, with no goroutine and no read
// or write buffer.
//
//	        epoll                 workers (bounded)            flushers (few)
//	fd ----one-shot event--> poller --turn--> read, decode --Message--> Peer
//	 ^                                           |                        |
//	 +--------------- armed again ---------------+                     Conn.Send
//	 +<-- one non-blocking write of all that waits --- dirty list <-------+
//
// A connection has at most one turn at a time, and is armed for reading only
// between turns; that is what makes messages come one at a time and in order. All
// writes happen under the connection's lock, so there is never a second writer.
//
// TLS connections, whose bytes may wait decrypted where epoll cannot see them, and
// all connections on other systems, take a goroutine each (blocking.go) behind the
// same decoder, queue, deadlines and bounds.
package front
