package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// maxBoardBody bounds a request that commits an event: the largest content and
// signature in base64, and the rest.
const maxBoardBody = 128 << 10

// listCards marks cursors of the list of cards.
const listCards byte = 'c'

// beginBoard is beginSession where there is a Board.
func (a *API) beginBoard(r *http.Request) (*sessionRequest, error) {
	if a.cfg.Board == nil {
		return nil, &wire.Error{Code: wire.NotFound, Detail: "this server keeps no Board"}
	}
	return a.beginSession(r)
}

func (a *API) createCard(r *http.Request) (int, any, error) {
	s, err := a.beginBoard(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	author, err := s.participant()
	if err != nil {
		return 0, nil, err
	}
	var body NewBoardCard
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	e := board.NewEvent{Author: author.Participant, Type: board.EventCreated, Kind: board.Kind(body.Kind)}
	if !e.Kind.Valid() {
		return 0, nil, malformed("kind must be idea, task, question or decision")
	}
	if e.Card, _, err = idOrNew(body.CardID, "card_id"); err != nil {
		return 0, nil, err
	}
	return s.commitEvent(e, body.EventID, body.Content, body.Signature)
}

func (a *API) addCardEvent(r *http.Request) (int, any, error) {
	s, err := a.beginBoard(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	card, err := pathID(r, "card_id")
	if err != nil {
		return 0, nil, err
	}
	author, err := s.participant()
	if err != nil {
		return 0, nil, err
	}
	var body NewBoardEvent
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	e := board.NewEvent{Author: author.Participant, Card: card, Type: board.EventType(body.Type)}
	if !e.Type.Valid() || e.Type == board.EventCreated {
		return 0, nil, malformed("type must be updated, comment, option_chosen, approval or closed")
	}
	if comment := e.Type == board.EventComment; comment != (body.Revision == nil) || !comment && *body.Revision < 1 {
		return 0, nil, malformed("revision must be that of the card this is based on; a comment has none")
	}
	if body.Revision != nil {
		e.Revision = *body.Revision
	}
	return s.commitEvent(e, body.EventID, body.Content, body.Signature)
}

// commitEvent commits e, whose sealed members are read here. The answer is 200 where an
// earlier request had committed it.
func (s *sessionRequest) commitEvent(e board.NewEvent, id *string, content, signature string) (int, any, error) {
	e.Tenant, e.Room = s.tenant, s.room
	var ours bool
	var err error
	if e.ID, ours, err = idOrNew(id, "event_id"); err != nil {
		return 0, nil, err
	}
	if e.Content, err = sealed(content, "content", board.MaxContent); err != nil {
		return 0, nil, err
	}
	if e.Signature, err = sealed(signature, "signature", board.MaxSignature); err != nil {
		return 0, nil, err
	}
	if len(e.Content) == 0 && !e.Type.SaysItAll() || len(e.Signature) == 0 {
		return 0, nil, malformed("content and signature must not be empty")
	}
	leave, err := s.enter()
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	event, committed, err := s.api.cfg.Board.AppendBoardEvent(s.ctx, e)
	if errors.Is(err, store.ErrConflict) {
		return 0, nil, s.orArchived(boardRefusal(err))
	}
	if err != nil {
		return 0, nil, boardRefusal(err)
	}
	s.api.wakeOutbox()
	status := http.StatusOK
	if committed || ours { // nobody else knows an id of ours
		status = http.StatusCreated
	}
	return status, BoardCommitted{
		Sequence: event.Sequence, EventID: event.ID.String(), CardID: event.Card.String(), Kind: string(event.Kind),
		Type: string(event.Type), Revision: event.Revision, Author: event.Author.String(), CreatedAt: event.CreatedAt.UTC(),
	}, nil
}

// idOrNew reads an id that the client may leave to the server; ours says that it did.
func idOrNew(text *string, member string) (id uuid.UUID, ours bool, err error) {
	if text == nil {
		id, err = uuid.NewV7()
		return id, true, err
	}
	if id, err = bodyID(*text, member); err == nil && id == uuid.Nil {
		err = malformed(member + " must be an id")
	}
	return id, false, err
}

// sealed reads bytes that a client has sealed or signed.
func sealed(text, member string, most int) ([]byte, error) {
	data, ok := decodeBase64(text)
	if !ok {
		return nil, malformed(member + " must be base64, standard and padded")
	}
	if len(data) > most {
		return nil, &wire.Error{Code: wire.TooLarge, Detail: member + " is larger than " + strconv.Itoa(most) + " bytes"}
	}
	return data, nil
}

// boardRefusal says what the caller can do about it.
func boardRefusal(err error) error {
	if conflict, ok := errors.AsType[*board.ConflictError](err); ok {
		return &wire.Error{Code: wire.Conflict, Detail: conflict.Error()}
	}
	switch {
	case errors.Is(err, store.ErrConflict):
		return &wire.Error{Code: wire.Conflict, Detail: "the id is taken"}
	case errors.Is(err, store.ErrForbidden):
		return &wire.Error{Code: wire.Forbidden, Detail: "viewers only read, and only owner and controller approve"}
	case errors.Is(err, store.ErrNotFound):
		return &wire.Error{Code: wire.NotFound, Detail: "there is no such card in this room"}
	}
	return err
}

func (a *API) showCard(r *http.Request) (int, any, error) {
	if _, err := readQuery(r); err != nil {
		return 0, nil, err
	}
	s, err := a.beginBoard(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	id, err := pathID(r, "card_id")
	if err != nil {
		return 0, nil, err
	}
	card, err := a.cfg.Board.BoardCard(s.ctx, s.tenant, s.room, id)
	if err != nil {
		return 0, nil, boardRefusal(err)
	}
	return http.StatusOK, cardAnswer(&card), nil
}

func cardAnswer(c *board.Card) BoardCard {
	return BoardCard{
		CardID: c.ID.String(), Kind: string(c.Kind), Revision: c.Revision, Closed: c.Closed, Author: c.Author.String(),
		Sequence: c.Position, CreatedAt: c.CreatedAt.UTC(), UpdatedAt: c.UpdatedAt.UTC(), Content: c.Content, Signature: c.Signature,
	}
}

func (a *API) listCards(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor", "order")
	if err != nil {
		return 0, nil, err
	}
	list, err := readList(query, listCards, false)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginBoard(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	if err := s.open(list); err != nil {
		return 0, nil, err
	}
	list.page.Limit = list.limit
	cards, more, err := a.cfg.Board.BoardCards(s.ctx, s.tenant, s.room, list.page)
	if err != nil {
		return 0, nil, err
	}
	answer := BoardCards{Cards: make([]BoardCard, 0, len(cards))}
	for i := range cards {
		answer.Cards = append(answer.Cards, cardAnswer(&cards[i]))
	}
	if more {
		list.page.From = cards[len(cards)-1].Position
		answer.NextCursor = list.encode()
	}
	return http.StatusOK, answer, nil
}

func (a *API) listCardEvents(r *http.Request) (int, any, error) {
	after, limit, err := readAfter(r)
	if err != nil {
		return 0, nil, err
	}
	old, err := beforeComments(r)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginBoard(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	events, more, err := a.cfg.Board.BoardEvents(s.ctx, s.tenant, s.room, after, limit)
	if err != nil {
		return 0, nil, err
	}
	if len(events) == 0 && after > 0 {
		if err := a.mustExist(s, after); err != nil {
			return 0, nil, err
		}
	}
	answer := BoardEvents{Events: make([]BoardEvent, 0, len(events)), NextAfter: after, More: more}
	for i := range events {
		answer.Events = append(answer.Events, eventAnswer(&events[i], old))
		answer.NextAfter = events[i].Sequence
	}
	return http.StatusOK, answer, nil
}

// mustExist refuses a cursor beyond the last event, of another room or of a database that
// was put back since: events that take the sequences up to it would never be read.
func (a *API) mustExist(s *sessionRequest, after int64) error {
	events, _, err := a.cfg.Board.BoardEvents(s.ctx, s.tenant, s.room, after-1, 1)
	if err == nil && len(events) == 0 {
		err = &wire.Error{Code: wire.Conflict, Detail: "this room has no event of that sequence (yet); ask with after=0"}
	}
	return err
}

// eventAnswer is an event as the client understands it: an old one gets a comment as a
// card-only event at the same sequence, so that its cursor moves on (RELAY, "Durable
// Board hints").
func eventAnswer(e *board.Event, old bool) BoardEvent {
	answer := BoardEvent{
		Sequence: e.Sequence, EventID: e.ID.String(), CardID: e.Card.String(), Type: string(e.Type), Revision: e.Revision,
	}
	if old && e.Type == board.EventComment {
		return answer
	}
	answer.Kind, answer.Author, answer.CreatedAt = string(e.Kind), e.Author.String(), e.CreatedAt.UTC()
	answer.Content, answer.Signature = e.Content, e.Signature
	return answer
}

// readAfter reads the query of the events: a sequence is no opaque cursor, since hints
// and events name it too.
func readAfter(r *http.Request) (after int64, limit int, err error) {
	query, err := readQuery(r, "after", "limit")
	if err != nil {
		return 0, 0, err
	}
	if text, given := query["after"]; given {
		if after, err = plainNumber(text); err != nil {
			return 0, 0, malformed("after must be a sequence: 0 or a positive whole number")
		}
	}
	limit = defaultRows
	if text, given := query["limit"]; given {
		limit, err = readLimit(text)
	}
	return after, limit, err
}

// plainNumber reads a number from 0 in its one text form.
func plainNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, strconv.ErrSyntax
	}
	return n, nil
}

// versionHeader is what clients say of themselves: X.Y.Z.
const versionHeader = "Peer-Client-Version"

// lastBeforeComments is the last version that knows comments as cards only.
var lastBeforeComments = [3]int64{0, 2, 31}

// beforeComments reports a client that is not newer than that. Who says nothing is.
func beforeComments(r *http.Request) (bool, error) {
	values := r.Header.Values(versionHeader)
	if len(values) == 0 {
		return false, nil
	}
	parts := strings.Split(values[0], ".")
	if len(values) > 1 || len(parts) != 3 {
		return false, malformed(versionHeader + " must be one version, X.Y.Z")
	}
	var version [3]int64
	for i, part := range parts {
		n, err := plainNumber(part)
		if err != nil {
			return false, malformed(versionHeader + " must be one version, X.Y.Z")
		}
		version[i] = n
	}
	for i, n := range version {
		if n != lastBeforeComments[i] {
			return n < lastBeforeComments[i], nil
		}
	}
	return true, nil
}
