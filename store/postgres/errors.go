package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/peerrelay/peerrelay/store"
)

// ErrClosed reports a call on a closed Store; nothing was stored.
var ErrClosed = errors.New("the store is closed")

// constraintErrors says what a violated constraint means to a caller. A constraint
// that is not listed is a fault of ours, and the caller refuses.
var constraintErrors = map[string]error{
	"rooms_tenant_fk":        store.ErrNotFound,
	"devices_tenant_fk":      store.ErrNotFound,
	"participants_room_fk":   store.ErrNotFound,
	"participants_device_fk": store.ErrNotFound,

	"invites_tenant_fk": store.ErrNotFound,

	"device_challenges_tenant_fk": store.ErrNotFound,
	"device_challenges_pk":        store.ErrConflict,
	"device_tokens_pk":            store.ErrConflict,
	"device_tokens_token_hash_uq": store.ErrConflict,
	"invites_token_hash_uq":       store.ErrConflict,
	"prekeys_key_uq":              store.ErrConflict,
	"invite_transition":           store.ErrConflict,
	"invites_kind_ck":             store.ErrInvalid,
	"devices_fingerprint_ck":      store.ErrInvalid,

	"participants_current_device_uq": conflict("the device is in the room already"),
	"credentials_token_hash_uq":      store.ErrConflict,
	"room_transition":                store.ErrConflict,
	"device_transition":              store.ErrConflict,

	"rooms_kind_ck":             store.ErrInvalid,
	"rooms_scheme_ck":           store.ErrInvalid,
	"rooms_direct_scheme_ck":    store.ErrInvalid,
	"rooms_private_messages_ck": store.ErrInvalid,
	"participants_role_ck":      store.ErrInvalid,
	"credentials_kind_ck":       store.ErrInvalid,
	"devices_kind_ck":           store.ErrInvalid,
	"devices_label_ck":          store.ErrInvalid,

	"session_history_message_id_ck": errMalformed,
	"session_history_kind_ck":       errMalformed,
	"session_history_gen_ck":        errMalformed,
	"session_history_envelope_ck":   errMalformed,

	"message_traces_message_id_ck": errTraceShape,
	"message_traces_ts_ck":         errTraceShape,
	"message_traces_digest_ck":     errTraceShape,
	"message_traces_files_ck":      errTraceShape,
}

// mapError is the one place where the database's answers become the store's errors.
// Errors of a context pass as they are; what is not known stays unknown.
func mapError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		if pgErr.Code == notInRepertoire {
			return fmt.Errorf("%w (a text that no column holds)", store.ErrInvalid)
		}
		if meaning, ok := constraintErrors[pgErr.ConstraintName]; ok {
			return fmt.Errorf("%w (%s)", meaning, pgErr.ConstraintName)
		}
	}
	return err
}

// SQLSTATEs (PostgreSQL, appendix A).
const (
	invalidStatementName = "26000"
	featureNotSupported  = "0A000" // "cached plan must not change result type"
	deadlockDetected     = "40P01"
	serializationFailure = "40001"

	notInRepertoire       = "22021" // U+0000, or what is not UTF-8
	insufficientPrivilege = "42501"
	invalidParameter      = "22023" // no such role
)

// rolledBack reports whether the server itself said that the transaction failed: then
// nothing of it was stored. A lost connection proves nothing.
func rolledBack(err error) (*pgconn.PgError, bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.SeverityUnlocalized != "ERROR" {
		return nil, false
	}
	return pgErr, true
}

// worthRepeating reports failures that the same transaction on the same connection does
// not meet again: a prepared statement that a migration or a pooler made stale, or a
// lost race for locks.
func worthRepeating(err error) bool {
	pgErr, ok := rolledBack(err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case invalidStatementName, featureNotSupported, deadlockDetected, serializationFailure:
		return true
	}
	return false
}

// blamesData reports failures that a row of the transaction may be the cause of, so
// that its other rows may succeed without it: data exceptions, violated constraints and
// policies, errors raised by triggers.
func blamesData(err error) bool {
	pgErr, ok := rolledBack(err)
	if !ok {
		return false
	}
	switch pgErr.Code[:2] {
	case "21", "22", "23", "42", "44", "54", "P0", "PR":
		return true
	}
	return false
}
