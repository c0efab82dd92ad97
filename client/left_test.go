package client_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/wire"
)

// keptOf are the names of what a device has of a room, or of who it was there.
func keptOf(t *testing.T, d *client.Device, room, self string) (keys []string) {
	t.Helper()
	require.NoError(t, d.Store().View(func(tx *keystore.Tx) error {
		for bucket := keystore.Rooms; bucket <= keystore.Messages; bucket++ {
			for _, key := range tx.Keys(bucket, "") {
				if bucket != keystore.Peers && (strings.Contains(key, room) || strings.Contains(key, self)) {
					keys = append(keys, key)
				}
			}
		}
		if _, known := tx.Generation(self); known {
			keys = append(keys, "generation")
		}
		return nil
	}))
	return keys
}

// seenOf reports whether a message's id is remembered.
func seenOf(t *testing.T, d *client.Device, m *client.Message, room string) (seen bool) {
	t.Helper()
	require.NoError(t, d.Store().View(func(tx *keystore.Tx) error {
		seen = tx.Seen(room, m.From+"/"+m.ID)
		return nil
	}))
	return seen
}

// A device is in ever new rooms over its life: of one that it left nothing is kept but who it was there,
// and it can be added again.
func TestNothingIsKeptOfARoomThatWasLeft(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	for round := range 3 {
		bob := open(t, o.robot, o.room)
		say(t, bob, "here")
		sent, err := o.alice.Send(t.Context(), client.Draft{Text: "for you alone", To: bob.Participant()})
		require.NoError(t, err)
		say(t, o.alice, "for all")
		_, err = o.admin.CreateCard(t.Context(), o.room, boardseal.Task, client.BoardContent{Subject: "a card"})
		require.NoError(t, err)
		bob.pollFor(t, 2)
		require.Equal(t, []string{"for you alone", "for all"}, bob.texts())
		for event, err := range o.robot.BoardEvents(t.Context(), o.room, 0) {
			require.NoError(t, err)
			require.NoError(t, o.robot.MoveBoardCursor(o.room, event))
		}
		require.Greater(t, len(keptOf(t, o.robot, o.room, bob.Participant())), 8)
		kept, err := o.admin.HistoryMessage(t.Context(), o.room, bob.messages()[1].ID)
		require.NoError(t, err)

		require.NoError(t, o.robot.LeaveRoom(t.Context(), o.room))
		require.Equal(t, []string{"left/" + bob.Participant()}, keptOf(t, o.robot, o.room, bob.Participant()))
		require.False(t, seenOf(t, o.robot, bob.messages()[0], o.room))
		// what is shown again to the session that is still open is not taken for new
		require.ErrorIs(t, bob.Import(t.Context(), kept.Envelope, bob.take), client.ErrLeft)
		_, err = bob.Poll(t.Context(), 0, bob.take)
		require.ErrorIs(t, err, client.ErrLeft)
		_, err = bob.Send(t.Context(), client.Draft{Text: "of who left"})
		require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound})
		require.NoError(t, bob.Close())
		require.Equal(t, []string{"left/" + bob.Participant()}, keptOf(t, o.robot, o.room, bob.Participant()))
		require.Len(t, bob.messages(), 2)
		require.Len(t, sent.IDs, 1)

		_, err = o.admin.AddMember(t.Context(), o.room, o.robot.ID(), client.RoleAgent)
		require.NoError(t, err)
		o.alice.pollFor(t, round+1)
	}
}

// What a relay has of a former membership is not shown again: neither where it names that participant
// anew, nor to the one that the device is now.
func TestWhatWasBeforeARoomWasLeftIsNotShownAgain(t *testing.T) {
	t.Parallel()
	o, l, _ := liedTo(t)
	bob := open(t, o.robot, o.room)
	say(t, bob, "here")
	_, err := o.alice.Send(t.Context(), client.Draft{Text: "a secret", To: bob.Participant()})
	require.NoError(t, err)
	private := make(chan []byte, 1)
	o.proxy.onDown(func(message []byte) [][]byte {
		if strings.Contains(string(message), `"to":"`+bob.Participant()) && strings.Contains(string(message), `"kind":"message"`) {
			frame, err := wire.ParseServer(message)
			if err == nil && len(private) == 0 {
				private <- frame.Envelope
			}
		}
		return [][]byte{message}
	})
	bob.pollFor(t, 1)
	before := bob.Participant()
	require.NoError(t, o.robot.LeaveRoom(t.Context(), o.room))
	require.NoError(t, bob.Close())
	_, err = o.admin.AddMember(t.Context(), o.room, o.robot.ID(), client.RoleAgent)
	require.NoError(t, err)

	l.rosters(o.room, func(answer map[string]any) { answer["participant_id"] = before })
	_, err = o.robot.OpenSession(t.Context(), o.room)
	require.ErrorIs(t, err, client.ErrLeft)
	l.tell(nil)
	bob = open(t, o.robot, o.room)
	require.NotEqual(t, before, bob.Participant())
	require.NoError(t, bob.Import(t.Context(), <-private, bob.take))
	require.Empty(t, bob.messages())
	require.Len(t, bob.failures(), 1)
	say(t, o.alice, "welcome back")
	bob.pollFor(t, 1)
	require.Equal(t, []string{"welcome back"}, bob.texts())

	// and so where it did not leave by itself, but was removed and added again
	removed := bob.Participant()
	require.NoError(t, o.admin.RemoveMember(t.Context(), o.room, removed))
	_, err = o.admin.AddMember(t.Context(), o.room, o.robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	require.NoError(t, bob.Close())
	bob = open(t, o.robot, o.room)
	require.NotEqual(t, removed, bob.Participant())
	require.NoError(t, bob.Close())
	l.rosters(o.room, func(answer map[string]any) { answer["participant_id"] = removed })
	_, err = o.robot.OpenSession(t.Context(), o.room)
	require.ErrorIs(t, err, client.ErrLeft)
}

// A direct room's messages are for the room and not for a participant: those of before do not begin a
// conversation with the agent that was added again.
func TestADirectRoomThatWasLeftBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	robot := w.device(t, client.KindAgent)
	room := w.room(t, client.NewRoom{Kind: "direct"}, robot)
	alice, bob := open(t, w.admin, room), open(t, robot, room)
	sent := say(t, alice, "one")
	bob.pollFor(t, 1)
	row, err := w.admin.HistoryMessage(t.Context(), room, sent.IDs[0])
	require.NoError(t, err)
	require.NoError(t, robot.LeaveRoom(t.Context(), room))
	require.NoError(t, bob.Close())
	_, err = w.admin.AddMember(t.Context(), room, robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	bob = open(t, robot, room)
	require.NoError(t, bob.Import(t.Context(), row.Envelope, bob.take))
	require.Empty(t, bob.messages())
	require.Len(t, bob.failures(), 1)
	require.ErrorIs(t, bob.failures()[0].Err, encryption.ErrLost)
	require.ErrorContains(t, bob.failures()[0].Err, "began anew since")
	alice.pollForEvent(t, wire.RoomJoined)
	say(t, alice, "two")
	bob.pollFor(t, 1)
	say(t, bob, "three")
	alice.pollFor(t, 1)
	require.Equal(t, []string{"two"}, bob.texts())
	require.Equal(t, []string{"three"}, alice.texts())
	require.Empty(t, alice.failures())
}

// That a relay does not know the device in a room any more is believed when it said so for a day: then
// the room is forgotten, and no other.
func TestARoomThatIsGoneIsForgottenAfterADay(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	clock := clockwork.NewFakeClockAt(time.Now())
	robot := w.agentAt(t, w.relay.URL(), filepath.Join(t.TempDir(), "device"), client.DeviceOptions{Clock: clock})
	gone, stays := w.room(t, client.NewRoom{}, robot), w.room(t, client.NewRoom{}, robot)
	selves := map[string]string{}
	for _, room := range []string{gone, stays} {
		bob := open(t, robot, room)
		say(t, bob, "here")
		selves[room] = bob.Participant()
	}
	rooms := func() (listed []string) {
		for room, err := range robot.Rooms(t.Context()) {
			require.NoError(t, err)
			listed = append(listed, room.RoomID)
		}
		return listed
	}
	require.NoError(t, w.admin.RemoveMember(t.Context(), gone, selves[gone]))
	require.Equal(t, []string{stays}, rooms())
	clock.Advance(23 * time.Hour)
	require.Equal(t, []string{stays}, rooms())
	require.Contains(t, keptOf(t, robot, gone, selves[gone]), gone+"/seq")
	before := keptOf(t, robot, stays, selves[stays])
	clock.Advance(2 * time.Hour)
	require.Equal(t, []string{stays}, rooms())
	require.Equal(t, []string{"left/" + selves[gone]}, keptOf(t, robot, gone, selves[gone]))
	require.Equal(t, before, keptOf(t, robot, stays, selves[stays]))

	// it was in the list again meanwhile: the day begins anew
	require.NoError(t, w.admin.RemoveMember(t.Context(), stays, selves[stays]))
	require.Empty(t, rooms())
	_, err := w.admin.AddMember(t.Context(), stays, robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	clock.Advance(25 * time.Hour)
	require.Equal(t, []string{stays}, rooms())
	found, err := robot.Room(t.Context(), stays)
	require.NoError(t, err)
	require.NoError(t, w.admin.RemoveMember(t.Context(), stays, found.ParticipantID))
	require.Empty(t, rooms())
	require.Contains(t, keptOf(t, robot, stays, selves[stays]), stays+"/room")
}

// errHeld is of a reader that cannot take an item now.
var errHeld = errors.New("not now")

func held(client.Item) error { return errHeld }

// Where there is no place for one more room, the one that was left first gives way with what nobody has
// taken of it, and never one that the device is in.
func TestARoomThatWasLeftGivesWay(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	var left []string
	for range 2 {
		room := o.talk.room(t, client.NewRoom{}, o.robot)
		alice, bob := open(t, o.admin, room), open(t, o.robot, room)
		say(t, alice, "not taken")
		_, err := bob.Poll(t.Context(), 0, held)
		require.ErrorIs(t, err, errHeld)
		require.NoError(t, o.robot.LeaveRoom(t.Context(), room))
		require.NoError(t, bob.Close())
		left = append(left, room)
	}
	require.NoError(t, o.robot.Store().Update(func(tx *keystore.Tx) error {
		var all []error
		for n := range keystore.MaxRooms - len(left) {
			id := fmt.Sprintf("01980000-0000-7000-8000-%012d", n)
			all = append(all, tx.Put(keystore.Rooms, id+"/room", fmt.Appendf(nil, `{"room_id":%q,"participant_id":%q}`, id, id)))
		}
		return errors.Join(all...)
	}))
	kept := func(room string) bool { return len(keptOf(t, o.robot, room, room)) > 0 }
	require.True(t, kept(left[0]))
	for n := range left {
		room := o.talk.room(t, client.NewRoom{}, o.robot)
		bob := open(t, o.robot, room)
		say(t, bob, "here")
		require.False(t, kept(left[n]))
		require.Equal(t, n == 0, kept(left[1]))
	}
	_, err := o.robot.OpenSession(t.Context(), o.room)
	require.ErrorIs(t, err, client.ErrTooManyRooms)
	require.ErrorIs(t, err, keystore.ErrFull)
}
