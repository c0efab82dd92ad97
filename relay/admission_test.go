package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// DESIGN section 6, "Admission": the order is part of the contract.
func TestAdmissionOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range admission {
		names = append(names, c.name)
	}
	require.Equal(t, []string{
		"viewer", "rate", "shape", "from", "lease", "roster", "to", "seq", "permission", "policy", "recipients",
	}, names)
}

// RELAY: seq rises per generation; DESIGN section 7: the newest 64 are remembered.
func TestSeqRisesPerGeneration(t *testing.T) {
	t.Parallel()
	s := new(session)
	require.True(t, s.raise(1, 5), "any first seq")
	require.True(t, s.raise(1, 6))
	require.True(t, s.raise(2, 1), "generations count apart")
	require.True(t, s.raise(1, wire.MaxInteger))
	for _, seq := range []uint64{0, 1, 6, wire.MaxInteger} {
		require.False(t, s.raise(1, seq))
	}
	for gen := uint64(10); gen < 10+wire.MaxGenerations; gen++ {
		require.True(t, s.raise(gen, 1))
	}
	require.Len(t, s.seqs, wire.MaxGenerations)
	require.False(t, s.raise(10, 1), "the newest are remembered")
	require.True(t, s.raise(1, 1), "the oldest is forgotten")
}

// DESIGN section 1: a direct room is one conversation. And STATE, "Room State Machine":
// nothing follows ARCHIVED.
func TestWhatARoomTakes(t *testing.T) {
	t.Parallel()
	direct := store.Room{Kind: store.RoomDirect, State: store.RoomActive, Scheme: store.SchemeDoubleRatchet}
	open, closed := direct, direct
	open.Scheme, closed.State = store.SchemeNone, store.RoomArchived
	group := store.Room{Kind: store.RoomGroup, State: store.RoomActive, Scheme: store.SchemeSenderKeys}
	for _, c := range []struct {
		name    string
		room    store.Room
		kind    wire.Kind
		private bool
		refused wire.Code // empty: passes
	}{
		{"the conversation", direct, wire.KindMessage, false, ""},
		{"beside the conversation", direct, wire.KindMessage, true, wire.SchemeMismatch},
		{"beside it, control", direct, wire.KindControl, true, ""},
		{"beside it, unencrypted", open, wire.KindMessage, true, ""},
		{"in a group", group, wire.KindMessage, true, ""},
		{"archived", closed, wire.KindMessage, false, wire.RoomIsArchived},
		{"archived, beside it", closed, wire.KindSenderKey, true, wire.RoomIsArchived},
		{"archived, notice", closed, wire.KindNotice, false, wire.RoomIsArchived},
	} {
		refused := checkPolicy(t.Context(), &attempt{
			session:  &session{identity: store.Identity{Role: store.RoleOwner}},
			envelope: &wire.Envelope{Kind: c.kind},
			roster:   &roster{room: c.room},
			private:  c.private, role: store.RoleAgent,
		})
		if c.refused == "" {
			require.Nil(t, refused, c.name)
		} else {
			require.Equal(t, &refusal{code: c.refused}, refused, c.name)
		}
	}
}

// RELAY: a missing policy never means allowed; only messages from agent to agent are
// under it.
func TestPolicyFailsClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		policy  store.PrivateMessages
		from    store.Role
		to      store.Role
		kind    wire.Kind
		private bool
		refused wire.Code // empty: passes
		traced  bool
	}{
		{"allowed", store.PrivateAllowed, store.RoleAgent, store.RoleAgent, wire.KindMessage, true, "", true},
		{"refused", store.PrivateRefused, store.RoleAgent, store.RoleAgent, wire.KindMessage, true, wire.PrivateRefused, false},
		{"missing", "", store.RoleAgent, store.RoleAgent, wire.KindMessage, true, wire.Unavailable, false},
		{"unknown", "Allowed", store.RoleAgent, store.RoleAgent, wire.KindMessage, true, wire.Unavailable, false},
		{"to a human", "", store.RoleAgent, store.RoleOwner, wire.KindMessage, true, "", false},
		{"to a viewer", "", store.RoleAgent, store.RoleViewer, wire.KindMessage, true, "", false},
		{"of a human", "", store.RoleController, store.RoleAgent, wire.KindMessage, true, "", false},
		{"key exchange", store.PrivateRefused, store.RoleAgent, store.RoleAgent, wire.KindSenderKey, true, "", false},
		{"control", store.PrivateRefused, store.RoleAgent, store.RoleAgent, wire.KindControl, true, "", false},
		{"key request", store.PrivateRefused, store.RoleAgent, store.RoleAgent, wire.KindKeyRequest, true, "", false},
		{"to the session", store.PrivateRefused, store.RoleAgent, "", wire.KindMessage, false, "", false},
	} {
		a := &attempt{
			session:  &session{identity: store.Identity{Role: c.from}},
			envelope: &wire.Envelope{Kind: c.kind},
			roster:   &roster{room: store.Room{PrivateMessages: c.policy}},
			private:  c.private, role: c.to,
		}
		refused := checkPolicy(t.Context(), a)
		if c.refused == "" {
			require.Nil(t, refused, c.name)
		} else {
			require.Equal(t, &refusal{code: c.refused}, refused, c.name)
		}
		require.Equal(t, c.traced, a.traced, c.name)
	}
}

// RELAY: a notice is session-addressed, from an agent, never from a development connection.
func TestWhoMaySendNotices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role    store.Role
		kind    store.CredentialKind
		private bool
		refused wire.Code
	}{
		{store.RoleAgent, store.CredentialSession, false, ""},
		{store.RoleAgent, store.CredentialSession, true, wire.InvalidEnvelope},
		{store.RoleAgent, store.CredentialDevelopment, false, wire.NoticeNotPermitted},
		{store.RoleOwner, store.CredentialSession, false, wire.NoticeNotPermitted},
		{store.RoleController, store.CredentialSession, false, wire.NoticeNotPermitted},
	} {
		refused := checkPermission(t.Context(), &attempt{
			session:  &session{identity: store.Identity{Role: c.role, Kind: c.kind}},
			envelope: &wire.Envelope{Kind: wire.KindNotice}, private: c.private,
		})
		if c.refused == "" {
			require.Nil(t, refused, "%+v", c)
			continue
		}
		require.Equal(t, &refusal{code: c.refused}, refused, "%+v", c)
	}
}
