// Package postgres implements the interfaces of package store on PostgreSQL
// (DESIGN section 4).
//
// Row-level security decides what a statement sees, and what it decides by is set per
// transaction: every transaction begins with one statement that says who acts (schema,
// 00001_settings.sql). An ordinary call is one round trip: that statement and its own
// one, pipelined without BEGIN and COMMIT, which PostgreSQL runs as one transaction up
// to the Sync message at the end.
//
//	AppendMessage ─┐                     ┌─ flusher 0 ─ one statement per tenant ─┐
//	AppendMessage ─┼─ by room, bounded ──┤                                        ├─ one commit
//	AppendMessage ─┘                     └─ flusher 1 ─ ...                       ┘
//
// A flusher takes what waits whenever it is free, so that a lone message goes at once
// and many share a commit. All messages of a room pass through the same flusher.
package postgres
