package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

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

// Errors of devices, beside *APIError.
var (
	// ErrNoDevice reports a folder in which no device has enrolled.
	ErrNoDevice = errors.New("no device has enrolled in this folder")
	// ErrEnrolled reports a folder in which a device has enrolled already.
	ErrEnrolled = errors.New("a device has enrolled in this folder already")
	// ErrNotAdmitted reports a device that may not sign in: it is PENDING, SUSPENDED, REVOKED
	// or unknown, and the relay does not tell which.
	ErrNotAdmitted = errors.New("the relay does not let this device in: it is not approved yet, suspended, revoked or unknown")
	// ErrInvite reports a text that is not the token of an invite.
	ErrInvite = errors.New("that is not the token of an invite: it has 43 letters, digits, - and _")
	// ErrRelayURL reports an address that is not one of a relay.
	ErrRelayURL = errors.New("a relay's address is like http://127.0.0.1:8787, without a user or a query")
	// ErrFingerprint reports a text that is no fingerprint, and a relay that shows another one
	// than the device's own.
	ErrFingerprint = errors.New("that is not the fingerprint")
	// ErrID reports a text that is not an id.
	ErrID = errors.New("that is not an id")
)

// APIError is the relay's refusal of a request over HTTP. errors.Is finds a *wire.Error
// of the same code in it.
type APIError struct {
	Status     int           // of HTTP; 3xx for a redirect, which is not followed
	Code       wire.Code     // empty where it was no relay that answered
	Detail     string        // for people, in the relay's words; one line
	RetryAfter time.Duration // how long the relay asks to wait; 0: it does not say
}

func (e *APIError) Error() string {
	switch {
	case e.Code == "":
		return strings.TrimSpace(fmt.Sprintf("the server answered %d %s, not as a relay does", e.Status, http.StatusText(e.Status)))
	case e.Detail == "":
		return "the relay answered " + string(e.Code)
	}
	return e.Detail + " (" + string(e.Code) + ")"
}

// Unwrap returns the refusal without what belongs to HTTP.
func (e *APIError) Unwrap() error { return &wire.Error{Code: e.Code, Detail: e.Detail} }

// Retryable reports whether the same request may succeed after a pause: when there were too
// many (429), or the server could not answer now (5xx). After the latter it is not known
// whether it was done.
func (e *APIError) Retryable() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// unauthorized reports that a token was not taken.
func unauthorized(err error) bool { return errors.Is(err, &wire.Error{Code: wire.Unauthorized}) }

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

// Retryable reports whether connecting again, after a pause, may succeed, by the
// protocol's table of closes (wire.Closes). A reason that is not in it is judged by
// its code: yes where every known reason of the code says so, and for codes the
// relay does not send.
func (e *CloseError) Retryable() bool {
	again := true
	for _, known := range wire.Closes() {
		if known.Code != e.Code {
			continue
		}
		if known.Reason == e.Reason {
			return known.Again
		}
		again = again && known.Again
	}
	return again
}

// UpgradeError says that a server answered HTTP instead of opening a WebSocket.
type UpgradeError struct {
	StatusCode int // of the answer, such as 404
}

func (e *UpgradeError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the server answered %d %s", e.StatusCode, http.StatusText(e.StatusCode))) +
		" instead of opening a WebSocket"
}

// Retryable reports whether asking again, after a pause, may succeed: when there
// were too many requests (429) or the server had a fault of its own (5xx). Any other
// answer means that the address, or who may use it, is wrong.
func (e *UpgradeError) Retryable() bool {
	return e.StatusCode == http.StatusTooManyRequests || e.StatusCode >= http.StatusInternalServerError
}

// Retryable reports whether connecting again, after a pause, may succeed after err,
// an error of Dial, of a Conn or of a Device. It may not after a *CloseError, *UpgradeError
// or *APIError that says so, a server certificate that cannot be verified, and a server that does not
// speak TLS where it should. Whatever else broke a connection may be gone next time.
func Retryable(err error) bool {
	if closed, ok := errors.AsType[*CloseError](err); ok {
		return closed.Retryable()
	}
	if upgrade, ok := errors.AsType[*UpgradeError](err); ok {
		return upgrade.Retryable()
	}
	if refused, ok := errors.AsType[*APIError](err); ok {
		return refused.Retryable()
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	return !unverified && !errors.Is(err, http.ErrSchemeMismatch)
}

// NackError is the relay's refusal of one envelope. errors.Is finds a *wire.Error of the same
// code in it.
type NackError struct {
	ID     string // the envelope's id; empty when the relay could not read one
	Reason wire.Code
}

func (e *NackError) Error() string { return fmt.Sprintf("envelope %q was refused: %s", e.ID, e.Reason) }

// Unwrap returns the wire's code, for errors.Is.
func (e *NackError) Unwrap() error { return &wire.Error{Code: e.Reason} }

// closeError turns an error that carries a close frame into a *CloseError.
func closeError(err error) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return &CloseError{Code: wire.CloseCode(closed.Code), Reason: closed.Reason}
	}
	return fmt.Errorf("connection lost: %w", err)
}
