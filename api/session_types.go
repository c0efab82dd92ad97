package api

import "time"

// HistoryRow is one row of History: what was stored, and the envelope exactly as it was
// sent.
type HistoryRow struct {
	MessageID  string    `json:"message_id"`
	From       string    `json:"from"` // participant
	Kind       string    `json:"kind"`
	Gen        uint64    `json:"gen"`
	KID        string    `json:"kid,omitzero"`
	ReceivedAt time.Time `json:"received_at"`
	Envelope   []byte    `json:"envelope"` // base64
}

// History answers GET /v1/sessions/{id}/history.
type History struct {
	Messages   []HistoryRow `json:"messages"`
	NextCursor string       `json:"next_cursor,omitzero"` // absent on the last page
}

// NewGeneration is the body of POST /v1/sessions/{id}/sender-generations.
type NewGeneration struct {
	KID        string `json:"kid"`         // 16 bytes in base64url, 22 characters
	SessionKey string `json:"session_key"` // public; base64, 1 to 1,024 bytes
}

// Generation answers POST /v1/sessions/{id}/sender-generations.
type Generation struct {
	Gen         uint64    `json:"gen"`
	KID         string    `json:"kid"`
	AllocatedAt time.Time `json:"allocated_at"`
}

// PublishedKey is a participant's newest sender generation.
type PublishedKey struct {
	Gen        uint64 `json:"gen"`
	KID        string `json:"kid"`
	SessionKey []byte `json:"session_key"` // base64
}

// PresenceRow is one row of Presences.
type PresenceRow struct {
	ParticipantID string     `json:"participant_id"`
	Online        bool       `json:"online"`
	Node          string     `json:"node,omitzero"`
	Since         *time.Time `json:"since,omitzero"`   // connected without a gap since
	RTTMillis     *int64     `json:"rtt_ms,omitzero"`  // by the relay's clock, at least 1; absent before the first pong
	SeenAt        *time.Time `json:"seen_at,omitzero"` // when its node last said so
}

// Presences answers GET /v1/sessions/{id}/presence.
type Presences struct {
	AsOf         time.Time     `json:"as_of"`         // when it was looked up
	LeaseSeconds int           `json:"lease_seconds"` // a node that dies is believed for so long
	Presence     []PresenceRow `json:"presence"`
	NextCursor   string        `json:"next_cursor,omitzero"` // absent on the last page
}

// NoticeRow is one row of Notices.
type NoticeRow struct {
	MessageID  string    `json:"message_id"`
	From       string    `json:"from"` // participant
	Gen        uint64    `json:"gen"`
	AcceptedAt time.Time `json:"accepted_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Envelope   []byte    `json:"envelope"` // base64
}

// Notices answers GET /v1/sessions/{id}/notices.
type Notices struct {
	Notices    []NoticeRow `json:"notices"`
	NextCursor string      `json:"next_cursor,omitzero"` // absent on the last page
}

// TracedFile is a file of a private message, as its sender declared it or, where declared
// is false, with a size that the API has counted. Name and type are the sender's words
// either way.
type TracedFile struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	SizeBytes uint64 `json:"size_bytes"`
	Declared  bool   `json:"declared"`
}

// TraceRow is one row of Traces.
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

// Traces answers GET /v1/sessions/{id}/traces.
type Traces struct {
	Traces     []TraceRow `json:"traces"`
	NextCursor string     `json:"next_cursor,omitzero"` // absent on the last page
}

// RuleRow is what a room's owner has set. Where nothing is set, a right is given.
type RuleRow struct {
	Rule          string `json:"rule"`                    // message.send or session.alert.emit
	ParticipantID string `json:"participant_id,omitzero"` // absent: whoever has no row of their own
	Allowed       bool   `json:"allowed"`
}

// Rules answers GET /v1/sessions/{id}/rules.
type Rules struct {
	Rules []RuleRow `json:"rules"`
}

// NewRule is the body of PUT /v1/sessions/{id}/rules.
type NewRule struct {
	Rule          string  `json:"rule" schema:"message.send|session.alert.emit"`
	ParticipantID *string `json:"participant_id,omitzero" schema:"uuid"` // absent: whoever has no row of their own
	Allowed       *bool   `json:"allowed" schema:"required"`
}

// NewPlainMessage is the body of POST /v1/sessions/{id}/messages.
type NewPlainMessage struct {
	ID    *string `json:"id,omitzero"` // with ts: the request may be repeated
	TS    *uint64 `json:"ts,omitzero"` // Unix milliseconds
	To    *string `json:"to,omitzero"` // participant; absent: everybody else
	Parts []Part  `json:"parts"`       // 1 to 32
}

// Part is a text or a file of a plaintext message, in the request and in the envelope.
type Part struct {
	Type      string  `json:"type"`                // text or file
	Text      *string `json:"text,omitzero"`       // of a text, not empty
	Name      *string `json:"name,omitzero"`       // of a file, 1 to 255 code points
	MIMEType  *string `json:"mime_type,omitzero"`  // of a file, 1 to 127 code points
	SizeBytes *uint64 `json:"size_bytes,omitzero"` // of a file; checked where it is given
	Data      *string `json:"data,omitzero"`       // of a file, base64; at most 700,000 bytes
}

// Queued names one recipient's row.
type Queued struct {
	ParticipantID string `json:"participant_id"`
	StreamID      string `json:"stream_id"`
}

// Sent answers POST /v1/sessions/{id}/messages.
type Sent struct {
	MessageID string   `json:"message_id"`
	Queued    []Queued `json:"queued"` // one per recipient
}
