package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// agentAt enrolls an ACTIVE agent in a folder, at an address of the relay.
func (w *talk) agentAt(t *testing.T, url, dir string, options client.DeviceOptions) *client.Device {
	t.Helper()
	d, err := client.EnrollDevice(t.Context(), dir, client.Enrollment{
		RelayURL: url, Invite: w.relay.Invite(t, "agent", false).Token, Kind: client.KindAgent, Label: "robot",
	}, options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() }) // some tests close it
	_, err = w.admin.ApproveDevice(t.Context(), d.ID(), d.Fingerprint())
	require.NoError(t, err)
	_, err = d.PublishKeys(t.Context())
	require.NoError(t, err)
	return d
}

// FAULTS I03, RELAY "Client response to a pending removal": sends to that room fail for
// 600,000 ms from the nack, without a request or a frame, and the window is not renewed. Other
// rooms can still send, and nothing is retried.
func TestRemovalPendingPausesTheRoom(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p, clock, dir := newProxy(t, w.relay), clockwork.NewFakeClockAt(time.Now()), filepath.Join(t.TempDir(), "device")
	robot := w.agentAt(t, p.URL, dir, client.DeviceOptions{Clock: clock})
	paused, other := w.room(t, client.NewRoom{}, robot), w.room(t, client.NewRoom{}, robot)
	bob, elsewhere := open(t, robot, paused), open(t, robot, other)
	say(t, bob, "before")
	nacked := 0
	p.onUp(func(message []byte) (bool, []byte) {
		id, kind := envelopeOf(message)
		if kind != "message" || !strings.Contains(string(message), paused) {
			return true, nil
		}
		nacked++
		return false, nackOf(id, wire.MLSRemovalPending)
	})
	pending := func(s *talker) {
		_, err := s.Send(t.Context(), client.Draft{Text: "x"})
		require.ErrorIs(t, err, client.ErrRemovalPending)
		require.ErrorIs(t, err, &wire.Error{Code: wire.MLSRemovalPending})
	}
	pending(bob)
	require.Equal(t, 1, nacked)
	frames, requests := p.frames.Load(), p.requests.Load()
	for range 49 {
		clock.Advance(10 * time.Second)
		pending(bob)
	}
	clock.Advance(109_999 * time.Millisecond) // 599,999 ms after the nack
	pending(bob)
	require.Equal(t, frames, p.frames.Load(), "nothing was sent")
	require.Equal(t, requests, p.requests.Load(), "nothing was asked")
	say(t, elsewhere, "another room")
	require.Equal(t, 1, nacked, "nothing is retried")
	clock.Advance(time.Millisecond)
	pending(bob)
	require.Equal(t, 2, nacked, "an explicit call reaches the relay again")

	require.NoError(t, robot.Close())
	again, err := client.OpenDevice(dir, client.DeviceOptions{Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Close()) })
	pending(open(t, again, paused))
	require.Equal(t, 3, nacked, "the pause is that of the running client")
	p.onUp(nil)
	clock.Advance(10 * time.Minute)
	say(t, open(t, again, paused), "after")
	alice := open(t, w.admin, paused)
	alice.poll(t)
	require.Equal(t, []string{"before", "after"}, alice.texts())
}

// altered replaces part of the envelope in a deliver.
func altered(message []byte, change func(envelope map[string]any)) []byte {
	var frame struct {
		Type     string         `json:"type"`
		StreamID string         `json:"stream_id"`
		Replay   bool           `json:"replay"`
		Envelope map[string]any `json:"envelope"`
	}
	if json.Unmarshal(message, &frame) != nil || frame.Type != "deliver" {
		return message
	}
	change(frame.Envelope)
	text, _ := json.Marshal(frame)
	return text
}

// FAULTS I09: bad messages are reported once each and hold nothing up; the cursor moves on, and a
// restart does not ask for them again.
func TestBadMessagesHoldNothingUp(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p, dir := newProxy(t, w.relay), filepath.Join(t.TempDir(), "device")
	robot := w.agentAt(t, p.URL, dir, client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	var ids []string
	for n := range 20 {
		ids = append(ids, say(t, alice, fmt.Sprint(n)).IDs...)
	}
	damage := func(message []byte) [][]byte {
		switch {
		case bytes.Contains(message, []byte(ids[7])): // another text under the same signature
			message = altered(message, func(e map[string]any) { e["ct"] = "AAAAAAAA" + fmt.Sprint(e["ct"])[8:] })
		case bytes.Contains(message, []byte(ids[11])): // of another generation
			message = altered(message, func(e map[string]any) { e["gen"] = 1_000 })
		case bytes.Contains(message, []byte(ids[14])): // from somebody who is not in the room
			message = altered(message, func(e map[string]any) { e["from"] = robot.ID() })
		}
		return [][]byte{message}
	}
	p.onDown(damage)
	bob.poll(t)
	require.Len(t, bob.texts(), 17)
	failures := bob.failures()
	require.Len(t, failures, 3)
	require.ErrorIs(t, failures[0].Err, signed.ErrSignature)
	require.ErrorIs(t, failures[1].Err, signed.ErrSignature)
	require.ErrorIs(t, failures[2].Err, client.ErrUnknownSender)
	require.Equal(t, []string{ids[7], ids[11], ids[14]}, []string{failures[0].ID, failures[1].ID, failures[2].ID})
	say(t, alice, "and on")
	require.NoError(t, robot.Close())
	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Close()) })
	later := open(t, again, room)
	later.poll(t)
	require.Equal(t, []string{"and on"}, later.texts())
	require.Empty(t, later.failures())
}

// FAULTS J07: what was shown is not shown again, by replay, live or under a new stream id, and
// not after a restart either.
func TestAHostileRelayRepeatsMessages(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p, dir := newProxy(t, w.relay), filepath.Join(t.TempDir(), "device")
	robot := w.agentAt(t, p.URL, dir, client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "once")
	var kept atomic.Pointer[[]byte]
	p.onDown(func(message []byte) [][]byte {
		if bytes.Contains(message, []byte(`"deliver"`)) {
			copied := bytes.Clone(message)
			kept.Store(&copied)
		}
		return [][]byte{message}
	})
	bob.poll(t)
	require.Equal(t, []string{"once"}, bob.texts())
	require.NotNil(t, kept.Load())
	repeats := 0
	p.onDown(func(message []byte) [][]byte {
		if !bytes.Contains(message, []byte(`"resume_complete"`)) {
			return [][]byte{message}
		}
		repeats++
		live := bytes.Replace(*kept.Load(), []byte(`"replay":true`), []byte(`"replay":false`), 1)
		renamed := altered(*kept.Load(), func(map[string]any) {})
		renamed = bytes.Replace(renamed, []byte(`"stream_id":"1`), []byte(`"stream_id":"2`), 1)
		return [][]byte{live, renamed, message}
	})
	bob.poll(t)
	require.NoError(t, robot.Close())
	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Close()) })
	later := open(t, again, room)
	_, err = later.Poll(t.Context(), 0, later.take)
	if err != nil {
		require.ErrorIs(t, err, client.ErrReplay)
	}
	require.Empty(t, later.texts())
	require.Positive(t, repeats)
	require.Equal(t, []string{"once"}, bob.texts())
	p.onDown(nil)
	say(t, alice, "next")
	later.pollFor(t, 1)
	require.Equal(t, []string{"next"}, later.texts())
}

// FAULTS J05: an envelope of one room that is sent on into another one, by the relay, is
// refused, and so is one under the name of somebody else.
func TestEnvelopesStayInTheirRoom(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	first, second := w.room(t, client.NewRoom{}, robot), w.room(t, client.NewRoom{}, robot)
	alice, bob, elsewhere := open(t, w.admin, first), open(t, robot, first), open(t, robot, second)
	say(t, alice, "in the first room")
	var kept []byte
	for row, err := range w.admin.History(t.Context(), first, client.OldestFirst) {
		require.NoError(t, err)
		kept = row.Envelope
	}
	require.NotEmpty(t, kept)
	require.NoError(t, elsewhere.Import(t.Context(), kept, elsewhere.take))
	require.Len(t, elsewhere.failures(), 1)
	require.Error(t, elsewhere.failures()[0].Err)
	require.Empty(t, elsewhere.texts())
	bob.poll(t)
	require.Equal(t, []string{"in the first room"}, bob.texts())
	require.NoError(t, bob.Import(t.Context(), kept, bob.take), "it was seen")
	require.Len(t, bob.texts(), 1)
}

// RELAY: "a send completes only after queued names every envelope in its batch": without a
// verdict it is kept, and goes out again as it is with the next connection; nobody sees it
// twice.
func TestASendWithoutAVerdictIsKept(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.onDown(func(message []byte) [][]byte { // stored, and nobody is told
		if bytes.Contains(message, []byte(`"queued"`)) {
			if bytes.Contains(message, []byte("message-1-of-this-test")) {
				giveUp()
			}
			return nil
		}
		return [][]byte{message}
	})
	_, err := bob.Send(ctx, client.Draft{Text: "are you there?", ID: "message-1-of-this-test"})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Equal(t, []string{"message-1-of-this-test"}, pending)
	p.onDown(nil)
	sent, err := bob.Send(t.Context(), client.Draft{Text: "are you there?", ID: "message-1-of-this-test"})
	require.NoError(t, err)
	require.Equal(t, []string{"message-1-of-this-test"}, sent.IDs)
	sent, err = bob.Send(t.Context(), client.Draft{Text: "are you there?", ID: "message-1-of-this-test"})
	require.NoError(t, err)
	require.True(t, sent.Already)
	pending, err = bob.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
	alice.poll(t)
	require.Equal(t, []string{"are you there?"}, alice.texts())
	require.Empty(t, alice.failures())
}

// RELAY: a notice "may have been stored, so a sender must not resend it"; one that was accepted
// before is as good as queued.
func TestANoticeIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	bob := open(t, robot, room)
	say(t, bob, "before")
	var notices atomic.Int64
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.onUp(func(message []byte) (bool, []byte) {
		if _, kind := envelopeOf(message); kind != "notice" {
			return true, nil
		}
		notices.Add(1)
		giveUp()
		return false, nil
	})
	_, err := bob.Send(ctx, client.Draft{Text: "fire", Expires: time.Now().Add(time.Hour)})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
	bob.poll(t)
	say(t, bob, "after")
	require.EqualValues(t, 1, notices.Load())
	p.onUp(func(message []byte) (bool, []byte) {
		if id, kind := envelopeOf(message); kind == "notice" {
			return false, nackOf(id, wire.NoticeDuplicate)
		}
		return true, nil
	})
	_, err = bob.Send(t.Context(), client.Draft{Text: "fire", Expires: time.Now().Add(time.Hour)})
	require.NoError(t, err)
}

// FAULTS K03: what the relay could not store now is refused, kept, and never sent again on the
// same connection; a notice is dropped (RELAY: "a sender must not resend it").
func TestWhatCouldNotBeStoredIsKept(t *testing.T) {
	t.Parallel()
	for _, reason := range []wire.Code{wire.Unavailable, wire.Partial} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			w := newTalk(t)
			p := newProxy(t, w.relay)
			robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
			room := w.room(t, client.NewRoom{}, robot)
			alice, bob := open(t, w.admin, room), open(t, robot, room)
			say(t, bob, "before")
			bob.listen(t)
			attempts := make(map[string]int)
			p.onUp(func(message []byte) (bool, []byte) {
				id, kind := envelopeOf(message)
				if kind == "message" || kind == "notice" {
					attempts[id]++
					return false, nackOf(id, reason)
				}
				return true, nil
			})
			_, err := bob.Send(t.Context(), client.Draft{Text: "now?", ID: "kept-" + string(reason)})
			require.ErrorIs(t, err, &wire.Error{Code: reason})
			_, err = bob.Send(t.Context(), client.Draft{Text: "alarm", ID: "dropped-" + string(reason), Expires: time.Now().Add(time.Hour)})
			require.ErrorIs(t, err, &wire.Error{Code: reason})
			pending, err := bob.Pending()
			require.NoError(t, err)
			require.Equal(t, []string{"kept-" + string(reason)}, pending)
			require.Equal(t, map[string]int{"kept-" + string(reason): 1, "dropped-" + string(reason): 1}, attempts)
			p.onUp(nil) // and Listen sends it by itself, over another connection
			repeat(t, func() bool {
				alice.poll(t)
				return len(alice.texts()) == 2
			})
			require.Equal(t, []string{"before", "now?"}, alice.texts())
		})
	}
}

// FAULTS J06 at a real relay: a key that never arrived is asked for, and what waited for it is
// shown.
func TestAMissingKeyIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	p.onDown(func(message []byte) [][]byte { // the key's distribution is damaged on its way
		return [][]byte{altered(message, func(e map[string]any) {
			if e["kind"] == "senderkey" {
				e["seq"] = 1_000_000
			}
		})}
	})
	say(t, alice, "one")
	say(t, alice, "two")
	bob.poll(t)
	require.Empty(t, bob.texts())
	require.Len(t, bob.failures(), 1, "the damaged distribution, and no message")
	p.onDown(nil)
	repeat(t, func() bool {
		alice.poll(t) // answers the request
		bob.poll(t)
		return len(bob.texts()) == 2
	})
	require.Equal(t, []string{"one", "two"}, bob.texts())
	require.Len(t, bob.failures(), 1)
}

// FAULTS J09, STATE "Ratchet Desync": a conversation whose first message cannot be opened
// begins anew, and works.
func TestADirectRoomBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	damaged := 0
	p.onDown(func(message []byte) [][]byte {
		return [][]byte{altered(message, func(e map[string]any) {
			if e["hdr"] != nil {
				damaged++
				e["ct"] = "AAAA"
			}
		})}
	})
	say(t, alice, "lost on its way")
	bob.poll(t)
	require.Equal(t, 1, damaged)
	require.Len(t, bob.failures(), 1, "a forgery is reported, and nothing is begun anew")
	_, err := bob.Send(t.Context(), client.Draft{Text: "x"})
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	p.onDown(nil)
	say(t, alice, "hello")
	bob.poll(t)
	require.Equal(t, []string{"hello"}, bob.texts())
	say(t, bob, "hello yourself")
	alice.poll(t)
	require.Equal(t, []string{"hello yourself"}, alice.texts())
	_, err = w.admin.ResetRoom(t.Context(), room)
	require.NoError(t, err)
	_, err = bob.Send(t.Context(), client.Draft{Text: "x"})
	require.ErrorIs(t, err, encryption.ErrNotActivated, "the owner writes first, whether or not bob knows of it")
	alice.pollForEvent(t, wire.DeviceLinked)
	bob.pollForEvent(t, wire.DeviceLinked)
	say(t, alice, "again")
	bob.poll(t)
	say(t, bob, "and back")
	alice.poll(t)
	require.Equal(t, []string{"hello", "again"}, bob.texts())
	require.Equal(t, []string{"hello yourself", "and back"}, alice.texts())
}

// What waited when a direct room was begun anew is reported, and not sent under keys that the
// other side has deleted.
func TestWhatWaitedWhenARoomBeganAnew(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	say(t, alice, "hello")
	bob.poll(t)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.onUp(func(message []byte) (bool, []byte) { // nothing of bob's arrives
		_, kind := envelopeOf(message)
		if kind == "message" {
			giveUp()
		}
		return kind != "message", nil
	})
	_, err := bob.Send(ctx, client.Draft{Text: "held up", ID: "held-up"})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	_, err = w.admin.ResetRoom(t.Context(), room)
	require.NoError(t, err)
	w.relay.Told(t, room)
	bob.pollForEvent(t, wire.DeviceLinked)
	pending, err := bob.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
	require.Len(t, bob.failures(), 1)
	require.Equal(t, "held-up", bob.failures()[0].ID)
	require.ErrorIs(t, bob.failures()[0].Err, encryption.ErrLost)
	p.onUp(nil)
	alice.pollForEvent(t, wire.DeviceLinked)
	say(t, alice, "again")
	bob.pollFor(t, 2)
	say(t, bob, "back")
	alice.pollFor(t, 1)
	require.Equal(t, []string{"back"}, alice.texts())
	require.Empty(t, alice.failures())
}
