package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

const (
	// ownRows is how many rows of the history, the newest first, are looked through for the newest
	// of one's own. Who had said nothing for longer, and restores an old copy then, is found out by
	// those who receive (stale_sender_key, the reset of a direct room).
	ownRows = 500
	// ownPage are the rows of one request: mostly the first one has the row.
	ownPage = 25
)

// noticeOldCopy compares the store with the newest envelope of this participant in the room's
// history: one that the store does not know of was sent by a newer copy of it. It is done before
// the first message after the store was opened, as the generations that the relay allocated say
// nothing of a copy within the newest one, nor of direct rooms.
func (s *Session) noticeOldCopy(ctx context.Context) error {
	query := func(cursor string) url.Values {
		page := orderQuery(cursor, NewestFirst)
		page.Set("limit", strconv.Itoa(ownPage))
		return page
	}
	seen := 0
	for row, err := range s.device.historyPages(ctx, s.id, query) {
		if err != nil {
			return err
		}
		if row.From == s.self {
			own, err := s.ownEnvelope(row.Envelope)
			if err == nil { // else the relay made it up
				return s.store.Update(func(tx *keystore.Tx) error { return s.noticeOwn(tx, own) })
			}
		}
		if seen++; seen == ownRows {
			break
		}
	}
	return nil
}

// ownEnvelope verifies an envelope that says it is this participant's.
func (s *Session) ownEnvelope(envelope []byte) (*signed.Message, error) {
	self, err := signed.NewMember(s.self, &s.device.keys.public)
	if err != nil {
		return nil, err
	}
	return signed.Read(envelope, &signed.Expected{SessionID: s.id, From: self, Self: s.self})
}

func (s *Session) noticeOwn(tx *keystore.Tx, own *signed.Message) error {
	_, err := encryption.NoticeOwn(tx, s.id, own.Seq)
	return err
}
