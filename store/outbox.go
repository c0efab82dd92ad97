package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// OutboxRow is a row of the server's own that is due in the inboxes of a room.
type OutboxRow struct {
	Tenant   uuid.UUID
	Room     uuid.UUID
	Position int64  // rises within a room in the order of committing, for rows of one kind
	Kind     string // the inbox row's Relay-Kind: wire.ServerBoardUpdate or wire.ServerRoomEvent as text
	// To is the one participant it is for; uuid.Nil: whoever is in the room when it is
	// written.
	To      uuid.UUID
	Payload []byte // small JSON
}

// Outbox is where such rows wait. They commit with the change that they tell of.
type Outbox interface {
	// ClaimRows takes rows that nobody has claimed, oldest first within a room, for the time
	// of the lease (whole rooms wait while an earlier row of theirs is claimed). One that
	// was claimed before and not settled, and none of its room since, is held for up to eight
	// times as long. Rows of all
	// tenants, in the order of their positions within a room. ErrInvalid for a limit or lease
	// that is not positive.
	ClaimRows(ctx context.Context, limit int, lease time.Duration) ([]OutboxRow, error)
	// SettleRows removes rows that were written, whoever has claimed them.
	SettleRows(ctx context.Context, rows []OutboxRow) error
	// WaitingRows counts the rows that are not settled, up to most.
	WaitingRows(ctx context.Context, most int) (int, error)
}
