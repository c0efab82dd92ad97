package encryption_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/identity"
)

func TestPrekeysAreMadeUpToWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, _, agent := newDirect(t)
	require.Equal(t, encryption.PrekeyStock{SignedID: 1, LastID: 100, OneTime: 100}, agent.stock())
	require.True(t, identity.VerifyPrekey(agent.self.Keys.Identity, 1, agent.published.Signed.Key, agent.published.Signed.Signature))
	require.Nil(t, agent.makes(t))
	agent.published.OneTime = agent.published.OneTime[50:]
	require.Nil(t, agent.makes(t), "half of them is enough")
	agent.published.OneTime = agent.published.OneTime[1:]
	made := agent.makes(t)
	require.Nil(t, made.Signed)
	require.Len(t, made.OneTime, 51)
	for i, o := range made.OneTime {
		require.EqualValues(t, 101+i, o.ID, "ids rise")
	}
}

// FAULTS J10: what was saved is published again as it was, until its fate is known.
func TestPrekeysThatAreUnderWayAreTheSame(t *testing.T) {
	t.Parallel()
	d, owner, agent := newDirect(t)
	d.now = d.now.Add(7 * 24 * time.Hour)
	agent.published.OneTime = agent.published.OneTime[60:]
	made := agent.makes(t)
	require.EqualValues(t, 2, made.Signed.ID)
	require.Len(t, made.OneTime, 60)
	for range 2 {
		agent.reopen(t)
		d.now = d.now.Add(time.Hour)
		require.Equal(t, made, agent.makes(t))
	}

	// The relay took it, and its answer was lost. A key of it is used before the next attempt.
	agent.uploads(made)
	agent.published.OneTime = agent.published.OneTime[40:]
	hello := owner.says(t, "hello")
	require.EqualValues(t, 2, owner.header(t, hello).Start.Signed)
	require.Equal(t, made.OneTime[0].ID, owner.header(t, hello).Start.OneTime)
	agent.reads(t, owner, hello, "hello")
	again := agent.makes(t)
	require.Equal(t, made.Signed, again.Signed)
	require.Equal(t, made.OneTime[1:], again.OneTime)
	agent.uploads(again)
	agent.acknowledge(t)
	require.Nil(t, agent.makes(t))
}

// FAULTS J10: messages made with a former signed prekey open for two days, and not for ever.
func TestFormerSignedPrekeysAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration
		opens bool
	}{"in time": {48*time.Hour - time.Second, true}, "too late": {48 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, owner, agent := newDirect(t)
			hello := owner.says(t, "hello")
			for range 8 { // days, on which nothing is published
				d.now = d.now.Add(24 * time.Hour)
				agent.makes(t)
			}
			agent.uploads(agent.makes(t))
			agent.acknowledge(t)
			require.EqualValues(t, 2, agent.stock().SignedID)
			d.now = d.now.Add(c.after)
			agent.publish(t)
			if c.opens {
				agent.reads(t, owner, hello, "hello")
			} else {
				agent.loses(t, owner, hello, nil)
			}
		})
	}
}

// However the relay behaves, and whatever the clock says, the private keys are bounded.
func TestPrekeysAreBounded(t *testing.T) {
	t.Parallel()
	d, _, agent := newDirect(t)
	for range 12 { // whoever takes them never writes
		agent.published.OneTime = nil
		agent.published.Signed = nil
		d.now = d.now.Add(-30 * 24 * time.Hour)
		agent.publish(t)
	}
	require.LessOrEqual(t, len(agent.stored(t, keystore.Prekeys)), 1000+8)
	require.NoError(t, agent.store.View(func(tx *keystore.Tx) error {
		require.Nil(t, tx.Get(keystore.Prekeys, fmt.Sprintf("one-time/%010d", 300)))
		for _, id := range []int{301, 1300} {
			require.NotNil(t, tx.Get(keystore.Prekeys, fmt.Sprintf("one-time/%010d", id)), id)
		}
		require.Nil(t, tx.Get(keystore.Prekeys, fmt.Sprintf("signed/%010d", 5)))
		require.NotNil(t, tx.Get(keystore.Prekeys, fmt.Sprintf("signed/%010d", 13)))
		return nil
	}))

	// A wrong clock does not make one after the other.
	before := agent.stock()
	d.now = d.now.Add(-24 * time.Hour)
	agent.publish(t)
	require.Equal(t, before, agent.stock())
	d.now = d.now.Add(-10 * 24 * time.Hour)
	agent.publish(t)
	agent.publish(t)
	require.Equal(t, before.SignedID+1, agent.stock().SignedID)
}

// What the relay refuses is not tried again, and none of its ids is used twice: a store that is
// an old copy finds that the relay has more.
func TestPrekeysAfterARefusal(t *testing.T) {
	t.Parallel()
	d, _, agent := newDirect(t)
	d.now = d.now.Add(8 * 24 * time.Hour)
	agent.published.OneTime = nil
	refused := agent.makes(t)
	require.NoError(t, agent.store.Update(encryption.PrekeysRefused))
	agent.published.Signed.ID, agent.lastID = 7, 500 // what the newer copy has published
	made := agent.makes(t)
	require.NotEqual(t, refused, made)
	require.EqualValues(t, 8, made.Signed.ID)
	require.EqualValues(t, 501, made.OneTime[0].ID)
	agent.uploads(made)
	agent.acknowledge(t)
	require.Nil(t, agent.makes(t))

	agent.lastID = 1<<31 - 1 // none is left
	agent.published.OneTime = nil
	require.ErrorIs(t, agent.store.Update(func(tx *keystore.Tx) error {
		_, err := encryption.MakePrekeys(tx, agent.self.Identity, agent.stock(), d.now)
		return err
	}), encryption.ErrPrekeys)
}
