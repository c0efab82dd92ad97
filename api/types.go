package api

import "time"

// Room is a room as its members see it.
type Room struct {
	ID              string    `json:"room_id" schema:"uuid"`
	Kind            string    `json:"kind"`
	Scheme          string    `json:"scheme" schema:"sender_keys|mls|double_ratchet|none"`
	PrivateMessages string    `json:"private_messages" schema:"allowed|refused"`
	State           string    `json:"state" schema:"CREATED|ACTIVE|REKEYING|ARCHIVED"`
	Version         int64     `json:"version"`            // rises with every change of the room or of who is in it
	Activated       *bool     `json:"activated,omitzero"` // direct rooms that are encrypted: the owner has written first, since the last new start
	CreatedAt       time.Time `json:"created_at"`

	ParticipantID string       `json:"participant_id,omitzero" schema:"uuid"` // who the device that asks is there; absent in lists
	Participants  []RoomMember `json:"participants,omitzero"`                 // GET /v1/rooms/{id} only
}

// RoomMember is one participant of a Room, with its device's public keys. A device that the
// operator made has none. It answers GET /v1/sessions/{id}/participants/{participant_id}, too,
// which shows former participants.
type RoomMember struct {
	ParticipantID string    `json:"participant_id" schema:"uuid"`
	DeviceID      string    `json:"device_id" schema:"uuid"`
	Role          string    `json:"role" schema:"owner|controller|agent|viewer"`
	JoinedAt      time.Time `json:"joined_at"`
	LeftAt        time.Time `json:"left_at,omitzero"` // absent: is in the room

	IdentityKey        string `json:"identity_key,omitzero"`        // base64; Ed25519, 32 bytes
	AgreementKey       string `json:"agreement_key,omitzero"`       // base64; X25519, 32 bytes
	AgreementSignature string `json:"agreement_signature,omitzero"` // base64; by identity_key over agreement_key, 64 bytes
}

// Rooms answers GET /v1/rooms.
type Rooms struct {
	Rooms      []Room `json:"rooms"`
	NextCursor string `json:"next_cursor,omitzero"` // absent on the last page
}

// NewRoom is the body of POST /v1/rooms. Every member may be left out.
type NewRoom struct {
	Kind            string `json:"kind,omitzero" schema:"group|direct"`                          // group (default) or direct
	Scheme          string `json:"scheme,omitzero" schema:"sender_keys|mls|double_ratchet|none"` // default: sender_keys, in a direct room double_ratchet
	PrivateMessages string `json:"private_messages,omitzero" schema:"allowed|refused"`           // allowed (default) or refused
}

// NewMember is the body of POST /v1/rooms/{id}/members.
type NewMember struct {
	Role       string `json:"role" schema:"owner|controller|agent|viewer"`
	DeviceID   string `json:"device_id,omitzero" schema:"uuid"`           // the operator may leave it out: a new local device that is already ACTIVE
	Kind       string `json:"kind,omitzero" schema:"session|development"` // operator only, of the credential: session (default) or development
	TTLSeconds *int64 `json:"ttl_seconds,omitzero" schema:"1..31622400"`  // operator only, of the credential; default 24 h
}

// Member answers POST /v1/rooms/{id}/members.
type Member struct {
	ParticipantID string    `json:"participant_id" schema:"uuid"`
	RoomID        string    `json:"room_id" schema:"uuid"`
	DeviceID      string    `json:"device_id" schema:"uuid"`
	Role          string    `json:"role" schema:"owner|controller|agent|viewer"`
	JoinedAt      time.Time `json:"joined_at"`
	Credential    string    `json:"credential,omitzero"` // for the operator, like what follows; shown once, here
	CredentialID  string    `json:"credential_id,omitzero" schema:"uuid"`
	Kind          string    `json:"kind,omitzero"`
	ExpiresAt     time.Time `json:"expires_at,omitzero"`
	Warning       string    `json:"warning,omitzero"` // done, but not known to every node yet
}

// Removed answers DELETE /v1/rooms/{id}/members/{participant_id}.
type Removed struct {
	ParticipantID string `json:"participant_id" schema:"uuid"`
	RoomID        string `json:"room_id" schema:"uuid"`
}

// Participant is one row of Participants.
type Participant struct {
	ParticipantID string    `json:"participant_id" schema:"uuid"`
	DeviceID      string    `json:"device_id" schema:"uuid"`
	Role          string    `json:"role" schema:"owner|controller|agent|viewer"`
	JoinedAt      time.Time `json:"joined_at"`

	Generation *PublishedKey `json:"generation,omitzero"` // the newest, where one was published
}

// Participants answers GET /v1/sessions/{id}/participants.
type Participants struct {
	Participants []Participant `json:"participants"`
	NextCursor   string        `json:"next_cursor,omitzero"` // absent on the last page
}

// NewCredential is the body of POST /v1/rooms/{id}/credentials and of POST
// /v1/participants/{id}/credentials, where participant_id is left out.
type NewCredential struct {
	ParticipantID string `json:"participant_id,omitzero" schema:"uuid"`
	Kind          string `json:"kind,omitzero" schema:"session|development"` // session (default) or development
	TTLSeconds    *int64 `json:"ttl_seconds,omitzero" schema:"1..31622400"`  // default 24 h, at most 366 days
}

// Credential answers what mints one.
type Credential struct {
	Credential    string    `json:"credential"` // shown once, here
	CredentialID  string    `json:"credential_id" schema:"uuid"`
	ParticipantID string    `json:"participant_id" schema:"uuid"`
	RoomID        string    `json:"room_id" schema:"uuid"`
	Kind          string    `json:"kind"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// Revoked answers what revokes credentials.
type Revoked struct {
	Revoked int `json:"revoked"` // how many this request revoked; 0 when it was done before
}

// Freeze is the body and the answer of /v1/freeze.
type Freeze struct {
	Frozen bool `json:"frozen"`
}

// Inbox answers GET /v1/participants/{id}/inbox.
type Inbox struct {
	ParticipantID string   `json:"participant_id" schema:"uuid"`
	RoomID        string   `json:"room_id" schema:"uuid"`
	Stream        string   `json:"stream"`
	Subject       string   `json:"subject"`
	Messages      uint64   `json:"messages"`
	OldestID      *string  `json:"oldest_id"` // null when the inbox is empty
	NewestID      *string  `json:"newest_id"`
	Commands      []string `json:"commands"` // of the nats program, which show it
}

// Check is one part of the process.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitzero"` // why not
}

// Status answers GET /v1/status.
type Status struct {
	Version string    `json:"version"`
	NodeID  string    `json:"node_id"`
	Listen  string    `json:"listen"`
	TLS     bool      `json:"tls"` // spoken at Listen: wss and https
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"` // the server's clock
	Ready   bool      `json:"ready"`
	Frozen  bool      `json:"frozen"`
	Checks  []Check   `json:"checks"`
}

// Health answers /healthz and /readyz. The public listener names the parts and not
// what is wrong with them.
type Health struct {
	OK       bool     `json:"ok"`
	Degraded []string `json:"degraded,omitempty"` // names of the checks that fail
}

// Error is the body of every refusal.
type Error struct {
	Error  string `json:"error"` // one of the codes in docs/protocol.md
	Detail string `json:"detail,omitzero"`

	Epoch *uint64 `json:"epoch,omitzero"` // epoch_conflict: the one that the room is in
}
