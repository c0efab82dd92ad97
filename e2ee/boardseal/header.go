package boardseal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// Errors. None of them says anything of what is sealed.
var (
	// ErrFormat says that content is not sealed as this package does, or that what is to be
	// sealed breaks a rule of Header.
	ErrFormat = errors.New("not the content of a Board event")
	// ErrTooLarge says that a text does not fit for so many recipients.
	ErrTooLarge = errors.New("the text is larger than a Board event may be")
	// ErrSignature says that the content was not signed by its author.
	ErrSignature = errors.New("the Board event was not signed by its author")
	// ErrContext says that the content is authentic, and of another room, card or author.
	ErrContext = errors.New("the content is of another Board event")
	// ErrNotForUs says that the content is authentic, and was not sealed for this participant:
	// as a rule because it joined later.
	ErrNotForUs = errors.New("the Board event was sealed before this participant joined, or without it")
)

// Type is what an event does to its card.
type Type string

// Types of events, and their numbers.
const (
	Created      Type = "created"
	Updated      Type = "updated"
	Comment      Type = "comment"
	OptionChosen Type = "option_chosen"
	Approval     Type = "approval"
	Closed       Type = "closed"
)

// Kind is the kind of a card.
type Kind string

// Kinds of cards.
const (
	Idea     Kind = "idea"
	Task     Kind = "task"
	Question Kind = "question"
	Decision Kind = "decision"
)

var (
	types = []Type{"", Created, Updated, Comment, OptionChosen, Approval, Closed} // by their numbers
	kinds = []Kind{"", Idea, Task, Question, Decision}
)

// Header is what is signed of an event beside its text, readable for everybody. Ids are UUIDs
// in small letters.
type Header struct {
	Type   Type
	Kind   Kind // of created, else empty
	Room   string
	Card   string
	Event  string
	Author string // participant
	// Base is the card's revision that the event is based on, from 1; 0 of created and comment.
	Base uint64
	// Basis is the event whose content its author saw on the card; empty where it saw none.
	Basis string
}

const (
	version    = 1
	idSize     = 16
	headerSize = 3 + 4*idSize + 8 + idSize // 91
)

// append writes the header, or returns ErrFormat.
func (h *Header) append(dst []byte) ([]byte, error) {
	kind, number := slices.Index(kinds, h.Kind), slices.Index(types, h.Type)
	switch {
	case number < 1:
		return nil, fmt.Errorf("%w: type is not one of the six", ErrFormat)
	case kind < 0 || (kind > 0) != (h.Type == Created):
		return nil, fmt.Errorf("%w: kind is one of four of a created event, and empty of others", ErrFormat)
	case (h.Base == 0) != (h.Type == Created || h.Type == Comment) || h.Base > wire.MaxInteger:
		return nil, fmt.Errorf("%w: base is 0 of created and comment, and 1 to 2^53-1 of others", ErrFormat)
	case h.Type == Created && h.Basis != "":
		return nil, fmt.Errorf("%w: a created event has no basis", ErrFormat)
	}
	dst = append(dst, version, byte(number), byte(kind))
	for _, id := range []string{h.Room, h.Card, h.Event, h.Author} {
		raw, ok := parseID(id)
		if !ok {
			return nil, fmt.Errorf("%w: an id is not a UUID in small letters", ErrFormat)
		}
		dst = append(dst, raw[:]...)
	}
	dst = binary.BigEndian.AppendUint64(dst, h.Base)
	var basis [idSize]byte
	if h.Basis != "" {
		var ok bool
		if basis, ok = parseID(h.Basis); !ok {
			return nil, fmt.Errorf("%w: basis is not a UUID in small letters", ErrFormat)
		}
	}
	return append(dst, basis[:]...), nil
}

// parseID reads an id. The one of zeros is none.
func parseID(text string) (id [idSize]byte, ok bool) {
	id, ok = wire.ParseUUID([]byte(text))
	return id, ok && id != [idSize]byte{}
}

// ReadHeader returns what content says of itself, unverified: whose keys Open needs. The
// error is ErrFormat.
func ReadHeader(content []byte) (*Header, error) {
	if len(content) < headerSize || len(content) > MaxSealed || content[0] != version ||
		int(content[1]) >= len(types) || int(content[2]) >= len(kinds) {
		return nil, ErrFormat
	}
	h := &Header{Type: types[content[1]], Kind: kinds[content[2]]}
	rest := content[3:]
	for _, id := range []*string{&h.Room, &h.Card, &h.Event, &h.Author} {
		*id = uuid.UUID(rest[:idSize]).String()
		rest = rest[idSize:]
	}
	h.Base = binary.BigEndian.Uint64(rest)
	if basis := [idSize]byte(rest[8:]); basis != [idSize]byte{} {
		h.Basis = uuid.UUID(basis).String()
	}
	if form, err := h.append(nil); err != nil || !bytes.Equal(form, content[:headerSize]) {
		return nil, ErrFormat // what this package would not write
	}
	return h, nil
}
