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
	return readPage(ctx, s, "read history", roomPage{tenant, room, page}, s.historyRows, messageOf)
}

func (s *Store) historyRows(ctx context.Context, db sqlcgen.DBTX, p roomPage) ([]sqlcgen.HistoryAfterRow, error) {
	if !p.Newest {
		return s.q.HistoryAfter(ctx, db, sqlcgen.HistoryAfterParams{
			TenantID: p.tenant, RoomID: p.room, After: p.From, Since: p.since(), Page: p.rows(),
		})
	}
	rows, err := s.q.HistoryBefore(ctx, db, sqlcgen.HistoryBeforeParams{
		TenantID: p.tenant, RoomID: p.room, Before: p.before(), Since: p.since(), Page: p.rows(),
	})
	return convertAll(rows, func(row sqlcgen.HistoryBeforeRow) sqlcgen.HistoryAfterRow { return sqlcgen.HistoryAfterRow(row) }), err
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
	return readPage(ctx, s, "read traces", roomPage{tenant, room, page}, s.traceRows, func(row sqlcgen.TracesAfterRow) (store.StoredTrace, error) {
		return traceOf(tenant, room, row)
	})
}

func (s *Store) traceRows(ctx context.Context, db sqlcgen.DBTX, p roomPage) ([]sqlcgen.TracesAfterRow, error) {
	if !p.Newest {
		return s.q.TracesAfter(ctx, db, sqlcgen.TracesAfterParams{
			TenantID: p.tenant, RoomID: p.room, After: p.From, Since: p.since(), Page: p.rows(),
		})
	}
	rows, err := s.q.TracesBefore(ctx, db, sqlcgen.TracesBeforeParams{
		TenantID: p.tenant, RoomID: p.room, Before: p.before(), Since: p.since(), Page: p.rows(),
	})
	return convertAll(rows, func(row sqlcgen.TracesBeforeRow) sqlcgen.TracesAfterRow { return sqlcgen.TracesAfterRow(row) }), err
}

// roomPage is a page of one room's rows.
type roomPage struct {
	tenant, room uuid.UUID
	store.Page
}

// rows is how many to ask for: one more than the page takes, which only says whether
// more follow.
func (p roomPage) rows() int32 { return int32(p.Limit) + 1 }

// before is the position that rows of a page from the end lie before.
func (p roomPage) before() int64 {
	if p.From == 0 {
		return math.MaxInt64
	}
	return p.From
}

// since is a time the database has: Go's zero is year 1, which it has too.
func (p roomPage) since() time.Time { return p.Since.UTC() }

// convertAll makes the rows of one statement those of another that answers alike.
func convertAll[From, To any](rows []From, convert func(From) To) []To {
	converted := make([]To, len(rows))
	for i, row := range rows {
		converted[i] = convert(row)
	}
	return converted
}

// readPage reads a page with the statement of read. That there is a room needs a question
// of its own only where there is no row.
func readPage[Row, Out any](
	ctx context.Context, s *Store, step string, p roomPage,
	read func(context.Context, sqlcgen.DBTX, roomPage) ([]Row, error), convert func(Row) (Out, error),
) ([]Out, bool, error) {
	if err := p.Check(); err != nil {
		return nil, false, err
	}
	var rows []Row
	err := s.call(ctx, step, asService(p.tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = read(ctx, db, p)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if len(rows) == 0 {
		return nil, false, s.requireRoom(ctx, p.tenant, p.room)
	}
	more := len(rows) > p.Limit
	out := make([]Out, 0, p.Limit)
	for _, row := range rows[:min(len(rows), p.Limit)] {
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
