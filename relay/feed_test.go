package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// DESIGN section 5, "Live push": what is stored and announced while a resume asks where the
// inbox ends is either brought by the scan or pushed live, never both and never neither;
// also when it is more than is held meanwhile (FAULTS D08).
func TestRowsOfTheMomentOfAResume(t *testing.T) {
	t.Parallel()
	for name, arriving := range map[string]int{"few": 3, "more than are held": wire.MaxQueueFrames} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const before = 2
			o, r := newOneInbox(t, envelopeRow(1), envelopeRow(2))
			o.say(nil, o.identity.Participant)
			s, p := greetedSocket(t, r)
			s.frames = make(chan string, 2*wire.MaxQueueFrames)
			o.duringBounds = func() {
				r.Deliver(liveOf(o, envelopeRow(before))) // its announcement is late
				for n := range uint64(arriving) {
					o.rows = append(o.rows, envelopeRow(before+1+n))
					r.Deliver(liveOf(o, envelopeRow(before+1+n)))
				}
			}
			p.Message(wire.AppendResume(nil, "0", 0))
			var stored, live []string
			for complete := false; !complete || len(live) < arriving; {
				got := s.next(t)
				switch {
				case got.Type == wire.ServerResumeComplete:
					require.Equal(t, before, got.Replayed)
					complete = true
				case got.Replay == wire.ReplayStored:
					stored = append(stored, got.StreamID)
				default:
					live = append(live, got.StreamID)
				}
			}
			require.Equal(t, []string{"1-1", "1-2"}, stored)
			for i, id := range live {
				require.Equal(t, wire.StreamID{Incarnation: 1, Sequence: uint64(before + 1 + i)}.String(), id)
			}
			require.Empty(t, s.frames)
		})
	}
}

// The same while a connection catches up on what it may have missed.
func TestRowsOfTheMomentOfACatchUp(t *testing.T) {
	t.Parallel()
	o, r := newOneInbox(t, envelopeRow(1))
	o.say(nil, o.identity.Participant)
	s, p := greetedSocket(t, r)
	p.Message(wire.AppendResume(nil, "$", 0))
	require.Equal(t, wire.ServerResumeComplete, s.next(t).Type)
	o.rows = append(o.rows, envelopeRow(2)) // nobody announces it
	o.duringBounds = func() {
		o.rows = append(o.rows, envelopeRow(3))
		r.Deliver(liveOf(o, envelopeRow(3)))
	}
	r.Missed(o.identity.Room)
	for _, want := range []string{"1-2", "1-3"} {
		got := s.next(t)
		require.Equal(t, want, got.StreamID)
		require.Equal(t, wire.ReplayLive, got.Replay)
	}
	require.Empty(t, s.frames)
}
