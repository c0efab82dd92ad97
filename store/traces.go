package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// FileHeader describes a file: what a sender declared in its envelope's file header,
// or what the API counted on the plaintext path.
type FileHeader struct {
	Name      string
	MIMEType  string
	SizeBytes uint64
}

// MaxTraceFiles bounds the files of one message.
const MaxTraceFiles = 64

// Trace is the durable audit event message.private of one private message (RELAY,
// "Before delivering an agent-to-agent"). It holds nothing of the content.
type Trace struct {
	Tenant    uuid.UUID
	Room      uuid.UUID
	MessageID string
	From      uuid.UUID // participant
	To        uuid.UUID // participant
	TS        uint64    // Unix milliseconds, the sender's clock
	// Declared says that Files, then at most one, is what the sender wrote; without
	// it the API has verified each SizeBytes (plaintext path).
	Declared bool
	Files    []FileHeader
	// Digest is the BLAKE2b-256 of the envelope: it tells a resend from another message
	// under the same id, and is never handed out.
	Digest [32]byte
}

// StoredTrace is a committed trace, without its Digest.
type StoredTrace struct {
	Trace
	Position    int64
	CommittedAt time.Time
}

// TraceWriter commits traces. They are an audit: nothing ever changes or deletes one.
type TraceWriter interface {
	// AppendTrace commits the trace before it returns. The same id and digest from the
	// same sender to the same recipient again: Appended.Duplicate. The id under another
	// digest, sender or recipient, or of a message in history: a *wire.Error with
	// HistoryConflict. A room that refuses private messages: a *wire.Error with
	// PrivateRefused. A shape that traces do not take (an id that history does not take,
	// a sender who is the recipient, more than MaxTraceFiles files or more than one
	// declared, a file outside the bounds of a file header): a *wire.Error with
	// MalformedRequest. ErrNotFound for a room the tenant does not have, or a sender or
	// recipient who is not a current participant of it; a *wire.Error with RoomIsArchived.
	// On any other error the trace may or may not be stored, and the same call again
	// finds out. Concurrent calls share commits, as those of History do.
	AppendTrace(ctx context.Context, t Trace) (Appended, error)
}

// TraceReader lists traces for the owner.
type TraceReader interface {
	// TracePage: as HistoryReader.HistoryPage.
	TracePage(ctx context.Context, tenant, room uuid.UUID, page Page) (rows []StoredTrace, more bool, err error)
}
