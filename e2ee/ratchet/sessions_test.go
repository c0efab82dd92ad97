package ratchet_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

// client is a device in a direct room, with the clock of the test.
type client struct {
	*person

	sessions *ratchet.Sessions
	repair   ratchet.Repair
	resets   int
}

func clients(t testing.TB) (owner, agent *client) {
	t.Helper()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	o, err := ratchet.ForOwner(room, &alice.Keys, &bot.Keys)
	require.NoError(t, err)
	a, err := ratchet.ForAgent(room, &bot.Keys, &alice.Keys)
	require.NoError(t, err)
	return &client{person: alice, sessions: o}, &client{person: bot, sessions: a}
}

// get opens a message as a client does, and counts what fails.
func (c *client) get(m *ratchet.Message) (*ratchet.Opened, error) {
	o, err := c.sessions.Open(&c.Device, c.person, m)
	if err != nil {
		c.repair.Failed(m, err)
		return nil, err
	}
	c.repair.Opened(o)
	delete(c.oneTime, o.Used)
	return o, nil
}

// gets is a message that opens.
func (c *client) gets(t testing.TB, m *ratchet.Message, text string) *ratchet.Opened {
	t.Helper()
	o, err := c.get(m)
	require.NoError(t, err)
	require.Equal(t, text, string(o.Plaintext))
	c.restart(t)
	return o
}

func (c *client) refuses(t testing.TB, m *ratchet.Message, want error) {
	t.Helper()
	before := state(t, c.sessions)
	_, err := c.get(m)
	require.ErrorIs(t, err, want)
	require.True(t, bytes.Equal(before, state(t, c.sessions)))
}

func (c *client) restart(t testing.TB) {
	t.Helper()
	var sessions ratchet.Sessions
	stored := state(t, c.sessions)
	require.NoError(t, sessions.UnmarshalBinary(stored))
	require.Equal(t, stored, state(t, &sessions))
	c.sessions = &sessions
	var repair ratchet.Repair
	stored = state(t, &c.repair)
	require.NoError(t, repair.UnmarshalBinary(stored))
	require.Equal(t, stored, state(t, &repair))
	c.repair = repair
}

// ask posts a reset if it is time to.
func (c *client) ask(now time.Time) bool {
	if !c.repair.Ask(now) {
		return false
	}
	c.resets++
	return true
}

// linked is the event device_linked.
func (c *client) linked() {
	c.sessions.Clear()
	c.repair.Done()
}

var nextPrekey uint32 = 1000

func begins(t testing.TB, owner, agent *client, now time.Time) uint32 {
	t.Helper()
	nextPrekey++
	require.NoError(t, owner.sessions.Begin(&owner.Device, agent.bundle(t, 1, nextPrekey), now))
	owner.restart(t)
	return nextPrekey
}

func TestOwnerWritesFirst(t *testing.T) {
	owner, agent := clients(t)
	_, err := agent.sessions.Seal([]byte("too early"))
	require.ErrorIs(t, err, ratchet.ErrNotActivated)
	_, err = owner.sessions.Seal([]byte("too early"))
	require.ErrorIs(t, err, ratchet.ErrNoSession)
	require.ErrorIs(t, agent.sessions.Begin(&agent.Device, owner.bundle(t, 1, 1), noon), ratchet.ErrNotOwner)
	require.Nil(t, agent.sessions.Newest())

	id := begins(t, owner, agent, noon)
	o := agent.gets(t, sealed(t, owner.sessions, "hello"), "hello")
	require.True(t, o.Began)
	require.True(t, o.Newest)
	require.Equal(t, id, o.Used)
	require.True(t, agent.sessions.Activated())
	o = owner.gets(t, sealed(t, agent.sessions, "hi"), "hi")
	require.False(t, o.Began)
	require.Equal(t, owner.sessions.Newest().ID(), o.Session)

	// What an agent begins by itself is refused, whoever it is.
	rogue, err := ratchet.Begin(&agent.Device, owner.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	owner.refuses(t, sealed(t, rogue, "I begin"), ratchet.ErrNotOwner)
	require.False(t, owner.repair.Wanted())
}

func TestSessionsAreOfTwoDevices(t *testing.T) {
	owner, agent := clients(t)
	eve := newPerson(t, "eve")
	require.ErrorIs(t, owner.sessions.Begin(&owner.Device, eve.bundle(t, 1, 1), noon), ratchet.ErrWrongPeer)
	require.ErrorIs(t, owner.sessions.Begin(&eve.Device, agent.bundle(t, 1, 1), noon), ratchet.ErrDevice)
	foreign, err := ratchet.Begin(&eve.Device, agent.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	agent.refuses(t, sealed(t, foreign, "I am the owner"), ratchet.ErrWrongPeer)
	require.False(t, agent.repair.Wanted())
	begins(t, owner, agent, noon)
	_, err = agent.sessions.Open(&eve.Device, agent.person, sealed(t, owner.sessions, "x"))
	require.ErrorIs(t, err, ratchet.ErrDevice)

	for _, f := range []struct {
		room      string
		own, peer identity.Keys
		want      error
	}{
		{"", owner.Keys, agent.Keys, ratchet.ErrRoom},
		{room, owner.Keys, owner.Keys, ratchet.ErrWrongPeer},
		{room, owner.Keys, identity.Keys{}, ratchet.ErrWrongPeer},
		{room, identity.Keys{}, agent.Keys, ratchet.ErrDevice},
	} {
		_, err := ratchet.ForOwner(f.room, &f.own, &f.peer)
		require.ErrorIs(t, err, f.want)
	}
}

// FAULTS BL-J02, with sessions: damaged, true, and a second first message.
func TestJ02Sessions(t *testing.T) {
	owner, agent := clients(t)
	id := begins(t, owner, agent, noon)
	first, second := sealed(t, owner.sessions, "first"), sealed(t, owner.sessions, "second")
	agent.refuses(t, damaged(first), ratchet.ErrNotAuthentic)
	require.Contains(t, agent.oneTime, id)
	require.Equal(t, id, agent.gets(t, first, "first").Used)
	require.NotContains(t, agent.oneTime, id)
	o := agent.gets(t, second, "second")
	require.Zero(t, o.Used)
	require.False(t, o.Began)
	agent.refuses(t, first, ratchet.ErrDuplicate)
	agent.refuses(t, second, ratchet.ErrDuplicate)
	require.False(t, agent.repair.Wanted())
}

// Two initiations at once: both open, in either order, and both sides end in the same one.
func TestTwoInitiationsAtOnce(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		owner, agent := clients(t)
		begins(t, owner, agent, noon)
		a := sealed(t, owner.sessions, "a")
		begins(t, owner, agent, noon) // the same millisecond
		b := sealed(t, owner.sessions, "b")
		if swapped {
			require.True(t, agent.gets(t, b, "b").Newest)
			require.False(t, agent.gets(t, a, "a").Newest)
		} else {
			agent.gets(t, a, "a")
			agent.gets(t, b, "b")
		}
		require.Equal(t, 2, agent.sessions.Len())
		require.Equal(t, owner.sessions.Newest().ID(), agent.sessions.Newest().ID())
		require.True(t, owner.gets(t, sealed(t, agent.sessions, "answer"), "answer").Newest)
		agent.gets(t, sealed(t, owner.sessions, "on"), "on")
	}
}

// Messages of earlier sessions still open, of a bounded number of sessions, and one that is
// over stays over: also its first message, where no one-time prekey protects it.
func TestEarlierSessions(t *testing.T) {
	owner, agent := clients(t)
	var firsts, late []*ratchet.Message
	for i := range ratchet.MaxSessions + 2 {
		require.NoError(t, owner.sessions.Begin(&owner.Device, agent.bundle(t, 1, 0), noon))
		firsts = append(firsts, sealed(t, owner.sessions, text(i)))
		agent.gets(t, firsts[i], text(i))
		late = append(late, sealed(t, owner.sessions, text(i)))
		require.LessOrEqual(t, agent.sessions.Len(), ratchet.MaxSessions)
	}
	for i := range late {
		if i < 2 {
			agent.refuses(t, late[i], ratchet.ErrRetiredSession)
			agent.refuses(t, firsts[i], ratchet.ErrRetiredSession)
			continue
		}
		require.Equal(t, i == len(late)-1, agent.gets(t, late[i], text(i)).Newest)
		agent.refuses(t, firsts[i], ratchet.ErrDuplicate)
	}
	newest := owner.sessions.Newest().ID()
	require.Equal(t, newest, agent.sessions.Newest().ID(), "late messages do not bring old sessions back")
	agent.linked()
	for i := range firsts {
		agent.refuses(t, firsts[i], ratchet.ErrRetiredSession)
	}
	require.False(t, agent.repair.Wanted())
	_, err := agent.sessions.Seal(nil)
	require.ErrorIs(t, err, ratchet.ErrNotActivated, "after a reset the owner writes first")
	owner.linked()
	_, err = owner.sessions.Seal(nil)
	require.ErrorIs(t, err, ratchet.ErrNoSession)

	for range 3 * ratchet.MaxRetired {
		require.NoError(t, owner.sessions.Begin(&owner.Device, agent.bundle(t, 1, 0), noon.Add(-time.Hour)))
		agent.gets(t, sealed(t, owner.sessions, "next"), "next")
	}
	agent.linked()
	require.Less(t, len(state(t, agent.sessions)), 2000, "retired ids are bounded")
}

// FAULTS BL-J09: the first contact fails, and is repaired by one fresh X3DH; then there is
// none for hours, whatever still arrives.
func TestJ09FirstContactIsRepairedOnce(t *testing.T) {
	owner, agent := clients(t)
	now := noon
	id := begins(t, owner, agent, now)
	delete(agent.oneTime, id) // lost
	stale := make([]*ratchet.Message, 200)
	for i := range stale {
		stale[i] = sealed(t, owner.sessions, text(i))
	}
	agent.refuses(t, stale[0], ratchet.ErrUnknownPrekey)
	_, err := agent.sessions.Seal([]byte("I try"))
	require.ErrorIs(t, err, ratchet.ErrNotActivated)
	require.True(t, agent.ask(now))
	require.False(t, agent.ask(now))
	agent.linked()
	owner.linked()
	require.False(t, agent.repair.Wanted())

	begins(t, owner, agent, now)
	begun := 2
	agent.gets(t, sealed(t, owner.sessions, "again"), "again")
	for minute := range 180 {
		now = now.Add(time.Minute)
		_, err := agent.get(stale[1+minute])
		require.Error(t, err)
		if owner.ask(now) || agent.ask(now) {
			begun++
		}
		agent.gets(t, sealed(t, owner.sessions, "works"), "works")
		owner.gets(t, sealed(t, agent.sessions, "works"), "works")
	}
	require.Equal(t, 2, begun)
	require.Equal(t, 1, agent.resets+owner.resets)
}

// Where a reset does not help, or nobody hears of it, asking becomes rare, by the minute first.
func TestResetsAreRare(t *testing.T) {
	owner, agent := clients(t)
	begins(t, owner, agent, noon)
	agent.gets(t, sealed(t, owner.sessions, "first"), "first")
	lost, err := ratchet.ForAgent(room, &agent.Keys, &owner.Keys)
	require.NoError(t, err)
	owner.gets(t, sealed(t, agent.sessions, "answer"), "answer")
	agent.sessions = lost // its disk
	for range 3 {
		agent.refuses(t, sealed(t, owner.sessions, "x"), ratchet.ErrUnknownSession)
	}
	var asked []time.Duration
	for second := range 3 * 3600 {
		now := noon.Add(time.Duration(second) * time.Second)
		agent.refuses(t, sealed(t, owner.sessions, "x"), ratchet.ErrUnknownSession)
		require.Equal(t, agent.repair.Next(now).Equal(now), agent.repair.Clone().Ask(now))
		if agent.ask(now) {
			asked = append(asked, time.Duration(second)*time.Second)
			agent.restart(t)
		}
	}
	require.Equal(t, []time.Duration{
		0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute, 31 * time.Minute, 63 * time.Minute, 123 * time.Minute,
	}, asked)
	require.True(t, agent.ask(noon.Add(-24*time.Hour)), "the clock was set back")

	// The reset is heard of at last.
	agent.linked()
	owner.linked()
	begins(t, owner, agent, noon)
	agent.gets(t, sealed(t, owner.sessions, "again"), "again")
	require.False(t, agent.repair.Wanted())
}

// What each error means for the session.
func TestWhatGivesASessionUp(t *testing.T) {
	owner, agent := clients(t)
	begins(t, owner, agent, noon)
	m := sealed(t, owner.sessions, "x")
	wants := func(errs ...error) bool {
		var r ratchet.Repair
		for _, err := range errs {
			r.Failed(m, err)
		}
		return r.Wanted()
	}
	require.True(t, wants(ratchet.ErrUnknownSession))
	require.True(t, wants(ratchet.ErrUnknownPrekey))
	for _, err := range []error{ratchet.ErrNotAuthentic, ratchet.ErrTooFarAhead} {
		require.False(t, wants(err, err))
		require.True(t, wants(err, err, err))
	}
	for _, err := range []error{
		ratchet.ErrHeader, ratchet.ErrDuplicate, ratchet.ErrKeyDropped, ratchet.ErrRetiredSession, ratchet.ErrWrongPeer,
		ratchet.ErrNotOwner, ratchet.ErrTooLong, ratchet.ErrDevice,
	} {
		require.False(t, wants(err, err, err, err), err)
	}
	var r ratchet.Repair
	r.Lost()
	require.True(t, r.Ask(noon))

	// Damaged messages between good ones give nothing up, and a session that was given up by
	// mistake works on as soon as it opens something.
	for i := range 10 {
		agent.gets(t, sealed(t, owner.sessions, text(i)), text(i))
		agent.refuses(t, damaged(m), ratchet.ErrNotAuthentic)
		agent.refuses(t, damaged(m), ratchet.ErrNotAuthentic)
		require.False(t, agent.repair.Wanted())
	}
	agent.refuses(t, damaged(m), ratchet.ErrNotAuthentic)
	require.True(t, agent.repair.Wanted())
	agent.gets(t, m, "x")
	require.False(t, agent.repair.Wanted())
	bad := damaged(sealed(t, owner.sessions, "y"))
	for range 3 {
		agent.refuses(t, bad, ratchet.ErrNotAuthentic)
	}
	require.True(t, agent.repair.Wanted(), "it can be given up again")
}

// A state from a backup: the two no longer fit, one reset follows, and then it works.
func TestRestoredBackupIsRepaired(t *testing.T) {
	owner, agent := clients(t)
	begins(t, owner, agent, noon)
	agent.gets(t, sealed(t, owner.sessions, "first"), "first")
	backup := state(t, agent.sessions)
	for range 3 {
		owner.gets(t, sealed(t, agent.sessions, "ping"), "ping")
		agent.gets(t, sealed(t, owner.sessions, "pong"), "pong")
	}
	require.NoError(t, agent.sessions.UnmarshalBinary(backup))
	for range 2 {
		agent.refuses(t, sealed(t, owner.sessions, "x"), ratchet.ErrNotAuthentic)
		require.False(t, agent.ask(noon))
	}
	agent.refuses(t, sealed(t, owner.sessions, "x"), ratchet.ErrNotAuthentic)
	require.True(t, agent.ask(noon))
	late := sealed(t, owner.sessions, "x")
	agent.linked()
	owner.linked()
	agent.refuses(t, late, ratchet.ErrRetiredSession)
	begins(t, owner, agent, noon)
	agent.gets(t, sealed(t, owner.sessions, "again"), "again")
	owner.gets(t, sealed(t, agent.sessions, "fine"), "fine")
	require.False(t, agent.ask(noon.Add(time.Hour)))
	require.False(t, owner.ask(noon.Add(time.Hour)))
}

func TestSessionsClone(t *testing.T) {
	owner, agent := clients(t)
	begins(t, owner, agent, noon)
	before := state(t, owner.sessions)
	clone := owner.sessions.Clone()
	agent.gets(t, sealed(t, clone, "x"), "x")
	clone.Clear()
	require.Equal(t, before, state(t, owner.sessions))
}
