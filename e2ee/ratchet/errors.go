package ratchet

import "errors"

// What is wrong with keys that a session is begun with.
var (
	// ErrBundle says that a bundle is not accepted: a key that identity refuses, a signature
	// that does not fit, or an id that is none. Nothing was sent and nothing changed.
	ErrBundle = errors.New("the prekey bundle is not accepted")
	// ErrDevice says that a device's own keys do not belong together.
	ErrDevice = errors.New("the device's own keys do not belong together")
	// ErrWrongPeer says that a bundle or a first message is of another device than the one the
	// conversation is with, whose fingerprint was compared.
	ErrWrongPeer = errors.New("the keys are not those of the other device of this room")
	// ErrRoom says that an id of a room is none.
	ErrRoom = errors.New("a room's id is 1 to 128 printable ASCII characters")
)

// Why a message is not opened. The state is the one of before.
var (
	// ErrHeader says that a header is malformed, or names a key of small order or one that is
	// not canonical, or an X3DH part that is not of its session.
	ErrHeader = errors.New("the message's header is not accepted")
	// ErrNotAuthentic says that a message was not made by the other device for this session,
	// or that the states of the two no longer fit.
	ErrNotAuthentic = errors.New("the message is not authentic")
	// ErrDuplicate says that the message with this number was opened before.
	ErrDuplicate = errors.New("the message was opened before")
	// ErrKeyDropped says that the key of a late message was dropped, for newer ones or because
	// too many were missing at once. It may have been opened before that. It is lost.
	ErrKeyDropped = errors.New("the key of this late message is no longer kept")
	// ErrTooFarAhead says that more than MaxSkip messages of a chain are missing before this one.
	ErrTooFarAhead = errors.New("too many messages are missing before this one")
	// ErrUnknownSession says that a message is of a session that is not known, and does not
	// begin it.
	ErrUnknownSession = errors.New("the message is of a session that is not known")
	// ErrRetiredSession says that a message is of a session that was replaced or given up.
	ErrRetiredSession = errors.New("the message is of a session that is over")
	// ErrUnknownPrekey says that a first message names a prekey whose private key is not there.
	ErrUnknownPrekey = errors.New("the first message names a prekey that is not there")
)

// Why nothing is sealed or begun.
var (
	// ErrNotActivated says that the agent has not opened a message of the owner yet (STATE,
	// "Session Establishment").
	ErrNotActivated = errors.New("the owner's first message has not been opened yet")
	// ErrNoSession says that the owner has to begin one.
	ErrNoSession = errors.New("there is no session yet")
	// ErrNotOwner says that an agent began a session, or was to begin one.
	ErrNotOwner = errors.New("only the owner begins a session")
	// ErrTooLong says that a text has more than MaxPlaintext bytes.
	ErrTooLong = errors.New("the text is too long")
	// ErrExhausted says that a chain has no number left.
	ErrExhausted = errors.New("the chain has no number left")
)

// ErrState says that bytes are no state that MarshalBinary of this version made.
var ErrState = errors.New("the stored state is not accepted")
