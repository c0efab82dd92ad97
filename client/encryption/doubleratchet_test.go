package encryption_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	guuid "github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// STATE, "Owner sends first message in every 1:1 conversation".
func TestOwnerOfADirectRoomWritesFirst(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	_, err := agent.seal(t, "too early")
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	require.NoError(t, agent.prepare(t), "which has nothing to ask for")
	_, err = agent.seal(t, "too early")
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	require.Zero(t, d.bundles)

	_, err = owner.seal(t, "unprepared")
	require.ErrorIs(t, err, encryption.ErrPrepare)
	for range 3 {
		require.NoError(t, owner.prepare(t))
	}
	require.Equal(t, 1, d.bundles, "one bundle for a session")
	owner.reopen(t)
	require.NoError(t, owner.prepare(t))
	require.Equal(t, 1, d.bundles, "the session was saved before anything was sent")

	first, err := owner.seal(t, "hello")
	require.NoError(t, err)
	require.Equal(t, encryption.Sealed{
		ID: first.ID, To: d.id, Kind: wire.KindMessage, Gen: 2, Seq: 1, Recipients: 1, Raw: first.Raw,
	}, first)
	require.NotContains(t, string(first.Raw), "hello")
	_, err = agent.seal(t, "still too early")
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	agent.reads(t, owner, first.Raw, "hello")
	for i := range 5 { // turns, each after a restart
		owner.reads(t, agent, agent.says(t, fmt.Sprint("answer ", i)), fmt.Sprint("answer ", i))
		agent.reopen(t)
		agent.reads(t, owner, owner.says(t, fmt.Sprint("question ", i)), fmt.Sprint("question ", i))
		owner.reopen(t)
	}
	require.Zero(t, d.asked)
	require.Equal(t, &encryption.Due{}, owner.due(t))
}

// A direct room has messages to the room and no others.
func TestWhatADirectRoomHasNoMessagesFor(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	first := owner.says(t, "hello")
	good := encryption.Draft{ID: "a", Kind: wire.KindMessage, To: d.id, Payload: []byte("a")}
	seal := func(p *party, change func(*encryption.Draft)) error {
		draft := good
		change(&draft)
		return p.store.Update(func(tx *keystore.Tx) error {
			_, err := cipher(t).Seal(tx, p.room(t), &draft)
			return err
		})
	}
	for name, change := range map[string]func(*encryption.Draft){
		"private":     func(d *encryption.Draft) { d.To = agent.self.Participant },
		"control":     func(d *encryption.Draft) { d.Kind = wire.KindControl },
		"notice":      func(d *encryption.Draft) { d.Kind, d.ExpiresAt = wire.KindNotice, 1 },
		"sender key":  func(d *encryption.Draft) { d.Kind = wire.KindSenderKey },
		"key request": func(d *encryption.Draft) { d.Kind = wire.KindKeyRequest },
		"expires":     func(d *encryption.Draft) { d.ExpiresAt = 1 },
	} {
		require.ErrorIs(t, seal(owner, change), encryption.ErrKind, name)
	}
	require.ErrorIs(t, seal(owner, func(d *encryption.Draft) { d.Payload = make([]byte, signed.MaxPlaintext+1) }), signed.ErrTooLarge)
	require.NoError(t, seal(owner, func(d *encryption.Draft) { d.Payload = make([]byte, signed.MaxPlaintext) }))
	require.ErrorIs(t, seal(owner, func(d *encryption.Draft) { d.ID = "" }), signed.ErrEnvelope)

	agent.reads(t, owner, first, "hello")
	for name, change := range map[string]func(*signed.Message){
		"private":   func(m *signed.Message) { m.To = agent.self.Participant },
		"control":   func(m *signed.Message) { m.Kind, m.Hdr = wire.KindControl, nil },
		"no header": func(m *signed.Message) { m.Hdr = nil },
		"no nonce":  func(m *signed.Message) { m.Nonce = nil },
	} {
		before := agent.everything(t)
		agent.loses(t, owner, owner.signs(t, owner.says(t, name), change), nil)
		require.Equal(t, before, agent.everything(t), name)
	}

	d.leave(agent)
	require.ErrorIs(t, seal(owner, func(*encryption.Draft) {}), encryption.ErrNoPeer)
	require.NoError(t, owner.prepare(t))
	require.Equal(t, &encryption.Due{}, owner.due(t))
}

// What is in clear of a file comes with the message that is signed with it.
func TestDirectMessageWithAFile(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	require.NoError(t, owner.prepare(t))
	file := &signed.File{Name: "a.txt", MIMEType: "text/plain", SizeBytes: 3}
	var raw []byte
	require.NoError(t, owner.store.Update(func(tx *keystore.Tx) error {
		sealed, err := cipher(t).Seal(tx, owner.room(t), &encryption.Draft{ID: "f", Kind: wire.KindMessage, To: d.id, Payload: []byte("abc"), TS: 7, File: file})
		raw = sealed[0].Raw
		return err
	}))
	require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
		opened, err := cipher(t).Open(tx, agent.room(t), owner.member(t), raw, d.now)
		require.Equal(t, &encryption.Opened{Kind: wire.KindMessage, Payload: []byte("abc"), Gen: 2, TS: 7, File: file}, opened)
		return err
	}))
}

// FAULTS J01 at the key store.
func TestForgeriesLeaveTheStoredConversation(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	messages := make([][]byte, 8)
	for i := range messages {
		messages[i] = owner.says(t, fmt.Sprint(i))
	}
	for _, i := range []int{0, 1, 2, 3, 5} {
		agent.reads(t, owner, messages[i], fmt.Sprint(i))
	}
	good := messages[6]

	// By anybody else, nothing at all changes.
	stranger := newSelf(t)
	unsigned := bytes.Replace(good, []byte(`"seq":7`), []byte(`"seq":8`), 1)
	require.NotEqual(t, good, unsigned)
	m, err := signed.Read(good, &signed.Expected{SessionID: d.id, From: owner.member(t).Member, Self: agent.self.Participant})
	require.NoError(t, err)
	forged, err := m.Sign(stranger.Identity, m.Nonce, m.CT)
	require.NoError(t, err)
	before := agent.everything(t)
	for _, raw := range [][]byte{unsigned, forged, []byte("{}"), nil} {
		_, err := agent.open(t, owner, raw)
		require.Error(t, err)
		require.NotErrorIs(t, err, encryption.ErrLost, "it is not authentic")
	}
	require.Equal(t, before, agent.everything(t))

	// By the other device itself, the sessions are what they were.
	header := func(change func(*ratchet.Header)) func(*signed.Message) {
		return func(m *signed.Message) {
			h, err := ratchet.ParseHeader(m.Hdr)
			require.NoError(t, err)
			change(&h)
			m.Hdr = h.Bytes()
		}
	}
	kept := agent.conversation(t)
	for name, c := range map[string]struct {
		change func(*signed.Message)
		want   error
	}{
		"unknown key":         {header(func(h *ratchet.Header) { h.Key = newSelf(t).Keys.Agreement }), ratchet.ErrNotAuthentic},
		"900 ahead":           {header(func(h *ratchet.Header) { h.N += 900 }), ratchet.ErrNotAuthentic},
		"2^32-1":              {header(func(h *ratchet.Header) { h.N = 1<<32 - 1 }), ratchet.ErrHeader},
		"broken tag":          {func(m *signed.Message) { m.CT[len(m.CT)-1] ^= 1 }, ratchet.ErrNotAuthentic},
		"far ahead":           {header(func(h *ratchet.Header) { h.N = 1 << 31 }), ratchet.ErrTooFarAhead},
		"key of small order":  {header(func(h *ratchet.Header) { h.Key, h.PN = [32]byte{1}, 7 }), ratchet.ErrHeader},
		"another message's":   {header(func(h *ratchet.Header) { h.N = 4 }), ratchet.ErrNotAuthentic},
		"another session's":   {header(func(h *ratchet.Header) { h.Session[0] ^= 1 }), ratchet.ErrHeader},
		"unknown one-time id": {header(func(h *ratchet.Header) { h.Start.OneTime += 77 }), ratchet.ErrHeader},
		"no header":           {func(m *signed.Message) { m.Hdr = m.Hdr[:20] }, ratchet.ErrHeader},
	} {
		agent.loses(t, owner, owner.signs(t, good, c.change), c.want)
		require.Equal(t, kept, agent.conversation(t), name)
	}
	agent.loses(t, owner, messages[3], ratchet.ErrDuplicate)
	require.Equal(t, kept, agent.conversation(t), "a repeat")

	agent.reads(t, owner, good, "6")
	agent.reads(t, owner, messages[4], "4")
	agent.reads(t, owner, messages[7], "7")
}

// FAULTS J02, J08: a one-time prekey goes with the saved message that used it, and not before.
func TestOneTimePrekeyGoesWithTheOpenedMessage(t *testing.T) {
	t.Parallel()
	_, owner, agent := newDirect(t)
	first, second := owner.says(t, "first"), owner.says(t, "second")
	used := owner.header(t, first).Start.OneTime
	require.NotZero(t, used)
	prekey := fmt.Sprintf("%d one-time/%010d", keystore.Prekeys, used)
	kept := agent.stored(t, keystore.Prekeys)
	require.True(t, has(kept, prekey))

	damaged := owner.signs(t, first, func(m *signed.Message) { m.CT[0] ^= 1 })
	agent.loses(t, owner, damaged, ratchet.ErrNotAuthentic)
	require.Equal(t, kept, agent.stored(t, keystore.Prekeys))

	killed := errors.New("killed before it was saved")
	before := agent.everything(t)
	require.ErrorIs(t, agent.store.Update(func(tx *keystore.Tx) error {
		opened, err := cipher(t).Open(tx, agent.room(t), owner.member(t), first, owner.at.now)
		require.NoError(t, err)
		require.Equal(t, "first", string(opened.Payload))
		require.Nil(t, tx.Get(keystore.Prekeys, prekey[2:]))
		return killed
	}), killed)
	require.Equal(t, before, agent.everything(t))

	agent.reads(t, owner, first, "first")
	delete(kept, prekey)
	require.Equal(t, kept, agent.stored(t, keystore.Prekeys), "it is gone, and nothing else")
	require.NotNil(t, owner.header(t, second).Start, "another first message, before any answer")
	agent.reads(t, owner, second, "second")
	owner.reads(t, agent, agent.says(t, "answer"), "answer")
}

func has(all map[string]string, key string) bool {
	_, ok := all[key]
	return ok
}

// FAULTS J09: first contact fails, as the one-time key is lost.
func TestFirstContactThatFailsIsRepairedOnce(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	first := owner.says(t, "first")
	lost := owner.header(t, first).Start.OneTime
	require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
		return tx.Delete(keystore.Prekeys, fmt.Sprintf("one-time/%010d", lost))
	}))
	for range 3 {
		agent.loses(t, owner, owner.says(t, "lost"), ratchet.ErrUnknownPrekey)
		_, err := agent.seal(t, "not yet")
		require.ErrorIs(t, err, encryption.ErrNotActivated)
	}
	require.True(t, agent.due(t).Prepare)
	require.NoError(t, agent.prepare(t))
	require.Equal(t, 1, d.resets)
	event := d.events[0]
	agent.hears(t, &event)
	agent.loses(t, owner, first, nil)
	owner.hears(t, &event)
	_, err := agent.seal(t, "the owner writes first")
	require.ErrorIs(t, err, encryption.ErrNotActivated)

	agent.reads(t, owner, owner.says(t, "again"), "again")
	for range 3 * 12 {
		d.now = d.now.Add(5 * time.Minute)
		for _, p := range []*party{owner, agent} {
			require.Equal(t, &encryption.Due{}, p.due(t))
			require.NoError(t, p.prepare(t))
		}
		if d.now.Minute()%20 == 0 {
			owner.reads(t, agent, agent.says(t, "to the owner"), "to the owner")
			agent.reads(t, owner, owner.says(t, "to the agent"), "to the agent")
			agent.hears(t, &event)
			owner.hears(t, &event)
			agent.loses(t, owner, first, nil)
		}
	}
	require.Equal(t, 1, d.asked)
	require.Equal(t, 2, d.bundles, "one fresh X3DH")
}

// FAULTS J09, where no reset helps: it is asked for ever more rarely.
func TestResetsAreAskedForEverMoreRarely(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	first := owner.says(t, "first")
	require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
		return tx.Delete(keystore.Prekeys, fmt.Sprintf("one-time/%010d", owner.header(t, first).Start.OneTime))
	}))
	d.resetErr = errors.New("not now")
	for minute := range 3 * 60 {
		if minute%20 == 0 {
			agent.loses(t, owner, owner.says(t, "lost"), ratchet.ErrUnknownPrekey)
		}
		asked := d.asked
		due := agent.due(t)
		err := agent.prepare(t)
		switch {
		case due.Prepare:
			require.ErrorIs(t, err, d.resetErr)
			require.Equal(t, asked+1, d.asked)
			require.NoError(t, agent.prepare(t), "the ask was counted before it was made")
		default:
			require.NoError(t, err)
			require.True(t, due.Next.After(d.now))
		}
		require.LessOrEqual(t, d.asked, asked+1)
		d.now = d.now.Add(time.Minute)
	}
	require.Equal(t, 8, d.asked, "after 0, 1, 3, 7, 15, 31, 63 and 123 minutes")
	require.Equal(t, 1, d.bundles)
}

// FAULTS J03 as far as it is stored: the ratchet's own tests have the numbers.
func TestStoredConversationIsBounded(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	draft := encryption.Draft{Kind: wire.KindMessage, To: d.id, Payload: []byte("a")}
	var messages [][]byte
	require.NoError(t, owner.prepare(t))
	require.NoError(t, owner.store.Update(func(tx *keystore.Tx) error {
		for i := range ratchet.MaxSkip + 3 {
			draft.ID = fmt.Sprint(i)
			sealed, err := cipher(t).Seal(tx, owner.room(t), &draft)
			if err != nil {
				return err
			}
			messages = append(messages, sealed[0].Raw)
		}
		return nil
	}))
	agent.reads(t, owner, messages[0], "a")
	kept := agent.conversation(t)
	agent.loses(t, owner, messages[ratchet.MaxSkip+2], ratchet.ErrTooFarAhead)
	require.Equal(t, kept, agent.conversation(t))
	agent.reads(t, owner, messages[ratchet.MaxSkip+1], "a")
	agent.reads(t, owner, messages[ratchet.MaxSkip+2], "a")
	agent.reads(t, owner, messages[1], "a")
	agent.loses(t, owner, messages[1], ratchet.ErrDuplicate)
	size := 0
	for _, value := range agent.conversation(t) {
		size = max(size, len(value))
	}
	t.Log("bytes of a conversation in which", ratchet.MaxSkip-1, "messages are missing:", size)
	require.Less(t, size, 40_000)
}

// An old copy of the store is not sent with: the conversation begins anew.
func TestRestoredConversationBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"owner", "agent"} {
		for _, answerLost := range []bool{false, true} {
			t.Run(fmt.Sprint(role, " answer lost ", answerLost), func(t *testing.T) {
				t.Parallel()
				testRestored(t, role, answerLost)
			})
		}
	}
}

func testRestored(t *testing.T, role string, answerLost bool) {
	t.Helper()
	d, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	owner.reads(t, agent, agent.says(t, "answer"), "answer")
	restored, other := owner, agent
	if role == "agent" {
		restored, other = agent, owner
	}
	copied := restored.backUp(t)
	used := map[string]bool{}
	says := func(p *party, text string) []byte {
		raw := p.says(t, text)
		h := p.header(t, raw)
		key := fmt.Sprintf("%x %x %d", h.Session, h.Key, h.N)
		require.False(t, used[key], "a key that was used before")
		used[key] = true
		return raw
	}
	for range 3 {
		other.reads(t, restored, says(restored, "of the newer one"), "of the newer one")
	}
	restored.restore(t, copied)
	found, err := restored.store.NoticeRestored(d.id, 5)
	require.NoError(t, err)
	require.True(t, found)

	_, err = restored.seal(t, "with an old state")
	require.ErrorIs(t, err, encryption.ErrPrepare)
	require.True(t, restored.due(t).Prepare)
	late := other.says(t, "under way")
	d.answerLost = answerLost
	err = restored.prepare(t)
	require.Equal(t, 1, d.resets)
	if answerLost {
		require.Error(t, err)
		_, err = restored.seal(t, "with an old state")
		require.ErrorIs(t, err, encryption.ErrPrepare)
		require.NoError(t, restored.prepare(t), "it was asked for just now")
		require.Equal(t, 1, d.asked)
		restored.hears(t, &d.events[0])
	} else {
		require.NoError(t, err)
	}
	restored.loses(t, other, late, nil)
	if role == "agent" {
		_, err = restored.seal(t, "the owner writes first")
		require.ErrorIs(t, err, encryption.ErrNotActivated)
		owner.hears(t, &d.events[0])
	}
	agent.reads(t, owner, says(owner, "anew"), "anew")
	for _, p := range []*party{owner, agent} {
		p.hears(t, &d.events[0]) // late, or again
	}
	owner.reads(t, agent, says(agent, "answer"), "answer")
	agent.reads(t, owner, says(owner, "and on"), "and on")
	require.Equal(t, 2, d.bundles)
	require.Equal(t, 1, d.asked)
	require.Equal(t, &encryption.Due{}, restored.due(t))
}

// A state that cannot be read is lost (STATE, "Corrupt State").
func TestUnreadableConversationBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"shorter":         func(b []byte) []byte { return b[:len(b)-1] },
		"only a head":     func(b []byte) []byte { return b[:40] },
		"another version": func(b []byte) []byte { b[0] = 9; return b },
		"of sessions":     func(b []byte) []byte { b[145] = 9; return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, owner, agent := newDirect(t)
			agent.reads(t, owner, owner.says(t, "first"), "first")
			require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
				key := "ratchet/" + d.id
				return tx.Put(keystore.Sessions, key, damage(tx.Get(keystore.Sessions, key)))
			}))
			_, err := agent.seal(t, "answer")
			require.ErrorIs(t, err, encryption.ErrNotActivated)
			require.True(t, agent.due(t).Prepare)
			require.NoError(t, agent.prepare(t))
			for _, p := range []*party{owner, agent} {
				p.hears(t, &d.events[0])
			}
			agent.reads(t, owner, owner.says(t, "anew"), "anew")
			owner.reads(t, agent, agent.says(t, "answer"), "answer")
			require.Equal(t, 1, d.asked)
		})
	}
}

// A message that was sent back, or taken to another room, is nobody's there (FAULTS J05).
func TestDirectMessagesAreOfTheirRoomAndDirection(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	raw := owner.says(t, "hello")
	agent.reads(t, owner, raw, "hello")
	before := owner.everything(t)
	_, err := owner.open(t, agent, raw)
	require.ErrorIs(t, err, signed.ErrSignature)
	claimed := bytes.ReplaceAll(raw, []byte(owner.self.Participant), []byte(agent.self.Participant))
	_, err = owner.open(t, agent, claimed)
	require.ErrorIs(t, err, signed.ErrSignature)
	require.Equal(t, before, owner.everything(t))

	// The agent signs what the owner sent as its own: another direction, the same key.
	m, err := signed.Read(raw, &signed.Expected{SessionID: d.id, From: owner.member(t).Member, Self: agent.self.Participant})
	require.NoError(t, err)
	m.From = agent.self.Participant
	reflected, err := m.Sign(agent.self.Identity, m.Nonce, m.CT)
	require.NoError(t, err)
	owner.loses(t, agent, reflected, ratchet.ErrHeader)

	// The same two devices in another room.
	other := &direct{id: guuid.NewString(), version: 2, now: d.now}
	there := *agent
	there.at = other
	other.all = []*party{&there, {at: other, role: "owner", self: owner.self, device: owner.device}}
	before = agent.everything(t)
	_, err = there.open(t, owner, raw)
	require.ErrorIs(t, err, signed.ErrContext)
	require.Equal(t, before, agent.everything(t))
	moved := owner.signs(t, owner.says(t, "moved"), func(m *signed.Message) { m.SessionID, m.To = other.id, other.id })
	there.loses(t, owner, moved, ratchet.ErrHeader)
}

// Events come late, twice, and behind the messages that follow them.
func TestLateAndRepeatedEventsOfADirectRoom(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	old := agent.says(t, "of the old session")
	stale := owner.says(t, "of the old session, too")

	linked := *d.tell(wire.DeviceLinked, agent)
	owner.hears(t, &linked)
	reset := linked
	reset.Event = wire.RoomReset
	owner.hears(t, &reset)
	owner.loses(t, agent, old, nil)
	require.Equal(t, &encryption.Due{}, owner.due(t), "quietly")
	_, err := owner.seal(t, "needs a session")
	require.ErrorIs(t, err, encryption.ErrPrepare)
	anew := owner.says(t, "anew")
	require.Equal(t, 2, d.bundles)

	// The agent opens it before it hears of the reset.
	agent.reads(t, owner, anew, "anew")
	agent.loses(t, owner, stale, nil)
	for _, p := range []*party{agent, owner} {
		p.hears(t, &linked)
		p.hears(t, &reset)
		require.Equal(t, &encryption.Due{}, p.due(t))
	}
	owner.reads(t, agent, agent.says(t, "answer"), "answer")
	agent.reads(t, owner, owner.says(t, "goes on"), "goes on")
	require.Equal(t, 2, d.bundles)
	require.Zero(t, d.asked)

	// A first message from before a reset does not begin a session behind it.
	linked = *d.tell(wire.DeviceLinked, owner)
	owner.hears(t, &linked)
	early := owner.says(t, "of a session that was over before it came")
	again := *d.tell(wire.DeviceLinked, owner)
	agent.hears(t, &again)
	agent.loses(t, owner, early, nil)
	_, err = agent.seal(t, "answer")
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	owner.hears(t, &again)
	agent.reads(t, owner, owner.says(t, "at last"), "at last")
}

// What is broken since a reset is not mended by that reset's event, nor by a message of the
// session before it (FAULTS J09: a mark that is lost, and a repair that never comes).
func TestBrokenSessionIsNotForgotten(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	owner.reads(t, agent, agent.says(t, "answer"), "answer")
	late := owner.says(t, "late")
	reset := *d.tell(wire.DeviceLinked, owner)
	owner.hears(t, &reset)
	broken := owner.says(t, "broken")
	require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
		return tx.Delete(keystore.Prekeys, fmt.Sprintf("one-time/%010d", owner.header(t, broken).Start.OneTime))
	}))
	agent.loses(t, owner, broken, ratchet.ErrUnknownPrekey)
	agent.reads(t, owner, late, "late")
	require.True(t, agent.due(t).Prepare)
	agent.hears(t, &reset)
	require.True(t, agent.due(t).Prepare)
	require.NoError(t, agent.prepare(t))
	require.Equal(t, 1, d.resets)
	for _, p := range []*party{owner, agent} {
		p.hears(t, &d.events[1])
		require.Equal(t, &encryption.Due{}, p.due(t))
	}
	agent.reads(t, owner, owner.says(t, "again"), "again")
	require.Equal(t, 3, d.bundles)
}

// A session that is not known is a reason to begin anew each time, also where a message of
// another one of the same gen opened meanwhile: here of the one that the owner's store, an old copy
// that nobody noticed, knows nothing of.
func TestBrokenSessionBesideOneThatWorks(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	copied := owner.backUp(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	late := owner.says(t, "late")
	owner.restore(t, copied)
	broken := owner.says(t, "broken")
	require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
		return tx.Delete(keystore.Prekeys, fmt.Sprintf("one-time/%010d", owner.header(t, broken).Start.OneTime))
	}))
	agent.loses(t, owner, broken, ratchet.ErrUnknownPrekey)
	require.True(t, agent.due(t).Prepare)
	agent.reads(t, owner, late, "late")
	require.Equal(t, &encryption.Due{}, agent.due(t), "it seems to work")
	agent.loses(t, owner, owner.says(t, "broken still"), ratchet.ErrUnknownPrekey)
	require.NoError(t, agent.prepare(t))
	require.Equal(t, 1, d.resets)
	owner.hears(t, &d.events[0])
	agent.reads(t, owner, owner.says(t, "again"), "again")
}

// An old copy with which the other side began anew is sent with again.
func TestFreshSessionOfAnOldCopy(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	found, err := agent.store.NoticeRestored(d.id, 5)
	require.NoError(t, err)
	require.True(t, found)
	owner.hears(t, d.tell(wire.DeviceLinked, owner))
	_, err = agent.seal(t, "with an old state")
	require.ErrorIs(t, err, encryption.ErrPrepare)
	require.Equal(t, 1, agent.sessions(t))
	agent.reads(t, owner, owner.says(t, "anew"), "anew")
	require.Equal(t, 1, agent.sessions(t), "the one of before is deleted, though its end was not heard of")
	require.Equal(t, &encryption.Due{}, agent.due(t))
	owner.reads(t, agent, agent.says(t, "answer"), "answer")
	require.Zero(t, d.asked)
}

// A member that comes in another one's place has sessions of its own.
func TestAnotherAgentInADirectRoom(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	late := agent.says(t, "late")
	owner.hears(t, d.leave(agent))
	owner.loses(t, agent, late, nil)
	_, err := owner.seal(t, "to nobody")
	require.ErrorIs(t, err, encryption.ErrNoPeer)

	next := d.join(t, "agent")
	_, err = owner.seal(t, "to the next one")
	require.ErrorIs(t, err, encryption.ErrPrepare)
	require.ErrorIs(t, owner.prepare(t), &wire.Error{Code: wire.NotFound}, "it has published nothing")
	next.publish(t)
	hello := owner.says(t, "hello")
	next.reads(t, owner, hello, "hello")
	owner.loses(t, agent, late, nil)
	owner.hears(t, &d.events[0]) // late
	owner.reads(t, next, next.says(t, "hello, too"), "hello, too")
	_, err = agent.open(t, owner, hello)
	require.ErrorIs(t, err, encryption.ErrLost, "who has left reads nothing of it")

	// The owner, too: the agent goes on with the next one.
	next.hears(t, d.leave(owner))
	_, err = next.seal(t, "to nobody")
	require.ErrorIs(t, err, encryption.ErrNoPeer)
	heir := d.join(t, "controller")
	next.reads(t, heir, heir.says(t, "I am new here"), "I am new here")
	heir.reads(t, next, next.says(t, "welcome"), "welcome")
	require.Zero(t, d.asked)
}

// A bundle of other keys, or one that is not signed, begins nothing.
func TestBundlesThatAreNotThePeers(t *testing.T) {
	t.Parallel()
	_, owner, agent := newDirect(t)
	before := owner.everything(t)
	keys, signedPrekey := agent.self.Keys, *agent.published.Signed
	agent.self.Keys = newSelf(t).Keys
	pinned := *owner.room(t)
	agent.self.Keys = keys
	require.ErrorIs(t, cipher(t).Prepare(t.Context(), asks{owner}, owner.store, &pinned, owner.at.now), ratchet.ErrWrongPeer)
	agent.published.Signed.Signature[0] ^= 1
	require.ErrorIs(t, owner.prepare(t), ratchet.ErrBundle)
	require.Equal(t, before, owner.everything(t))
	agent.published.Signed = &signedPrekey
	agent.reads(t, owner, owner.says(t, "hello"), "hello")
}

// What the relay refuses changes nothing.
func TestRefusedDirectMessage(t *testing.T) {
	t.Parallel()
	_, owner, agent := newDirect(t)
	agent.reads(t, owner, owner.says(t, "first"), "first")
	refused, err := agent.seal(t, "refused")
	require.NoError(t, err)
	before := agent.everything(t)
	for _, code := range []wire.Code{wire.NotActivated, wire.RateLimited, wire.SchemeMismatch, "unheard of"} {
		require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
			again, err := cipher(t).Refused(tx, agent.room(t), &refused, code)
			require.False(t, again)
			return err
		}))
	}
	require.Equal(t, before, agent.everything(t))
	owner.reads(t, agent, agent.says(t, "the next one"), "the next one")
	owner.reads(t, agent, refused.Raw, "refused")
}
