package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/board"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// AppendBoardEventIn does what AppendBoardEvent does inside the caller's transaction,
// which it leaves open.
func AppendBoardEventIn(ctx context.Context, tx pgx.Tx, e board.NewEvent) (row sqlcgen.BoardEventAppendRow, err error) {
	q := sqlcgen.New()
	if err := q.SettingsApply(ctx, tx, asService(e.Tenant).apply); err != nil {
		return row, err
	}
	if err := q.BoardSequenceBegin(ctx, tx, e.Tenant, e.Room); err != nil {
		return row, err
	}
	if err := q.BoardSequenceLock(ctx, tx, e.Tenant, e.Room); err != nil {
		return row, err
	}
	return q.BoardEventAppend(ctx, tx, sqlcgen.BoardEventAppendParams{
		Kind: string(e.Kind), Type: string(e.Type), AuthorID: e.Author, CardID: e.Card, Content: e.Content,
		Signature: e.Signature, Revision: e.Revision, ID: e.ID, TenantID: e.Tenant, RoomID: e.Room,
	})
}
