package client

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
)

// CardKind is the kind of a card, one of boardseal's.
type CardKind = boardseal.Kind

// BoardEventType is what an event does to its card, one of boardseal's.
type BoardEventType = boardseal.Type

// Verdicts of an approval.
const (
	Approved = "approved"
	Rejected = "rejected"
)

// Bounds of a BoardContent.
const (
	MaxSubject = 256 // code points, of a subject and of an option's label
	MaxOptions = 32
)

// BoardContent is what people and agents read of an event. Its members belong to types of
// events:
//
//	created, updated   Subject, Details, Options
//	comment            Comment
//	option_chosen      Option, Comment
//	approval           Approval, Comment
//	closed             Comment
//
// Subject, Option, Approval, and the Comment of a comment have to be there. All of it has to fit
// into the event, of which there is boardseal.MaxText for as many as are in the room.
type BoardContent struct {
	Subject  string   `json:"subject,omitzero"` // one line
	Details  string   `json:"details,omitzero"`
	Options  []string `json:"options,omitempty"` // labels, each once
	Option   string   `json:"option,omitzero"`   // the label of the one that was chosen
	Approval string   `json:"approval,omitzero"` // Approved or Rejected
	Comment  string   `json:"comment,omitzero"`
}

// ErrBoardContent reports content that breaks a rule of BoardContent. What wraps it repeats
// nothing of it.
var ErrBoardContent = errors.New("not the content of a Board event")

// boardContentVersion is the value of a content's "v".
const boardContentVersion = 1

type versionedContent struct {
	BoardContent

	Version int `json:"v"`
}

// encode returns the canonical text of the content of an event.
func (c *BoardContent) encode(of BoardEventType) ([]byte, error) {
	if err := c.check(of); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(versionedContent{*c, boardContentVersion})
	if err != nil {
		return nil, fmt.Errorf("%w: it is no UTF-8", ErrBoardContent)
	}
	text, err := signed.Canonical(raw)
	if err != nil {
		return nil, boardseal.ErrTooLarge
	}
	return text, nil
}

// decodeContent reads what encode writes, in its one spelling.
func decodeContent(text []byte, of BoardEventType) (*BoardContent, error) {
	form, err := signed.Canonical(text)
	if err != nil || !bytes.Equal(form, text) {
		return nil, fmt.Errorf("%w: it is no canonical JSON", ErrBoardContent)
	}
	var read versionedContent
	if err := json.Unmarshal(text, &read, json.RejectUnknownMembers(true)); err != nil || read.Version != boardContentVersion {
		return nil, fmt.Errorf("%w: it has other members than this version knows", ErrBoardContent)
	}
	if err := read.check(of); err != nil {
		return nil, err
	}
	return &read.BoardContent, nil
}

// check returns the first rule that the content breaks.
func (c *BoardContent) check(of BoardEventType) error {
	describes := of == boardseal.Created || of == boardseal.Updated
	for _, rule := range [...]struct {
		kept bool
		text string
	}{
		{describes == (c.Subject != "") && validLabel(c.Subject), "subject is one line of 1 to 256 code points, of created and updated"},
		{describes || c.Details == "" && len(c.Options) == 0, "details and options are of created and updated"},
		{validOptions(c.Options), "options are at most 32 different labels, each of one line"},
		{(of == boardseal.OptionChosen) == (c.Option != "") && validLabel(c.Option), "option is a label, of option_chosen"},
		{(of == boardseal.Approval) == (c.Approval != ""), "approval is of an approval"},
		{c.Approval == "" || c.Approval == Approved || c.Approval == Rejected, "approval is approved or rejected"},
		{!describes || c.Comment == "", "created and updated have no comment"},
		{of != boardseal.Comment || c.Comment != "", "a comment has no text"},
		{utf8.ValidString(c.Details + c.Comment), "a text is no UTF-8"},
	} {
		if !rule.kept {
			return fmt.Errorf("%w: %s", ErrBoardContent, rule.text)
		}
	}
	return nil
}

func validOptions(options []string) bool {
	known := make(map[string]bool, len(options))
	for _, label := range options {
		if label == "" || !validLabel(label) || known[label] {
			return false
		}
		known[label] = true
	}
	return len(options) <= MaxOptions
}

// validLabel reports one line of at most MaxSubject code points.
func validLabel(text string) bool {
	return len(text) <= utf8.UTFMax*MaxSubject && utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxSubject &&
		!strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' })
}
