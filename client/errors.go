package client

import (
	"errors"
	"fmt"

	"github.com/coder/websocket"

	"github.com/peerrelay/peerrelay/wire"
)

// Errors of a connection, beside *CloseError.
var (
	// ErrClosed reports a connection that this side closed.
	ErrClosed = errors.New("the connection is closed")
	// ErrNoID reports an envelope whose id could not be read, so that no receipt
	// could be told to be its own.
	ErrNoID = errors.New("the envelope has no readable id")
	// ErrDuplicateID reports an envelope whose id another Send still waits for.
	ErrDuplicateID = errors.New("an envelope with this id is already waiting for its verdict")
)

// CloseError says with which close frame the relay ended a connection (RELAY,
// "Close codes").
type CloseError struct {
	Code   wire.CloseCode
	Reason string
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("closed by the relay: %d", e.Code)
	}
	return fmt.Sprintf("closed by the relay: %d %s", e.Code, e.Reason)
}

// Retryable reports whether connecting again, after a pause, may succeed: it may
// after a shutdown (1001), a freeze (1012) and a full quota (1013), and after
// codes the relay does not send. After the others the same client would be closed
// again.
func (e *CloseError) Retryable() bool {
	switch e.Code {
	case wire.CloseAuth, wire.ClosePolicy, wire.CloseTooLarge, wire.CloseInvalidUTF8,
		wire.CloseUnsupportedData, wire.CloseProtocolError:
		return false
	default:
		return true
	}
}

// NackError is the relay's refusal of one envelope.
type NackError struct {
	ID     string // the envelope's id; empty when the relay could not read one
	Reason wire.Code
}

func (e *NackError) Error() string { return fmt.Sprintf("envelope %q was refused: %s", e.ID, e.Reason) }

// closeError turns an error that carries a close frame into a *CloseError.
func closeError(err error) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return &CloseError{Code: wire.CloseCode(closed.Code), Reason: closed.Reason}
	}
	return fmt.Errorf("connection lost: %w", err)
}
