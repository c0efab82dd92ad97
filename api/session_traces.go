package api

import (
	"net/http"

	"github.com/peerrelay/peerrelay/store"
)

// tracedBytes is about what a trace takes in an answer, for each file and without one.
const tracedBytes = 512

// listTraces serves the audit of private messages to the owner, also of the time that it was
// offline (RELAY, "an owner who was offline can read the durable trace later"), but not of
// the time before it joined.
func (a *API) listTraces(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor", "order")
	if err != nil {
		return 0, nil, err
	}
	l, err := readList(query, listTraces, true)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	if err := s.ownerOrOperator(); err != nil {
		return 0, nil, err
	}
	if err := s.open(l); err != nil {
		return 0, nil, err
	}
	if l.page.Since, err = s.since(); err != nil {
		return 0, nil, err
	}
	rows, cursor, err := collect(l, func(page store.Page) ([]store.StoredTrace, bool, error) {
		return a.cfg.Store.TracePage(s.ctx, s.tenant, s.room, page)
	}, func(t *store.StoredTrace) rowFacts {
		return rowFacts{t.Position, t.CommittedAt, tracedBytes * (1 + len(t.Files))}
	})
	if err != nil {
		return 0, nil, err
	}
	answer := Traces{Traces: make([]TraceRow, 0, len(rows)), NextCursor: cursor}
	for i := range rows {
		answer.Traces = append(answer.Traces, traceRow(&rows[i]))
	}
	return http.StatusOK, answer, nil
}

func traceRow(t *store.StoredTrace) TraceRow {
	row := TraceRow{
		Event:       "message.private",
		MessageID:   t.MessageID,
		From:        t.From.String(),
		To:          t.To.String(),
		TS:          t.TS,
		CommittedAt: t.CommittedAt.UTC(),
	}
	files := make([]TracedFile, 0, len(t.Files))
	for _, f := range t.Files {
		files = append(files, TracedFile{Name: f.Name, MIMEType: f.MIMEType, SizeBytes: f.SizeBytes, Declared: t.Declared})
	}
	if len(files) > 0 {
		row.File = &files[0]
	}
	if len(files) > 1 {
		row.Files = files
	}
	return row
}
