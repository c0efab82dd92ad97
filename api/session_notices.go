package api

import (
	"net/http"

	"github.com/peerrelay/peerrelay/store"
)

// listNotices serves accepted notices, expired ones among them.
func (a *API) listNotices(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor", "order")
	if err != nil {
		return 0, nil, err
	}
	l, err := readList(query, listNotices, false)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	if err := s.open(l); err != nil {
		return 0, nil, err
	}
	if l.page.Since, err = s.since(); err != nil {
		return 0, nil, err
	}
	rows, cursor, err := collect(l, func(page store.Page) ([]store.StoredNotice, bool, error) {
		return a.cfg.Store.NoticePage(s.ctx, s.tenant, s.room, page)
	}, func(n *store.StoredNotice) rowFacts { return rowFacts{n.Position, n.AcceptedAt, len(n.Bytes)} })
	if err != nil {
		return 0, nil, err
	}
	answer := Notices{Notices: make([]NoticeRow, 0, len(rows)), NextCursor: cursor}
	for _, n := range rows {
		answer.Notices = append(answer.Notices, NoticeRow{
			MessageID:  n.ID,
			From:       n.Sender.String(),
			Gen:        n.Gen,
			AcceptedAt: n.AcceptedAt.UTC(),
			ExpiresAt:  n.ExpiresAt.UTC(),
			Envelope:   n.Bytes,
		})
	}
	return http.StatusOK, answer, nil
}
