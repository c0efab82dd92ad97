package encryption_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

func TestEverybodyReadsWhatIsForTheRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	viewer := w.join("viewer", "viewer")
	alice, bob, carol := w.members[0], w.members[1], w.members[2]
	w.settle()
	alice.say("hello")
	require.Len(t, w.rows(wire.KindSenderKey), 3)
	alice.say("hello again")
	require.Len(t, w.rows(wire.KindSenderKey), 3, "everybody has the key")
	w.settle()
	bob.say("hello, Alice")
	w.settle()
	for _, d := range []*device{bob, carol, viewer} {
		require.Equal(t, 1, d.shown["hello"], d.name)
		require.Equal(t, 1, d.shown["hello again"], d.name)
		require.Empty(t, d.lost, d.name)
		require.Empty(t, d.waiting(), d.name)
	}
	require.Equal(t, map[string]int{"hello, Alice": 1}, alice.shown)
	require.Equal(t, 1, alice.relay.calls)
	require.Empty(t, w.rows(wire.KindKeyRequest))
}

// What an Opened says is the envelope's, and the room's history does not need the clear text.
func TestWhatIsOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	file := &signed.File{Name: "plan.pdf", MIMEType: "application/pdf", SizeBytes: 7}
	notice := alice.draft("soon", w.id)
	notice.Kind, notice.ExpiresAt = wire.KindNotice, notice.TS+1000
	message, private, control := alice.draft("file", w.id), alice.draft("secret", bob.id()), alice.draft("control", bob.id())
	message.File, private.File, control.Kind = file, file, wire.KindControl
	var raws [][]byte
	var sealed []encryption.Sealed
	for _, draft := range []*encryption.Draft{message, notice, private, control} {
		sealed = append(sealed, alice.seal(draft)...)
	}
	require.Equal(t, wire.KindSenderKey, sealed[0].Kind, "keys go first")
	alice.postAll(sealed)
	for _, row := range w.sent {
		raws = append(raws, row.raw)
	}
	opened := make([]*encryption.Opened, len(raws))
	for i := range raws {
		var err error
		opened[i], err = bob.take(w.sent[i])
		require.NoError(t, err)
	}
	require.Equal(t, &encryption.Opened{Kind: wire.KindSenderKey, Private: true, TS: message.TS, Retry: true}, opened[0])
	require.Equal(t, &encryption.Opened{Kind: wire.KindMessage, Payload: message.Payload, Gen: 1, TS: message.TS, File: file}, opened[1])
	require.Equal(t, &encryption.Opened{Kind: wire.KindNotice, Payload: notice.Payload, Gen: 1, TS: notice.TS, ExpiresAt: notice.ExpiresAt}, opened[2])
	require.Equal(t, &encryption.Opened{Kind: wire.KindMessage, Payload: private.Payload, Private: true, TS: private.TS, File: file}, opened[3])
	require.Equal(t, &encryption.Opened{Kind: wire.KindControl, Payload: control.Payload, Private: true, TS: control.TS}, opened[4])
	require.Contains(t, string(raws[3]), `"enc":"pairwise"`)
	for _, raw := range raws {
		require.NotContains(t, string(raw), "secret")
	}
}

func TestDraftsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	viewer := w.join("viewer", "viewer")
	w.settle()
	alice.say("first")
	before := alice.store.Epoch()
	change := func(change func(*encryption.Draft), to string) *encryption.Draft {
		draft := alice.draft("text", to)
		change(draft)
		return draft
	}
	kind := func(kind wire.Kind) func(*encryption.Draft) {
		return func(d *encryption.Draft) { d.Kind = kind }
	}
	large := func(d *encryption.Draft) { d.Payload = make([]byte, signed.MaxPlaintext+1) }
	for name, test := range map[string]struct {
		draft *encryption.Draft
		want  error
	}{
		"control to the room":          {change(kind(wire.KindControl), w.id), encryption.ErrKind},
		"a key to the room":            {change(kind(wire.KindSenderKey), w.id), encryption.ErrKind},
		"a key by hand":                {change(kind(wire.KindSenderKey), bob.id()), encryption.ErrKind},
		"a request by hand":            {change(kind(wire.KindKeyRequest), bob.id()), encryption.ErrKind},
		"notice to one participant":    {change(kind(wire.KindNotice), bob.id()), encryption.ErrKind},
		"to nobody in the room":        {change(func(*encryption.Draft) {}, uuid()), encryption.ErrKind},
		"to oneself":                   {change(func(*encryption.Draft) {}, alice.id()), encryption.ErrKind},
		"too large":                    {change(large, w.id), signed.ErrTooLarge},
		"too large for one":            {change(large, bob.id()), signed.ErrTooLarge},
		"a notice without an end":      {change(kind(wire.KindNotice), w.id), signed.ErrEnvelope},
		"a message with an end":        {change(func(d *encryption.Draft) { d.ExpiresAt = 1 }, w.id), signed.ErrEnvelope},
		"a private message with one":   {change(func(d *encryption.Draft) { d.ExpiresAt = 1 }, bob.id()), encryption.ErrKind},
		"a malformed id":               {change(func(d *encryption.Draft) { d.ID = "a b" }, w.id), signed.ErrEnvelope},
		"a file with a control":        {change(func(d *encryption.Draft) { d.Kind, d.File = wire.KindControl, &signed.File{} }, bob.id()), signed.ErrEnvelope},
		"a kind that there is none of": {change(kind(0), w.id), encryption.ErrKind},
	} {
		_, err := alice.trySeal(test.draft)
		require.ErrorIs(t, err, test.want, name)
	}
	require.Equal(t, before, alice.store.Epoch(), "nothing changed")
	require.NoError(t, viewer.prepare())
	_, err := viewer.trySeal(viewer.draft("text", w.id))
	require.ErrorIs(t, err, encryption.ErrKind)
	require.Zero(t, viewer.relay.calls)
}

// The largest payload fits with the longest file header.
func TestLargestMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	for _, to := range []string{w.id, bob.id()} {
		draft := alice.draft(strings.Repeat("x", signed.MaxPlaintext), to)
		draft.ID = strings.Repeat("i", 100) + to[:28]
		draft.File = &signed.File{Name: strings.Repeat("𝄞", 255), MIMEType: strings.Repeat("𝄞", 127), SizeBytes: wire.MaxFileSize}
		alice.postAll(alice.seal(draft))
	}
	w.settle()
	require.Equal(t, 2, bob.shown[strings.Repeat("x", signed.MaxPlaintext)])
}

// J10 of rotations: ten triggers at once are one generation.
func TestTenTriggersAreOneGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice := w.members[0]
	w.settle()
	for round := 1; round <= 3; round++ {
		var wait sync.WaitGroup
		for range 10 {
			wait.Go(func() {
				if err := alice.prepare(); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		require.Equal(t, int32(1), alice.relay.busiest.Load(), "one at a time")
		require.Equal(t, round, alice.relay.calls)
		require.Len(t, alice.relay.gens, round)
		alice.say(fmt.Sprint("round ", round))
		w.leave(w.join(fmt.Sprint("guest ", round), "agent"))
		w.settle()
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
			return alice.cipher.Event(tx, alice.room, &wire.RoomEvent{Event: wire.RoomReset, Version: int64(w.version)})
		}))
	}
}

// J10: the answer to an allocation is lost, twice. It is asked for again with the same kid and key.
func TestLostAnswerOfAnAllocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	losses := 2
	alice.relay.after = func() error {
		if losses > 0 {
			losses--
			return errScripted
		}
		return nil
	}
	require.ErrorIs(t, alice.prepare(), errScripted)
	_, err := alice.trySeal(alice.draft("early", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
	require.ErrorIs(t, alice.prepare(), errScripted)
	require.NoError(t, alice.prepare())
	require.Equal(t, 3, alice.relay.calls)
	require.Len(t, alice.relay.gens, 1, "one kid")
	require.NoError(t, alice.store.View(func(tx *keystore.Tx) error {
		require.Zero(t, tx.Restores(), "the store is no old copy")
		return nil
	}))
	alice.say("hello")
	w.settle()
	require.Equal(t, map[string]int{"hello": 1}, bob.shown)
}

// J10: two sessions of one store prepare at once, and one of them does not get an answer. What
// it was allocating is no sign of an old copy for the other.
func TestTwoSessionsPrepareAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	other, err := encryption.For(encryption.SenderKeys)
	require.NoError(t, err)
	alice.relay.while = func() {
		alice.relay.after = func() error { return errScripted }
		require.ErrorIs(t, other.Prepare(t.Context(), alice.relay, alice.store, alice.room, w.now), errScripted)
		alice.relay.after = nil
	}
	require.NoError(t, alice.prepare())
	require.Len(t, alice.relay.gens, 1)
	require.NoError(t, alice.store.View(func(tx *keystore.Tx) error {
		require.Zero(t, tx.Restores())
		return nil
	}))
	alice.say("hello")
	w.settle()
	require.Equal(t, map[string]int{"hello": 1}, bob.shown)
}

// J10: where the program was killed before the answer, the store cannot tell that from an old
// copy. Another generation begins, and the kid of before is not used.
func TestKilledDuringAnAllocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.relay.after = func() error { return errScripted }
	require.ErrorIs(t, alice.prepare(), errScripted)
	alice.restart()
	alice.relay.after = nil
	alice.say("hello")
	require.Len(t, alice.relay.gens, 2)
	require.Equal(t, 2, alice.relay.calls)
	w.settle()
	require.Equal(t, map[string]int{"hello": 1}, bob.shown)
	opened, err := bob.take(w.newest())
	require.NoError(t, err)
	require.Nil(t, opened.Payload, "shown once")
}

// J10: messages of the former key arrive after the next one's.
func TestFormerKeysStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("former")
	late := w.newest()
	bob.inbox = nil
	bob.receiveKeys()
	w.leave(w.members[2])
	alice.refresh()
	alice.say("next")
	w.settle()
	bob.receive(late)
	require.Equal(t, map[string]int{"next": 1, "former": 1}, bob.shown)
	require.Len(t, alice.relay.gens, 2)
}

// A relay that was restored from a backup allocates what was used before.
func TestRelayThatForgotGenerations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	for round := range 3 {
		alice.say(fmt.Sprint("round ", round))
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
			return alice.cipher.Event(tx, alice.room, &wire.RoomEvent{Event: wire.RekeyRequired, Version: int64(w.version) + 1})
		}))
		w.version++
		alice.refresh()
	}
	require.Equal(t, uint64(3), alice.relay.last)
	alice.relay.last, alice.relay.gens, alice.relay.since = 0, map[[16]byte]uint64{}, map[uint64]uint64{}
	alice.say("after")
	require.Equal(t, uint64(4), alice.relay.last)
	w.settle()
	require.Equal(t, 1, bob.shown["after"])
	require.Empty(t, bob.lost)
	// It is noticed, too, when the store is opened: nothing is sent that it does not know.
	alice.relay.last, alice.relay.gens, alice.relay.since = 2, map[[16]byte]uint64{}, map[uint64]uint64{}
	w.retired = 1
	alice.restart()
	alice.say("noticed")
	require.Empty(t, alice.refused)
	require.Equal(t, uint64(5), alice.relay.last)
	// It cannot keep a client busy without end.
	alice.relay.last = 0
	w.version++
	alice.refresh()
	require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
		return alice.cipher.Event(tx, alice.room, &wire.RoomEvent{Event: wire.RoomReset, Version: int64(w.version) + 1})
	}))
	calls := alice.relay.calls
	alice.relay.after = func() error { alice.relay.last = 0; return nil }
	require.ErrorIs(t, alice.prepare(), encryption.ErrPrepare)
	require.LessOrEqual(t, alice.relay.calls, calls+8)
}

// I06: who left reads nothing of what follows, whether others heard of it by an event or by
// the relay's refusal, and whoever was offline meanwhile.
func TestWhoLeftReadsNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"an event", "a refusal", "a newer roster"} {
		t.Run("by "+how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "alice", "bob", "carol", "mallory")
			mallory := w.members[3]
			w.settle()
			for _, d := range w.members {
				d.say("from " + d.name)
			}
			w.settle()
			require.Len(t, mallory.shown, 3)
			w.leave(mallory)
			before := len(w.sent)
			mallory.inbox = nil
			switch how {
			case "an event":
				w.settle()
			case "a newer roster":
				for _, d := range w.members {
					d.refresh()
				}
			}
			for _, d := range w.members {
				d.say("secret of " + d.name)
				if how != "a refusal" {
					require.Empty(t, d.refused, d.name)
				} else {
					require.Contains(t, d.refused, wire.MLSRetired, d.name)
				}
			}
			w.settle()
			for _, d := range w.members {
				require.Len(t, d.shown, 5, d.name)
				require.Equal(t, uint64(2), d.relay.last, d.name)
			}
			// A relay that is on mallory's side gives it everything.
			require.Greater(t, len(w.sent), before)
			for _, row := range w.sent[before:] {
				opened, err := mallory.take(row)
				require.True(t, err != nil || opened.Payload == nil, "%v", row.kind)
				require.NoError(t, mallory.store.Update(func(tx *keystore.Tx) error {
					return tx.Delete(keystore.Messages, pendingKey(row.id))
				}))
			}
			// Nor is a request of it answered.
			request := mallory.request(w.members[0], w.members[0].newestKey())
			opened, err := w.members[0].take(request)
			require.NoError(t, err)
			require.Empty(t, opened.Send)
			require.Len(t, mallory.shown, 3)
		})
	}
}

// newestKey is the key of the newest message, read from the envelope.
func (d *device) newestKey() senderkey.Key {
	d.w.t.Helper()
	var key senderkey.Key
	for _, row := range d.w.rows(wire.KindMessage) {
		if row.from == d && row.room {
			key = keyOf(d.w.t, row)
		}
	}
	require.NotZero(d.w.t, key.Gen)
	return key
}

func keyOf(t testing.TB, row envelope) senderkey.Key {
	t.Helper()
	var said struct {
		From string `json:"from"`
		KID  string `json:"kid"`
		Gen  uint64 `json:"gen"`
	}
	require.NoError(t, json.Unmarshal(row.raw, &said))
	kid, err := senderkey.ParseKID(said.KID)
	require.NoError(t, err)
	return senderkey.Key{Sender: said.From, KID: kid, Gen: said.Gen}
}

// forge is an envelope from d to another one, whatever d's own client would say to it.
func (d *device) forge(to *device, kind wire.Kind, payload []byte) envelope {
	d.w.t.Helper()
	own := &pairwise.Own{ID: d.id(), Identity: d.self.Identity, Agreement: d.self.Agreement}
	channel, err := pairwise.New(d.w.id, own, to.member.Member)
	require.NoError(d.w.t, err)
	id := uuid()
	raw, err := channel.Seal(&pairwise.Header{ID: id, Kind: kind, Seq: 1, TS: 1}, payload)
	require.NoError(d.w.t, err)
	return envelope{id: id, from: d, kind: kind, raw: raw}
}

func (d *device) request(to *device, key senderkey.Key) envelope {
	d.w.t.Helper()
	return d.forge(to, wire.KindKeyRequest, senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: key.KID, Gen: key.Gen}.Encode())
}

// refuses gives an envelope to Open, which has to say this error and change nothing.
func (d *device) refuses(row envelope, want error) {
	d.w.t.Helper()
	before := d.store.Epoch()
	require.NoError(d.w.t, d.store.Update(func(tx *keystore.Tx) error {
		opened, err := d.cipher.Open(tx, d.room, &row.from.member, row.raw, d.w.now)
		require.ErrorIs(d.w.t, err, want)
		require.Nil(d.w.t, opened)
		return nil
	}))
	require.Equal(d.w.t, before, d.store.Epoch(), "nothing changed")
}

// J05: keys and authors are bound to who signed.
func TestKeysAndAuthorsAreBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol", "mallory")
	alice, bob, carol, mallory := w.members[0], w.members[1], w.members[2], w.members[3]
	w.settle()
	bob.say("true")
	mallory.say("mine")
	w.settle()
	key := bob.newestKey()
	mine := mallory.newestKey()

	// (a) a distribution of Mallory with Bob's kid and gen
	foreign := senderkey.Distribution{KID: key.KID, Gen: key.Gen, CK: [32]byte{1}}
	carol.refuses(mallory.forge(carol, wire.KindSenderKey, foreign.Encode()), senderkey.ErrForeignKID)
	carol.refuses(mallory.forge(carol, wire.KindSenderKey, foreign.Encode()), encryption.ErrLost)
	// (b) another key under the same kid, later
	other := senderkey.Distribution{KID: mine.KID, Gen: mine.Gen, CK: [32]byte{1}}
	carol.refuses(mallory.forge(carol, wire.KindSenderKey, other.Encode()), senderkey.ErrKeyConflict)
	// (c) a payload whose inner author is Bob is Mallory's
	mallory.say(`{"from":"` + bob.id() + `","parts":[]}`)
	carol.refuses(envelope{from: bob, raw: w.newest().raw}, signed.ErrSignature)
	opened, err := carol.take(w.newest())
	require.NoError(t, err)
	require.NotNil(t, opened.Payload)
	// (d) Alice's private message to Carol, forwarded to Bob
	alice.postAll(alice.seal(alice.draft("for Carol", carol.id())))
	forwarded := w.newest()
	bob.refuses(forwarded, signed.ErrContext)
	bob.refuses(envelope{from: mallory, raw: forwarded.raw}, signed.ErrSignature)
	// (e) an envelope of another room
	elsewhere := *carol.room
	elsewhere.ID = uuid()
	for _, row := range []envelope{w.newest(), w.rows(wire.KindSenderKey)[0], w.rows(wire.KindMessage)[0]} {
		require.NoError(t, carol.store.Update(func(tx *keystore.Tx) error {
			opened, err := carol.cipher.Open(tx, &elsewhere, &row.from.member, row.raw, w.now)
			require.ErrorIs(t, err, signed.ErrContext)
			require.Nil(t, opened)
			return nil
		}))
	}

	bob.say("still true")
	w.settle()
	for _, d := range []*device{alice, carol, mallory} {
		require.Equal(t, 1, d.shown["still true"], d.name)
		require.Equal(t, 1, d.shown["true"], d.name)
		require.Empty(t, d.lost, d.name)
	}
	require.Empty(t, w.rows(wire.KindKeyRequest), "nothing of it is a reason to ask")
}

// J05: who was faster with Bob's kid keeps his messages from nobody.
func TestSquattedKID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "bob", "mallory")
	bob, mallory := w.members[0], w.members[1]
	w.settle()
	bob.say("before")
	w.settle()
	key := bob.newestKey()
	carol, viewer := w.join("carol", "agent"), w.join("viewer", "viewer")
	w.settle()
	squatted := senderkey.Distribution{KID: key.KID, Gen: key.Gen, CK: [32]byte{1}}
	for _, d := range []*device{carol, viewer} {
		d.receive(mallory.forge(d, wire.KindSenderKey, squatted.Encode()))
	}
	bob.say("hello")
	w.settle()
	for _, d := range []*device{carol, viewer} {
		require.Equal(t, map[string]int{"hello": 1}, d.shown, d.name)
		require.Empty(t, d.waiting(), d.name)
	}
	require.Len(t, w.rows(wire.KindKeyRequest), 1, "Carol asked Bob, who has it; a viewer cannot")
	require.Len(t, carol.lost, 1)
	require.ErrorIs(t, carol.lost[0], senderkey.ErrForeignKID)
}

// J06: fifty messages of an unknown key, a sender who is offline, ten minutes.
func TestKeyRequestsAreFew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob, carol := w.members[0], w.members[1], w.members[2]
	w.settle()
	for i := range 50 {
		alice.say(fmt.Sprint("alice ", i))
		carol.say(fmt.Sprint("carol ", i))
	}
	// Bob's keys of both get lost; neither is there to answer.
	lose := func() {
		bob.inbox = nil
		alice.inbox, carol.inbox = nil, nil
	}
	lose()
	messages := w.rows(wire.KindMessage)
	asked := map[string][]time.Time{}
	count := 0
	note := func() {
		for _, row := range w.rows(wire.KindKeyRequest)[count:] {
			count++
			require.Same(t, bob, row.from)
			asked[row.to[0].name] = append(asked[row.to[0].name], w.now)
		}
	}
	next := 0
	for second := range 600 {
		w.now = start.Add(time.Duration(second) * time.Second)
		if second < 100 {
			bob.receive(messages[next])
			next++
		}
		switch second {
		case 70: // damaged key exchange and control start nothing
			for _, kind := range []wire.Kind{wire.KindSenderKey, wire.KindKeyRequest, wire.KindControl} {
				row := alice.forge(bob, kind, []byte("damaged"))
				if kind != wire.KindControl {
					bob.refuses(row, encryption.ErrLost)
				}
				row.raw = bytes.Replace(row.raw, []byte(`"nonce":"`), []byte(`"nonce":"A`), 1)
				bob.refuses(row, signed.ErrSignature)
			}
		case 90: // Carol is back, without that key
			require.Len(t, asked["carol"], 2)
			bob.receive(carol.forge(bob, wire.KindKeyRequest, senderkey.KeyUnavailable{KID: carol.newestKey().KID, Gen: carol.newestKey().Gen}.Encode()))
		}
		bob.tick()
		lose()
		note()
		if second%100 == 50 {
			bob.restart()
		}
	}
	require.Len(t, asked["carol"], 2)
	require.Len(t, asked["alice"], 3)
	for _, times := range asked {
		for i := 1; i < len(times); i++ {
			require.GreaterOrEqual(t, times[i].Sub(times[i-1]), time.Minute)
		}
	}
	require.Empty(t, bob.waiting(), "what cannot be opened was given up")
	require.Empty(t, bob.shown)
	for _, err := range bob.lost {
		require.ErrorIs(t, err, encryption.ErrLost)
	}
	require.Len(t, bob.lost, 100)
	// What comes later of the same keys is lost at once.
	alice.say("one more")
	bob.inbox = nil
	bob.refuses(w.newest(), senderkey.ErrGivenUp)
	require.Zero(t, bob.tick().Next)
}

// J06: the answer to the last request opens what waits, and a viewer waits without asking.
func TestLastRequestIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	viewer := w.join("viewer", "viewer")
	w.settle()
	alice.say("hello")
	message := w.newest()
	bob.inbox, viewer.inbox = nil, nil
	bob.receive(message)
	viewer.receive(message)
	for range 2 {
		alice.inbox = nil
		w.now = w.now.Add(time.Minute)
		require.Len(t, bob.tick().Send, 1)
		require.Empty(t, viewer.tick().Send)
	}
	w.now = w.now.Add(59 * time.Second)
	alice.say("meanwhile")
	w.settle() // with the third request
	require.Equal(t, map[string]int{"hello": 1, "meanwhile": 1}, bob.shown)
	require.Empty(t, bob.lost)
	require.Len(t, viewer.waiting(), 2)
	viewer.receiveKeys()
	require.Equal(t, map[string]int{"hello": 1, "meanwhile": 1}, viewer.shown)

	// Another viewer, whose key never comes, gives up in the end.
	other := w.join("other", "viewer")
	w.settle()
	alice.say("never")
	other.inbox = nil
	other.receive(w.newest())
	require.Len(t, other.waiting(), 1)
	for range 4 {
		w.now = w.now.Add(time.Minute)
		other.tick()
	}
	require.Empty(t, other.waiting())
	require.Len(t, other.lost, 1)
}

// What the repair of a key answers: not who has not been in the room, not the same twice.
func TestRequestsThatAreNotAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("hello")
	w.settle()
	key := alice.newestKey()
	request := bob.request(alice, key)
	opened, err := alice.take(request)
	require.NoError(t, err)
	require.Len(t, opened.Send, 1)
	require.Equal(t, wire.KindSenderKey, opened.Send[0].Kind)
	for range 2 { // the same again, and another one at once
		again := bob.forge(alice, wire.KindKeyRequest, senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: key.KID, Gen: key.Gen}.Encode())
		before := alice.store.Epoch()
		opened, err = alice.take(again)
		require.NoError(t, err)
		require.Empty(t, opened.Send)
		require.Equal(t, before+1, alice.store.Epoch(), "its id, no more")
	}
	w.now = w.now.Add(time.Minute)
	unknown := bob.forge(alice, wire.KindKeyRequest, senderkey.KeyRequest{ID: senderkey.RequestID{2}, KID: senderkey.KID{9}, Gen: 9}.Encode())
	opened, err = alice.take(unknown)
	require.NoError(t, err)
	require.Len(t, opened.Send, 1)
	require.Equal(t, wire.KindKeyRequest, opened.Send[0].Kind, "key_unavailable")
	// Who joins later gets the key from there on, not what was before.
	carol := w.join("carol", "agent")
	before := w.newest()
	w.settle()
	alice.say("for all")
	w.settle()
	require.Equal(t, map[string]int{"for all": 1}, carol.shown)
	carol.refuses(before, senderkey.ErrBeforeKey)
}

// J06: the sender has no key any more, or left: what waits is lost, and nobody asks again.
func TestRepairsThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob, carol := w.members[0], w.members[1], w.members[2]
	w.settle()
	alice.say("from alice")
	carol.say("from carol")
	bob.inbox, carol.inbox = nil, nil
	for _, row := range w.rows(wire.KindMessage) {
		bob.receive(row)
	}
	require.Len(t, bob.waiting(), 2)
	key := alice.newestKey()
	bob.receive(carol.forge(bob, wire.KindKeyRequest, senderkey.KeyUnavailable{KID: key.KID, Gen: key.Gen}.Encode()))
	require.Len(t, bob.waiting(), 2, "nobody says so for Alice")
	bob.receive(alice.forge(bob, wire.KindKeyRequest, senderkey.KeyUnavailable{KID: key.KID, Gen: key.Gen}.Encode()))
	require.Len(t, bob.waiting(), 1)
	require.Len(t, bob.lost, 1)
	require.ErrorIs(t, bob.lost[0], encryption.ErrLost)
	require.ErrorIs(t, bob.lost[0], senderkey.ErrUnavailable)
	require.NoError(t, bob.store.Update(func(tx *keystore.Tx) error {
		event := &wire.RoomEvent{Event: wire.MemberRemoved, Version: int64(w.version) + 1, ParticipantID: carol.id()}
		return bob.cipher.Event(tx, bob.room, event)
	}))
	for range 5 {
		w.now = w.now.Add(time.Minute)
		require.Empty(t, bob.tick().Send)
	}
	require.Empty(t, bob.waiting())
	require.Len(t, bob.lost, 2)
}

// A clock that is set back makes nobody wait longer.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("hello")
	bob.inbox = nil
	bob.receive(w.newest())
	w.now = w.now.Add(-time.Hour)
	for range 5 {
		bob.tick()
		w.now = w.now.Add(time.Minute)
	}
	require.Empty(t, bob.waiting())
	require.Len(t, w.rows(wire.KindKeyRequest), 3)
}

// A key that came is not asked for again, also if it came too late to be of use.
func TestKeysThatCame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("hello")
	bob.inbox = nil
	bob.receive(w.newest())
	alice.inbox = nil
	w.now = w.now.Add(-time.Hour) // the clock is set back
	next := bob.tick().Next
	require.LessOrEqual(t, next.Sub(w.now), time.Minute)
	bob.receiveKeys()
	require.Equal(t, 1, bob.shown["hello"])
	for range 3 {
		w.now = w.now.Add(time.Minute)
		require.Empty(t, bob.tick().Send)
	}
	// Of a generation that is not kept any more a key is no use, and no failure.
	for gen := range uint64(senderkey.MaxGenerations + 1) {
		d := senderkey.Distribution{KID: senderkey.KID{byte(gen + 1)}, Gen: 100 + gen, CK: [32]byte{1}}
		bob.receive(alice.forge(bob, wire.KindSenderKey, d.Encode()))
	}
	old := senderkey.Distribution{KID: senderkey.KID{77}, Gen: 50, CK: [32]byte{1}}
	opened, err := bob.take(alice.forge(bob, wire.KindSenderKey, old.Encode()))
	require.NoError(t, err)
	require.False(t, opened.Retry)
	require.Empty(t, bob.lost)
}

// J07: a restart forgets no id, and a sender may begin at seq 1 again.
func TestRepeatsAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("once")
	w.settle()
	alice.postAll(alice.seal(alice.draft("privately", bob.id())))
	w.settle()
	bob.restart()
	for _, row := range w.sent {
		bob.receive(row)
	}
	require.Equal(t, map[string]int{"once": 1, "privately": 1}, bob.shown)
	bob.refuses(w.rows(wire.KindMessage)[0], senderkey.ErrDuplicate) // even if its id were forgotten
	// A relay that gives it another id breaks the signature.
	changed := w.rows(wire.KindMessage)[0]
	changed.raw = bytes.Replace(changed.raw, []byte(changed.id), []byte(uuid()), 1)
	bob.refuses(changed, signed.ErrSignature)

	alice.restart()
	require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
		require.NotNil(t, tx.Get(keystore.Rooms, w.id+"/seq"))
		return tx.Delete(keystore.Rooms, w.id+"/seq")
	}))
	delete(w.seen, alice.id()) // a new connection
	alice.say("from seq 1")
	require.Equal(t, uint64(1), w.seen[alice.id()])
	w.settle()
	require.Equal(t, 1, bob.shown["from seq 1"])
	require.Empty(t, bob.lost)
}

// J08: an Update that fails after Open, Seal, Due or Event leaves everything as it was.
func TestUpdatesThatFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("hello")
	fails := func(d *device, change func(tx *keystore.Tx) error) {
		t.Helper()
		before := d.dump()
		require.ErrorIs(t, d.store.Update(func(tx *keystore.Tx) error {
			require.NoError(t, change(tx))
			return errScripted
		}), errScripted)
		require.Equal(t, before, d.dump())
	}
	for len(bob.inbox) > 0 {
		row := bob.inbox[0]
		bob.inbox = bob.inbox[1:]
		fails(bob, func(tx *keystore.Tx) error {
			_, err := bob.cipher.Open(tx, bob.room, &row.from.member, row.raw, w.now)
			return err
		})
		bob.receive(row)
	}
	require.Equal(t, map[string]int{"hello": 1}, bob.shown)
	draft := alice.draft("not sent", w.id)
	fails(alice, func(tx *keystore.Tx) error {
		_, err := alice.cipher.Seal(tx, alice.room, draft)
		return err
	})
	fails(alice, func(tx *keystore.Tx) error {
		return alice.cipher.Event(tx, alice.room, &wire.RoomEvent{Event: wire.RekeyRequired, Version: 1000})
	})
	alice.say("sent")
	w.settle()
	require.Equal(t, map[string]int{"hello": 1, "sent": 1}, bob.shown)
	require.Equal(t, uint64(1), alice.relay.last)
}

// forgeToRoom is an envelope of d to the room under a key of its choice.
func (d *device) forgeToRoom(key *senderkey.Sender, text string) envelope {
	d.w.t.Helper()
	e := signed.Envelope{
		ID: uuid(), SessionID: d.w.id, From: d.id(), To: d.w.id, Kind: wire.KindMessage, Gen: key.Gen(), Seq: 1, TS: 1, KID: key.KID().String(),
	}
	nonce := seal.NewNonce()
	aad, err := e.AAD(nonce[:])
	require.NoError(d.w.t, err)
	_, ct, err := key.Seal(nonce, []byte(text), aad)
	require.NoError(d.w.t, err)
	raw, err := e.Sign(d.self.Identity, nonce[:], ct)
	require.NoError(d.w.t, err)
	return envelope{id: e.ID, from: d, kind: e.Kind, room: true, raw: raw}
}

// Whatever a hostile member sends, state stays small, and the others are read.
func TestHostileMemberIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "mallory")
	alice, bob, mallory := w.members[0], w.members[1], w.members[2]
	w.settle()
	alice.say("before")
	w.settle()

	// More generations than are kept, each with as many skipped messages as it may have.
	for gen := range uint64(senderkey.MaxGenerations + 2) {
		kid := senderkey.KID{1, byte(gen)}
		key, err := senderkey.NewSender(rand.Reader, gen+1, kid, senderkey.Roster{Members: []string{bob.id()}})
		require.NoError(t, err)
		d, err := key.Distribute(bob.id())
		require.NoError(t, err)
		bob.receive(mallory.forge(bob, wire.KindSenderKey, d.Encode()))
		for range 3 {
			for range senderkey.MaxSkip {
				_, _, err := key.Seal([24]byte{}, nil, nil)
				require.NoError(t, err)
			}
			bob.receive(mallory.forgeToRoom(key, "far"))
		}
	}
	require.Equal(t, 3*(senderkey.MaxGenerations+2), bob.shown["far"])
	largest, total := 0, 0
	for _, value := range bob.dump() {
		largest, total = max(largest, len(value)), total+len(value)
	}
	require.Less(t, largest, keystore.MaxValue)
	require.Greater(t, largest, keystore.MaxValue/2, "the bound was met")

	// Keys that there are none of: few are asked for, the rest is lost at once.
	for i := range 100 {
		key, err := senderkey.NewSender(rand.Reader, 100, senderkey.KID{2, byte(i)}, senderkey.Roster{})
		require.NoError(t, err)
		bob.receive(mallory.forgeToRoom(key, "unknown"))
	}
	require.Len(t, w.rows(wire.KindKeyRequest), senderkey.MaxRepairsPerSender)
	require.Len(t, bob.lost, 100-senderkey.MaxRepairsPerSender)
	for range 4 {
		w.now = w.now.Add(time.Minute)
		mallory.inbox = nil
		bob.tick()
	}
	require.Len(t, w.rows(wire.KindKeyRequest), senderkey.MaxRepairsPerSender*senderkey.RepairAttempts)

	// Requests without end get few answers.
	answers := len(w.rows(wire.KindSenderKey))
	for i := range 200 {
		w.now = w.now.Add(time.Second)
		request := senderkey.KeyRequest{ID: senderkey.RequestID{3, byte(i)}, KID: alice.newestKey().KID, Gen: alice.newestKey().Gen}
		alice.receive(mallory.forge(alice, wire.KindKeyRequest, request.Encode()))
	}
	require.Len(t, w.rows(wire.KindSenderKey)[answers:], int(200*time.Second/senderkey.AnswerGap)+1)

	alice.say("after")
	w.settle()
	require.Equal(t, 1, bob.shown["after"])
}

func (d *device) copyStore() []byte {
	d.w.t.Helper()
	data, err := os.ReadFile(d.path)
	require.NoError(d.w.t, err)
	return data
}

// restore puts an old copy of the store in its place.
func (d *device) restore(old []byte) {
	d.w.t.Helper()
	require.NoError(d.w.t, d.store.Close())
	require.NoError(d.w.t, os.WriteFile(d.path, old, 0o600))
	d.reopen()
}

// An old copy of the store is noticed before it seals anything: no key is used twice, also where
// the copy was made while a generation was being allocated (package keystore, "Old copies").
func TestRestoredOldCopies(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before any", "while it is allocated", "with a former one"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "alice", "bob", "carol")
			alice, bob := w.members[0], w.members[1]
			w.settle()
			var old []byte
			switch when {
			case "before any":
				old = alice.copyStore()
			case "while it is allocated":
				alice.relay.after = func() error { return errScripted }
				require.ErrorIs(t, alice.prepare(), errScripted)
				old = alice.copyStore()
				alice.relay.after = nil
			}
			alice.say("one")
			alice.say("two")
			if when == "with a former one" {
				old = alice.copyStore()
				w.leave(w.members[2])
				w.settle()
				alice.say("three")
			}
			w.settle()
			newest := alice.relay.last
			alice.restore(old)
			_, err := alice.trySeal(alice.draft("too early", w.id))
			require.ErrorIs(t, err, encryption.ErrPrepare)
			delete(w.seen, alice.id())
			alice.refresh()
			alice.say("restored")
			require.Equal(t, newest+1, alice.relay.last)
			require.NoError(t, alice.store.View(func(tx *keystore.Tx) error {
				require.Equal(t, uint64(1), tx.Restores(), "all rooms know")
				return nil
			}))
			w.settle()
			require.Equal(t, 1, bob.shown["restored"])
			require.Empty(t, bob.lost)
			noKeyTwice(t, w)
		})
	}
}

// noKeyTwice looks at all messages: none has the key and iteration of another one.
func noKeyTwice(t testing.TB, w *world) {
	t.Helper()
	used := map[string]bool{}
	for _, row := range w.rows(wire.KindMessage) {
		if !row.room {
			continue
		}
		var said struct {
			CT []byte `json:"ct"`
		}
		require.NoError(t, json.Unmarshal(row.raw, &said))
		name := fmt.Sprintf("%s %x", keyOf(t, row).KID, said.CT[:4])
		require.False(t, used[name], name)
		used[name] = true
	}
	require.NotEmpty(t, used)
}

// The newest copy goes on with its generation after Prepare, and not before.
func TestReopenedStoreIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("one")
	alice.restart()
	_, err := alice.trySeal(alice.draft("too early", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
	// What is for one participant needs no generation.
	alice.postAll(alice.seal(alice.draft("private", bob.id())))
	alice.say("two")
	require.Equal(t, 1, alice.relay.calls)
	w.settle()
	require.Equal(t, map[string]int{"one": 1, "two": 1, "private": 1}, bob.shown)
	// Another Encryption of the same opening needs no other confirmation.
	alice.cipher, err = encryption.For(encryption.SenderKeys)
	require.NoError(t, err)
	_, err = alice.trySeal(alice.draft("three", w.id))
	require.NoError(t, err)
}

// An old copy that one room notices is one for all rooms of the store.
func TestRestoreNoticedInAnotherRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice := w.members[0]
	w.settle()
	alice.say("one")
	restored, err := alice.store.NoticeRestored("another room", 7)
	require.NoError(t, err)
	require.True(t, restored)
	_, err = alice.trySeal(alice.draft("two", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
	alice.say("two")
	require.Equal(t, uint64(2), alice.relay.last)
}

// What the relay refuses.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice := w.members[0]
	w.settle()
	sealed := alice.seal(alice.draft("hello", w.id))
	refused := func(s encryption.Sealed, code wire.Code) (again bool) {
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) (err error) {
			again, err = alice.cipher.Refused(tx, alice.room, &s, code)
			return err
		}))
		return again
	}
	before := alice.store.Epoch()
	for _, info := range wire.Codes() {
		switch info.Code {
		case wire.MLSRetired, wire.MLSUnknown, wire.NoticeInvalidGen:
			require.False(t, refused(sealed[0], info.Code), "a key is not of a generation")
		default:
			require.False(t, refused(sealed[1], info.Code), info.Code)
		}
	}
	require.Equal(t, before, alice.store.Epoch())
	other := sealed[1]
	other.Gen = 99
	require.True(t, refused(other, wire.MLSUnknown))
	_, err := alice.trySeal(alice.draft("again", w.id))
	require.NoError(t, err, "another generation's refusal ends not the present one")
	require.True(t, refused(sealed[1], wire.MLSRetired))
	_, err = alice.trySeal(alice.draft("again", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
}

// Events come late and more than once (FAULTS I08).
func TestEventsComeLateAndTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob, carol := w.members[0], w.members[1], w.members[2]
	w.settle()
	alice.say("one")
	carol.say("last words, late")
	late := w.newest()
	bob.inbox = nil
	bob.receiveKeys()
	w.leave(carol)
	events := append([]envelope(nil), alice.inbox...)
	w.settle()
	alice.say("two")
	for range 2 {
		for _, row := range events {
			if row.event != nil {
				alice.receive(row)
			}
		}
	}
	alice.say("three")
	require.Equal(t, uint64(2), alice.relay.last, "old news ends no newer generation")
	sealed := carol.seal(carol.draft("not sent", w.id))
	forged := envelope{id: sealed[0].ID, from: carol, kind: sealed[0].Kind, room: true, raw: sealed[0].Raw}
	// What she sent before is read after the news, for an hour. Nobody asks her for anything.
	bob.receive(late)
	require.Equal(t, 1, bob.shown["last words, late"])
	require.Equal(t, w.now.Add(time.Hour), bob.tick().Next)
	unknown, err := senderkey.NewSender(rand.Reader, 9, senderkey.KID{9}, senderkey.Roster{})
	require.NoError(t, err)
	bob.refuses(carol.forgeToRoom(unknown, "a key that she cannot be asked for"), senderkey.ErrUnknownKey)
	w.now = w.now.Add(time.Hour)
	bob.tick()
	require.Zero(t, bob.tick().Next)
	for key := range bob.dump() {
		require.NotContains(t, key, carol.id())
	}
	// An authentic message of somebody unknown waits, and is given up: nobody is asked.
	bob.receive(forged)
	require.Len(t, bob.waiting(), 1)
	for range 4 {
		w.now = w.now.Add(time.Minute)
		bob.tick()
	}
	require.Empty(t, bob.waiting())
	require.Len(t, bob.lost, 1)
	require.Empty(t, w.rows(wire.KindKeyRequest))
}

// The news that somebody left ends a generation, whatever roster there is; and so does a
// roster without them, even if the relay then does not answer and an older one comes.
func TestNewsAndOldRosters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, carol := w.members[0], w.members[2]
	w.settle()
	alice.say("one")
	old := alice.room
	w.leave(carol)
	require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
		event := &wire.RoomEvent{Event: wire.MemberRemoved, Version: int64(w.version), ParticipantID: carol.id()}
		return alice.cipher.Event(tx, old, event)
	}))
	_, err := alice.trySeal(alice.draft("two", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)

	bob := w.members[1]
	bob.refresh()
	bob.say("three")
	old = bob.room
	w.leave(alice)
	bob.refresh()
	bob.relay.after = func() error { return errScripted }
	require.ErrorIs(t, bob.prepare(), errScripted)
	bob.room = old
	_, err = bob.trySeal(bob.draft("four", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
}

// What the relay and the room are told of a key is bound to it and its kid.
func TestPublishedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice, bob := w.members[0], w.members[1]
	w.settle()
	alice.say("hello")
	own := &pairwise.Own{ID: bob.id(), Identity: bob.self.Identity, Agreement: bob.self.Agreement}
	channel, err := pairwise.New(w.id, own, alice.member.Member)
	require.NoError(t, err)
	m, err := channel.Open(w.rows(wire.KindSenderKey)[0].raw)
	require.NoError(t, err)
	d, err := senderkey.ParseDistribution(m.Payload)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, d.CK[:])
	mac.Write(append([]byte("peerrelay/sender-key-published/v1\x00"), d.KID[:]...))
	require.Equal(t, string(mac.Sum(nil)), alice.relay.keys[d.KID])
	require.NotContains(t, alice.relay.keys[d.KID], string(d.CK[:]))
}

// One message takes so many keys with it and no more; the next one takes the rest.
func TestKeysPerSealAreBounded(t *testing.T) {
	t.Parallel()
	const bound, extra = 512, 5
	w := newWorld(t, "alice")
	alice := w.members[0]
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := identity.Keys{Identity: [32]byte(public), Agreement: alice.self.Keys.Agreement}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	for range bound + extra {
		m, err := signed.NewMember(uuid(), &keys)
		require.NoError(t, err)
		alice.room.Members = append(alice.room.Members, encryption.Member{Member: m, Keys: keys})
	}
	require.Len(t, alice.seal(alice.draft("one", w.id)), bound+1)
	require.Len(t, alice.seal(alice.draft("two", w.id)), extra+1)
	require.Len(t, alice.seal(alice.draft("three", w.id)), 1)
}

// A roster that was looked up before somebody left gives them no new key.
func TestOldRosterAfterTheNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, carol := w.members[0], w.members[2]
	w.settle()
	alice.say("one")
	old := alice.room
	w.leave(carol)
	w.settle()
	alice.room = old
	sealed := alice.seal(alice.draft("two", w.id))
	require.Len(t, sealed, 2, "Bob's key and the message")
	require.NotEqual(t, carol.id(), sealed[0].To)
	require.Equal(t, uint64(2), sealed[1].Gen)
}

// State that this package did not write is refused, and said to be so.
func TestStateThatIsNotOurs(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"/own", "/notes", "/repair", "/from/"} {
		w := newWorld(t, "alice", "bob")
		alice, bob := w.members[0], w.members[1]
		w.settle()
		alice.say("one")
		bob.say("two")
		message := w.newest()
		if key == "/from/" {
			key += bob.id()
		}
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
			return tx.Put(keystore.SenderKeys, alice.id()+key, []byte(`{"ck":"secret"}`))
		}))
		var errs []error
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) error {
			_, err := alice.cipher.Seal(tx, alice.room, alice.draft("text", w.id))
			errs = append(errs, err)
			_, err = alice.cipher.Open(tx, alice.room, &bob.member, message.raw, w.now)
			errs = append(errs, err)
			_, err = alice.cipher.Due(tx, alice.room, w.now)
			errs = append(errs, err)
			return nil
		}))
		err := errors.Join(errs...)
		require.ErrorIs(t, err, encryption.ErrState, key)
		require.NotContains(t, err.Error(), "secret", key)
	}
}

func TestNoOtherScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"", "none", "mls", "SENDER_KEYS"} {
		_, err := encryption.For(scheme)
		require.ErrorIs(t, err, encryption.ErrScheme, scheme)
	}
}
