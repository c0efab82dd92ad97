package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/e2ee/boardseal"
)

// ErrBoardEvent reports an event or a card that the relay shows as another one than its author
// signed, or shows again.
var ErrBoardEvent = errors.New("the Board event is not what its author signed, or was shown before")

// BoardCommit is an event of this device that the relay has committed.
type BoardCommit struct {
	Sequence uint64 // of the room's events
	EventID  string
	CardID   string
	Revision uint64 // of the card, after the event
	// Withheld are the participants who cannot read it: their devices have no keys, or others
	// than before (ErrKeysChanged).
	Withheld []string
}

// BoardChange is an event on a card.
type BoardChange struct {
	CardID   string
	Type     BoardEventType // every one but created
	Revision uint64         // Card.Revision that it is based on; a comment has none
	Basis    string         // Card.ContentEvent, which an approval approves; may be empty
	Content  BoardContent
}

// CreateCard makes a card, sealed for everybody who is in the room now. Errors are those of
// ChangeCard.
func (d *Device) CreateCard(ctx context.Context, room string, kind CardKind, content BoardContent) (BoardCommit, error) {
	made, err := d.commitEvent(ctx, &boardseal.Header{Type: boardseal.Created, Kind: kind, Room: room}, &content)
	return made, step("make the card", err)
}

// ChangeCard changes a card or comments on it. Of several changes that are based on one revision
// the relay commits exactly one; the others are wire.Conflict: look at the card again.
// ErrBoardContent, boardseal.ErrFormat and boardseal.ErrTooLarge report what cannot be sealed.
//
// Where no answer comes the same event is sent again, which commits it once. After an error for
// which Retryable is true it may be committed all the same: the EventID that is returned says
// which one to look for in BoardEvents.
func (d *Device) ChangeCard(ctx context.Context, room string, change BoardChange) (BoardCommit, error) {
	header := &boardseal.Header{Type: change.Type, Room: room, Card: change.CardID, Base: change.Revision, Basis: change.Basis}
	if change.Type == boardseal.Created {
		return BoardCommit{}, fmt.Errorf("change the card: %w: cards are made by CreateCard", boardseal.ErrFormat)
	}
	made, err := d.commitEvent(ctx, header, &change.Content)
	return made, step("change the card", err)
}

// commitEvent draws the ids, seals and sends.
func (d *Device) commitEvent(ctx context.Context, header *boardseal.Header, content *BoardContent) (BoardCommit, error) {
	text, err := content.encode(header.Type)
	if err != nil {
		return BoardCommit{}, err
	}
	people, err := d.meetBoard(ctx, header.Room)
	if err != nil {
		return BoardCommit{}, err
	}
	header.Author = people.own.ID
	path, ids := "/board/cards", []*string{&header.Event}
	if header.Type == boardseal.Created {
		ids = append(ids, &header.Card)
	} else {
		path += "/" + header.Card + "/events"
	}
	for _, id := range ids {
		drawn, err := uuid.NewV7()
		if err != nil {
			return BoardCommit{}, err
		}
		*id = drawn.String()
	}
	sealed, err := boardseal.Seal(&people.own, header, people.readers, text) // refuses a card that is no id
	if err != nil {
		return BoardCommit{}, err
	}
	return d.sendEvent(ctx, header, path, sealed, people.withheld)
}

// newBoardEvent is the body of both requests that commit an event.
type newBoardEvent struct {
	EventID   string         `json:"event_id"`
	CardID    string         `json:"card_id,omitzero"`
	Kind      CardKind       `json:"kind,omitzero"`
	Type      BoardEventType `json:"type,omitzero"`
	Revision  uint64         `json:"revision,omitzero"`
	Content   []byte         `json:"content"`
	Signature []byte         `json:"signature"`
}

// committedEvent is what the relay answers.
type committedEvent struct {
	Sequence uint64         `json:"sequence"`
	EventID  string         `json:"event_id"`
	CardID   string         `json:"card_id"`
	Type     BoardEventType `json:"type"`
	Revision uint64         `json:"revision"`
	Author   string         `json:"author"`
}

// sendEvent sends the same request until it is answered, a few times at most.
func (d *Device) sendEvent(ctx context.Context, h *boardseal.Header, path string, sealed *boardseal.Sealed, withheld []string) (BoardCommit, error) {
	body := newBoardEvent{EventID: h.Event, Kind: h.Kind, Revision: h.Base, Content: sealed.Content, Signature: sealed.Signature}
	if h.Type == boardseal.Created {
		body.CardID = h.Card
	} else {
		body.Type = h.Type
	}
	made := BoardCommit{EventID: h.Event, CardID: h.Card, Withheld: withheld}
	var answer committedEvent
	err := d.again(ctx, func() error {
		answer = committedEvent{}
		return d.inSession(ctx, h.Room, path, request{method: http.MethodPost, body: body, answer: &answer})
	})
	if err != nil {
		return made, err
	}
	if answer.EventID != h.Event || answer.CardID != h.Card || answer.Type != h.Type || answer.Author != h.Author ||
		answer.Sequence == 0 || !follows(h, answer.Revision) {
		return made, errAnswer
	}
	made.Sequence, made.Revision = answer.Sequence, answer.Revision
	return made, nil
}

// How often a request is sent whose outcome is not known, and the pause before.
const (
	boardAttempts = 4
	boardPause    = 500 * time.Millisecond // doubles
	maxBoardPause = 10 * time.Second
)

// again repeats what may be repeated while its outcome is not known.
func (d *Device) again(ctx context.Context, do func() error) error {
	pause := boardPause
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == boardAttempts || ctx.Err() != nil || errors.Is(err, errAnswer) || !Retryable(err) {
			return err
		}
		if refused, ok := errors.AsType[*APIError](err); ok {
			pause = min(max(pause, refused.RetryAfter), maxBoardPause)
		}
		if sleep(ctx, d.clock, pause) != nil {
			return err
		}
		pause *= 2
	}
}

// Card is a card as its events have left it. What is not in Content is the relay's word, but
// CardID, and Kind where Content is that of the created event.
type Card struct {
	CardID    string
	Kind      CardKind
	Revision  uint64
	Closed    bool
	Author    string // participant who made it
	Sequence  uint64 // of its created event
	CreatedAt time.Time
	UpdatedAt time.Time

	// Content is that of the newest created or updated event, ContentEvent its id, and
	// ContentAuthor the participant who signed it. That it is the newest one is the relay's word.
	// Err says why there is none: see BoardEvent.
	Content       *BoardContent
	ContentEvent  string
	ContentAuthor string
	Err           error
}

// cardRow is a card as the relay answers it.
type cardRow struct {
	CardID    string    `json:"card_id"`
	Kind      CardKind  `json:"kind"`
	Revision  uint64    `json:"revision"`
	Closed    bool      `json:"closed"`
	Author    string    `json:"author"`
	Sequence  uint64    `json:"sequence"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Content   []byte    `json:"content"`
	Signature []byte    `json:"signature"`
}

// Cards lists the room's cards, in the order in which they were made. After an error it ends;
// a card whose content cannot be shown is no error, but has one.
func (d *Device) Cards(ctx context.Context, room string, order Order) iter.Seq2[Card, error] {
	return func(yield func(Card, error) bool) {
		people, err := d.meetBoard(ctx, room)
		if err != nil {
			yield(Card{}, step("list the cards", err))
			return
		}
		rows := pages(func(cursor string) ([]cardRow, string, error) {
			var page struct {
				Cards      []cardRow `json:"cards"`
				NextCursor string    `json:"next_cursor"`
			}
			err := d.inSession(ctx, room, "/board/cards", request{method: http.MethodGet, query: orderQuery(cursor, order), answer: &page})
			return page.Cards, page.NextCursor, err
		})
		for row, err := range rows {
			var card Card
			if err == nil {
				card, err = people.card(ctx, &row)
			}
			if !yield(card, step("list the cards", err)) || err != nil {
				return
			}
		}
	}
}

// Card returns a card. One that is not in this room is wire.NotFound.
func (d *Device) Card(ctx context.Context, room, card string) (Card, error) {
	if err := checkIDs(card); err != nil {
		return Card{}, fmt.Errorf("card %q: %w", card, err)
	}
	people, err := d.meetBoard(ctx, room)
	if err != nil {
		return Card{}, step("look at the card", err)
	}
	var row cardRow
	err = d.inSession(ctx, room, "/board/cards/"+card, request{method: http.MethodGet, answer: &row})
	if err == nil && row.CardID != card {
		err = errAnswer
	}
	if err != nil {
		return Card{}, step("look at the card", err)
	}
	found, err := people.card(ctx, &row)
	return found, step("look at the card", err)
}

// BoardEvent is one event of the room's Board.
type BoardEvent struct {
	Sequence  uint64 // rises in the room without gaps; the relay's word
	EventID   string
	CardID    string
	Kind      CardKind // of the card; the relay's word but of created
	Type      BoardEventType
	Revision  uint64 // of the card, after the event; of a comment the relay's word
	Author    string // participant whose signature it has
	CreatedAt time.Time

	Basis   string   // the event whose content its author saw on the card: what an approval approves; may be empty
	Readers []string // participants it was sealed for
	Content *BoardContent
	// Err says why there is no content: boardseal.ErrNotForUs for what was sealed before this
	// device joined; ErrUnknownSender, ErrKeysChanged or identity.ErrKeys where the author's keys
	// are not known, or not believed; ErrBoardEvent, ErrBoardContent, and errors of boardseal for
	// what is not to be believed.
	Err error
}

// eventRow is an event as the relay answers it.
type eventRow struct {
	Sequence  uint64         `json:"sequence"`
	EventID   string         `json:"event_id"`
	CardID    string         `json:"card_id"`
	Kind      CardKind       `json:"kind"`
	Type      BoardEventType `json:"type"`
	Revision  uint64         `json:"revision"`
	Author    string         `json:"author"`
	Content   []byte         `json:"content"`
	Signature []byte         `json:"signature"`
	CreatedAt time.Time      `json:"created_at"`
}

// BoardEvents lists the events after a sequence, in their order, verified and opened: the source
// of truth for what a BoardHint only hints at (RELAY, "Durable Board hints"). After an error it
// ends; an event whose content cannot be shown is no error, but has one. ErrBoardCursor says that
// the room has not reached that sequence.
func (d *Device) BoardEvents(ctx context.Context, room string, after uint64) iter.Seq2[BoardEvent, error] {
	return func(yield func(BoardEvent, error) bool) {
		people, err := d.meetBoard(ctx, room)
		if err != nil {
			yield(BoardEvent{}, step("read the Board", err))
			return
		}
		for row, err := range d.eventRows(ctx, room, after) {
			var event BoardEvent
			if err == nil {
				event, err = people.event(ctx, &row)
			}
			if !yield(event, step("read the Board", err)) || err != nil {
				return
			}
		}
	}
}

// eventRows lists them as they came, without a gap.
func (d *Device) eventRows(ctx context.Context, room string, after uint64) iter.Seq2[eventRow, error] {
	return func(yield func(eventRow, error) bool) {
		for more := true; more; {
			var page struct {
				Events []eventRow `json:"events"`
				More   bool       `json:"more"`
			}
			query := url.Values{"after": {strconv.FormatUint(after, 10)}, "limit": {strconv.Itoa(maxPage)}}
			err := d.inSession(ctx, room, "/board/events", request{method: http.MethodGet, query: query, answer: &page})
			if err == nil && page.More && len(page.Events) == 0 {
				err = errAnswer
			}
			if err != nil {
				yield(eventRow{}, boardCursorError(err))
				return
			}
			for _, row := range page.Events {
				if row.Sequence != after+1 {
					yield(eventRow{}, errAnswer)
					return
				}
				after = row.Sequence
				if !yield(row, nil) {
					return
				}
			}
			more = page.More
		}
	}
}
