package client

import (
	"context"
	"errors"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

var (
	// ErrNoVerdict says that what became of an envelope is not known: no answer came in time, or
	// the connection ended. The envelope is kept, and sent again as it is with the next
	// connection; see Session.Pending.
	ErrNoVerdict = errors.New("the relay gave no verdict")
	// ErrRemovalPending says that a removal from an MLS room is pending: sends to that room fail
	// for 600,000 ms from the relay's refusal (RELAY, "Client response to a pending removal").
	ErrRemovalPending = &wire.Error{Code: wire.MLSRemovalPending}
	// ErrKeysChanged says that the relay shows other keys of a device than it did before. Nothing
	// is encrypted for them, and nothing of them is believed.
	ErrKeysChanged = errors.New("the relay shows other keys of this device than before")
	// ErrNotMember says that a recipient is not in the room.
	ErrNotMember = errors.New("not a member of the room")
	// ErrUnknownSender says that an envelope came from somebody whose keys the relay does not tell.
	ErrUnknownSender = errors.New("the keys of the sender are not known")
)

// File is a file that was sent whole, or put together again.
type File struct {
	Name     string
	MIMEType string
	Data     []byte
}

// Draft is what Send sends: a text or a file, or both.
type Draft struct {
	Text  string
	File  *File  // up to content.MaxFile bytes
	To    string // a participant, for a private message; empty: everybody else in the room
	// Expires makes the message a notice, an alert of an agent to the whole room that is good
	// until then.
	Expires time.Time
	// Progress is told how many of a file's envelopes are stored. Nil: nobody is.
	Progress func(done, of int)
}

// Sent is what became of a Draft.
type Sent struct {
	IDs        []string // of its envelopes; the last one of them completes it
	Recipients []string // participants that it is stored for
}

// Message is a message that was verified, decrypted, and saved.
type Message struct {
	ID       string
	From     string // participant whose signature it has
	Device   string
	Role     Role
	To       string // this participant, or the room's id
	Kind     wire.Kind
	SentAt   time.Time // the sender's clock
	Expires  time.Time // of a notice
	StreamID string
	Text     string // texts of all parts, with line feeds between
	Files    []File
}

// Private reports whether the message is for this participant alone.
func (m *Message) Private(room string) bool { return m.To != room }

// Failure is an envelope that cannot be shown: it is reported once, and the next ones follow.
type Failure struct {
	ID       string
	From     string // what the envelope says, unverified
	StreamID string
	Err      error
}

// BoardHint says that a card changed: ask Device.BoardEvents.
type BoardHint struct {
	EventID  string
	CardID   string
	Revision uint64
}

// Item is one thing that came: one of its pointers is set.
type Item struct {
	Message *Message
	Failure *Failure
	Event   *wire.RoomEvent // of the room
	Board   *BoardHint
	Gap     *Gap
}

// Gap says that rows were dropped from the inbox before this device came to read them.
type Gap struct {
	Oldest string // the first row that is retained, or empty
}

// Session is this device in one room: it encrypts what it sends and shows what it could
// decrypt. Its methods may be called from several goroutines at once, but only one Poll or
// Listen at a time.
type Session struct{}

// OpenSession opens this device's participant in a room. It asks the relay who is in the
// room, where it answers; without an answer, what is stored of the room serves.
func (d *Device) OpenSession(ctx context.Context, room string) (*Session, error) { panic("contract") }

// Room is the room's id.
func (s *Session) Room() string { panic("contract") }

// Participant is who this device is in the room.
func (s *Session) Participant() string { panic("contract") }

// Members are everybody in the room, this participant too, as last known.
func (s *Session) Members() []Participant { panic("contract") }

// Scheme is how the room is encrypted.
func (s *Session) Scheme() string { panic("contract") }

// Send encrypts a draft, saves it, sends it, and returns when it is stored for everybody it is
// for. Errors: *NackError (errors.Is finds the *wire.Error of its code), ErrRemovalPending,
// ErrNoVerdict, ErrNotMember, encryption.ErrNotActivated, content.ErrTooLarge.
func (s *Session) Send(ctx context.Context, draft Draft) (Sent, error) { panic("contract") }

// Pending are the ids of envelopes whose verdict is not known: they go out again, as they are,
// with the next connection of Poll, Listen or Send.
func (s *Session) Pending() []string { panic("contract") }

// Forget drops an envelope that is Pending.
func (s *Session) Forget(id string) error { panic("contract") }

// Poll reads what the inbox has after the cursor, up to limit rows (at most 100; 0: 100), hands
// it over, and returns whether more waits. Items that were saved before and not taken, as the
// program was killed, come first. An item counts as taken when take returns nil; an error ends
// the Poll, and the item comes again.
func (s *Session) Poll(ctx context.Context, limit int, take func(Item) error) (more bool, err error) {
	panic("contract")
}

// Listen is Poll that goes on: it follows the inbox and connects again when the connection is
// lost, until ctx ends (nil) or there is no point in trying.
func (s *Session) Listen(ctx context.Context, take func(Item) error) error { panic("contract") }

// Close ends the session. What waits stays saved.
func (s *Session) Close() error { panic("contract") }
