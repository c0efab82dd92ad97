package client_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// What came before the device was removed from a room, and was not taken yet, is handed over all the
// same: first, and without the relay, which then says that there is no more.
func TestWhatIsInHandIsHandedOverThoughTheRoomIsGone(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(ctx context.Context, o *offline, bob *talker) error{
		"removed": func(ctx context.Context, o *offline, bob *talker) error {
			return o.admin.RemoveMember(ctx, o.room, bob.Participant())
		},
		"left": func(ctx context.Context, o *offline, _ *talker) error { return o.robot.LeaveRoom(ctx, o.room) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffline(t)
			bob := open(t, o.robot, o.room)
			say(t, o.alice, "hello")
			bob.pollFor(t, 1)
			say(t, o.alice, "one")
			say(t, o.alice, "two")
			_, err := o.alice.Send(t.Context(), client.Draft{File: someFile(t, 2)})
			require.NoError(t, err)
			for row, err := range o.robot.History(t.Context(), o.room, client.OldestFirst) { // all are saved, and none is taken
				require.NoError(t, err)
				if err := bob.Import(t.Context(), row.Envelope, held); err != nil {
					require.ErrorIs(t, err, errHeld)
				}
			}
			require.NoError(t, goes(t.Context(), o, bob))
			for range 2 { // that it was shown once without being taken changes nothing
				bob = o.again(t)
				err = bob.Listen(t.Context(), held)
				require.ErrorIs(t, err, errHeld)
			}
			_, err = bob.Send(t.Context(), client.Draft{Text: "x"})
			require.Error(t, err)
			err = bob.Listen(t.Context(), bob.take)
			require.Error(t, err)
			require.NotErrorIs(t, err, errHeld)
			require.Equal(t, []string{"one", "two", ""}, bob.texts())
			require.Len(t, bob.messages()[2].Files, 1)
			require.NoError(t, bob.Close())
			_, err = o.robot.OpenSession(t.Context(), o.room)
			require.ErrorIs(t, err, &wire.Error{Code: wire.NotFound}, "nothing is in hand any more")
			if name == "left" {
				require.Equal(t, []string{"left/" + bob.Participant()}, keptOf(t, o.robot, o.room, bob.Participant()))
			}
		})
	}
}

// What waited when the room was left has failed, and is told.
func TestWhatWaitedWhenTheRoomWasLeftHasFailed(t *testing.T) {
	t.Parallel()
	o := newOffline(t)
	bob := open(t, o.robot, o.room)
	o.leavePending(t, bob, "never-sent")
	require.NoError(t, o.robot.LeaveRoom(t.Context(), o.room))
	bob = o.again(t)
	_, err := bob.Poll(t.Context(), 0, bob.take)
	require.ErrorIs(t, err, client.ErrLeft)
	require.Len(t, bob.failures(), 1)
	require.Equal(t, "never-sent", bob.failures()[0].ID)
	require.ErrorIs(t, bob.failures()[0].Err, client.ErrNotMember)
}
