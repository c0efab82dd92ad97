package main

import (
	"context"
	"errors"
	"net"
	"net/url"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// failureLine is an error as it is printed with --json.
type failureLine struct {
	Error  string `json:"error"`  // a code: see errorCode
	Detail string `json:"detail"` // for people
}

// told is an error as people read it; to programs it is the one that it is made of.
type told struct {
	text string
	error
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.error }

// errStopped is Ctrl-C while an input was waited for.
var errStopped = told{"interrupted", context.Canceled}

// errorCodes are the codes of errors that are not the relay's refusals. The first one that
// fits counts.
var errorCodes = []struct {
	code string
	err  error
}{
	{"not_activated", encryption.ErrNotActivated},
	{"no_verdict", client.ErrNoVerdict},
	{"not_a_member", client.ErrNotMember},
	{"keys_changed", client.ErrKeysChanged},
	{"unknown_sender", client.ErrUnknownSender},
	{"cannot_decrypt", encryption.ErrLost},
	{"scheme_not_supported", encryption.ErrScheme},
	{"kind_not_possible", encryption.ErrKind},
	{"nobody_to_talk_to", encryption.ErrNoPeer},
	{"too_large", client.ErrTooLarge},
	{"room_is_read", client.ErrReading},
	{"not_board_content", client.ErrBoardContent},
	{"board_event_refused", client.ErrBoardEvent},
	{"board_went_back", client.ErrBoardCursor},
	{"device_in_use", keystore.ErrInUse},
	{"device_in_use", errGuests},
	{"peer_ended", errHostEnded},
	{"no_device", client.ErrNoDevice},
	{"already_enrolled", client.ErrEnrolled},
	{"not_admitted", client.ErrNotAdmitted},
	{"wrong_invite", client.ErrInvite},
	{"wrong_fingerprint", client.ErrFingerprint},
	{"passphrase_needed", client.ErrPassphrase},
	{"wrong_passphrase", keystore.ErrWrongSecret},
	{"key_store_damaged", keystore.ErrDamaged},
	{"key_store_damaged", encryption.ErrState},
	{"key_store_full", keystore.ErrFull},
	{"open_to_others", keystore.ErrPermissions},
	{"timeout", errLate},
	{"interrupted", context.Canceled},
	{"timeout", context.DeadlineExceeded},
}

// notAuthentic is the code of an envelope that its sender did not sign as it is.
const notAuthentic = "not_authentic"

// errorCode names an error for programs: "usage", one of errorCodes, the relay's own code
// (wire.Codes), "closed" for a connection that the relay ended, "not_a_relay" for an answer
// that is none of a relay's, "unreachable" where none came or the relay can do nothing now, and "failed" for anything else.
func errorCode(err error) string {
	if _, wrong := errors.AsType[usageError](err); wrong && !errors.Is(err, client.ErrPassphrase) {
		return "usage"
	}
	for _, known := range errorCodes {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	if client.NotAuthentic(err) {
		return notAuthentic
	}
	if answer, ok := errors.AsType[*client.APIError](err); ok && answer.Code == wire.Unavailable {
		return "unreachable" // no envelope was refused, so none is kept
	}
	if refused, ok := errors.AsType[*wire.Error](err); ok && refused.Code != "" {
		return string(refused.Code)
	}
	if closed, ok := errors.AsType[*client.CloseError](err); ok {
		if closed.Code == wire.CloseAuth {
			return "not_admitted"
		}
		return "closed"
	}
	if _, ok := errors.AsType[*client.APIError](err); ok {
		return "not_a_relay"
	}
	if _, ok := errors.AsType[*client.UpgradeError](err); ok {
		return "not_a_relay"
	}
	if unreachable(err) {
		return "unreachable"
	}
	return "failed"
}

// unreachable reports that no answer came. A net.Error is more than that: errors of files are
// ones too.
func unreachable(err error) bool {
	_, request := errors.AsType[*url.Error](err)
	_, operation := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	return request || operation || name
}
