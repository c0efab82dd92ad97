package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// Order is the order of a list; empty, it is that of the relay: oldest first, and of traces newest.
type Order string

// Orders of lists.
const (
	OldestFirst Order = "oldest"
	NewestFirst Order = "newest"
)

// HistoryRow is an envelope to a room as the relay has stored it. Everything beside the
// envelope is the relay's word.
type HistoryRow struct {
	MessageID  string    `json:"message_id"`
	From       string    `json:"from"` // participant
	Kind       string    `json:"kind"`
	Gen        uint64    `json:"gen"`
	KID        string    `json:"kid,omitzero"` // in base64url
	ReceivedAt time.Time `json:"received_at"`  // by the relay's clock
	Envelope   []byte    `json:"envelope"`     // exactly as it was sent, signed and sealed
}

// History lists the envelopes to a room that the relay keeps: at most 10,000 and of 30 days
// where its operator says nothing else, and nothing from before this device joined. Private
// messages are not among them. After an error it ends.
func (d *Device) History(ctx context.Context, room string, order Order) iter.Seq2[HistoryRow, error] {
	return d.historyPages(ctx, room, func(cursor string) url.Values { return orderQuery(cursor, order) })
}

func (d *Device) historyPages(ctx context.Context, room string, query func(cursor string) url.Values) iter.Seq2[HistoryRow, error] {
	return checked("read the history", pages(func(cursor string) ([]HistoryRow, string, error) {
		var page struct {
			Messages   []HistoryRow `json:"messages"`
			NextCursor string       `json:"next_cursor"`
		}
		err := d.inSession(ctx, room, "/history", request{method: http.MethodGet, query: query(cursor), answer: &page})
		return page.Messages, page.NextCursor, err
	}), func(m *HistoryRow) bool { return plausible(m.MessageID, m.From, m.Envelope) })
}

// HistoryMessage returns one envelope of the history. One that is not in it, or from before this
// device joined, is wire.NotFound.
func (d *Device) HistoryMessage(ctx context.Context, room, id string) (HistoryRow, error) {
	if !wire.ValidID([]byte(id)) {
		return HistoryRow{}, fmt.Errorf("message %q: %w", id, ErrID)
	}
	var found HistoryRow
	err := d.inSession(ctx, room, "/history", request{method: http.MethodGet, query: url.Values{"message_id": {id}}, answer: &found})
	if err == nil && (found.MessageID != id || !plausible(id, found.From, found.Envelope)) {
		err = errAnswer
	}
	if err != nil {
		return HistoryRow{}, step("read the history", err)
	}
	return found, nil
}

// plausible reports a row that a relay may send; who signed its envelope is for others to say.
func plausible(id, from string, envelope []byte) bool {
	return wire.ValidID([]byte(id)) && checkIDs(from) == nil && len(envelope) > 0 && len(envelope) <= wire.MaxMessage
}

func orderQuery(cursor string, order Order) url.Values {
	query := pageQuery(cursor)
	if order != "" {
		query.Set("order", string(order))
	}
	return query
}

// checked is a list that ends with the first row that no relay may send.
func checked[T any](name string, rows iter.Seq2[T, error], accept func(*T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for row, err := range rows {
			if err == nil && !accept(&row) {
				err = errAnswer
			}
			if err != nil {
				var none T
				yield(none, step(name, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}
