package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// AppendTrace implements store.TraceWriter.
func (s *Store) AppendTrace(ctx context.Context, t store.Trace) (store.Appended, error) {
	v := verdict{err: checkTrace(t)}
	var row traceRow
	if v.err == nil {
		row, v.err = newTraceRow(t)
	}
	if v.err == nil {
		v = s.traces.append(ctx, row)
	}
	s.traces.metrics.count(v)
	if v.err != nil {
		return store.Appended{}, fmt.Errorf("append trace: %w", v.err)
	}
	return store.Appended{Duplicate: v.duplicate}, nil
}

// Refusals of traces, beside those of history.
var (
	errTraceShape     = &wire.Error{Code: wire.MalformedRequest, Detail: "traces do not take this"}
	errPrivateRefused = &wire.Error{Code: wire.PrivateRefused}
)

// checkTrace refuses what the table would refuse, so that such a trace never costs others
// their shared statement.
func checkTrace(t store.Trace) error {
	if !validID(t.MessageID) || t.From == t.To || t.TS > wire.MaxInteger || len(t.Files) > store.MaxTraceFiles ||
		t.Declared && len(t.Files) > 1 {
		return errTraceShape
	}
	for _, f := range t.Files {
		if !validLabel(f.Name, wire.MaxFileName) || !validLabel(f.MIMEType, wire.MaxMIMEType) || f.SizeBytes > wire.MaxFileSize {
			return errTraceShape
		}
	}
	return nil
}

// validLabel says whether text is what a file header allows: 1 to limit code points that
// may be shown on one line, none of category Cc, no U+2028, no U+2029 (RELAY).
func validLabel(text string, limit int) bool {
	if text == "" || !utf8.ValidString(text) || utf8.RuneCountInString(text) > limit {
		return false
	}
	for _, r := range text {
		if r < ' ' || r >= 0x7F && r <= 0x9F || r == 0x2028 || r == 0x2029 {
			return false
		}
	}
	return true
}

// traceRow is a trace with its files as the table holds them.
type traceRow struct {
	store.Trace
	files string // JSON; empty: NULL
}

// fileJSON is an element of message_traces.files.
type fileJSON struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mime_type"`
	SizeBytes uint64 `json:"size_bytes"`
}

func newTraceRow(t store.Trace) (traceRow, error) {
	row := traceRow{Trace: t}
	if len(t.Files) == 0 {
		return row, nil
	}
	files := make([]fileJSON, len(t.Files))
	for i, f := range t.Files {
		files[i] = fileJSON(f)
	}
	text, err := json.Marshal(files)
	if err != nil {
		return traceRow{}, fmt.Errorf("write files: %w", err)
	}
	row.files = string(text)
	return row, nil
}

// traceTable is message_traces.
type traceTable struct{ store *Store }

var _ table[traceRow] = traceTable{}

func (traceTable) tenant(t *traceRow) uuid.UUID { return t.Tenant }
func (traceTable) key(t *traceRow) rowKey       { return rowKey{t.Room, t.MessageID} }
func (traceTable) size(t *traceRow) int         { return 200 + len(t.files) }

// queueOne's parameters are in the order of the generated method.
func (traceTable) queueOne(batch *pgx.Batch, t *traceRow) {
	var files *string // NULL
	if t.files != "" {
		files = &t.files
	}
	batch.Queue(sqlcgen.TraceInsertOne,
		t.Tenant, t.Room, t.MessageID, t.From, t.To, int64(t.TS), t.Declared, files, t.Digest[:])
}

// queueMany's parameters are in the order of the generated method.
func (traceTable) queueMany(batch *pgx.Batch, rows []*pending[traceRow]) {
	batch.Queue(sqlcgen.TraceInsert,
		textColumn(rows, func(t *traceRow) string { return t.MessageID }),
		rows[0].row.Tenant,
		uuidColumn(rows, func(t *traceRow) uuid.UUID { return t.Room }),
		uuidColumn(rows, func(t *traceRow) uuid.UUID { return t.From }),
		uuidColumn(rows, func(t *traceRow) uuid.UUID { return t.To }),
		int8Column(rows, func(t *traceRow) uint64 { return t.TS }),
		boolColumn(rows, func(t *traceRow) bool { return t.Declared }),
		optionalColumn(rows, pgtype.TextOID, func(t *traceRow) string { return t.files }),
		byteaColumn(rows, func(t *traceRow) []byte { return t.Digest[:] }))
}

func (t traceTable) explain(ctx context.Context, tenant uuid.UUID, refused []*pending[traceRow]) ([]verdict, error) {
	ask := sqlcgen.TraceVerdictsParams{TenantID: tenant}
	for _, p := range refused {
		row := &p.row
		ask.MessageIDs = append(ask.MessageIDs, row.MessageID)
		ask.RoomIDs = append(ask.RoomIDs, row.Room)
		ask.SenderIDs = append(ask.SenderIDs, row.From)
		ask.RecipientIDs = append(ask.RecipientIDs, row.To)
		ask.Digests = append(ask.Digests, row.Digest[:])
	}
	var rows []sqlcgen.TraceVerdictsRow
	err := t.store.call(ctx, "compare with traces", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = t.store.q.TraceVerdicts(ctx, db, ask)
		return err
	})
	verdicts := make([]verdict, len(rows))
	for i, row := range rows {
		verdicts[i] = traceVerdict(row)
	}
	return verdicts, err
}

func traceVerdict(row sqlcgen.TraceVerdictsRow) verdict {
	switch {
	case !row.RoomKnown:
		return verdict{err: fmt.Errorf("room: %w", store.ErrNotFound)}
	case row.Archived:
		return verdict{err: errArchived}
	case !row.Members:
		return verdict{err: fmt.Errorf("sender or recipient: %w", store.ErrNotFound)}
	case !row.Allowed:
		return verdict{err: errPrivateRefused}
	case row.Same:
		return verdict{duplicate: true}
	case row.Stored, row.InHistory:
		return verdict{err: errConflict}
	}
	return verdict{err: errNoReason}
}
