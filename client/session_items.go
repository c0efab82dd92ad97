package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// What came and was not taken yet is in the bucket Messages, under names that begin with the
// room, or with what all rooms have one bound of:
//
//	ROOM/item/N              what Poll and Listen hand over, in the order of N
//	pending/ROOM/N/SENDER/S  envelopes of S bytes whose key is being asked for
//	files/ROOM/SENDER/ID     how far a file has come
//	ROOM/chunk/SENDER/ID/I   a part of it
const (
	itemPart    = "/item/"
	pendingPart = "pending/"
	filesPart   = "files/"
	chunkPart   = "/chunk/"
)

const (
	maxPending  = 256                  // envelopes of a room whose key is asked for
	retryBatch  = 32                   // of them, that are tried again in one Update
	maxArriving = content.MaxOpenFiles // files of one sender that have not come whole
	// Bounds of envelopes whose key is asked for, of all senders in all rooms.
	maxPendingAll   = 4096
	maxPendingBytes = 24 << 20
	// Bounds of files that have not come whole, of all senders in all rooms. A file of
	// content.MaxFile bytes is 11 MiB in chunks; the store has room for 128 MiB.
	maxArrivingFiles = 256
	maxArrivingBytes = 64 << 20
)

// savedItem is an Item as it is stored. One of its pointers is set.
type savedItem struct {
	Message *savedMessage   `json:"message,omitzero"`
	Failure *savedFailure   `json:"failure,omitzero"`
	Event   *wire.RoomEvent `json:"event,omitzero"`
	Board   *BoardHint      `json:"board,omitzero"`
	Gap     *Gap            `json:"gap,omitzero"`
}

type savedMessage struct {
	ID       string    `json:"id"`
	From     string    `json:"from"`
	Device   string    `json:"device"`
	Role     string    `json:"role"`
	To       string    `json:"to"`
	Kind     wire.Kind `json:"kind"`
	TS       uint64    `json:"ts"`
	Expires  uint64    `json:"expires,omitzero"`
	StreamID string    `json:"stream_id"`
	Payload  []byte    `json:"payload,omitzero"`
	File     string    `json:"file,omitzero"` // id of a file that came in chunks
}

type savedFailure struct {
	ID       string    `json:"id"`
	From     string    `json:"from"`
	StreamID string    `json:"stream_id"`
	Class    string    `json:"class"` // of failures
	Reason   wire.Code `json:"reason,omitzero"`
	Text     string    `json:"text"`
}

// failures are the errors that an envelope may fail with for good, and their names in the
// store. Any other error is none of the envelope's.
var failures = []struct { //nolint:gochecknoglobals // a table
	class string
	err   error
}{
	{"may_not_ask", encryption.ErrMayNotAsk}, // which is lost, too
	{"lost", encryption.ErrLost},
	{"too_large", signed.ErrTooLarge},
	{"canonical", signed.ErrCanonical},
	{"signature", signed.ErrSignature},
	{"context", signed.ErrContext},
	{"envelope", signed.ErrEnvelope},
	{"unknown_sender", ErrUnknownSender},
	{"keys_changed", ErrKeysChanged},
	{"keys", identity.ErrKeys},
	{"content", content.ErrContent},
	{"content_too_large", content.ErrTooLarge},
	{"file", content.ErrFile},
	{"kind", encryption.ErrKind},
	{"not_activated", encryption.ErrNotActivated},
	{"not_member", ErrNotMember},
	{"implausible", keystore.ErrImplausible},
}

const refusedClass = "refused"

// failed reports whether err is an envelope's own fault.
func failed(err error) bool {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return true
		}
	}
	return false
}

func newFailure(id, from, streamID string, err error) *savedFailure {
	saved := &savedFailure{ID: id, From: from, StreamID: streamID, Text: err.Error()}
	if nack, ok := errors.AsType[*NackError](err); ok {
		saved.Class, saved.Reason = refusedClass, nack.Reason
		return saved
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			saved.Class = f.class
			break
		}
	}
	return saved
}

// failureError is the error of a failure that was stored: it has the text, and what errors.Is
// finds.
type failureError struct {
	text  string
	class error
}

func (e *failureError) Error() string { return e.text }
func (e *failureError) Unwrap() error { return e.class }

func (f *savedFailure) failure() *Failure {
	failure := &Failure{ID: f.ID, From: f.From, StreamID: f.StreamID}
	if f.Class == refusedClass {
		failure.Err = &NackError{ID: f.ID, Reason: f.Reason}
		return failure
	}
	saved := &failureError{text: f.Text}
	for _, known := range failures {
		if known.class == f.Class {
			saved.class = known.err
		}
	}
	failure.Err = saved
	return failure
}

// number names the next value of a room, and rises for ever.
func number(tx *keystore.Tx, room string) (uint64, error) {
	key, last := room+"/numbered", uint64(0)
	if text := tx.Get(keystore.Rooms, key); text != nil {
		if _, err := fmt.Sscanf(string(text), "%x", &last); err != nil {
			return 0, fmt.Errorf("%w: the number of a room's items", encryption.ErrState)
		}
	}
	last++
	return last, tx.Put(keystore.Rooms, key, fmt.Appendf(nil, "%x", last))
}

// put stores a value under a number of its own.
func put(tx *keystore.Tx, room, part string, value any) error {
	n, err := number(tx, room)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.Put(keystore.Messages, fmt.Sprintf("%s%s%016x", room, part, n), text)
}

// saveItem stores what Poll and Listen hand over next.
func saveItem(tx *keystore.Tx, room string, item *savedItem) error {
	return put(tx, room, itemPart, item)
}

// stored reads a value of the bucket Messages.
func stored(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: a message", encryption.ErrState)
	}
	return nil
}

// item is what is handed over. keys are what it is stored under.
func (s *Session) item(tx *keystore.Tx, saved *savedItem) (Item, error) {
	item := Item{Event: saved.Event, Board: saved.Board, Gap: saved.Gap}
	switch {
	case saved.Failure != nil:
		item.Failure = saved.Failure.failure()
	case saved.Message != nil:
		message, err := s.message(tx, saved.Message)
		if err != nil && !failed(err) {
			return item, err
		}
		if err != nil {
			m := saved.Message
			item.Failure = newFailure(m.ID, m.From, m.StreamID, err).failure()
			return item, nil
		}
		item.Message = message
	}
	return item, nil
}

func (s *Session) message(tx *keystore.Tx, saved *savedMessage) (*Message, error) {
	m := &Message{
		ID: saved.ID, From: saved.From, Device: saved.Device, Role: Role(saved.Role), To: saved.To, Kind: saved.Kind,
		SentAt: time.UnixMilli(int64(saved.TS)), StreamID: saved.StreamID,
	}
	if saved.Expires > 0 {
		m.Expires = time.UnixMilli(int64(saved.Expires))
	}
	if saved.File != "" {
		file, err := s.assemble(tx, saved.From, saved.File)
		if err != nil {
			return nil, err
		}
		m.Files = []File{file}
		return m, nil
	}
	parts, err := content.Decode(saved.Payload)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, part := range parts {
		switch p := part.(type) {
		case content.Text:
			texts = append(texts, string(p))
		case *content.File:
			m.Files = append(m.Files, File{Name: p.Name, MIMEType: p.MIMEType, Data: p.Data})
		default:
			return nil, fmt.Errorf("%w: a part of a file among other parts", content.ErrContent)
		}
	}
	m.Text = strings.Join(texts, "\n")
	return m, nil
}
