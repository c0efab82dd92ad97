package api

import "time"

// TokenCheck is the body of POST /internal/v1/authenticate.
type TokenCheck struct {
	TokenHash []byte `json:"token_hash"` // BLAKE2b-256 of the token, which stays with the edge node
}

// Identity answers POST /internal/v1/authenticate.
type Identity struct {
	TenantID      string    `json:"tenant_id"`
	RoomID        string    `json:"room_id"`
	ParticipantID string    `json:"participant_id"`
	DeviceID      string    `json:"device_id"`
	CredentialID  string    `json:"credential_id"`
	Role          string    `json:"role"`
	Kind          string    `json:"kind"`
	ExpiresAt     time.Time `json:"expires_at"`
	Frozen        bool      `json:"frozen"`
}

// CredentialsCheck is the body of POST /internal/v1/credentials/valid.
type CredentialsCheck struct {
	TenantID      string   `json:"tenant_id"`
	CredentialIDs []string `json:"credential_ids"` // 1 to 1000
}

// ValidCredentials answers POST /internal/v1/credentials/valid.
type ValidCredentials struct {
	Valid []string `json:"valid"` // those that would authenticate now
}

// RoomsCheck is the body of POST /internal/v1/rooms/versions.
type RoomsCheck struct {
	TenantID string   `json:"tenant_id"`
	RoomIDs  []string `json:"room_ids"` // 1 to 1000
}

// RoomVersions answers POST /internal/v1/rooms/versions.
type RoomVersions struct {
	Versions map[string]int64 `json:"versions"` // of those of the rooms that exist, by id
}

// Roster answers GET /internal/v1/sessions/{id}/roster.
type Roster struct {
	Room         Room        `json:"room"`
	Participants []RosterRow `json:"participants"` // in the order they joined
}

// RosterRow is a current participant.
type RosterRow struct {
	ParticipantID string    `json:"participant_id"`
	DeviceID      string    `json:"device_id"`
	Role          string    `json:"role"`
	JoinedAt      time.Time `json:"joined_at"`
}

// Pong answers GET /internal/v1/ping.
type Pong struct {
	OK bool `json:"ok"`
}

// EnvelopeItem is one envelope. Whatever else is stored of it is read from its bytes.
type EnvelopeItem struct {
	TenantID string `json:"tenant_id"`
	Envelope []byte `json:"envelope"` // exactly as the client sent it
}

// EnvelopeItems is the body of POST /internal/v1/history: either member.
type EnvelopeItems struct {
	Message  *EnvelopeItem  `json:"message,omitempty"`
	Messages []EnvelopeItem `json:"messages,omitempty"` // 1 to 512, with together at most 4 MiB of envelopes
}

// TraceItem is the trace of one private message. Nothing of the message's content
// is in it.
type TraceItem struct {
	TenantID  string     `json:"tenant_id"`
	RoomID    string     `json:"room_id"`
	MessageID string     `json:"message_id"`
	From      string     `json:"from"` // participant
	To        string     `json:"to"`   // participant
	TS        uint64     `json:"ts"`   // Unix milliseconds, the sender's clock
	File      *TraceFile `json:"file,omitempty"`
	Digest    []byte     `json:"digest"` // BLAKE2b-256 of the envelope
}

// TraceFile is the file header that an envelope declares.
type TraceFile struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	SizeBytes uint64 `json:"size_bytes"`
}

// TraceItems is the body of POST /internal/v1/traces: either member.
type TraceItems struct {
	Message  *TraceItem  `json:"message,omitempty"`
	Messages []TraceItem `json:"messages,omitempty"` // 1 to 512
}

// Stored answers one envelope or trace: with 201 the first time, with 200 when the same
// was stored before.
type Stored struct {
	Duplicate bool `json:"duplicate"`
}

// Answers answers several, in their order.
type Answers struct {
	Answers []Answer `json:"answers"`
}

// Answer is what one alone would have been answered.
type Answer struct {
	Status int    `json:"status"`
	Error  string `json:"error,omitzero"`
}

// Accepted answers POST /internal/v1/notices.
type Accepted struct {
	Accepted bool `json:"accepted"`
}
