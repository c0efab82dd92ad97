package encryption_test

import (
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// Three members and more, whose envelopes and room events come in any order, more than once,
// or not at all, while members join and leave, programs are killed and opened again, and
// rosters are out of date: no message is shown twice, and after history was read again and
// keys were asked for, each one is shown once to all whom it was for (FAULTS J07, J08, J10).
func TestAnyOrderLossAndDuplicationInARoom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			anyOrder(t, mathrand.New(mathrand.NewPCG(seed, 5)))
		})
	}
}

// said is a text and whom it was for: who was in the room, of whom its sender knew those that
// have the key. Who joined a moment before, unknown to it, gets the key from the next message on.
type said struct {
	by    *device
	to    []*device
	known []encryption.Member
}

func (s *said) knew(d *device) bool {
	return slices.ContainsFunc(s.known, func(m encryption.Member) bool { return m.ID() == d.id() })
}

func anyOrder(t *testing.T, random *mathrand.Rand) {
	t.Helper()
	w := newWorld(t, "alice", "bob", "carol")
	texts := make(map[string]said)
	for step := range 120 {
		d := w.members[random.IntN(len(w.members))]
		if d.role == "viewer" {
			d.anyRow(random)
			continue
		}
		switch random.IntN(24) {
		case 0, 1, 2, 3:
			text := fmt.Sprint(d.name, " ", step)
			if random.IntN(3) > 0 {
				d.refresh() // else with an old roster
			}
			d.say(text)
			texts[text] = said{by: d, to: w.newest().to, known: d.room.Members}
		case 4:
			d.restart()
		case 5:
			d.failedUpdate(random)
		case 6:
			if step > 20 && len(w.all) < 5 {
				w.join(fmt.Sprint("guest ", step), []string{"agent", "viewer"}[random.IntN(2)])
			}
		case 7:
			if step > 40 && len(w.all)-len(w.members) < 2 && len(w.members) > 3 {
				w.leave(d)
			}
		default:
			d.anyRow(random)
		}
	}
	// History is read again, nothing gets lost any more, and time goes on.
	for _, d := range w.members {
		for _, row := range w.sent {
			if row.room && slices.Contains(row.to, d) {
				d.inbox = append(d.inbox, row)
			}
		}
		random.Shuffle(len(d.inbox), func(i, j int) { d.inbox[i], d.inbox[j] = d.inbox[j], d.inbox[i] })
	}
	for range 8 {
		w.settle()
		w.now = w.now.Add(time.Minute)
		for _, d := range w.members {
			d.tick()
		}
	}
	require.NotEmpty(t, texts)
	for text, s := range texts {
		for _, d := range s.to {
			if d.role != "viewer" && s.knew(d) && slices.Contains(w.members, s.by) && slices.Contains(w.members, d) {
				require.Equal(t, 1, d.shown[text], "%q to %s, lost: %v", text, d.name, d.lost)
			}
			require.LessOrEqual(t, d.shown[text], 1, "%q to %s", text, d.name)
		}
	}
	for _, d := range w.all {
		for text := range d.shown {
			require.Contains(t, texts[text].to, d, "%q was not for %s", text, d.name)
		}
	}
	for _, d := range w.members {
		require.Empty(t, d.waiting(), d.name)
	}
	noKeyTwice(t, w)
	for key, times := range w.requests() {
		require.LessOrEqual(t, times, 3, key)
	}
}

// anyRow takes one row of the inbox, or loses it, or leaves it there to come again. Room
// events are not lost: they are written until they are in an inbox.
func (d *device) anyRow(random *mathrand.Rand) {
	if len(d.inbox) == 0 {
		return
	}
	at := random.IntN(min(len(d.inbox), 6))
	row := d.inbox[at]
	fate := random.IntN(8)
	if fate > 1 || row.event != nil && fate == 1 {
		d.inbox = slices.Delete(d.inbox, at, at+1)
	}
	if fate == 1 && row.event == nil {
		d.inbox = slices.Delete(d.inbox, at, at+1)
		return
	}
	d.receive(row)
}

// failedUpdate opens a row in an Update that is not saved, as the program was killed.
func (d *device) failedUpdate(random *mathrand.Rand) {
	if len(d.inbox) == 0 {
		return
	}
	row := d.inbox[random.IntN(len(d.inbox))]
	if row.event != nil {
		return
	}
	require.ErrorIs(d.w.t, d.store.Update(func(tx *keystore.Tx) error {
		_, _ = d.cipher.Open(tx, d.room, &row.from.member, row.raw, d.w.now)
		return errScripted
	}), errScripted)
}

// requests counts who asked whom: as no key is asked for more than three times, and a sender
// has a few generations only, that is bounded too.
func (w *world) requests() map[string]int {
	count := make(map[string]int)
	for _, row := range w.rows(wire.KindKeyRequest) {
		gens := max(1, int(row.to[0].relay.last))
		count[row.from.name+" to "+row.to[0].name]++
		if gens > 1 {
			count[row.from.name+" to "+row.to[0].name] -= gens - 1
		}
	}
	return count
}
