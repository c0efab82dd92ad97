package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

const sessionPatience = time.Minute

// talk is a real relay with an admin.
type talk struct {
	relay *testkit.Relay
	admin *client.Device
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	s := testkit.Shared(t)
	admin := enroll(t, s, client.KindHuman, s.Invite(t, "human", true).Token)
	_, err := admin.PublishKeys(t.Context())
	require.NoError(t, err)
	return &talk{relay: s, admin: admin}
}

// device enrolls a device that is ACTIVE.
func (w *talk) device(t *testing.T, kind client.DeviceKind) *client.Device {
	t.Helper()
	d := enroll(t, w.relay, kind, w.relay.Invite(t, string(kind), false).Token)
	_, err := w.admin.ApproveDevice(t.Context(), d.ID(), d.Fingerprint())
	require.NoError(t, err)
	_, err = d.PublishKeys(t.Context())
	require.NoError(t, err)
	return d
}

// room is a room of the admin with other devices.
func (w *talk) room(t *testing.T, room client.NewRoom, others ...*client.Device) string {
	t.Helper()
	made, err := w.admin.CreateRoom(t.Context(), room)
	require.NoError(t, err)
	for _, d := range others {
		role := client.RoleAgent
		if d.Kind() == client.KindHuman {
			role = client.RoleController
		}
		_, err := w.admin.AddMember(t.Context(), made.RoomID, d.ID(), role)
		require.NoError(t, err)
	}
	return made.RoomID
}

// talker is a session, and what it has handed over.
type talker struct {
	*client.Session

	mu    sync.Mutex // guards the following field
	items []client.Item
}

func open(t *testing.T, d *client.Device, room string) *talker {
	t.Helper()
	s, err := d.OpenSession(t.Context(), room)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &talker{Session: s}
}

func (r *talker) take(item client.Item) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	return nil
}

// poll reads all there is.
func (r *talker) poll(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = r.Poll(t.Context(), 0, r.take)
		require.NoError(t, err)
	}
}

// texts are those of the messages so far.
func (r *talker) texts() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if item.Message != nil {
			all = append(all, item.Message.Text)
		}
	}
	return all
}

func (r *talker) messages() (all []*client.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if item.Message != nil {
			all = append(all, item.Message)
		}
	}
	return all
}

func (r *talker) failures() (all []*client.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		if item.Failure != nil {
			all = append(all, item.Failure)
		}
	}
	return all
}

// repeat does something again and again until it reports success. It does so in the test's own
// goroutine, as require.Eventually does not: it may fail the test, and has ended when that goes on.
func repeat(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(sessionPatience); !done(); {
		require.True(t, time.Now().Before(end), "it did not come to that")
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pollFor polls until so many messages have come.
func (r *talker) pollFor(t *testing.T, n int) {
	t.Helper()
	repeat(t, func() bool {
		r.poll(t)
		return len(r.texts()) >= n
	})
}

// pollForEvent polls until an event of the room has come.
func (r *talker) pollForEvent(t *testing.T, event wire.RoomEventType) {
	t.Helper()
	repeat(t, func() bool {
		r.poll(t)
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.items, func(i client.Item) bool { return i.Event != nil && i.Event.Event == event })
	})
}

// listen follows the inbox until the test ends.
func (r *talker) listen(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, caughtUp := make(chan error, 1), make(chan struct{})
	var once sync.Once
	options := client.ListenOptions{CaughtUp: func() { once.Do(func() { close(caughtUp) }) }}
	go func() { ended <- r.ListenWith(ctx, options, r.take) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	select {
	case <-caughtUp:
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
		t.Fatal("Listen ended")
	}
}

func (r *talker) await(t *testing.T, texts ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.texts()) >= len(texts) }, sessionPatience, 5*time.Millisecond, "%v of %v", r.texts(), texts)
	require.Equal(t, texts, r.texts())
}

func say(t *testing.T, s *talker, text string) client.Sent {
	t.Helper()
	sent, err := s.Send(t.Context(), client.Draft{Text: text})
	require.NoError(t, err)
	return sent
}

// RELAY: session-addressed messages have sender-key encryption, also for those who are away,
// and are shown once.
func TestTalkInARoomOfSenderKeys(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot, second := w.device(t, client.KindAgent), w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot, second)
	alice, bob, carol := open(t, w.admin, room), open(t, robot, room), open(t, second, room)
	carol.listen(t)
	sent := say(t, alice, "first")
	require.ElementsMatch(t, []string{bob.Participant(), carol.Participant()}, sent.Recipients)
	say(t, alice, "second")
	carol.await(t, "first", "second")
	bob.poll(t)
	require.Equal(t, []string{"first", "second"}, bob.texts())
	require.Empty(t, bob.failures())
	first := bob.messages()[0]
	require.Equal(t, sent.IDs[0], first.ID)
	require.Equal(t, alice.Participant(), first.From)
	require.Equal(t, w.admin.ID(), first.Device)
	require.Equal(t, room, first.To)
	require.False(t, first.Private(room))
	require.WithinDuration(t, time.Now(), first.SentAt, sessionPatience)
	bob.poll(t)
	require.Len(t, bob.texts(), 2, "shown once")

	say(t, bob, "third")
	alice.poll(t)
	require.Equal(t, []string{"third"}, alice.texts())
	carol.await(t, "first", "second", "third")
	pending, err := alice.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
}

// RELAY, "Client 0.2.9": private messages are for one participant.
func TestPrivateMessages(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot, second := w.device(t, client.KindAgent), w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot, second)
	alice, bob, carol := open(t, w.admin, room), open(t, robot, room), open(t, second, room)
	_, err := bob.Send(t.Context(), client.Draft{Text: "between us", To: carol.Participant()})
	require.NoError(t, err)
	_, err = alice.Send(t.Context(), client.Draft{Text: "to you", To: carol.Participant()})
	require.NoError(t, err)
	carol.poll(t)
	require.Equal(t, []string{"between us", "to you"}, carol.texts())
	require.True(t, carol.messages()[0].Private(room))
	alice.poll(t)
	require.Empty(t, alice.texts())
	_, err = bob.Send(t.Context(), client.Draft{Text: "x", To: bob.Participant()})
	require.ErrorIs(t, err, client.ErrNotMember)
	_, err = bob.Send(t.Context(), client.Draft{Text: "x", To: second.ID()})
	require.ErrorIs(t, err, client.ErrNotMember)
}

// A file that is larger than an envelope is split and put together again.
func TestFiles(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	data := make([]byte, 5*content.ChunkSize+77)
	_, err := rand.Read(data)
	require.NoError(t, err)
	var progress []string
	_, err = alice.Send(t.Context(), client.Draft{
		Text: "the plan", File: &client.File{Name: "plan.bin", MIMEType: "application/octet-stream", Data: data},
		Progress: func(done, of int) { progress = append(progress, fmt.Sprintf("%d/%d", done, of)) },
	})
	require.NoError(t, err)
	require.Equal(t, "7/7", progress[len(progress)-1])
	_, err = alice.Send(t.Context(), client.Draft{File: &client.File{Name: "note.txt", MIMEType: "text/plain", Data: []byte("small")}})
	require.NoError(t, err)
	bob.poll(t)
	require.Empty(t, bob.failures())
	got := bob.messages()
	require.Len(t, got, 3)
	require.Equal(t, "the plan", got[0].Text)
	require.Equal(t, "plan.bin", got[1].Files[0].Name)
	require.True(t, bytes.Equal(data, got[1].Files[0].Data))
	require.Equal(t, "small", string(got[2].Files[0].Data))
	_, err = alice.Send(t.Context(), client.Draft{File: &client.File{Name: "x", MIMEType: "x/y", Data: make([]byte, content.MaxFile+1)}})
	require.ErrorIs(t, err, content.ErrTooLarge)
	_, err = alice.Send(t.Context(), client.Draft{})
	require.ErrorIs(t, err, content.ErrContent)
}

// STATE, "1:1 Messaging": the owner writes first, then both do, and either may be away.
func TestTalkOneToOne(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	_, err := bob.Send(t.Context(), client.Draft{Text: "too early"})
	require.ErrorIs(t, err, encryption.ErrNotActivated)
	say(t, alice, "hello")
	say(t, alice, "are you there?")
	bob.poll(t)
	require.Equal(t, []string{"hello", "are you there?"}, bob.texts())
	for n := range 5 {
		say(t, bob, fmt.Sprintf("answer %d", n))
		alice.pollFor(t, n+1)
		say(t, alice, fmt.Sprintf("question %d", n))
		bob.pollFor(t, n+3)
	}
	require.Empty(t, alice.failures())
	require.Empty(t, bob.failures())
	_, err = alice.Send(t.Context(), client.Draft{Text: "x", To: bob.Participant()})
	require.ErrorIs(t, err, encryption.ErrKind)
}

// STATE, "Mandatory Rekey": who was removed reads nothing of what follows, and those who stay go
// on under new keys (FAULTS I06).
func TestRemovalRotatesKeys(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot, second := w.device(t, client.KindAgent), w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot, second)
	alice, bob, carol := open(t, w.admin, room), open(t, robot, room), open(t, second, room)
	say(t, alice, "before")
	say(t, bob, "from bob")
	carol.poll(t)
	require.NoError(t, w.admin.RemoveMember(t.Context(), room, carol.Participant()))
	say(t, alice, "after")
	say(t, bob, "bob after")
	alice.poll(t)
	bob.poll(t)
	require.Equal(t, []string{"from bob", "bob after"}, alice.texts())
	require.Equal(t, []string{"before", "after"}, bob.texts())
	_, err := carol.Poll(t.Context(), 0, carol.take)
	require.Error(t, err)
	require.Equal(t, []string{"before", "from bob"}, carol.texts())
}

// A device that was away reads messages of somebody who joined and left meanwhile.
func TestMessagesOfAFormerMember(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot, guest := w.device(t, client.KindAgent), w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot)
	bob := open(t, robot, room)
	bob.poll(t)
	_, err := w.admin.AddMember(t.Context(), room, guest.ID(), client.RoleAgent)
	require.NoError(t, err)
	passing := open(t, guest, room)
	say(t, passing, "just passing through")
	require.NoError(t, guest.LeaveRoom(t.Context(), room))
	bob.poll(t)
	require.Equal(t, []string{"just passing through"}, bob.texts())
	require.Empty(t, bob.failures())
}

// FAULTS J08: what take did not accept comes again, also to a later process; what it accepted
// does not.
func TestItemsThatWereNotTakenComeAgain(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	invite := w.relay.Invite(t, "agent", false)
	dir := filepath.Join(t.TempDir(), "device")
	robot, err := client.EnrollDevice(t.Context(), dir, client.Enrollment{
		RelayURL: w.relay.URL(), Invite: invite.Token, Kind: client.KindAgent, Label: "robot",
	}, client.DeviceOptions{})
	require.NoError(t, err)
	_, err = w.admin.ApproveDevice(t.Context(), robot.ID(), robot.Fingerprint())
	require.NoError(t, err)
	_, err = robot.PublishKeys(t.Context())
	require.NoError(t, err)
	room := w.room(t, client.NewRoom{}, robot)
	alice := open(t, w.admin, room)
	for n := range 5 {
		say(t, alice, fmt.Sprint(n))
	}
	stop := errors.New("stop")
	bob, err := robot.OpenSession(t.Context(), room)
	require.NoError(t, err)
	var first talker
	_, err = bob.Poll(t.Context(), 0, func(item client.Item) error {
		if item.Message != nil && item.Message.Text == "2" {
			return stop
		}
		return first.take(item)
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, []string{"0", "1"}, first.texts())
	require.NoError(t, robot.Close())

	again, err := client.OpenDevice(dir, client.DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Close()) })
	second := open(t, again, room)
	second.poll(t)
	require.Equal(t, []string{"2", "3", "4"}, second.texts())
}

// A notice is an alert of an agent to the room.
func TestNotices(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	until := time.Now().Add(10 * time.Minute)
	_, err := bob.Send(t.Context(), client.Draft{Text: "the build is red", Expires: until})
	require.NoError(t, err)
	alice.poll(t)
	require.Equal(t, []string{"the build is red"}, alice.texts())
	got := alice.messages()[0]
	require.Equal(t, wire.KindNotice, got.Kind)
	require.WithinDuration(t, until, got.Expires, time.Second)
	_, err = alice.Send(t.Context(), client.Draft{Text: "I may not", Expires: until})
	require.ErrorIs(t, err, &wire.Error{Code: wire.NoticeNotPermitted})
	pending, err := alice.Pending()
	require.NoError(t, err)
	require.Empty(t, pending)
}

// Rooms that this client does not encrypt are refused, and so are those it is not in.
func TestRoomsThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	for _, scheme := range []string{"none", "mls"} {
		_, err := w.admin.OpenSession(t.Context(), w.room(t, client.NewRoom{Scheme: scheme}))
		require.ErrorIs(t, err, encryption.ErrScheme)
	}
	_, err := robot.OpenSession(t.Context(), w.room(t, client.NewRoom{}))
	require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
	_, err = w.admin.OpenSession(t.Context(), "no id")
	require.ErrorIs(t, err, client.ErrID)
}

// Two sessions of one room would send what waits twice: while one is open it is the same.
func TestARoomHasOneSession(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	room := w.room(t, client.NewRoom{}, w.device(t, client.KindAgent))
	first, err := w.admin.OpenSession(t.Context(), room)
	require.NoError(t, err)
	second, err := w.admin.OpenSession(t.Context(), room)
	require.NoError(t, err)
	require.Same(t, first, second)
	require.NoError(t, first.Close())
	third, err := w.admin.OpenSession(t.Context(), room)
	require.NoError(t, err)
	require.Same(t, first, third, "it was closed once, and opened twice")
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
	fourth, err := w.admin.OpenSession(t.Context(), room)
	require.NoError(t, err)
	require.NotSame(t, first, fourth)
	require.NoError(t, fourth.Close())
}

// A device that left a room and was added again has another inbox: nothing is missing in it, and
// what it had not sent before is reported.
func TestADeviceIsAddedAgain(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	p := newProxy(t, w.relay)
	robot := w.agentAt(t, p.URL, filepath.Join(t.TempDir(), "device"), client.DeviceOptions{})
	room := w.room(t, client.NewRoom{}, robot)
	alice := open(t, w.admin, room)
	bob, err := robot.OpenSession(t.Context(), room)
	require.NoError(t, err)
	say(t, alice, "before")
	first := &talker{Session: bob}
	first.poll(t)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	p.onUp(func(message []byte) (bool, []byte) {
		_, kind := envelopeOf(message)
		if kind == "message" {
			giveUp()
		}
		return kind == "", nil
	})
	_, err = first.Send(ctx, client.Draft{Text: "never sent", ID: "never-sent"})
	require.ErrorIs(t, err, client.ErrNoVerdict)
	p.onUp(nil)
	require.NoError(t, w.admin.RemoveMember(t.Context(), room, first.Participant()))
	require.NoError(t, bob.Close())
	_, err = w.admin.AddMember(t.Context(), room, robot.ID(), client.RoleAgent)
	require.NoError(t, err)

	again := open(t, robot, room)
	require.NotEqual(t, first.Participant(), again.Participant())
	say(t, alice, "after")
	again.poll(t)
	require.Equal(t, []string{"after"}, again.texts())
	require.Len(t, again.failures(), 1)
	require.Equal(t, "never-sent", again.failures()[0].ID)
	require.ErrorIs(t, again.failures()[0].Err, client.ErrNotMember)
	for _, item := range again.items {
		require.Nil(t, item.Gap, "nothing is missing in the new inbox")
	}
	say(t, again, "I am back")
	alice.poll(t)
	require.Equal(t, []string{"I am back"}, alice.texts())
}
