package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An invite may be an argument: the token, or the file that holds it. What is neither is not
// repeated, since it may be a token that was typed wrongly.
func TestEnrollWithAnArgument(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.owner(t, "alice")
	token := h.relay.Invite(t, "agent", false).Token
	wrong := h.types(t, "robot", "", "enroll", token[:42], "--url", h.relay.URL(), "--agent")
	require.Equal(t, exitUsage, wrong.code)
	require.NotContains(t, wrong.out+wrong.err, token[:42])
	wrong = h.types(t, "robot", "", "enroll", token, "--invite-file", "x", "--url", h.relay.URL(), "--agent")
	require.Equal(t, exitUsage, wrong.code)
	require.Equal(t, "PENDING", h.ok(t, "robot", "", "enroll", token, "--url", h.relay.URL(), "--agent")["state"])

	file := h.home("second.invite")
	h.ok(t, "alice", "", "invite", "create", "--agent", "--out", file)
	require.Equal(t, "PENDING", h.ok(t, "second", "", "enroll", file, "--url", h.relay.URL(), "--agent")["state"])
}

// One invite of 64 begins with a hyphen. It is no flag, and is not shown as one.
func TestAnInviteThatLooksLikeAFlag(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	for _, begins := range []string{"-g", "--", "-h"} {
		token := begins + strings.Repeat("A", 41)
		got := h.types(t, "robot", "", "enroll", token, "--url", h.relay.URL(), "--agent", "--json")
		require.Equal(t, exitFailed, got.code, got.err)
		require.Equal(t, "enrollment_refused", errorLine(t, outcome{err: got.err}).Error)
		require.NotContains(t, got.out+got.err, token)
	}
}
