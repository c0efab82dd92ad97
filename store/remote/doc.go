// Package remote is the store of an edge node: store.Edge over HTTP, answered by the
// internal endpoints of a node that has a database (DESIGN sections 2 and 9).
//
//	AppendMessage ─┐
//	AppendMessage ─┼─ queue ─ a few requests in flight ─ POST /internal/v1/history
//	AppendMessage ─┘          each with all that waits
//
// What the other side refuses comes back as the errors that store documents, and only
// when the answer is one of those the call may get, with exactly its status (RELAY,
// "Each code passes through only with the status listed"). Whatever else happens is an
// error that is none of them, and after it the message may be stored: callers refuse.
//
// Nothing is sent twice. A connection that turns out to be dead before a byte of the
// request was written is replaced by net/http; that is all.
package remote
