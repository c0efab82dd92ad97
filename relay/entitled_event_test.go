package relay

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/wire"
)

// joinedRow tells the one participant that it has joined.
func joinedRow(o *oneInbox, sequence uint64) inbox.Row {
	e := wire.RoomEvent{
		EventID: uuid.NewString(), Event: wire.RoomJoined, RoomID: o.identity.Room.String(), Version: 2,
		ParticipantID: o.identity.Participant.String(),
	}
	return inbox.Row{ID: wire.StreamID{Incarnation: 1, Sequence: sequence}, Kind: inbox.RowRoomEvent, Payload: e.AppendRow(nil)}
}

// STATE, "Add Member": a new member whose node still has the old roster hears live that it
// has joined, and so does one whose roster cannot be looked up now. Board hints wait for
// a roster that has it.
func TestNewMembersHearThatTheyJoined(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"an old roster": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, r := newOneInbox(t)
			s, p := greetedSocket(t, r)
			o.say(nil, uuid.New())
			p.Message(wire.AppendResume(nil, "$", 0))
			require.Equal(t, wire.ServerResumeComplete, s.next(t).Type)
			if known {
				_, err := r.hub.room(o.identity.Room).currentRoster(t.Context(), o)
				require.NoError(t, err)
			}
			o.say(errors.New("down"))
			if known {
				r.Deliver(liveOf(o, hintRow(1)))
			}
			r.Deliver(liveOf(o, joinedRow(o, 2)))
			got := s.next(t)
			require.Equal(t, wire.ServerRoomEvent, got.Type, "%s", got.Raw)
			require.Equal(t, wire.ReplayLive, got.Replay)
			require.Equal(t, "1-2", got.StreamID)
			require.Equal(t, wire.RoomJoined, got.RoomEvent.Event)
			require.Equal(t, o.identity.Participant.String(), got.RoomEvent.ParticipantID)
		})
	}
}

// A replay looks at the roster for room events too: what was written for somebody who has
// left since is left out.
func TestReplayLooksAtTheRosterForRoomEvents(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t, envelopeRow(1), envelopeRow(2))
	o.rows = append(o.rows, joinedRow(o, 3))
	s, p := greetedSocket(t, r)
	o.say(nil, uuid.New())
	p.Message(wire.AppendResume(nil, "0", 0))
	require.Equal(t, wire.ServerDeliver, s.next(t).Type)
	require.Equal(t, wire.ServerDeliver, s.next(t).Type)
	complete := s.next(t)
	require.Equal(t, wire.ServerResumeComplete, complete.Type, "%s", complete.Raw)
	require.Equal(t, 2, complete.Replayed)

	o.say(nil, o.identity.Participant)
	require.NoError(t, r.Apply(t.Context(), changeOf(o)))
	p.Message(wire.AppendResume(nil, "1-2", 0))
	got := s.next(t)
	require.Equal(t, wire.ServerRoomEvent, got.Type)
	require.Equal(t, wire.ReplayStored, got.Replay)
	require.Equal(t, 1, s.next(t).Replayed)
}

// What was missed while a scan runs is not left behind by rows that come live after it:
// they wait for the catch-up that brings all of them, in order.
func TestMissedRowsAreNotOvertaken(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t, hintRow(1))
	s, p := greetedSocket(t, r)
	o.say(nil, o.identity.Participant)
	p.Message(wire.AppendResume(nil, "$", 0))
	require.Equal(t, wire.ServerResumeComplete, s.next(t).Type)

	// The roster is not known here, so that each hint asks for a catch-up. The second one
	// does while the first one's runs, and the room event needs none.
	o.rows = append(o.rows, hintRow(2))
	o.duringBounds = func() {
		o.rows = append(o.rows, hintRow(3), joinedRow(o, 4))
		r.Deliver(liveOf(o, o.rows[2]))
		r.Deliver(liveOf(o, o.rows[3]))
	}
	r.Deliver(liveOf(o, o.rows[1]))
	for i, want := range []wire.ServerType{wire.ServerBoardUpdate, wire.ServerBoardUpdate, wire.ServerRoomEvent} {
		got := s.next(t)
		require.Equal(t, want, got.Type, "%s", got.Raw)
		require.Equal(t, wire.StreamID{Incarnation: 1, Sequence: uint64(i + 2)}.String(), got.StreamID)
		require.Equal(t, wire.ReplayLive, got.Replay)
	}
}
