package encryption_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/wire"
)

// A relay that keeps back what a newer copy of a store sent cannot have the messages of the older
// one taken for repeats: everybody asks for the key that they were sealed under, and reads them.
func TestOldCopyThatNobodyNotices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob", "carol")
	alice, bob, carol := w.members[0], w.members[1], w.members[2]
	w.settle()
	alice.say("one")
	old := alice.copyStore()
	for _, text := range []string{"two", "three", "four"} {
		w.now = w.now.Add(1)
		alice.say(text)
	}
	w.settle()
	alice.restore(old)
	delete(w.seen, alice.id())
	w.now = w.now.Add(senderkey.RepairCooldown)
	for _, text := range []string{"five", "six", "seven", "eight"} {
		alice.say(text)
	}
	require.Equal(t, uint64(1), alice.relay.last, "it was not noticed")
	w.settle()
	for _, d := range []*device{bob, carol} {
		require.Equal(t, map[string]int{"one": 1, "two": 1, "three": 1, "four": 1, "five": 1, "six": 1, "seven": 1, "eight": 1}, d.shown)
		require.Empty(t, d.lost)
	}
	require.Len(t, w.rows(wire.KindKeyRequest), 2, "one of each")
	for _, row := range w.rows(wire.KindMessage) { // and even if all ids were forgotten
		bob.refuses(row, senderkey.ErrDuplicate)
	}
}

// The seq of an own envelope that the store never gave out says that it is an old copy, once.
func TestNoticeOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "alice", "bob")
	alice := w.members[0]
	w.settle()
	alice.say("one")
	last := w.seen[alice.id()]
	notice := func(seq uint64) (old bool) {
		require.NoError(t, alice.store.Update(func(tx *keystore.Tx) (err error) {
			old, err = encryption.NoticeOwn(tx, w.id, seq)
			return err
		}))
		return old
	}
	require.False(t, notice(last))
	require.True(t, notice(last+7))
	require.False(t, notice(last+7))
	_, err := alice.trySeal(alice.draft("of the old copy", w.id))
	require.ErrorIs(t, err, encryption.ErrPrepare)
	alice.say("two")
	require.Equal(t, uint64(2), alice.relay.last, "a generation of its own")
	require.Greater(t, w.seen[alice.id()], last+7)
}

// A direct room whose other device went back to an old copy, and seals under numbers that it used: the
// first message of it is lost, is reported, and has the conversation begin anew.
func TestOldCopyInADirectRoomIsRepaired(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"owner", "agent"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			d, owner, agent := newDirect(t)
			agent.reads(t, owner, owner.says(t, "first"), "first")
			owner.reads(t, agent, agent.says(t, "answer"), "answer")
			restored, other := owner, agent
			if role == "agent" {
				restored, other = agent, owner
			}
			copied := restored.backUp(t)
			var before [][]byte
			for range 3 {
				before = append(before, restored.says(t, "of the newer one"))
				other.reads(t, restored, before[len(before)-1], "of the newer one")
			}
			for _, raw := range before { // even if their ids were forgotten
				other.loses(t, restored, raw, ratchet.ErrDuplicate)
			}
			require.Equal(t, &encryption.Due{}, other.due(t), "repeats are no reason")
			restored.restore(t, copied)
			d.now = d.now.Add(time.Second)

			other.loses(t, restored, restored.says(t, "with an old state"), ratchet.ErrDuplicate)
			require.True(t, other.due(t).Prepare)
			_, err := other.seal(t, "x")
			require.ErrorIs(t, err, encryption.ErrPrepare)
			require.NoError(t, other.prepare(t))
			require.Equal(t, 1, d.resets)
			for _, p := range []*party{owner, agent} {
				p.hears(t, &d.events[0])
			}
			agent.reads(t, owner, owner.says(t, "anew"), "anew")
			owner.reads(t, agent, agent.says(t, "answer"), "answer")
			require.Equal(t, &encryption.Due{}, other.due(t))
			require.Equal(t, 1, d.resets)
		})
	}
}
