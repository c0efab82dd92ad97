// Package inbox keeps what waits for each participant: the contract, and its
// implementation on NATS JetStream.
//
// A row is stored once per recipient before anything is delivered, and each row
// has a stream id that orders it within its inbox (DESIGN section 5). The package
// also carries the live feed: after a message is stored for every recipient, each
// node with a connection in that room is told once.
package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// RowKind tells envelopes from the server's own rows (header Relay-Kind).
type RowKind uint8

// Kinds of rows.
const (
	RowEnvelope    RowKind = iota // an envelope, byte for byte, without headers
	RowBoardUpdate                // small JSON, Relay-Kind: board.update
	RowRoomEvent                  // small JSON, Relay-Kind: room.event
)

// Message is one payload on its way into the inboxes of its recipients.
type Message struct {
	Room    uuid.UUID
	To      []uuid.UUID // participants, each once, at least one
	Kind    RowKind
	Payload []byte // the caller's again once Write has returned, whatever it returned

	// Received is when the relay received the message; it travels with the live
	// announcement (to the microsecond) and measures how long delivery took.
	Received time.Time
}

// Row is one stored row of one inbox. Payload is shared and must not be changed.
type Row struct {
	ID      wire.StreamID
	Kind    RowKind
	Payload []byte
}

// Bounds describes one inbox and its stream at one moment, as the stream's leader
// knows it.
type Bounds struct {
	Incarnation uint64
	StreamFirst uint64 // first sequence of the whole stream (last+1 when empty); may be lower unless this inbox is empty
	StreamLast  uint64 // last sequence of the whole stream, 0 when nothing was ever stored
	Oldest      uint64 // oldest sequence of this inbox, 0 when it is empty
	Newest      uint64 // newest sequence of this inbox, 0 when it is empty
	Rows        uint64 // rows of this inbox; only Describe knows it, else 0
}

// Errors of Inboxes.
var (
	// ErrUnavailable: not stored, or it is not known whether it was stored for every
	// recipient. Nothing was announced live.
	ErrUnavailable = errors.New("inbox storage is unavailable")
	// ErrTooLarge: the message does not fit what NATS takes in one piece. Nothing was stored.
	ErrTooLarge = errors.New("message is too large for the inboxes")
	// ErrClosed: the inboxes are closing.
	ErrClosed = errors.New("inboxes are closed")
)

// Writer stores messages.
type Writer interface {
	// Write stores the payload once for every recipient, announces it live, and
	// returns the stream ids in the order of m.To. On an error some recipients may
	// have the row (which is why a session message then answers "partial"); none was
	// delivered live.
	Write(ctx context.Context, m Message) ([]wire.StreamID, error)

	// Complete is Write for bytes that may have been written before: it looks into
	// each recipient's inbox for them, writes only what is missing, announces only
	// that, and returns the found or new stream ids in the order of m.To.
	Complete(ctx context.Context, m Message) ([]wire.StreamID, error)
}

// Reader replays inboxes.
type Reader interface {
	// Bounds asks the leader of the stream.
	Bounds(ctx context.Context, room, participant uuid.UUID) (Bounds, error)

	// Read returns rows with after < sequence <= upto in rising order, at most limit
	// of them and about 256 KiB (but at least one), and whether more follow. It retries while a replica lags behind upto.
	Read(ctx context.Context, room, participant uuid.UUID, after, upto uint64, limit int) (rows []Row, more bool, err error)
}

// Copy is one recipient's row of a live message.
type Copy struct {
	Participant uuid.UUID
	ID          wire.StreamID
}

// Live is what has just been stored for participants of one room.
type Live struct {
	Room    uuid.UUID
	Kind    RowKind
	Copies  []Copy
	Payload []byte

	Received time.Time // of the Message, by the writing node's clock
}

// Sink receives the live feed of the rooms this node has joined. Calls for one
// room come one at a time, in the order they were announced. The sink must not
// block and must not keep Live or its Copies; the payload it may keep, unchanged.
type Sink interface {
	Deliver(live *Live)
	// Missed says that live messages may have been lost, for one room or, with
	// uuid.Nil, for all: every connection there must read its inbox from the last
	// row it is sure of and push the rest.
	Missed(room uuid.UUID)
}

// Feed is the live feed. Join and Leave are cheap and counted by the caller: one
// Join per room, one Leave.
type Feed interface {
	// Join returns once rows that are stored from now on will reach the sink.
	Join(ctx context.Context, room uuid.UUID) error
	Leave(room uuid.UUID)
}

// Inboxes is all of it.
type Inboxes interface {
	Writer
	Reader
	Feed
	// Ready reports why rows cannot be stored right now, nil when they can. It is
	// false from the first write that could not be stored until a probe succeeds.
	Ready() error
}
