// Package natsd runs a NATS server with JetStream inside the relay's process (DESIGN
// sections 2 and 5), and says how the relay's connections to any NATS server behave.
//
// # Folder
//
//	<data>/nats/jetstream/      the streams
//	<data>/nats/port            the listener's port, kept over restarts
//	<data>/nats/context.json    for nats --context, user debug; 0600
//	<data>/nats/edge.json       the same for nodes elsewhere, user edge; 0600
//	<data>/keys/nats-*.password generated; 0600
//
// The caller holds the lock of <data>: two servers on one store destroy it.
//
// # Accounts
//
// The streams and the live feed belong to account RELAY, whose user relay may do all. Its
// user edge, where there is one, may do what a node without a database does. User debug,
// for people with the nats program, lives in an account of its own, which sees of RELAY
// only what is exported to it: the live feed, and those JetStream requests that look. The
// second account is what makes it read-only: within one account, permissions check the
// subject of a request but not where its answer goes, so a harmless question with the
// reply subject of an inbox would write into that inbox.
//
// Making a consumer is a request with a body, and a consumer can be made to deliver to
// any subject. So these requests don't pass by themselves: the gate of this package
// checks and forwards them.
package natsd
