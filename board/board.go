package board

import (
	"context"
	"fmt"
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

// Valid reports whether k is one of the four kinds.
func (k Kind) Valid() bool {
	switch k {
	case KindIdea, KindTask, KindQuestion, KindDecision:
		return true
	}
	return false
}

// Valid reports whether t is one of the six types.
func (t EventType) Valid() bool {
	switch t {
	case EventCreated, EventUpdated, EventComment, EventOptionChosen, EventApproval, EventClosed:
		return true
	}
	return false
}

// SaysItAll reports whether an event of this type needs no content: its signature
// stands for it.
func (t EventType) SaysItAll() bool { return t == EventApproval || t == EventClosed }

// Limits of what clients seal, and of pages of it.
const (
	MaxContent   = 64 << 10 // bytes of one event's sealed content
	MaxSignature = 1 << 10
	// PageBytes of content end a page, whatever its limit; it holds one row at least.
	PageBytes = 4 << 20
)

// ConflictError is the store.ErrConflict of AppendBoardEvent where the card is not what the
// event takes it for: another revision, or closed.
type ConflictError struct {
	Revision int64 // of the card now
	Closed   bool
}

func (c *ConflictError) Error() string {
	if c.Closed {
		return fmt.Sprintf("the card is closed, at revision %d", c.Revision)
	}
	return fmt.Sprintf("the card is at revision %d", c.Revision)
}

func (c *ConflictError) Unwrap() error { return store.ErrConflict }

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
	Kind      Kind // of the card
	Type      EventType
	Revision  int64     // of the card, after this event
	Author    uuid.UUID // participant
	Content   []byte    // sealed; may be empty where the type says it all
	Signature []byte
	CreatedAt time.Time // by the database's clock; rises with Sequence
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
	Content   []byte // 1 to MaxContent bytes; may be empty where Type.SaysItAll
	Signature []byte // 1 to MaxSignature bytes
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
	// controller; ErrConflict for a revision that is not the card's or a card that is
	// closed (both a *ConflictError), an id or card id that is taken, an archived room;
	// ErrInvalid for an id, the type, kind, revision or sizes. A commit whose answer was
	// lost is asked for once more, and then looks like one of an earlier call.
	AppendBoardEvent(ctx context.Context, e NewEvent) (event Event, committed bool, err error)
	// BoardCard: ErrNotFound.
	BoardCard(ctx context.Context, tenant, room, card uuid.UUID) (Card, error)
	// BoardCards pages by Card.Position, and ends a page after PageBytes of content.
	// ErrNotFound for the room, ErrInvalid for the page.
	BoardCards(ctx context.Context, tenant, room uuid.UUID, page store.Page) (cards []Card, more bool, err error)
	// BoardEvents returns the events after a sequence, at most limit (1 to store.MaxPage)
	// and PageBytes of content. No event ever appears at or before a sequence that was
	// returned. ErrNotFound for the room, ErrInvalid for the page.
	BoardEvents(ctx context.Context, tenant, room uuid.UUID, after int64, limit int) (events []Event, more bool, err error)
}
