package api

import (
	"mime"
	"net/http"
	"strings"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

const octetStream = "application/octet-stream"

// listHistory serves the room's window (RELAY, "The relay preserves the original envelope
// bytes"), or one message of it.
func (a *API) listHistory(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor", "order", "message_id")
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	if id, one := query["message_id"]; one {
		if len(query) > 1 {
			return 0, nil, malformed("message_id stands alone")
		}
		return s.historyMessage(id, wantsBytes(r))
	}
	list, err := readList(query, listHistory, false)
	if err != nil {
		return 0, nil, err
	}
	return s.history(list)
}

func (s *sessionRequest) history(l *list) (int, any, error) {
	err := s.open(l)
	if err != nil {
		return 0, nil, err
	}
	if l.page.Since, err = s.since(); err != nil {
		return 0, nil, err
	}
	rows, cursor, err := collect(l, func(page store.Page) ([]store.StoredMessage, bool, error) {
		return s.api.cfg.Store.HistoryPage(s.ctx, s.tenant, s.room, page)
	}, func(m *store.StoredMessage) rowFacts { return rowFacts{m.Position, m.ReceivedAt, len(m.Bytes)} })
	if err != nil {
		return 0, nil, err
	}
	answer := History{Messages: make([]HistoryRow, 0, len(rows)), NextCursor: cursor}
	for i := range rows {
		answer.Messages = append(answer.Messages, historyRow(&rows[i]))
	}
	return http.StatusOK, answer, nil
}

func (s *sessionRequest) historyMessage(id string, raw bool) (int, any, error) {
	if !wire.ValidID([]byte(id)) {
		return 0, nil, malformed("message_id is not 1 to 128 printable ASCII characters without space")
	}
	since, err := s.since()
	if err != nil {
		return 0, nil, err
	}
	message, err := s.api.cfg.Store.HistoryMessage(s.ctx, s.tenant, s.room, id)
	if err != nil {
		return 0, nil, err
	}
	if message.ReceivedAt.Before(since) {
		return 0, nil, store.ErrNotFound
	}
	if raw {
		return http.StatusOK, rawAnswer{contentType: octetStream, body: message.Bytes}, nil
	}
	return http.StatusOK, historyRow(&message), nil
}

func historyRow(m *store.StoredMessage) HistoryRow {
	return HistoryRow{
		MessageID:  m.ID,
		From:       m.Sender.String(),
		Kind:       m.Kind,
		Gen:        m.Gen,
		KID:        m.KID,
		ReceivedAt: m.ReceivedAt.UTC(),
		Envelope:   m.Bytes,
	}
}

// wantsBytes reports whether the caller asks for the envelope itself.
func wantsBytes(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			if media, _, err := mime.ParseMediaType(part); err == nil && media == octetStream {
				return true
			}
		}
	}
	return false
}
