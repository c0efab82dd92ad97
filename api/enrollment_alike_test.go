package api_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/api"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/store"
)

// FAULTS BL-H04, many of each kind: whatever is wrong with an enrollment, its status, headers
// and body are the same. How long each takes is measured and not demanded: -v shows it.
func TestRefusedEnrollmentsAreAlike(t *testing.T) {
	t.Parallel()
	const each = 100 // of one kind
	s := newStack(t, func(c *api.Config) {
		c.Limits.EnrollPerSecond, c.Limits.AddressPerSecond, c.Limits.FailuresPerSecond = -1, -1, -1
	})
	kinds := s.badEnrollments(t)
	took := make(map[string][]time.Duration)
	var first *response
	for range each {
		for name, body := range kinds { // in another order each time
			content := testkit.EncodeJSON(t, body())
			began := time.Now()
			answer := send(t, s.public, http.MethodPost, "/v1/enroll", content, "Content-Type", "application/json")
			took[name] = append(took[name], time.Since(began))
			answer.header.Del("Date")
			if first == nil {
				answer.refused(t, http.StatusBadRequest, "enrollment_refused")
				first = &answer
			}
			require.Equal(t, first.status, answer.status, name)
			require.Equal(t, first.header, answer.header, name)
			require.Equal(t, first.body, answer.body, name)
		}
	}
	for name, times := range took {
		slices.Sort(times)
		t.Logf("%-20s median %s", name, times[each/2].Round(time.Microsecond))
	}
}

// badEnrollments are bodies of each kind that is refused.
func (s *stack) badEnrollments(t *testing.T) map[string]func() map[string]string {
	t.Helper()
	invite := func() api.Invite {
		var made api.Invite
		s.send(t, http.MethodPost, "/v1/invites", `{}`).decode(t, &made)
		return made
	}
	d := testkit.NewDevice(t)
	with := func(token string) func() map[string]string {
		body := d.Enrollment(t, token, "agent")
		return func() map[string]string { return body }
	}
	change := func(token, member, value string) func() map[string]string {
		body := d.Enrollment(t, token, "agent")
		body[member] = value
		return func() map[string]string { return body }
	}
	expired, consumed, revoked, good := invite(), invite(), invite(), invite()
	other := testkit.NewDevice(t)
	require.Equal(t, http.StatusCreated, send(t, s.public, http.MethodPost, "/v1/enroll",
		testkit.EncodeJSON(t, other.Enrollment(t, consumed.Token, "agent")), "Content-Type", "application/json").status)
	require.Equal(t, http.StatusOK, s.send(t, http.MethodDelete, "/v1/invites/"+revoked.InviteID, "").status)
	db, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), "UPDATE invites SET created_at = created_at - interval '20 minutes', expires_at = expires_at - interval '20 minutes' WHERE id = $1",
		expired.InviteID)
	require.NoError(t, errors.Join(err, db.Close(t.Context())))
	unknown, _ := store.NewToken()
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 64))
	return map[string]func() map[string]string{
		"unknown":      with(unknown),
		"expired":      with(expired.Token),
		"consumed":     with(consumed.Token),
		"revoked":      with(revoked.Token),
		"malformed":    change(good.Token, "token", good.Token[:42]+"="),
		"wrong length": change(good.Token, "token", good.Token+"AA"),
		"key encoding": change(good.Token, "identity_key", "AA"),
		// The tenth bad proof revokes an invite, so that those that follow are of a revoked one.
		"bad proof": change(invite().Token, "proof", zeros),
	}
}
