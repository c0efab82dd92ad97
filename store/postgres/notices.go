package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// noticeRights is what the sender of a notice must hold (RELAY).
var noticeRights = []string{string(store.RuleMessageSend), string(store.RuleAlertEmit)}

// noticeVerdicts says what the answers of the query NoticeAppend mean.
var noticeVerdicts = map[string]error{
	"accepted":           nil,
	"no_room":            fmt.Errorf("room: %w", store.ErrNotFound),
	"archived":           errArchived,
	"no_sender":          fmt.Errorf("sender: %w", store.ErrNotFound),
	"not_permitted":      &wire.Error{Code: wire.NoticeNotPermitted, Detail: "the sender is no agent or lacks a right"},
	"malformed":          &wire.Error{Code: wire.InvalidEnvelope, Detail: "the notice store does not take this notice"},
	"duplicate":          &wire.Error{Code: wire.NoticeDuplicate, Detail: "the same notice is stored"},
	"id_conflict":        &wire.Error{Code: wire.NoticeIDConflict, Detail: "the id is stored with other content or another sender"},
	"unknown_generation": &wire.Error{Code: wire.NoticeInvalidGen, Detail: "the sender never allocated this gen in this room"},
	"stale":              &wire.Error{Code: wire.NoticeStale, Detail: "ts or expires_at is outside what is accepted"},
	"full":               &wire.Error{Code: wire.NoticeCap, Detail: "too many unexpired notices of this sender"},
}

// AppendNotice implements store.NoticeWriter. All notices of a room follow one another,
// and so do they and the changes of the room, its members and rules. One that is
// repeated inside was rolled back before, by the server's own word: a notice that this
// call stored is never answered as a duplicate.
func (s *Store) AppendNotice(ctx context.Context, n store.Notice) error {
	verdict, err := s.notices.append(ctx, noticeQuestion(n))
	if err != nil {
		return fmt.Errorf("append notice: %w", err)
	}
	refusal, known := noticeVerdicts[verdict]
	switch {
	case !known:
		return fmt.Errorf("append notice: the database answered %q", verdict)
	case refusal != nil:
		return fmt.Errorf("append notice: %w", refusal)
	}
	return nil
}

// noticeQuestion leaves out the content of what is not well formed: whether the sender
// may send notices at all is answered first.
func noticeQuestion(n store.Notice) sqlcgen.NoticeAppendParams {
	ask := sqlcgen.NoticeAppendParams{
		TenantID: n.Tenant, RoomID: n.Room, SenderID: n.Sender, Rights: noticeRights,
		SkewSeconds: store.NoticeSkew.Seconds(), LifetimeSeconds: store.NoticeLifetime.Seconds(), Cap: store.NoticeCap,
	}
	if !wellFormed(n) {
		return ask
	}
	ask.WellFormed, ask.NoticeID, ask.Envelope, ask.Gen = true, n.ID, n.Bytes, int64(n.Gen)
	ask.SentAt, ask.ExpiresAt = time.UnixMilli(int64(n.TS)), time.UnixMilli(int64(n.ExpiresAt))
	if n.KID != "" {
		ask.KID = []byte(n.KID)
	}
	return ask
}

func wellFormed(n store.Notice) bool {
	return validID(n.ID) && len(n.Bytes) > 0 && len(n.Bytes) <= wire.MaxMessage &&
		n.Gen <= wire.MaxInteger && n.TS <= wire.MaxInteger && n.ExpiresAt > 0 && n.ExpiresAt <= wire.MaxInteger
}

// NoticePage implements store.NoticeReader.
func (s *Store) NoticePage(ctx context.Context, tenant, room uuid.UUID, page store.Page) ([]store.StoredNotice, bool, error) {
	return readPage(ctx, s, "list notices", roomPage{tenant, room, page}, s.noticeRows, storedNotice)
}

func (s *Store) noticeRows(ctx context.Context, db sqlcgen.DBTX, p roomPage) ([]sqlcgen.NoticesAfterRow, error) {
	if !p.Newest {
		return s.q.NoticesAfter(ctx, db, sqlcgen.NoticesAfterParams{
			TenantID: p.tenant, RoomID: p.room, After: p.From, Since: p.since(), Page: p.rows(),
		})
	}
	rows, err := s.q.NoticesBefore(ctx, db, sqlcgen.NoticesBeforeParams{
		TenantID: p.tenant, RoomID: p.room, Before: p.before(), Since: p.since(), Page: p.rows(),
	})
	return convertAll(rows, func(row sqlcgen.NoticesBeforeRow) sqlcgen.NoticesAfterRow { return sqlcgen.NoticesAfterRow(row) }), err
}

func storedNotice(row sqlcgen.NoticesAfterRow) (store.StoredNotice, error) {
	return store.StoredNotice{
		Position: row.Position, ID: row.NoticeID, Sender: row.SenderID, Gen: uint64(row.Gen), Bytes: row.Envelope,
		AcceptedAt: row.AcceptedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(),
	}, nil
}

// PruneNotices deletes the notices of all tenants that expired longer ago than history is
// kept, and returns how many. Sent again, such a notice is stale, so that it is never
// accepted twice. The store does this by itself every PruneEvery.
func (s *Store) PruneNotices(ctx context.Context) (deleted int64, err error) {
	return s.pruneTenants(ctx, "prune notices", s.q.NoticePrune)
}
