package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// AppendMessage implements store.History.
func (s *Store) AppendMessage(ctx context.Context, m store.Message) (store.Appended, error) {
	v := verdict{err: checkMessage(m)}
	if v.err == nil {
		v = s.appendMessage(ctx, m)
	}
	s.history.metrics.count(v)
	if v.err != nil {
		return store.Appended{}, fmt.Errorf("append message: %w", v.err)
	}
	return store.Appended{Duplicate: v.duplicate}, nil
}

func (s *Store) appendMessage(ctx context.Context, m store.Message) verdict {
	v := s.history.append(ctx, m)
	if errors.Is(v.err, errNoReason) { // as when another message activated the room meanwhile
		v = s.history.append(ctx, m)
	}
	if errors.Is(v.err, errDormant) {
		v = s.appendFirst(ctx, m)
	}
	return v
}

// checkMessage refuses what the table's constraints would refuse, so that such a
// message never costs others their shared statement.
func checkMessage(m store.Message) error {
	switch {
	case !validID(m.ID), m.Kind == wire.KindNotice, m.Kind < wire.KindMessage, m.Kind > wire.KindKeyRequest,
		m.Gen > wire.MaxInteger, len(m.Bytes) == 0, len(m.Bytes) > wire.MaxMessage:
		return errMalformed
	}
	return nil
}

func validID(id string) bool {
	if len(id) == 0 || len(id) > wire.MaxIDLength {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

// historyTable is session_history.
type historyTable struct{ store *Store }

var _ table[store.Message] = historyTable{}

func (historyTable) tenant(m *store.Message) uuid.UUID { return m.Tenant }
func (historyTable) key(m *store.Message) rowKey       { return rowKey{m.Room, m.ID} }
func (historyTable) size(m *store.Message) int         { return len(m.Bytes) }

// queueOne's parameters are in the order of the generated method.
func (t historyTable) queueOne(batch *pgx.Batch, m *store.Message) {
	batch.Queue(sqlcgen.HistoryInsertOne,
		m.Tenant, m.Room, m.ID, m.Sender, m.Kind.String(), int64(m.Gen), kidOf(m), m.Bytes, m.Enc != "", m.Hdr, t.store.cfg.MLS)
}

// rowOf is what queueOne sends.
func (t historyTable) rowOf(m *store.Message) sqlcgen.HistoryInsertOneParams {
	return sqlcgen.HistoryInsertOneParams{
		TenantID: m.Tenant, RoomID: m.Room, MessageID: m.ID, SenderID: m.Sender, Kind: m.Kind.String(), Gen: int64(m.Gen),
		KID: kidOf(m), Envelope: m.Bytes, Enc: m.Enc != "", Hdr: m.Hdr, Mls: t.store.cfg.MLS,
	}
}

// kidOf is NULL where there is none.
func kidOf(m *store.Message) []byte {
	if m.KID == "" {
		return nil
	}
	return []byte(m.KID)
}

// queueMany's parameters are in the order of the generated method.
func (t historyTable) queueMany(batch *pgx.Batch, rows []*pending[store.Message]) {
	batch.Queue(sqlcgen.HistoryInsert,
		textColumn(rows, func(m *store.Message) string { return m.ID }),
		rows[0].row.Tenant,
		uuidColumn(rows, func(m *store.Message) uuid.UUID { return m.Room }),
		uuidColumn(rows, func(m *store.Message) uuid.UUID { return m.Sender }),
		textColumn(rows, func(m *store.Message) string { return m.Kind.String() }),
		int8Column(rows, func(m *store.Message) uint64 { return m.Gen }),
		optionalColumn(rows, pgtype.ByteaOID, func(m *store.Message) string { return m.KID }),
		boolColumn(rows, func(m *store.Message) bool { return m.Enc != "" }),
		boolColumn(rows, func(m *store.Message) bool { return m.Hdr }),
		byteaColumn(rows, func(m *store.Message) []byte { return m.Bytes }),
		t.store.cfg.MLS)
}

func (t historyTable) explain(ctx context.Context, tenant uuid.UUID, refused []*pending[store.Message]) ([]verdict, error) {
	ask := sqlcgen.HistoryVerdictsParams{TenantID: tenant}
	for _, p := range refused {
		m := &p.row
		ask.MessageIDs = append(ask.MessageIDs, m.ID)
		ask.RoomIDs = append(ask.RoomIDs, m.Room)
		ask.SenderIDs = append(ask.SenderIDs, m.Sender)
		ask.Kinds = append(ask.Kinds, m.Kind.String())
		ask.KIDs = append(ask.KIDs, kidOf(m))
		ask.Encs = append(ask.Encs, m.Enc != "")
		ask.Hdrs = append(ask.Hdrs, m.Hdr)
		ask.Envelopes = append(ask.Envelopes, m.Bytes)
	}
	var rows []sqlcgen.HistoryVerdictsRow
	err := t.store.call(ctx, "compare with history", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = t.store.q.HistoryVerdicts(ctx, db, ask)
		return err
	})
	if err != nil || len(rows) != len(refused) {
		return nil, err
	}
	verdicts := make([]verdict, len(rows))
	for i, p := range refused {
		verdicts[i] = t.verdictOf(rows[i], &p.row)
	}
	return verdicts, nil
}

// Refusals of history.
var (
	errMalformed      = &wire.Error{Code: wire.MalformedRequest, Detail: "history does not take this message"}
	errConflict       = &wire.Error{Code: wire.HistoryConflict, Detail: "the id is stored with other content or another sender"}
	errMLSDisabled    = &wire.Error{Code: wire.MLSSchemeDisabled}
	errSchemeMismatch = &wire.Error{Code: wire.SchemeMismatch}
	errRemovalPending = &wire.Error{Code: wire.MLSRemovalPending}
	errRetired        = &wire.Error{Code: wire.MLSRetired}
	errUnknownGen     = &wire.Error{Code: wire.MLSUnknown}
	errNotActivated   = &wire.Error{Code: wire.NotActivated}
	errArchived       = &wire.Error{Code: wire.RoomIsArchived}
)

// errDormant: nothing but that it is the owner's first keeps a message out. It is never
// answered.
var errDormant = errors.New("the direct room is not activated")

// verdictOf says why a message is not stored. The order is part of the contract: a
// resend is a resend, whatever has become of its epoch since.
func (t historyTable) verdictOf(row sqlcgen.HistoryVerdictsRow, m *store.Message) verdict {
	switch {
	case !row.RoomKnown:
		return verdict{err: fmt.Errorf("room: %w", store.ErrNotFound)}
	case row.Archived:
		return verdict{err: errArchived}
	case !row.Member:
		return verdict{err: fmt.Errorf("sender: %w", store.ErrNotFound)}
	case row.Same:
		return verdict{duplicate: true}
	case row.Stored:
		return verdict{err: errConflict}
	case row.Mls && !t.store.cfg.MLS:
		return verdict{err: errMLSDisabled}
	case !row.Fits:
		return verdict{err: errSchemeMismatch}
	case m.Kind == wire.KindMessage:
		return verdict{err: messageVerdict(row, int64(m.Gen))}
	}
	return verdict{err: errNoReason}
}

// messageVerdict says why a message that fits the room's scheme is not stored.
func messageVerdict(row sqlcgen.HistoryVerdictsRow, gen int64) error {
	switch {
	case row.Mls && row.Rekeying:
		return errRemovalPending
	case row.Mls && gen < row.Epoch, gen < row.FirstGen:
		return errRetired
	case row.Mls && (gen > row.Epoch || !row.Grouped), row.FirstGen > 0 && gen > row.LastGen:
		return errUnknownGen
	case row.Dormant && row.Agent:
		return errNotActivated
	case row.Dormant:
		return errDormant
	}
	return errNoReason
}

// appendFirst stores the message that activates a direct room (STATE, "Session
// Establishment"): both or neither.
func (s *Store) appendFirst(ctx context.Context, m store.Message) verdict {
	history := historyTable{s}
	err := s.transaction(ctx, "activate room", asService(m.Tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		// As whoever stores in a room, and before its row, since those do not lock that.
		if err := s.q.RoomsSerialize(ctx, db, []int64{lockKey(m.Room)}); err != nil {
			return err
		}
		if err := s.q.RoomActivate(ctx, db, m.Tenant, m.Room); err != nil {
			return err
		}
		stored, err := s.q.HistoryInsertOne(ctx, db, history.rowOf(&m))
		if err == nil && stored == 0 {
			err = errNoReason
		}
		return err
	})
	if !errors.Is(err, errNoReason) {
		return verdict{err: err}
	}
	// Something came between: a resend, a removal, other keys.
	verdicts, err := history.explain(ctx, m.Tenant, []*pending[store.Message]{{row: m}})
	switch {
	case err != nil:
		return verdict{err: err}
	case len(verdicts) != 1 || errors.Is(verdicts[0].err, errDormant):
		return verdict{err: errNoReason}
	}
	return verdicts[0]
}
