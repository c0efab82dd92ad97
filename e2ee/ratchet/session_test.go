package ratchet_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

func TestConversation(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	require.Equal(t, owner.ID(), agent.ID())
	require.Equal(t, noon, agent.Started())
	for i := range 200 {
		from, to := owner, agent
		if i/3%2 == 0 {
			from, to = agent, owner
		}
		m := sealed(t, from, text(i))
		opens(t, to, m, text(i))
		refuses(t, to, m, ratchet.ErrDuplicate)
		require.Len(t, m.Header, ratchet.HeaderSize, "an answer was opened")
		require.Zero(t, to.Skipped())
		owner, agent = restarted(t, owner), restarted(t, agent)
	}
}

// STATE: the owner must send the first message.
func TestAgentIsNotActivated(t *testing.T) {
	t.Parallel()
	owner, _ := pairOf(t)
	agent, err := ratchet.Unopened(owner, randomKey())
	require.NoError(t, err)
	_, err = agent.Seal([]byte("too early"))
	require.ErrorIs(t, err, ratchet.ErrNotActivated)
	_, err = agent.MarshalBinary()
	require.ErrorIs(t, err, ratchet.ErrState)
}

// The X3DH part is in the owner's headers until it opened an answer, and any of them may
// be the one that arrives first.
func TestFirstMessages(t *testing.T) {
	t.Parallel()
	for first := range 3 {
		alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
		owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 3, 0), room, noon)
		require.NoError(t, err)
		require.False(t, owner.Answered())
		messages := []*ratchet.Message{sealed(t, owner, "0"), sealed(t, owner, "1"), sealed(t, restarted(t, owner), "2")}
		for _, m := range messages {
			require.Len(t, m.Header, ratchet.FirstHeaderSize)
		}
		agent, plaintext, used, err := ratchet.Accept(&bot.Device, &alice.Keys, room, bot, messages[first])
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(first), string(plaintext))
		require.Zero(t, used, "there was no one-time prekey")
		for i, m := range messages {
			if i != first {
				opens(t, agent, m, fmt.Sprint(i))
			}
			refuses(t, agent, m, ratchet.ErrDuplicate)
		}
		opens(t, owner, sealed(t, agent, "answer"), "answer")
		require.True(t, owner.Answered())
		require.Len(t, sealed(t, owner, "3").Header, ratchet.HeaderSize)
	}
}

// FAULTS BL-J01: no forged header changes the ratchet.
func TestJ01ForgedHeadersChangeNothing(t *testing.T) {
	t.Parallel()
	for _, turns := range []int{0, 3} {
		owner, agent := pairOf(t)
		for range turns {
			opens(t, owner, sealed(t, agent, "ping"), "ping")
			opens(t, agent, sealed(t, owner, "pong"), "pong")
		}
		messages := make([]*ratchet.Message, 8)
		for i := range messages {
			messages[i] = sealed(t, owner, text(i))
		}
		for _, i := range []int{1, 2, 3, 5} {
			opens(t, agent, messages[i], text(i))
		}
		six := messages[6]
		unknown := publicOf(t, randomKey())
		for name, f := range map[string]struct {
			m    *ratchet.Message
			want error
		}{
			"unknown DH key":                {forged(t, six, func(h *ratchet.Header) { h.Key = unknown }), ratchet.ErrNotAuthentic},
			"unknown DH key, far":           {forged(t, six, func(h *ratchet.Header) { h.Key, h.N = unknown, 900 }), ratchet.ErrNotAuthentic},
			"unknown DH key, too far":       {forged(t, six, func(h *ratchet.Header) { h.Key, h.N = unknown, 1001 }), ratchet.ErrTooFarAhead},
			"unknown DH key, PN too large":  {forged(t, six, func(h *ratchet.Header) { h.Key, h.PN = unknown, 1<<31 }), ratchet.ErrNotAuthentic},
			"unknown DH key, PN too small":  {forged(t, six, func(h *ratchet.Header) { h.Key, h.PN = unknown, 2 }), ratchet.ErrNotAuthentic},
			"number +900":                   {forged(t, six, func(h *ratchet.Header) { h.N += 900 }), ratchet.ErrNotAuthentic},
			"number 2^32-2":                 {forged(t, six, func(h *ratchet.Header) { h.N = math.MaxUint32 - 1 }), ratchet.ErrTooFarAhead},
			"number 2^32-1":                 {forged(t, six, func(h *ratchet.Header) { h.N = math.MaxUint32 }), ratchet.ErrHeader},
			"PN 2^32-1":                     {forged(t, six, func(h *ratchet.Header) { h.PN = math.MaxUint32 }), ratchet.ErrHeader},
			"another PN":                    {forged(t, six, func(h *ratchet.Header) { h.PN++ }), ratchet.ErrNotAuthentic},
			"another session":               {forged(t, six, func(h *ratchet.Header) { h.Session[0]++ }), ratchet.ErrUnknownSession},
			"broken tag":                    {damaged(six), ratchet.ErrNotAuthentic},
			"broken tag of a late one":      {damaged(messages[4]), ratchet.ErrNotAuthentic},
			"no tag":                        {&ratchet.Message{Header: six.Header, Nonce: six.Nonce}, ratchet.ErrNotAuthentic},
			"a repeat":                      {messages[3], ratchet.ErrDuplicate},
			"its own key":                   {forged(t, six, func(h *ratchet.Header) { h.Key = header(t, sealed(t, agent.Clone(), "")).Key }), ratchet.ErrNotAuthentic},
			"number of an opened one":       {forged(t, six, func(h *ratchet.Header) { h.N = header(t, messages[3]).N }), ratchet.ErrDuplicate},
			"number of one that is missing": {forged(t, six, func(h *ratchet.Header) { h.N = header(t, messages[4]).N }), ratchet.ErrNotAuthentic},
			"its own message":               {sealed(t, agent.Clone(), "mine"), ratchet.ErrNotAuthentic},
			"too long":                      {&ratchet.Message{Header: six.Header, Ciphertext: make([]byte, 1<<17)}, ratchet.ErrTooLong},
		} {
			refuses(t, agent, f.m, f.want, name)
		}
		agent = restarted(t, agent)
		opens(t, agent, six, text(6))
		opens(t, agent, messages[4], text(4))
		opens(t, agent, messages[7], text(7))
		opens(t, agent, messages[0], text(0))
	}
}

// FAULTS BL-J02: a first message that fails uses nothing up.
func TestJ02FailedFirstMessageKeepsTheOneTimePrekey(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 9), room, noon)
	require.NoError(t, err)
	first, second := sealed(t, owner, "first"), sealed(t, owner, "second")
	keys := maps.Clone(bot.oneTime)

	_, _, used, err := ratchet.Accept(&bot.Device, &alice.Keys, room, bot, damaged(first))
	require.ErrorIs(t, err, ratchet.ErrNotAuthentic)
	require.Zero(t, used)
	require.Equal(t, keys, bot.oneTime)
	agent, plaintext, used, err := ratchet.Accept(&bot.Device, &alice.Keys, room, bot, first)
	require.NoError(t, err)
	require.Equal(t, "first", string(plaintext))
	require.EqualValues(t, 9, used)
	delete(bot.oneTime, used)
	opens(t, agent, second, "second")
	_, _, used, err = ratchet.Accept(&bot.Device, &alice.Keys, room, bot, second)
	require.ErrorIs(t, err, ratchet.ErrUnknownPrekey, "the prekey is gone")
	require.Zero(t, used)
}

// FAULTS BL-J03 (a): a session in which every second message is lost goes on.
func TestJ03EverySecondMessageIsLost(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	for i := range 3000 {
		m := sealed(t, owner, text(i))
		if i%2 == 0 {
			opens(t, agent, m, text(i))
		}
		require.LessOrEqual(t, agent.Skipped(), ratchet.MaxSkipped)
	}
	require.Equal(t, 1499, agent.Skipped())
	opens(t, owner, sealed(t, agent, "answer"), "answer")
}

// FAULTS BL-J03 (b): the limit opens, one more is refused fast and changes nothing.
func TestJ03JumpsHaveALimit(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	opens(t, owner, sealed(t, agent, "answer"), "answer") // the owner's next is of a new chain
	for range 2 {                                         // a new chain, and the present one
		ahead := owner.Clone()
		for range ratchet.MaxSkip {
			sealed(t, ahead, "lost")
		}
		limit := sealed(t, ahead, "limit")
		beyond := sealed(t, ahead, "beyond")
		for _, m := range []*ratchet.Message{
			beyond,
			forged(t, beyond, func(h *ratchet.Header) { h.N = 1 << 31 }),
		} {
			began := time.Now()
			for range 100 {
				refuses(t, agent, m, ratchet.ErrTooFarAhead)
			}
			require.Less(t, time.Since(began), 10*time.Second, "2^31 steps take hours")
		}
		opens(t, agent.Clone(), limit, "limit")
		opens(t, agent, sealed(t, owner, "next"), "next")
	}
	// The chain before has a limit, too, but nothing stops at it: what is lost is lost.
	for range ratchet.MaxSkip + 1 {
		sealed(t, owner, "lost")
	}
	late := sealed(t, owner, "late")
	opens(t, owner, sealed(t, agent, "turn"), "turn")
	opens(t, agent, sealed(t, owner, "new chain"), "new chain")
	refuses(t, agent, late, ratchet.ErrKeyDropped)
	require.Zero(t, agent.Skipped())
}

// FAULTS BL-J03 (c): many turns with skipped messages: a bounded total, the oldest dropped.
func TestJ03SkippedKeysAreBoundedInAll(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	var lost []*ratchet.Message
	for turn := range 500 {
		opens(t, owner, sealed(t, agent, "turn"), "turn")
		for i := range 5 {
			lost = append(lost, sealed(t, owner, text(5*turn+i)))
		}
		opens(t, agent, sealed(t, owner, "last"), "last")
		require.Equal(t, min(5*(turn+1), ratchet.MaxSkipped), agent.Skipped())
	}
	stored := state(t, agent)
	require.Less(t, len(stored), 110_000)
	agent = restarted(t, agent)
	refuses(t, agent, lost[0], ratchet.ErrNotAuthentic, "its chain is long forgotten")
	refuses(t, agent, lost[499], ratchet.ErrKeyDropped)
	for i := 500; i < 2500; i++ {
		opens(t, agent, lost[i], text(i))
	}
	require.Zero(t, agent.Skipped())
	refuses(t, agent, lost[2499], ratchet.ErrDuplicate)
	require.Equal(t, 64, agent.Chains())
	require.Less(t, len(state(t, agent)), 3500, "chains without keys are bounded")
}

// Within one chain, too, the oldest keys go first, and what is gone is said to be.
func TestOldestKeysOfAChainAreDropped(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	messages := make([]*ratchet.Message, 3003)
	for i := range messages {
		messages[i] = sealed(t, owner, text(i))
	}
	for _, i := range []int{1000, 2001, 3002} {
		opens(t, agent, messages[i], text(i))
	}
	require.Equal(t, ratchet.MaxSkipped, agent.Skipped())
	refuses(t, agent, messages[0], ratchet.ErrKeyDropped)
	refuses(t, agent, messages[999], ratchet.ErrKeyDropped)
	opens(t, agent, messages[1001], text(1001))
	opens(t, restarted(t, agent), messages[3001], text(3001))
}

// A key is gone with its use: what is on the disk afterwards opens nothing of before.
func TestStoredStateOpensNothingOfBefore(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	var seen []*ratchet.Message
	for i := range 20 {
		m := sealed(t, owner, text(i))
		opens(t, agent, m, text(i))
		seen = append(seen, m)
		if i%4 == 3 {
			opens(t, owner, sealed(t, agent, "turn"), "turn")
		}
	}
	stolen := restarted(t, agent)
	for _, m := range seen {
		refuses(t, stolen, m, ratchet.ErrDuplicate)
	}
}

// FAULTS BL-H10: keys that give everybody the same secret, and second spellings of keys.
func TestH10KeysAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	for _, bad := range badKeys(t) {
		require.ErrorIs(t, identity.CheckAgreement(bad), identity.ErrKeys)
		alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
		for name, spoil := range map[string]func(b *ratchet.Bundle){
			"signed prekey": func(b *ratchet.Bundle) {
				b.Signed.Key, b.Signed.Signature = bad, identity.SignPrekey(bot.signer, b.Signed.ID, bad)
			},
			"one-time prekey": func(b *ratchet.Bundle) { b.OneTime.Key = bad },
			"agreement key": func(b *ratchet.Bundle) {
				b.Keys.Agreement, b.Keys.AgreementSignature = bad, identity.SignAgreement(bot.signer, bad)
			},
		} {
			b := bot.bundle(t, 1, 1)
			spoil(b)
			_, err := ratchet.Begin(&alice.Device, b, room, noon)
			require.ErrorIs(t, err, ratchet.ErrBundle, "%s %x", name, bad)
		}
		owner, agent := pairOf(t)
		refuses(t, owner, forged(t, sealed(t, agent, "answer"), func(h *ratchet.Header) { h.Key = bad }), ratchet.ErrHeader)
		opens(t, owner, sealed(t, agent, "answer"), "answer")
		refuses(t, agent, forged(t, sealed(t, owner, "turn"), func(h *ratchet.Header) { h.Key = bad }), ratchet.ErrHeader)

		first, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), room, noon)
		require.NoError(t, err)
		_, _, _, err = ratchet.Accept(&bot.Device, &alice.Keys, room, bot,
			forged(t, sealed(t, first, "x"), func(h *ratchet.Header) { h.Key = bad }))
		require.ErrorIs(t, err, ratchet.ErrHeader)
		_, _, _, err = ratchet.Accept(&bot.Device, &alice.Keys, room, bot,
			forged(t, sealed(t, first, "x"), func(h *ratchet.Header) { h.Start.Ephemeral = bad; h.Session = sessionOf(alice, bot, h.Start) }))
		require.ErrorIs(t, err, ratchet.ErrHeader)
		require.ErrorContains(t, err, "ephemeral")
	}
}

// What was begun is begun with the device that is meant, for this room, with signatures that fit.
func TestBundlesThatAreRefused(t *testing.T) {
	t.Parallel()
	alice, bot, eve := newPerson(t, "owner"), newPerson(t, "agent"), newPerson(t, "eve")
	for name, spoil := range map[string]func(b *ratchet.Bundle){
		"another id":                  func(b *ratchet.Bundle) { b.Signed.ID++ },
		"id 0":                        func(b *ratchet.Bundle) { b.Signed.ID = 0 },
		"id 2^31":                     func(b *ratchet.Bundle) { b.Signed = signedBy(t, bot, 1<<31) },
		"signed by another":           func(b *ratchet.Bundle) { b.Signed = signedBy(t, eve, 1) },
		"one-time id 0":               func(b *ratchet.Bundle) { b.OneTime.ID = 0 },
		"one-time id 2^31":            func(b *ratchet.Bundle) { b.OneTime.ID = 1 << 31 },
		"another agreement key":       func(b *ratchet.Bundle) { b.Keys.Agreement = eve.Keys.Agreement },
		"another identity":            func(b *ratchet.Bundle) { b.Keys.Identity = eve.Keys.Identity },
		"signature of the agreement":  func(b *ratchet.Bundle) { b.Signed.Signature = b.Keys.AgreementSignature },
		"the prekey of another's key": func(b *ratchet.Bundle) { b.Signed.Key = b.OneTime.Key },
		"its own":                     func(b *ratchet.Bundle) { *b = *alice.bundle(t, 1, 1) },
	} {
		b := bot.bundle(t, 1, 1)
		spoil(b)
		_, err := ratchet.Begin(&alice.Device, b, room, noon)
		require.ErrorIs(t, err, ratchet.ErrBundle, name)
	}
	mixed := alice.Device
	mixed.Agreement = eve.Agreement
	_, err := ratchet.Begin(&mixed, bot.bundle(t, 1, 1), room, noon)
	require.ErrorIs(t, err, ratchet.ErrDevice)
	_, err = ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), "a b", noon)
	require.ErrorIs(t, err, ratchet.ErrRoom)
}

// FAULTS BL-J05: a first message is for one device, of one device, in one room.
func TestJ05FirstMessagesAreBound(t *testing.T) {
	t.Parallel()
	alice, bot, eve := newPerson(t, "owner"), newPerson(t, "agent"), newPerson(t, "eve")
	owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	m := sealed(t, owner, "for bot")
	eve.signed, eve.oneTime = bot.signed, bot.oneTime
	for name, f := range map[string]struct {
		own  *person
		peer *person
		room string
		m    *ratchet.Message
		want error
	}{
		"forwarded":           {eve, alice, room, m, ratchet.ErrHeader},
		"of another":          {bot, eve, room, m, ratchet.ErrWrongPeer},
		"in another room":     {bot, alice, room + "x", m, ratchet.ErrHeader},
		"with other keys":     {bot, alice, room, forged(t, m, func(h *ratchet.Header) { h.Start.Ephemeral = eve.Keys.Agreement }), ratchet.ErrHeader},
		"another prekey":      {bot, alice, room, forged(t, m, func(h *ratchet.Header) { h.Start.OneTime = 0 }), ratchet.ErrHeader},
		"another time":        {bot, alice, room, forged(t, m, func(h *ratchet.Header) { h.Start.Started++ }), ratchet.ErrHeader},
		"unknown signed":      {newPerson(t, "agent"), alice, room, m, ratchet.ErrUnknownPrekey},
		"without X3DH part":   {bot, alice, room, forged(t, m, func(h *ratchet.Header) { h.Start = nil }), ratchet.ErrUnknownSession},
		"no room":             {bot, alice, "", m, ratchet.ErrRoom},
		"no prekey, but true": {bot, alice, room, m, nil},
	} {
		_, _, used, err := ratchet.Accept(&f.own.Device, &f.peer.Keys, f.room, f.own, f.m)
		require.ErrorIs(t, err, f.want, name)
		require.Equal(t, f.want == nil, used != 0)
	}
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	_, err := owner.Seal(make([]byte, ratchet.MaxPlaintext+1))
	require.ErrorIs(t, err, ratchet.ErrTooLong)
	m, err := owner.Seal(make([]byte, ratchet.MaxPlaintext))
	require.NoError(t, err)
	_, err = agent.Open(m)
	require.NoError(t, err)
	owner.Exhaust()
	_, err = owner.Seal(nil)
	require.ErrorIs(t, err, ratchet.ErrExhausted)
	restarted(t, owner)
}

// Nothing that prints a value prints a key.
func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, _ := pairOf(t)
	sessions, err := ratchet.ForOwner(room, &alice.Keys, &bot.Keys)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, value := range []any{alice.Device, &alice.Device, owner, sessions} {
			require.Regexp(t, `^(device keys|session|sessions) \(not shown\)$`, fmt.Sprintf(verb, value))
		}
	}
}

// A clone is another session: whatever happens to one, the other stays.
func TestClone(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	lost := sealed(t, owner, "late")
	opens(t, agent, sealed(t, owner, "next"), "next")
	before := state(t, agent)
	clone := agent.Clone()
	opens(t, clone, lost, "late")
	opens(t, owner, sealed(t, clone, "answer"), "answer")
	opens(t, clone, sealed(t, owner, "turn"), "turn")
	require.True(t, bytes.Equal(before, state(t, agent)))
	opens(t, agent, lost, "late")
	// The same for keys of a chain that ended.
	owner, agent = pairOf(t)
	past, other := sealed(t, owner, "past"), sealed(t, owner, "other")
	opens(t, owner, sealed(t, agent, "answer"), "answer")
	opens(t, agent, sealed(t, owner, "turn"), "turn")
	before = state(t, agent)
	opens(t, agent.Clone(), past, "past")
	require.True(t, bytes.Equal(before, state(t, agent)))
	opens(t, agent, past, "past")
	opens(t, agent, other, "other")
}

// Who says that a chain was shorter than what came of it is refused, with a true tag too.
func TestChainsDoNotShrink(t *testing.T) {
	t.Parallel()
	owner, agent := pairOf(t)
	opens(t, agent, sealed(t, owner, "more"), "more")
	opens(t, owner, sealed(t, agent, "answer"), "answer")
	liar := owner.Clone()
	liar.Shorten()
	refuses(t, agent, sealed(t, liar, "turn"), ratchet.ErrNotAuthentic)
	opens(t, agent, sealed(t, owner, "turn"), "turn")
}
