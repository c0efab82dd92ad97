package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
)

// boardPeople are those whose events a device reads, and for whom it seals: everybody who is in
// the room, and authors who have left.
type boardPeople struct {
	device   *Device
	room     string
	own      pairwise.Own
	readers  []signed.Member // everybody else in the room whose keys are accepted
	withheld []string        // the rest of them
	authors  map[string]boardAuthor
}

// boardAuthor is an author, or why nothing of it is believed.
type boardAuthor struct {
	member signed.Member
	err    error
}

// maxAuthors bounds how many are remembered for one list.
const maxAuthors = 2 * maxMembers

// meetBoard asks who is in the room, and pins keys that are new.
func (d *Device) meetBoard(ctx context.Context, room string) (*boardPeople, error) {
	found, err := d.ownRoom(ctx, room)
	if err != nil {
		return nil, err
	}
	if found.RoomID != room || len(found.Participants) > maxMembers {
		return nil, errAnswer
	}
	own, err := signed.NewMember(found.ParticipantID, &d.keys.public)
	if err != nil {
		return nil, errAnswer
	}
	p := &boardPeople{
		device: d, room: room, authors: map[string]boardAuthor{own.ID(): {member: own}},
		own: pairwise.Own{ID: own.ID(), Identity: d.keys.identity, Agreement: d.keys.agreement},
	}
	var members []encryption.Member
	var changed map[string]error
	err = d.store.Update(func(tx *keystore.Tx) (err error) {
		members, changed, err = accepted(tx, &found)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range members {
		p.readers = append(p.readers, members[i].Member)
		p.authors[members[i].ID()] = boardAuthor{member: members[i].Member}
	}
	for i := range found.Participants {
		id := found.Participants[i].ParticipantID
		if _, known := p.authors[id]; !known {
			p.withheld = append(p.withheld, id)
			p.authors[id] = boardAuthor{err: cmp.Or(changed[id], identity.ErrKeys)}
		}
	}
	return p, nil
}

// author returns who wrote an event: nobody (err of the result) where the relay does not tell the
// keys, or tells other ones than before.
func (p *boardPeople) author(ctx context.Context, participant string) (boardAuthor, error) {
	if known, ok := p.authors[participant]; ok {
		return known, nil
	}
	m, why, err := p.device.formerMember(ctx, p.room, participant)
	author := boardAuthor{member: m.Member, err: why}
	if err == nil && len(p.authors) < maxAuthors {
		p.authors[participant] = author
	}
	return author, err
}

// open verifies and opens an event of a participant. why says why it cannot be shown; with an
// error nothing can.
func (p *boardPeople) open(ctx context.Context, card, participant string, s *boardseal.Sealed) (opened *boardseal.Opened, content *BoardContent, why, err error) {
	author, err := p.author(ctx, participant)
	if err != nil || author.err != nil {
		return nil, nil, author.err, err
	}
	opened, why = boardseal.Open(&p.own, &boardseal.Expected{Room: p.room, Card: card, Author: author.member}, s)
	if why != nil {
		return opened, nil, why, nil
	}
	content, why = decodeContent(opened.Text, opened.Type)
	return opened, content, why, nil
}

// event verifies and opens a row.
func (p *boardPeople) event(ctx context.Context, row *eventRow) (BoardEvent, error) {
	event := BoardEvent{
		Sequence: row.Sequence, EventID: row.EventID, CardID: row.CardID, Kind: row.Kind, Type: row.Type,
		Revision: row.Revision, Author: row.Author, CreatedAt: row.CreatedAt,
	}
	if checkIDs(row.EventID, row.CardID) != nil {
		return event, errAnswer
	}
	opened, content, why, err := p.open(ctx, row.CardID, row.Author, &boardseal.Sealed{Content: row.Content, Signature: row.Signature})
	if err != nil {
		return event, err
	}
	if opened != nil && !shows(row, &opened.Header) { // also of what was not sealed for this device
		opened, content, why = nil, nil, ErrBoardEvent
	}
	if opened != nil {
		event.Basis, event.Readers = opened.Basis, opened.Recipients
	}
	replayed, err := p.device.shownBefore(p.room, row)
	if replayed {
		content, why = nil, fmt.Errorf("%w: it has come under another sequence", ErrBoardEvent)
	}
	event.Content, event.Err = content, why
	return event, err
}

// shows reports whether the relay shows an event as its author signed it.
func shows(row *eventRow, h *boardseal.Header) bool {
	return h.Event == row.EventID && h.Type == row.Type && (h.Type != boardseal.Created || h.Kind == row.Kind) && follows(h, row.Revision)
}

// follows reports whether an event can have left its card at a revision.
func follows(h *boardseal.Header, revision uint64) bool {
	if h.Type == boardseal.Comment {
		return revision > 1
	}
	return revision == h.Base+1
}

// card verifies and opens a card, whose content says itself which event it is of.
func (p *boardPeople) card(ctx context.Context, row *cardRow) (Card, error) {
	card := Card{
		CardID: row.CardID, Kind: row.Kind, Revision: row.Revision, Closed: row.Closed, Author: row.Author,
		Sequence: row.Sequence, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
	if checkIDs(row.CardID) != nil {
		return card, errAnswer
	}
	var opened *boardseal.Opened
	var content *BoardContent
	claimed, why := boardseal.ReadHeader(row.Content)
	if why == nil { // who its author is, it says itself
		var err error
		opened, content, why, err = p.open(ctx, row.CardID, claimed.Author, &boardseal.Sealed{Content: row.Content, Signature: row.Signature})
		if err != nil {
			return card, err
		}
	}
	if opened != nil && !describes(row, &opened.Header) {
		opened, content, why = nil, nil, ErrBoardEvent
	}
	if opened != nil {
		card.ContentEvent, card.ContentAuthor = opened.Event, opened.Author
	}
	card.Content, card.Err = content, why
	return card, nil
}

// describes reports whether an event can be the newest one that says what is on the card.
func describes(row *cardRow, h *boardseal.Header) bool {
	switch h.Type {
	case boardseal.Created:
		return h.Kind == row.Kind && h.Author == row.Author && row.Revision >= 1
	case boardseal.Updated:
		return h.Base < row.Revision
	default:
		return false
	}
}
