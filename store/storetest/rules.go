package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
)

func testRules(t *testing.T, s Subject) {
	t.Run("the list", func(t *testing.T) { testRuleList(t, newFixture(t, s)) })
	t.Run("who is allowed", func(t *testing.T) { testRuleEffect(t, newFixture(t, s)) })
	t.Run("what does not exist", func(t *testing.T) { testRuleRefusals(t, newFixture(t, s)) })
}

func (f fixture) rules(t *testing.T, room uuid.UUID) []store.RuleSetting {
	t.Helper()
	settings, err := f.Store.RoomRules(t.Context(), f.tenant, room)
	require.NoError(t, err)
	return settings
}

func (f fixture) setRule(t *testing.T, room, participant uuid.UUID, rule store.Rule, allowed bool) store.RuleSetting {
	t.Helper()
	setting := store.RuleSetting{Tenant: f.tenant, Room: room, Rule: rule, Participant: participant, Allowed: allowed}
	require.NoError(t, f.Store.SetRule(t.Context(), setting))
	return setting
}

func testRuleList(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	require.Empty(t, f.rules(t, room.ID), "nothing is set")
	p, gone := f.add(t, room.ID, store.RoleAgent), f.add(t, room.ID, store.RoleAgent)
	other := f.newRoom(t, store.RoomGroup)
	f.setRule(t, other.ID, uuid.Nil, store.RuleMessageSend, false)

	want := []store.RuleSetting{
		3: f.setRule(t, room.ID, p.ID, store.RuleAlertEmit, true),
		2: f.setRule(t, room.ID, uuid.Nil, store.RuleAlertEmit, false),
		1: f.setRule(t, room.ID, p.ID, store.RuleMessageSend, false),
		0: f.setRule(t, room.ID, uuid.Nil, store.RuleMessageSend, true),
	}
	require.Equal(t, want, f.rules(t, room.ID), "by rule, the room's own first")
	f.setRule(t, room.ID, p.ID, store.RuleAlertEmit, true)
	require.Equal(t, want, f.rules(t, room.ID), "set again")
	want[1] = f.setRule(t, room.ID, p.ID, store.RuleMessageSend, true)
	require.Equal(t, want, f.rules(t, room.ID), "changed")

	f.setRule(t, room.ID, gone.ID, store.RuleMessageSend, false)
	require.Len(t, f.rules(t, room.ID), len(want)+1)
	f.remove(t, gone)
	require.Equal(t, want, f.rules(t, room.ID), "of current participants only")
}

// Rules are looked up for each notice: what is set is in force at once.
func testRuleEffect(t *testing.T, f fixture) {
	senders := f.allAlerters(t, 2)
	p, q := senders[0], senders[1]
	sends := func(p store.Participant, want error) {
		t.Helper()
		n := notice(p, uuid.NewString(), "x")
		if want != nil {
			f.refuse(t, n, want)
			return
		}
		f.accept(t, n)
	}
	sends(p, nil) // on until the owner says otherwise
	for _, rule := range []store.Rule{store.RuleMessageSend, store.RuleAlertEmit} {
		f.setRule(t, p.Room, p.ID, rule, false)
		sends(p, errNotPermitted)
		sends(q, nil)
		f.setRule(t, p.Room, p.ID, rule, true)
		sends(p, nil)

		f.setRule(t, p.Room, uuid.Nil, rule, false)
		sends(p, nil) // something of its own is set
		sends(q, errNotPermitted)
		f.setRule(t, p.Room, p.ID, rule, false)
		f.setRule(t, p.Room, uuid.Nil, rule, true)
		sends(p, errNotPermitted)
		sends(q, nil)
		f.setRule(t, p.Room, p.ID, rule, true)
	}
	f.setRule(t, p.Room, p.ID, store.RuleMessageSend, false)
	f.setRule(t, p.Room, p.ID, store.RuleAlertEmit, true)
	sends(p, errNotPermitted) // both are needed

	elsewhere := f.allAlerters(t, 1)[0]
	f.setRule(t, p.Room, uuid.Nil, store.RuleAlertEmit, false)
	sends(elsewhere, nil)

	human := f.add(t, p.Room, store.RoleOwner)
	f.setRule(t, p.Room, human.ID, store.RuleAlertEmit, true)
	sends(human, errNotPermitted) // a rule makes nobody an agent
}

func testRuleRefusals(t *testing.T, f fixture) {
	room := f.newRoom(t, store.RoomGroup)
	stranger := f.member(t)
	gone := f.add(t, room.ID, store.RoleAgent)
	f.remove(t, gone)
	for name, c := range map[string]struct {
		setting store.RuleSetting
		want    error
	}{
		"room":               {store.RuleSetting{Tenant: f.tenant, Room: newID(t), Rule: store.RuleAlertEmit}, store.ErrNotFound},
		"tenant":             {store.RuleSetting{Tenant: newID(t), Room: room.ID, Rule: store.RuleAlertEmit}, store.ErrNotFound},
		"participant":        {store.RuleSetting{Tenant: f.tenant, Room: room.ID, Rule: store.RuleAlertEmit, Participant: newID(t)}, store.ErrNotFound},
		"stranger":           {store.RuleSetting{Tenant: f.tenant, Room: room.ID, Rule: store.RuleAlertEmit, Participant: stranger.ID}, store.ErrNotFound},
		"former participant": {store.RuleSetting{Tenant: f.tenant, Room: room.ID, Rule: store.RuleAlertEmit, Participant: gone.ID}, store.ErrNotFound},
		"no rule":            {store.RuleSetting{Tenant: f.tenant, Room: room.ID}, store.ErrInvalid},
		"unknown rule":       {store.RuleSetting{Tenant: f.tenant, Room: room.ID, Rule: "Message.send"}, store.ErrInvalid},
	} {
		require.ErrorIs(t, f.Store.SetRule(t.Context(), c.setting), c.want, name)
	}
	require.Empty(t, f.rules(t, room.ID), "a refusal changes nothing")
	_, err := f.Store.RoomRules(t.Context(), f.tenant, newID(t))
	require.ErrorIs(t, err, store.ErrNotFound)
}
