package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
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
	// ID makes a message one that is sent once, however often Send is called with it, also after
	// the program was killed: it is the envelope's id, 1 to 96 printable ASCII characters
	// that nobody can guess. Empty: Send draws one.
	ID   string
	Text string
	File *File  // up to content.MaxFile bytes
	To   string // a participant, for a private message; empty: everybody else in the room
	// Expires makes the message a notice, an alert of an agent to the whole room that is good
	// until then.
	Expires time.Time
	// Progress is told how many of a file's envelopes are stored. Nil: nobody is.
	Progress func(done, of int)
}

// Sent is what became of a Draft.
type Sent struct {
	IDs        []string // of its envelopes; the last one of them completes it
	Recipients []string // participants that it is stored for; empty where Already
	Already    bool     // an earlier Send with this ID had sent it
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
// Listen at a time (ErrReading).
//
// All state is in the device's key store. What was received is saved with the keys it used up
// and the cursor in one step, and stays there until it was taken; what is sent is saved with
// its keys before the first byte leaves, and stays there until its verdict is known. So a
// program that is killed at any point neither loses a message nor shows one that was taken.
type Session struct {
	device *Device
	id     string // the room's
	self   string // participant
	scheme string
	store  *keystore.Store
	clock  clockwork.Clock
	cipher encryption.Encryption
	link   *link
	login  *login
	opened int // guarded by the device's sessions

	sending chan struct{} // holds one value while nobody seals and sends
	pace    *rate.Limiter // guarded by sending
	taken   lastTaken     // guarded by sending
	reading chan struct{} // holds one value while nobody reads
	wake    chan struct{} // there is something to send
	handing sync.Mutex    // held while items are handed over

	mu       sync.Mutex // guards the following fields
	known    Room
	sealable encryption.Room              // of known
	changed  map[string]error             // members whose keys are not accepted, by participant
	former   map[string]encryption.Member // who is not in the room any more
	stale    bool                         // known is to be looked up again
	looked   time.Time                    // when known was taken
	prepared bool                         // Prepare was called since the store was opened
	paused   time.Time                    // an MLS removal is pending until then
	refill   bool                         // prekeys are to be published
}

// ErrReading says that another Poll or Listen of the session is running.
var ErrReading = errors.New("the session is being read already")

// The relay allows 20 envelopes a second, and as many at once, over all connections of a
// participant (wire.EnvelopesPerSecond): this side stays below.
const (
	pacePerSecond = 18
	paceBurst     = 12
)

// OpenSession opens this device's participant in a room. It asks the relay who is in the
// room; without an answer, what is stored of the room serves, and so where the relay refuses but items
// wait that were not taken: Poll and Listen hand them over first. It returns encryption.ErrScheme
// for rooms of schemes none and mls. While a session of the room is open it is the same one,
// which is closed as often as it was opened.
func (d *Device) OpenSession(ctx context.Context, room string) (*Session, error) {
	if err := checkIDs(room); err != nil {
		return nil, fmt.Errorf("room %q: %w", room, err)
	}
	if s := d.sessions.reopen(room, nil); s != nil {
		s.outdate()
		return s, nil
	}
	s, err := d.newSession(ctx, room)
	if err != nil {
		return nil, fmt.Errorf("open the room: %w", err)
	}
	return d.sessions.reopen(room, s), nil
}

// sessions are those that are open, by their rooms: two of one room would send what waits
// twice. The zero value has none.
type sessions struct {
	mu   sync.Mutex // guards the following field
	open map[string]*Session
}

// reopen returns the room's session, which is made where there is none.
func (o *sessions) reopen(room string, made *Session) *Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.open[room]
	if !ok {
		if made == nil {
			return nil
		}
		if o.open == nil {
			o.open = make(map[string]*Session)
		}
		s = made
		o.open[room] = s
	}
	s.opened++
	return s
}

// of returns the room's session, if there is one.
func (o *sessions) of(room string) *Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[room]
}

// close reports whether it was the last time.
func (o *sessions) close(s *Session) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.opened--; s.opened > 0 {
		return false
	}
	if o.open[s.id] == s {
		delete(o.open, s.id)
	}
	return true
}

func (d *Device) newSession(ctx context.Context, room string) (*Session, error) {
	s := &Session{
		device: d, id: room, store: d.store, clock: d.clock,
		login:   &login{device: d, room: room},
		sending: free(), reading: free(), wake: make(chan struct{}, 1),
		pace:   rate.NewLimiter(pacePerSecond, paceBurst),
		former: make(map[string]encryption.Member),
	}
	s.link = newLink(s.login.dial, s.login.retryable, d.clock)
	if err := s.lookUp(ctx); err != nil && !s.recall(err) {
		return nil, err
	}
	s.login.self = s.self
	cipher, err := encryption.For(s.scheme)
	if err != nil {
		return nil, fmt.Errorf("it has the scheme %s: %w", s.scheme, err)
	}
	s.cipher = cipher
	return s, nil
}

// Room is the room's id.
func (s *Session) Room() string { return s.id }

// Participant is who this device is in the room.
func (s *Session) Participant() string { return s.self }

// Scheme is how the room is encrypted.
func (s *Session) Scheme() string { return s.scheme }

// Members are everybody in the room, this participant too, as last known.
func (s *Session) Members() []Participant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Participant(nil), s.known.Participants...)
}

// Close ends the session, once for each OpenSession. What waits stays saved, and the device stays
// open. It ends no Listen: that is its context's.
func (s *Session) Close() error {
	if !s.device.sessions.close(s) {
		return nil
	}
	left := false
	_ = s.store.View(func(tx *keystore.Tx) error { // one that is closed has nothing to be forgotten
		left = wasBefore(tx, s.self)
		return nil
	})
	if !left {
		return nil
	}
	return s.store.Update(func(tx *keystore.Tx) error { return s.device.forgetLeft(tx, s.id) }) // what it saved meanwhile
}

// login opens the session's connections.
type login struct {
	device *Device
	room   string
	self   string // participant; set before it is used

	mu   sync.Mutex // guards the following field
	used Credential // of the last connection
}

func (l *login) dial(ctx context.Context) (*Conn, error) {
	err := l.device.store.View(func(tx *keystore.Tx) error {
		if wasBefore(tx, l.self) {
			return ErrLeft
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	credential, err := l.device.roomCredential(ctx, l.room)
	if err != nil {
		return nil, err
	}
	if credential.ParticipantID != l.self { // it was removed and added again, and has another inbox
		return nil, ErrLeft
	}
	l.mu.Lock()
	l.used = credential
	l.mu.Unlock()
	conn, err := l.device.Connect(ctx, credential)
	if closed, ok := errors.AsType[*CloseError](err); ok && closed.Code == wire.CloseAuth {
		l.device.credentials.forget(l.room) // revoked, perhaps: whoever connects next mints another one
	}
	return conn, err
}

// retryable is also true where the credential ended, and nothing else: the next connection
// has another one.
func (l *login) retryable(err error) bool {
	if closed, ok := errors.AsType[*CloseError](err); ok && closed.Code == wire.CloseAuth {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.used.Token != "" && l.used.ExpiresAt.Sub(l.device.clock.Now()) < expiryMargin
	}
	return Retryable(err) && !errors.Is(err, ErrNotAdmitted) && !errors.Is(err, ErrLeft) && !errors.Is(err, keystore.ErrClosed)
}
