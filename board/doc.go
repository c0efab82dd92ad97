// Package board is the Board of a room: cards and the events that change them, whose
// content is sealed and signed by clients and opaque to the server, and the hints that
// tell participants of an event (RELAY, "Durable Board hints").
//
// An event commits together with its place in an outbox; package hints writes from
// there into the participants' inboxes. A crash in between delays or repeats a hint, and
// loses none.
package board
