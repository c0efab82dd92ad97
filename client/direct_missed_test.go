package client_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/wire"
)

// loseRows drops the rows that are in the agent's inbox now, as after a day, and says so once.
func (o *offline) loseRows() {
	gone, all := make(map[string]bool), true
	o.proxy.onDown(func(message []byte) [][]byte {
		frame, err := wire.ParseServer(message)
		switch {
		case err != nil:
		case frame.Type == wire.ServerResumeComplete && all:
			all = false
			return [][]byte{[]byte(`{"type":"resync_required","oldest_id":null}`), message}
		case frame.Type == wire.ServerDeliver, frame.Type == wire.ServerRoomEvent:
			if all {
				gone[frame.StreamID] = true
			}
			if gone[frame.StreamID] {
				return nil
			}
		default:
		}
		return [][]byte{message}
	})
}

// newOfflinePair are an owner and its agent in a direct room, who have written a message each.
func newOfflinePair(t *testing.T) (o *offline, alice, bob *talker) {
	t.Helper()
	o = newOffline(t)
	o.room = o.talk.room(t, client.NewRoom{Kind: "direct"}, o.robot)
	alice, bob = open(t, o.admin, o.room), open(t, o.robot, o.room)
	say(t, alice, "one")
	bob.pollFor(t, 1)
	say(t, bob, "two")
	alice.pollFor(t, 1)
	return o, alice, bob
}

// An agent whose inbox lost the news that the conversation began anew, and what the owner wrote first, finds
// out by the room's version: it would go on sealing what the owner cannot open, for ever.
func TestAnAgentThatMissedAResetBeginsAnew(t *testing.T) {
	t.Parallel()
	o, alice, _ := newOfflinePair(t)
	require.NoError(t, o.robot.Close())

	_, err := o.admin.ResetRoom(t.Context(), o.room)
	require.NoError(t, err)
	alice.pollForReset(t, 1)
	say(t, alice, "nobody reads this")
	o.loseRows()
	bob := o.again(t)
	bob.poll(t)
	require.Len(t, bob.items, 1)
	require.NotNil(t, bob.items[0].Gap)
	alice.pollForReset(t, 2)
	say(t, alice, "three")
	bob.pollFor(t, 1)
	say(t, bob, "four")
	alice.pollFor(t, 2)
	require.Equal(t, []string{"three"}, bob.texts())
	require.Equal(t, []string{"two", "four"}, alice.texts())
	require.Empty(t, alice.failures())
	for range 3 {
		alice.poll(t)
		bob.poll(t)
	}
	require.Equal(t, 2, alice.linked(), "one reset, and one that repaired it")
}

// Where nothing of that was among what was lost, nothing begins anew.
func TestAGapIsNoReasonForAReset(t *testing.T) {
	t.Parallel()
	o, alice, bob := newOfflinePair(t)
	say(t, alice, "nobody reads this")
	o.loseRows()
	bob.pollForGap(t)
	say(t, alice, "three")
	bob.pollFor(t, 2)
	say(t, bob, "four")
	alice.pollFor(t, 2)
	require.Equal(t, []string{"one", "three"}, bob.texts())
	require.Equal(t, []string{"two", "four"}, alice.texts())
	require.Zero(t, alice.linked())
}

func (r *talker) pollForGap(t *testing.T) {
	t.Helper()
	repeat(t, func() bool {
		r.poll(t)
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.items) > 0 && r.items[len(r.items)-1].Gap != nil
	})
}

// An owner's program that keeps a session open and only sends hears of no reset. It looks at the room now
// and then: begins anew where the other side waits for that, and asks for a reset where it wrote
// under the keys of before meanwhile.
func TestAnOwnerThatNeverReadsBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newTalk(t)
	clock := clockwork.NewFakeClockAt(time.Now())
	human, err := client.EnrollDevice(t.Context(), filepath.Join(t.TempDir(), "device"), client.Enrollment{
		RelayURL: w.relay.URL(), Invite: w.relay.Invite(t, "human", false).Token, Kind: client.KindHuman, Label: "owner",
	}, client.DeviceOptions{Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, human.Close()) })
	_, err = w.admin.ApproveDevice(t.Context(), human.ID(), human.Fingerprint())
	require.NoError(t, err)
	_, err = human.PublishKeys(t.Context())
	require.NoError(t, err)
	robot := w.device(t, client.KindAgent)
	made, err := human.CreateRoom(t.Context(), client.NewRoom{Kind: "direct"})
	require.NoError(t, err)
	_, err = human.AddMember(t.Context(), made.RoomID, robot.ID(), client.RoleAgent)
	require.NoError(t, err)
	owner, bob := open(t, human, made.RoomID), open(t, robot, made.RoomID)
	say(t, owner, "one")
	bob.pollFor(t, 1)

	for range 5 { // nothing begins anew without a reason
		clock.Advance(2 * time.Minute)
		say(t, owner, "and on")
	}
	bob.pollFor(t, 6)
	require.Zero(t, bob.linked())

	_, err = robot.ResetRoom(t.Context(), made.RoomID)
	require.NoError(t, err)
	clock.Advance(2 * time.Minute)
	say(t, owner, "two")
	bob.pollFor(t, 7)
	require.Empty(t, bob.failures())
	require.Equal(t, 1, bob.linked())

	_, err = robot.ResetRoom(t.Context(), made.RoomID)
	require.NoError(t, err)
	bob.pollForReset(t, 2)
	say(t, owner, "too early")
	repeat(t, func() bool { bob.poll(t); return len(bob.failures()) == 1 })
	require.ErrorIs(t, bob.failures()[0].Err, encryption.ErrLost)
	clock.Advance(2 * time.Minute)
	say(t, owner, "three")
	bob.pollFor(t, 8)
	bob.pollForReset(t, 3)
	require.Equal(t, "three", bob.texts()[7])
	require.Len(t, bob.failures(), 1)
}
