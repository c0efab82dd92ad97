package api

import "time"

// NewBoardCard is the body of POST /v1/sessions/{id}/board/cards. Ids that the client
// makes let it send the same card again when an answer was lost.
type NewBoardCard struct {
	EventID   *string `json:"event_id,omitzero" schema:"uuid"` // of the card's created event; default: made by the server
	CardID    *string `json:"card_id,omitzero" schema:"uuid"`  // default: made by the server
	Kind      string  `json:"kind" schema:"idea|task|question|decision"`
	Content   string  `json:"content"`   // sealed by the client; base64 of 1 to 65,536 bytes
	Signature string  `json:"signature"` // of the client; base64 of 1 to 1,024 bytes
}

// NewBoardEvent is the body of POST /v1/sessions/{id}/board/cards/{card_id}/events.
type NewBoardEvent struct {
	EventID   *string `json:"event_id,omitzero" schema:"uuid"` // default: made by the server
	Type      string  `json:"type" schema:"updated|comment|option_chosen|approval|closed"`
	Revision  *int64  `json:"revision,omitzero" schema:"1..9223372036854775807"` // of the card that this is based on; a comment has none
	Content   string  `json:"content,omitzero"`                                  // sealed by the client; base64 of at most 65,536 bytes, which only an approval and closed may leave out
	Signature string  `json:"signature"`                                         // of the client; base64 of 1 to 1,024 bytes
}

// BoardCommitted answers what commits an event.
type BoardCommitted struct {
	Sequence  int64     `json:"sequence"`
	EventID   string    `json:"event_id" schema:"uuid"`
	CardID    string    `json:"card_id" schema:"uuid"`
	Kind      string    `json:"kind" schema:"idea|task|question|decision"` // of the card
	Type      string    `json:"type" schema:"created|updated|comment|option_chosen|approval|closed"`
	Revision  int64     `json:"revision"`             // of the card, after this event
	Author    string    `json:"author" schema:"uuid"` // participant
	CreatedAt time.Time `json:"created_at"`
}

// BoardCard is a card as its events have left it.
type BoardCard struct {
	CardID    string    `json:"card_id" schema:"uuid"`
	Kind      string    `json:"kind" schema:"idea|task|question|decision"`
	Revision  int64     `json:"revision"` // of its last event
	Closed    bool      `json:"closed"`
	Author    string    `json:"author" schema:"uuid"` // participant
	Sequence  int64     `json:"sequence"`             // of its created event
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"` // of its last event
	Content   []byte    `json:"content"`    // base64; of the newest created or updated event
	Signature []byte    `json:"signature"`  // base64; of the same event
}

// BoardCards answers GET /v1/sessions/{id}/board/cards.
type BoardCards struct {
	Cards      []BoardCard `json:"cards"`
	NextCursor string      `json:"next_cursor,omitzero"` // absent on the last page
}

// BoardEvent is one row of BoardEvents. Clients up to 0.2.31 get a comment without kind,
// author, content, signature and created_at.
type BoardEvent struct {
	Sequence  int64     `json:"sequence"` // rises in the room without gaps
	EventID   string    `json:"event_id" schema:"uuid"`
	CardID    string    `json:"card_id" schema:"uuid"`
	Kind      string    `json:"kind,omitzero" schema:"idea|task|question|decision"` // of the card
	Type      string    `json:"type" schema:"created|updated|comment|option_chosen|approval|closed"`
	Revision  int64     `json:"revision"`                      // of the card, after this event
	Author    string    `json:"author,omitzero" schema:"uuid"` // participant
	Content   []byte    `json:"content,omitzero"`              // base64, as it was sent
	Signature []byte    `json:"signature,omitzero"`            // base64, as it was sent
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// BoardEvents answers GET /v1/sessions/{id}/board/events.
type BoardEvents struct {
	Events    []BoardEvent `json:"events"`
	NextAfter int64        `json:"next_after"` // what to ask after next time; no event ever appears at or before it
	More      bool         `json:"more"`       // there are more events now
}
