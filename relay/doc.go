// Package relay is the protocol core: connections and what they may do,
// admission, fan-out, resume, heartbeat. It knows no sockets, no SQL and no NATS
// types; it is handed a store, inboxes and a cluster node, and relay/front hands
// it connections.
package relay
