package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Why a page can be trusted: whoever stores in a room holds the room's lock from before
// the position is drawn until the commit is visible (RoomsSerialize). So of two rows of
// one room the one with the lower position was visible first, and a reader who sees a
// row sees all that will ever be before it.

// HistoryPage implements store.HistoryReader.
func (s *Store) HistoryPage(ctx context.Context, tenant, room uuid.UUID, page store.Page) ([]store.StoredMessage, bool, error) {
	return readPage(page, func() (rows []sqlcgen.HistoryAfterRow, err error) {
		err = s.call(ctx, "read history", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
			rows, err = s.historyRows(ctx, db, tenant, room, page)
			return err
		})
		return rows, err
	}, messageOf, func() error { return s.requireRoom(ctx, tenant, room) })
}

func (s *Store) historyRows(ctx context.Context, db sqlcgen.DBTX, tenant, room uuid.UUID, page store.Page) ([]sqlcgen.HistoryAfterRow, error) {
	if !page.Newest {
		return s.q.HistoryAfter(ctx, db, sqlcgen.HistoryAfterParams{
			TenantID: tenant, RoomID: room, After: page.From, Since: sinceOf(page), Page: int32(page.Limit) + 1,
		})
	}
	rows, err := s.q.HistoryBefore(ctx, db, sqlcgen.HistoryBeforeParams{
		TenantID: tenant, RoomID: room, Before: beforeOf(page), Since: sinceOf(page), Page: int32(page.Limit) + 1,
	})
	same := make([]sqlcgen.HistoryAfterRow, len(rows))
	for i, row := range rows {
		same[i] = sqlcgen.HistoryAfterRow(row)
	}
	return same, err
}

// HistoryMessage implements store.HistoryReader.
func (s *Store) HistoryMessage(ctx context.Context, tenant, room uuid.UUID, id string) (store.StoredMessage, error) {
	if !validID(id) { // the database could not even be asked for some
		return store.StoredMessage{}, fmt.Errorf("read message: %w", store.ErrNotFound)
	}
	var row sqlcgen.HistoryByIDRow
	err := s.call(ctx, "read message", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.HistoryByID(ctx, db, tenant, room, id)
		return err
	})
	if err != nil {
		return store.StoredMessage{}, err
	}
	return messageOf(sqlcgen.HistoryAfterRow(row))
}

// TracePage implements store.TraceReader.
func (s *Store) TracePage(ctx context.Context, tenant, room uuid.UUID, page store.Page) ([]store.StoredTrace, bool, error) {
	return readPage(page, func() (rows []sqlcgen.TracesAfterRow, err error) {
		err = s.call(ctx, "read traces", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
			rows, err = s.traceRows(ctx, db, tenant, room, page)
			return err
		})
		return rows, err
	}, func(row sqlcgen.TracesAfterRow) (store.StoredTrace, error) {
		return traceOf(tenant, room, row)
	}, func() error { return s.requireRoom(ctx, tenant, room) })
}

func (s *Store) traceRows(ctx context.Context, db sqlcgen.DBTX, tenant, room uuid.UUID, page store.Page) ([]sqlcgen.TracesAfterRow, error) {
	if !page.Newest {
		return s.q.TracesAfter(ctx, db, sqlcgen.TracesAfterParams{
			TenantID: tenant, RoomID: room, After: page.From, Since: sinceOf(page), Page: int32(page.Limit) + 1,
		})
	}
	rows, err := s.q.TracesBefore(ctx, db, sqlcgen.TracesBeforeParams{
		TenantID: tenant, RoomID: room, Before: beforeOf(page), Since: sinceOf(page), Page: int32(page.Limit) + 1,
	})
	same := make([]sqlcgen.TracesAfterRow, len(rows))
	for i, row := range rows {
		same[i] = sqlcgen.TracesAfterRow(row)
	}
	return same, err
}

// readPage reads a page and one row more, which only says whether more follow. That
// there is a room needs a question of its own only where there is no row.
func readPage[Row, Out any](page store.Page, read func() ([]Row, error), convert func(Row) (Out, error), roomExists func() error) ([]Out, bool, error) {
	if err := page.Check(); err != nil {
		return nil, false, err
	}
	rows, err := read()
	if err != nil {
		return nil, false, err
	}
	if len(rows) == 0 {
		return nil, false, roomExists()
	}
	more := len(rows) > page.Limit
	out := make([]Out, 0, page.Limit)
	for _, row := range rows[:min(len(rows), page.Limit)] {
		one, err := convert(row)
		if err != nil {
			return nil, false, err
		}
		out = append(out, one)
	}
	return out, more, nil
}

func (s *Store) requireRoom(ctx context.Context, tenant, room uuid.UUID) error {
	_, err := s.FindRoom(ctx, tenant, room)
	return err
}

// beforeOf is the position that rows of a page from the end lie before.
func beforeOf(page store.Page) int64 {
	if page.From == 0 {
		return math.MaxInt64
	}
	return page.From
}

// sinceOf is a time the database has: Go's zero is year 1, which it has too.
func sinceOf(page store.Page) time.Time { return page.Since.UTC() }

func messageOf(row sqlcgen.HistoryAfterRow) (store.StoredMessage, error) {
	return store.StoredMessage{
		Position: row.Position, ID: row.MessageID, Sender: row.SenderID, Kind: row.Kind, Gen: uint64(row.Gen),
		KID: string(row.KID), Bytes: row.Envelope, ReceivedAt: row.ReceivedAt.UTC(),
	}, nil
}

func traceOf(tenant, room uuid.UUID, row sqlcgen.TracesAfterRow) (store.StoredTrace, error) {
	t := store.StoredTrace{
		Trace: store.Trace{
			Tenant: tenant, Room: room, MessageID: row.MessageID, From: row.SenderID, To: row.RecipientID,
			TS: uint64(row.Ts), Declared: row.Declared,
		},
		Position: row.Position, CommittedAt: row.CommittedAt.UTC(),
	}
	if row.Files == nil {
		return t, nil
	}
	var files []fileJSON
	if err := json.Unmarshal(row.Files, &files); err != nil {
		return store.StoredTrace{}, fmt.Errorf("read files of trace at %d: %w", row.Position, err)
	}
	for _, f := range files {
		t.Files = append(t.Files, store.FileHeader(f))
	}
	return t, nil
}
