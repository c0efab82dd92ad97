package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// MaxPage bounds the rows of one page of any list.
const MaxPage = 500

// Page asks for a part of a list that has a position per row. Positions rise in the
// order of committing, so that no row ever appears behind a position that was handed
// out.
type Page struct {
	From   int64 // rows after this position (before it, with Newest); 0: from the beginning (the end)
	Limit  int   // rows, 1 to MaxPage
	Newest bool  // newest first

	// Since leaves out what was stored before it; zero: nothing. A participant does not
	// see what was stored before it joined.
	Since time.Time
}

// StoredMessage is a row of session history.
type StoredMessage struct {
	Position   int64
	ID         string
	Sender     uuid.UUID // participant
	Kind       string    // as on the wire
	Gen        uint64
	KID        string // empty when the envelope has none
	Bytes      []byte // exactly as sent
	ReceivedAt time.Time
}

// HistoryReader reads the window that History writes.
type HistoryReader interface {
	// HistoryPage returns at most page.Limit rows of the room, and whether more follow.
	// ErrNotFound when the tenant has no such room, ErrInvalid for the page.
	HistoryPage(ctx context.Context, tenant, room uuid.UUID, page Page) (rows []StoredMessage, more bool, err error)
	// HistoryMessage returns one message: ErrNotFound when the window does not hold it.
	HistoryMessage(ctx context.Context, tenant, room uuid.UUID, id string) (StoredMessage, error)
}

// Check refuses a page that no list has: ErrInvalid.
func (p Page) Check() error {
	if p.From < 0 || p.Limit < 1 || p.Limit > MaxPage {
		return fmt.Errorf("page of %d rows from %d: %w", p.Limit, p.From, ErrInvalid)
	}
	return nil
}
