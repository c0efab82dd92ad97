// Package encryption is how the messages of a room are encrypted: one interface for all
// schemes, and its implementations for rooms of scheme sender_keys and double_ratchet.
//
// An Encryption keeps nothing between two calls (a lock makes several Prepares at once one). All
// state is in the device's key store, read and changed within the caller's Update, so that a
// message, the keys that it used up and the caller's cursor are saved together or not at all
// (FAULTS J08). Nor does it speak to the relay but through Relay, and only in Prepare:
// everything else can be done while nobody answers.
//
// Whatever is received is validated before it is used, and nothing changes that did not
// verify (FAULTS J01, J05).
package encryption

import (
	"context"
	"crypto/ecdh"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// Schemes of rooms.
const (
	SenderKeys    = "sender_keys"
	DoubleRatchet = "double_ratchet"
)

var (
	// ErrScheme says that this client does not encrypt rooms of this scheme.
	ErrScheme = errors.New("this client does not encrypt rooms of this scheme")
	// ErrPrepare says that Prepare has to be called before Seal is tried again.
	ErrPrepare = errors.New("the relay has to be asked first")
	// ErrNotActivated says that an agent cannot write before the owner of a direct room did
	// (STATE, "Session Establishment").
	ErrNotActivated = errors.New("the owner has to write first")
	// ErrKind says that this scheme has no messages of this kind, or not to this recipient.
	ErrKind = errors.New("the room's scheme has no such message")
	// ErrPending says that the key of a message is being asked for: the envelope is to be
	// kept, and Open tried again after Opened.Retry or Due.Retry.
	ErrPending = errors.New("the key of this message is not here yet")
	// ErrLost says that an authentic message cannot be opened, now or later. What wraps it
	// says why.
	ErrLost = errors.New("the message cannot be opened")
	// ErrMayNotAsk is an ErrLost of a viewer, who may send nothing, not even a request for a key that
	// did not come: whoever wrote the message gives viewers its key once. The next generation of the
	// sender's comes again, and so does the present one where the device is added to the room anew.
	ErrMayNotAsk = fmt.Errorf("%w: its key did not come, and a viewer cannot ask for it", ErrLost)
	// ErrState says that what the key store has is not what this package wrote.
	ErrState = errors.New("the stored state of the room is not accepted")
)

// Self is the participant that this device is in a room, with its private keys. It is not
// printed.
type Self struct {
	Participant string
	Identity    ed25519.PrivateKey
	Agreement   *ecdh.PrivateKey
	Keys        identity.Keys
}

// Member is another participant, with the keys that were checked and pinned.
type Member struct {
	signed.Member

	Device string
	Role   string // owner, controller, agent or viewer
	Keys   identity.Keys
}

// Room is what is known of a room.
type Room struct {
	ID      string
	Kind    string // group or direct
	Scheme  string
	Version uint64 // of Members
	// Unwritten says that the owner of a direct room has not written since it was begun, or begun
	// anew, as the relay has it.
	Unwritten bool
	Self      Self
	Role      string
	Members   []Member // everybody else who is in it now
}

// Relay is what Prepare asks of the relay.
type Relay interface {
	// AllocateGeneration publishes a key of this participant and returns its gen. The same
	// kid and key again are the same gen.
	AllocateGeneration(ctx context.Context, kid [16]byte, sessionKey []byte) (gen uint64, err error)
	// NewestGeneration is the highest gen that was allocated to this participant; 0: none.
	NewestGeneration(ctx context.Context) (uint64, error)
	// PrekeyBundle takes the bundle of a device: each call uses up a one-time prekey.
	PrekeyBundle(ctx context.Context, device string) (ratchet.Bundle, error)
	// ResetRoom begins all encryption of the room anew, and returns the room's version after it.
	ResetRoom(ctx context.Context) (version uint64, err error)
}

// Draft is a message to be sealed.
type Draft struct {
	ID        string    // of the envelope, drawn by the caller
	Kind      wire.Kind // message, notice or control
	To        string    // a participant, or the room's id: everybody else
	Payload   []byte    // package content; up to signed.MaxPlaintext bytes
	File      *signed.File
	TS        uint64 // Unix milliseconds
	ExpiresAt uint64 // notices: Unix milliseconds
}

// Sealed is an envelope to be sent exactly as it is. Seq rises with every envelope of this
// device in a room, over all connections and generations, so that those that wait may go out
// on any connection in the order of Seq.
type Sealed struct {
	ID         string
	To         string
	Kind       wire.Kind
	Gen, Seq   uint64
	Recipients int // how many receipts complete it
	Raw        []byte
}

// Opened is what an envelope brought.
type Opened struct {
	Kind      wire.Kind
	Payload   []byte // of messages, notices and control; nil of key exchange, which is not shown
	Private   bool   // for this participant alone
	Gen       uint64
	TS        uint64 // Unix milliseconds, the sender's clock
	ExpiresAt uint64 // notices
	File      *signed.File

	Send  []Sealed // answers, which the caller saves in the same Update and sends after it
	Retry bool     // envelopes that are ErrPending may open now
}

// Due is what time, or a repair, asks for.
type Due struct {
	Send    []Sealed
	Retry   bool      // envelopes that are ErrPending may open now, or are ErrLost now
	Prepare bool      // Prepare has something to ask the relay for, such as a reset
	Next    time.Time // when to ask again; zero: not before something else happens
}

// Encryption is one scheme. tx is that of an Update; room is the newest that is known.
type Encryption interface {
	// Prepare asks the relay for what Seal needs, or a repair: a generation, a bundle, a reset.
	// It may be called at any time, and does nothing where nothing is needed. It is called
	// before the first Seal after the store was opened, whatever the state: a store that was
	// restored from an old copy is noticed here. It makes Updates of its own.
	Prepare(ctx context.Context, relay Relay, store *keystore.Store, room *Room, now time.Time) error
	// Seal encrypts a draft. It returns what is to be sent in this order: keys for those who
	// lack them first, the draft last. Errors: ErrPrepare, ErrNotActivated, ErrKind, and those
	// of package signed.
	Seal(tx *keystore.Tx, room *Room, draft *Draft) ([]Sealed, error)
	// Open verifies and decrypts an envelope of a member, present or former. Errors: ErrPending,
	// ErrLost, and those of package signed for what is not authentic.
	//
	// With ErrPending there is an Opened, whose Send asks for the key: it is saved with the
	// envelope. Both this Update and one with ErrLost, which may count as a reason for a repair,
	// are to succeed; with other errors nothing changed. How many envelopes are kept is the
	// caller's bound: the oldest may go. Ids are the caller's too: an envelope that was opened is
	// not given to Open again.
	Open(tx *keystore.Tx, room *Room, from *Member, raw []byte, now time.Time) (*Opened, error)
	// Event takes a room event, which may come late and more than once.
	Event(tx *keystore.Tx, room *Room, event *wire.RoomEvent) error
	// Missed takes a room that was just looked up, where events of it may not have come: rows were
	// dropped from the inbox, or nobody reads it.
	Missed(tx *keystore.Tx, room *Room) error
	// Refused takes the relay's refusal of an envelope. It reports whether the same draft may
	// be sealed anew, once, after Prepare.
	Refused(tx *keystore.Tx, room *Room, sealed *Sealed, code wire.Code) (again bool, err error)
	// Due says what is due at now.
	Due(tx *keystore.Tx, room *Room, now time.Time) (*Due, error)
}

// For returns the encryption of a scheme, or ErrScheme.
func For(scheme string) (Encryption, error) {
	switch scheme {
	case SenderKeys:
		return newSenderKeys(), nil
	case DoubleRatchet:
		return doubleRatchet{}, nil
	default:
		return nil, ErrScheme
	}
}
