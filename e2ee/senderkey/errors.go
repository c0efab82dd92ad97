package senderkey

import (
	"errors"
	"fmt"
)

// What Receivers say of messages. None of them has changed anything.
var (
	// ErrUnverified: nothing is opened whose signature was not verified.
	ErrUnverified = errors.New("the message's signature was not verified")
	// ErrMessage: it cannot be a message of this package, whatever the key.
	ErrMessage = errors.New("the message is malformed")
	// ErrStaleSenderKey: the key is missing or does not fit (RELAY, stale_sender_key). The
	// error is a *StaleError, and Repair takes it.
	ErrStaleSenderKey = errors.New("stale_sender_key")
	// ErrUnknownKey is an ErrStaleSenderKey: there is no key.
	ErrUnknownKey = errors.New("the key is unknown")
	// ErrTooFar is an ErrStaleSenderKey: more than MaxSkip messages are missing before it.
	ErrTooFar = errors.New("too many messages are missing before this one")
	// ErrSpent is an ErrStaleSenderKey: another message was opened with its key, or the key was
	// dropped, and it was written later than all that were opened, as by a sender whose state is an
	// old copy.
	ErrSpent = errors.New("the message key was used by another message or dropped")
	// ErrDuplicate: its message key was used, or was dropped as the oldest of too many, and it was
	// not written later than what was opened since.
	ErrDuplicate = errors.New("the message key was used or dropped")
	// ErrBeforeKey: it is older than the key that was given.
	ErrBeforeKey = errors.New("the message is older than the key that was given")
	// ErrRetired: its generation is older than those that are kept, or a distribution's is.
	ErrRetired = errors.New("the generation is older than those that are kept")
	// ErrGeneration: the gen is not the one of this kid; or not above all earlier ones.
	ErrGeneration = errors.New("the gen does not fit")
)

// What Receivers say of distributions.
var (
	// ErrKeyConflict: the kid, or without one the gen, has another key already.
	ErrKeyConflict = errors.New("another key is known under this kid or gen")
	// ErrForeignKID: somebody else gave a key of this kid.
	ErrForeignKID = errors.New("the kid is somebody else's")
	// ErrFull: a bound of the state is reached.
	ErrFull = errors.New("there is no room for more")
)

// What Sender and Outgoing say.
var (
	// ErrRotationNeeded: a new generation has to begin first.
	ErrRotationNeeded = errors.New("a new sender key is needed")
	// ErrUnconfirmed: the state was loaded, and nobody has confirmed that it is the newest.
	ErrUnconfirmed = errors.New("the loaded sender key is not confirmed")
	// ErrNotMember: keys are for members of the room.
	ErrNotMember = errors.New("not a member of the room")
	// ErrAnswered: this request was answered.
	ErrAnswered = errors.New("the request was answered")
	// ErrTooOften: this member has had its share of answers for now.
	ErrTooOften = errors.New("too many key requests")
)

// What Repair says, when there is nothing to ask.
var (
	// ErrNotRepairable: the error is no ErrStaleSenderKey.
	ErrNotRepairable = errors.New("the error is none that a key repairs")
	// ErrCooldown: the last request is less than RepairCooldown ago.
	ErrCooldown = errors.New("the key was requested a moment ago")
	// ErrGivenUp: RepairAttempts requests were made.
	ErrGivenUp = errors.New("the key was requested often enough")
	// ErrUnavailable: its sender does not have the key any more.
	ErrUnavailable = errors.New("the key is unavailable")
)

var (
	// ErrPayload: bytes are not the payload that is read.
	ErrPayload = errors.New("malformed sender key payload")
	// ErrState: bytes are not a saved state.
	ErrState = errors.New("malformed sender key state")
	// ErrArgument: a participant id, gen, roster or time that cannot be.
	ErrArgument = errors.New("invalid argument")
)

// StaleError is an ErrStaleSenderKey: a verified message that its key does not open. Only
// Receivers make them, so that nothing else can lead to a key request.
type StaleError struct {
	key   Key
	cause error
}

// Key is the key that is missing or wrong.
func (e *StaleError) Key() Key { return e.key }

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %v", ErrStaleSenderKey, e.cause)
}

// Is makes it an ErrStaleSenderKey.
func (e *StaleError) Is(target error) bool { return target == ErrStaleSenderKey }

// Unwrap is what went wrong: ErrUnknownKey, ErrTooFar, ErrSpent, or seal.ErrOpen.
func (e *StaleError) Unwrap() error { return e.cause }
