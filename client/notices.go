package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// NoticeRow is a notice as the relay has accepted it. Everything beside the envelope is the
// relay's word.
type NoticeRow struct {
	MessageID  string    `json:"message_id"`
	From       string    `json:"from"` // participant
	Gen        uint64    `json:"gen"`
	AcceptedAt time.Time `json:"accepted_at"` // by the relay's clock
	ExpiresAt  time.Time `json:"expires_at"`
	Envelope   []byte    `json:"envelope"` // exactly as it was sent, signed and sealed
}

// Notices lists the room's notices that were accepted since this device joined, expired ones
// too. After an error it ends.
func (d *Device) Notices(ctx context.Context, room string, order Order) iter.Seq2[NoticeRow, error] {
	return checked("read the notices", pages(func(cursor string) ([]NoticeRow, string, error) {
		var page struct {
			Notices    []NoticeRow `json:"notices"`
			NextCursor string      `json:"next_cursor"`
		}
		err := d.inSession(ctx, room, "/notices", request{method: http.MethodGet, query: orderQuery(cursor, order), answer: &page})
		return page.Notices, page.NextCursor, err
	}), func(n *NoticeRow) bool { return plausible(n.MessageID, n.From, n.Envelope) })
}

// TracedFile is what a trace says of a file.
type TracedFile struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	SizeBytes uint64 `json:"size_bytes"`
	Declared  bool   `json:"declared"` // it is what the sender said of it, which may be untrue
}

// TraceRow says that a private message between agents was sent, without its content. No file is
// not "no file": the sender may not have declared one.
type TraceRow struct {
	Event       string       `json:"event"` // message.private
	MessageID   string       `json:"message_id"`
	From        string       `json:"from"` // participant
	To          string       `json:"to"`   // participant
	TS          uint64       `json:"ts"`   // Unix milliseconds, the sender's clock
	CommittedAt time.Time    `json:"committed_at"`
	File        *TracedFile  `json:"file,omitzero"`  // the first one
	Files       []TracedFile `json:"files,omitzero"` // all of them, where there are several
}

// Traces lists the audit of private messages between agents, as the room's owner. After an
// error it ends.
func (d *Device) Traces(ctx context.Context, room string, order Order) iter.Seq2[TraceRow, error] {
	return checked("read the traces", pages(func(cursor string) ([]TraceRow, string, error) {
		var page struct {
			Traces     []TraceRow `json:"traces"`
			NextCursor string     `json:"next_cursor"`
		}
		err := d.inSession(ctx, room, "/traces", request{method: http.MethodGet, query: orderQuery(cursor, order), answer: &page})
		return page.Traces, page.NextCursor, err
	}), func(t *TraceRow) bool { return checkIDs(t.From, t.To) == nil })
}
