package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// The table is a promise: changing or removing a row changes the protocol. A new
// row is a new line of the golden file.
func TestCodesAreWhatTheyWere(t *testing.T) {
	var table bytes.Buffer
	for _, info := range wire.Codes() {
		fmt.Fprintf(&table, "%s\t%s\t%d\t%d\t%t\n", info.Frame, info.Code, info.Close, info.Status, info.Resend)
	}
	for _, info := range wire.Closes() {
		fmt.Fprintf(&table, "close\t%d\t%s\t%t\n", info.Code, info.Reason, info.Again)
	}
	want, err := os.ReadFile("testdata/codes.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), table.String())
}

func TestCodesAreWellFormed(t *testing.T) {
	seen := map[wire.Code]bool{}
	for _, info := range wire.Codes() {
		require.False(t, seen[info.Code], "%s twice", info.Code)
		seen[info.Code] = true
		require.Regexp(t, `^[a-z0-9_]+$`, string(info.Code))
		require.Contains(t, []string{"nack", "error", "http"}, info.Frame)
		require.True(t, info.Status == 0 || http.StatusText(info.Status) != "")
		require.Regexp(t, `^[A-Z"].*\.$`, info.Text)
		found, ok := wire.Lookup(info.Code)
		require.True(t, ok)
		require.Equal(t, info, found)
	}
	_, ok := wire.Lookup("no_such_code")
	require.False(t, ok)
}

// A nack that is followed by a close has the same reason there (DESIGN section 6,
// "Admission"), and every close code has a row.
func TestClosesMatchCodes(t *testing.T) {
	rows, known := map[wire.CloseInfo]bool{}, map[wire.CloseCode]bool{}
	for _, info := range wire.Closes() {
		key := wire.CloseInfo{Code: info.Code, Reason: info.Reason}
		require.False(t, rows[key], "%d %s twice", info.Code, info.Reason)
		rows[key], known[info.Code] = true, true
		require.LessOrEqual(t, len(info.Reason), 123, "RFC 6455 section 5.5")
		require.Regexp(t, `^(hello|[A-Z]).*\.$`, info.Text)
	}
	for _, info := range wire.Codes() {
		if info.Close != 0 {
			require.True(t, rows[wire.CloseInfo{Code: info.Close, Reason: string(info.Code)}], info.Code)
		}
	}
	for _, code := range []wire.CloseCode{
		wire.CloseGoingAway, wire.CloseProtocolError, wire.CloseUnsupportedData, wire.CloseInvalidUTF8, wire.ClosePolicy,
		wire.CloseTooLarge, wire.CloseFrozen, wire.CloseQuota, wire.CloseAuth,
	} {
		require.True(t, known[code], "%d", code)
	}
}

// RELAY: the refusals of the history store, each with its one status.
func TestStoreRefusalsHaveTheirStatus(t *testing.T) {
	for code, status := range map[wire.Code]int{
		wire.MLSSchemeDisabled: 403, wire.SchemeMismatch: 409, wire.MLSRetired: 409, wire.MLSRemovalPending: 409,
		wire.MLSUnknown: 404, wire.HistoryConflict: 409, wire.MalformedRequest: 400, wire.InvalidFilePart: 422,
	} {
		info, ok := wire.Lookup(code)
		require.True(t, ok)
		require.Equal(t, status, info.Status, code)
	}
}

func TestErrorsAreTheirCode(t *testing.T) {
	err := fmt.Errorf("append message: %w", &wire.Error{Code: wire.HistoryConflict, Detail: "m-1"})
	require.ErrorIs(t, err, &wire.Error{Code: wire.HistoryConflict})
	require.NotErrorIs(t, err, &wire.Error{Code: wire.Conflict})
	require.NotErrorIs(t, err, errors.New("history_conflict"))
	require.Equal(t, "append message: history_conflict: m-1", err.Error())
	require.Equal(t, "unavailable", (&wire.Error{Code: wire.Unavailable}).Error())
}
