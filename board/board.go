package board

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

// Kind is the kind of a card.
type Kind string

// Kinds of cards.
const (
	KindIdea     Kind = "idea" // a new one gives no hint
	KindTask     Kind = "task"
	KindQuestion Kind = "question"
	KindDecision Kind = "decision"
)

// EventType says what an event does to its card.
type EventType string

// Types of events.
const (
	EventCreated      EventType = "created"
	EventUpdated      EventType = "updated"
	EventComment      EventType = "comment" // allowed on closed cards too
	EventOptionChosen EventType = "option_chosen"
	EventApproval     EventType = "approval" // owner and controller only
	EventClosed       EventType = "closed"   // final
)

// Limits of what clients seal.
const (
	MaxContent   = 64 << 10 // bytes of one event's sealed content
	MaxSignature = 1 << 10
)

// Card is a card as its events have left it.
type Card struct {
	ID        uuid.UUID
	Kind      Kind
	Revision  int64 // of the last event
	Closed    bool
	Author    uuid.UUID // participant
	CreatedAt time.Time
	UpdatedAt time.Time
	Position  int64 // the sequence of its created event
	// Content and Signature are those of the newest created or updated event.
	Content   []byte
	Signature []byte
}

// Event is one committed event.
type Event struct {
	Sequence  int64 // rises per room, without gaps, in the order of committing
	ID        uuid.UUID
	Card      uuid.UUID
	Type      EventType
	Revision  int64     // of the card, after this event
	Author    uuid.UUID // participant
	Content   []byte    // sealed; may be empty where the type says it all
	Signature []byte
	CreatedAt time.Time
}

// NewEvent is an event to commit. For EventCreated it makes the card, of Kind.
type NewEvent struct {
	Tenant uuid.UUID
	Room   uuid.UUID
	Author uuid.UUID // a current participant
	ID     uuid.UUID // chosen by the client, so that a lost answer can be asked for again
	Card   uuid.UUID // likewise, unique in the room
	Type   EventType
	Kind   Kind // EventCreated only
	// Revision is the card's revision that this event is based on: 0 for EventCreated,
	// and for a comment, which fits any.
	Revision  int64
	Content   []byte
	Signature []byte
}

// Hint is what waits in the outbox.
type Hint struct {
	Tenant   uuid.UUID
	Room     uuid.UUID
	Sequence int64
	Event    uuid.UUID
	Card     uuid.UUID
	Revision int64
}

// Store keeps the Board; store/postgres implements it. Errors are those of package
// store.
type Store interface {
	// AppendBoardEvent commits the event, its place in the room's sequence, the card's
	// new revision and, where one is due, the hint, together. The same id with the same
	// author, card, type and bytes again returns the committed event and false.
	//
	// ErrNotFound for the room, the card or an author who is not a current participant;
	// store.ErrForbidden for a viewer, or an approval by another than owner and
	// controller; ErrConflict for a revision that is not the card's, a card that is
	// closed, an id or card id that is taken, an archived room; ErrInvalid for the type,
	// kind or sizes.
	AppendBoardEvent(ctx context.Context, e NewEvent) (event Event, committed bool, err error)
	// BoardCard: ErrNotFound.
	BoardCard(ctx context.Context, tenant, room, card uuid.UUID) (Card, error)
	// BoardCards pages by Card.Position.
	BoardCards(ctx context.Context, tenant, room uuid.UUID, page store.Page) (cards []Card, more bool, err error)
	// BoardEvents returns the events after a sequence. No event ever appears at or
	// before a sequence that was returned.
	BoardEvents(ctx context.Context, tenant, room uuid.UUID, after int64, limit int) (events []Event, more bool, err error)

	// ClaimHints takes hints that nobody has claimed, oldest first within a room, for
	// the time of the lease. Hints of all tenants.
	ClaimHints(ctx context.Context, limit int, lease time.Duration) ([]Hint, error)
	// SettleHints removes hints that were published.
	SettleHints(ctx context.Context, hints []Hint) error
}
