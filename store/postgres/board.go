package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

var _ board.Store = (*Store)(nil)

// AppendBoardEvent implements board.Store.
func (s *Store) AppendBoardEvent(ctx context.Context, e board.NewEvent) (board.Event, bool, error) {
	if err := checkBoardEvent(&e); err != nil {
		return board.Event{}, false, fmt.Errorf("append board event: %w", err)
	}
	row, err := s.appendBoardEvent(ctx, e)
	// The same event may be asked for again, until it is known what became of it.
	for range askedAgain {
		if !unknownOutcome(err) || ctx.Err() != nil {
			break
		}
		row, err = s.appendBoardEvent(ctx, e)
	}
	if err == nil {
		err = boardVerdicts[row.Verdict](row)
	}
	if err != nil {
		return board.Event{}, false, fmt.Errorf("append board event: %w", err)
	}
	return board.Event{
		Sequence: row.Sequence, ID: e.ID, Card: e.Card, Kind: board.Kind(row.Kind), Type: e.Type, Revision: row.Revision,
		Author: e.Author, Content: e.Content, Signature: e.Signature, CreatedAt: row.CreatedAt.UTC(),
	}, row.Verdict == boardCommit, nil
}

// askedAgain is how often: a server that went away may take more than one connection of
// the pool with it.
const askedAgain = 3

// checkBoardEvent refuses what no room takes.
func checkBoardEvent(e *board.NewEvent) error {
	switch based := e.Type != board.EventCreated && e.Type != board.EventComment; {
	case e.ID == uuid.Nil || e.Card == uuid.Nil:
		return fmt.Errorf("an id is missing: %w", store.ErrInvalid)
	case !e.Type.Valid():
		return fmt.Errorf("type of event: %w", store.ErrInvalid)
	case e.Type == board.EventCreated && !e.Kind.Valid(), e.Type != board.EventCreated && e.Kind != "":
		return fmt.Errorf("kind of card: %w", store.ErrInvalid)
	case based && e.Revision < 1, !based && e.Revision != 0:
		return fmt.Errorf("revision %d for %s: %w", e.Revision, e.Type, store.ErrInvalid)
	case len(e.Content) > board.MaxContent, len(e.Content) == 0 && !e.Type.SaysItAll():
		return fmt.Errorf("%d bytes of content: %w", len(e.Content), store.ErrInvalid)
	case len(e.Signature) < 1 || len(e.Signature) > board.MaxSignature:
		return fmt.Errorf("%d bytes of signature: %w", len(e.Signature), store.ErrInvalid)
	}
	return nil
}

// unknownOutcome reports an error after which the transaction may have committed.
func unknownOutcome(err error) bool {
	if err == nil || pgconn.SafeToRetry(err) || errors.Is(err, store.ErrNotFound) {
		return false
	}
	_, said := rolledBack(err)
	return !said
}

// appendBoardEvent commits the event in one round trip: what locks, and the statement
// that then looks and writes.
func (s *Store) appendBoardEvent(ctx context.Context, e board.NewEvent) (row sqlcgen.BoardEventAppendRow, err error) {
	content := e.Content
	if content == nil {
		content = []byte{} // not NULL
	}
	err = s.onConn(ctx, "commit", func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		locks := asService(e.Tenant).queue(batch) + 2
		batch.Queue(sqlcgen.BoardSequenceBegin, e.Tenant, e.Room)
		batch.Queue(sqlcgen.BoardSequenceLock, e.Tenant, e.Room)
		batch.Queue(sqlcgen.BoardEventAppend, string(e.Kind), string(e.Type), e.Author, e.Card, content, e.Signature,
			e.Revision, e.ID, e.Tenant, e.Room)
		results := conn.SendBatch(ctx, batch)
		for range locks {
			if _, err := results.Exec(); err != nil {
				return errors.Join(err, results.Close())
			}
		}
		err := results.QueryRow().Scan(&row.Verdict, &row.Kind, &row.CardRevision, &row.Sequence, &row.Revision, &row.CreatedAt)
		return errors.Join(err, results.Close())
	})
	return row, err
}

// The verdicts of BoardEventAppend that are no refusals.
const (
	boardCommit = "commit"
	boardKnown  = "known"
)

// boardVerdicts says what each verdict of BoardEventAppend means.
var boardVerdicts = map[string]func(sqlcgen.BoardEventAppendRow) error{
	boardCommit: boardAccepts,
	boardKnown:  boardAccepts,

	"no_author":  boardRefuses("author", store.ErrNotFound),
	"no_card":    boardRefuses("card", store.ErrNotFound),
	"forbidden":  boardRefuses("the author's role", store.ErrForbidden),
	"archived":   boardRefuses("the room is archived", store.ErrConflict),
	"id_taken":   boardRefuses("the id is another event's", store.ErrConflict),
	"card_taken": boardRefuses("the card id is another card's", store.ErrConflict),
	"closed": func(row sqlcgen.BoardEventAppendRow) error {
		return &board.ConflictError{Revision: row.CardRevision, Closed: true}
	},
	"stale": func(row sqlcgen.BoardEventAppendRow) error {
		return &board.ConflictError{Revision: row.CardRevision}
	},
}

func boardAccepts(sqlcgen.BoardEventAppendRow) error { return nil }

func boardRefuses(what string, meaning error) func(sqlcgen.BoardEventAppendRow) error {
	err := fmt.Errorf("%s: %w", what, meaning)
	return func(sqlcgen.BoardEventAppendRow) error { return err }
}

// BoardCard implements board.Store.
func (s *Store) BoardCard(ctx context.Context, tenant, room, card uuid.UUID) (board.Card, error) {
	var row sqlcgen.BoardCardByIDRow
	err := s.call(ctx, "look up card", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.BoardCardByID(ctx, db, tenant, room, card)
		return err
	})
	if err != nil {
		return board.Card{}, err
	}
	return cardOf(row), nil
}

func cardOf(row sqlcgen.BoardCardByIDRow) board.Card {
	return board.Card{
		ID: row.ID, Kind: board.Kind(row.Kind), Revision: row.Revision, Closed: row.Closed, Author: row.AuthorID,
		CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(), Position: row.Position,
		Content: row.Content, Signature: row.Signature,
	}
}

// BoardCards implements board.Store.
func (s *Store) BoardCards(ctx context.Context, tenant, room uuid.UUID, page store.Page) ([]board.Card, bool, error) {
	if err := checkBoardPage(page.From, page.Limit); err != nil {
		return nil, false, fmt.Errorf("list cards: %w", err)
	}
	if !page.Since.IsZero() {
		return nil, false, fmt.Errorf("list cards: cards are not left out by time: %w", store.ErrInvalid)
	}
	var rows []sqlcgen.BoardCardPageRow
	err := s.call(ctx, "list cards", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.boardCardPage(ctx, db, tenant, room, page)
		return err
	})
	if err == nil && len(rows) == 0 {
		_, err = s.FindRoom(ctx, tenant, room)
	}
	if err != nil {
		return nil, false, err
	}
	shown := rows[:min(len(rows), page.Limit)]
	cards := make([]board.Card, 0, len(shown))
	for _, row := range shown {
		cards = append(cards, cardOf(sqlcgen.BoardCardByIDRow{
			ID: row.ID, Kind: row.Kind, Revision: row.Revision, Closed: row.Closed, Position: row.Position,
			AuthorID: row.AuthorID, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, Content: row.Content, Signature: row.Signature,
		}))
	}
	return cards, len(rows) > 0 && rows[0].Matched > int64(len(cards)), nil
}

// boardCardPage looks at one row more than the page takes, to know whether more follow.
func (s *Store) boardCardPage(ctx context.Context, db sqlcgen.DBTX, tenant, room uuid.UUID, page store.Page) ([]sqlcgen.BoardCardPageRow, error) {
	limit := int64(page.Limit) + 1
	if !page.Newest {
		return s.q.BoardCardPage(ctx, db, sqlcgen.BoardCardPageParams{
			TenantID: tenant, RoomID: room, After: page.From, Page: limit, Bytes: board.PageBytes,
		})
	}
	before := page.From
	if before == 0 {
		before = math.MaxInt64
	}
	backwards, err := s.q.BoardCardPageNewest(ctx, db, sqlcgen.BoardCardPageNewestParams{
		TenantID: tenant, RoomID: room, Before: before, Page: limit, Bytes: board.PageBytes,
	})
	rows := make([]sqlcgen.BoardCardPageRow, 0, len(backwards))
	for _, row := range backwards {
		rows = append(rows, sqlcgen.BoardCardPageRow(row))
	}
	return rows, err
}

// BoardEvents implements board.Store.
func (s *Store) BoardEvents(ctx context.Context, tenant, room uuid.UUID, after int64, limit int) ([]board.Event, bool, error) {
	if err := checkBoardPage(after, limit); err != nil {
		return nil, false, fmt.Errorf("list board events: %w", err)
	}
	var rows []sqlcgen.BoardEventPageRow
	err := s.call(ctx, "list board events", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.BoardEventPage(ctx, db, sqlcgen.BoardEventPageParams{
			TenantID: tenant, RoomID: room, After: after, Page: int64(limit) + 1, Bytes: board.PageBytes,
		})
		return err
	})
	if err == nil && len(rows) == 0 {
		_, err = s.FindRoom(ctx, tenant, room)
	}
	if err != nil {
		return nil, false, err
	}
	shown := rows[:min(len(rows), limit)]
	events := make([]board.Event, 0, len(shown))
	for _, row := range shown {
		events = append(events, board.Event{
			Sequence: row.Sequence, ID: row.ID, Card: row.CardID, Kind: board.Kind(row.Kind), Type: board.EventType(row.Type),
			Revision: row.Revision, Author: row.AuthorID, Content: row.Content, Signature: row.Signature, CreatedAt: row.CreatedAt.UTC(),
		})
	}
	return events, len(rows) > 0 && rows[0].Matched > int64(len(events)), nil
}

func checkBoardPage(from int64, limit int) error {
	if from < 0 || limit < 1 || limit > store.MaxPage {
		return fmt.Errorf("page of %d from %d: %w", limit, from, store.ErrInvalid)
	}
	return nil
}
