package senderkey_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

// staleOf is what Receivers say of a message with an unknown key.
func staleOf(t testing.TB, from string, kid senderkey.KID, gen uint64) error {
	t.Helper()
	var r senderkey.Receivers
	_, err := r.Open(&senderkey.Message{From: from, KID: kid, Gen: gen, CT: make([]byte, 64), Verified: true})
	require.ErrorIs(t, err, senderkey.ErrStaleSenderKey)
	return err
}

// FAULTS BL-J06: fifty messages with one unknown kid, ten minutes: three requests, a minute apart,
// whatever happens in between; then the sender has no key.
func TestRequestsAreFew(t *testing.T) {
	t.Parallel()
	s := newSender(t, 4, 4, "bob")
	messages := sendMany(t, s, "alice", 50)
	var r senderkey.Receivers
	var repair senderkey.Repair
	var at []time.Time
	ids := make(map[senderkey.RequestID]bool)
	note := func(request senderkey.Request, now time.Time) {
		require.Equal(t, "alice", request.To)
		require.Equal(t, kidOf(4), request.KID)
		require.Equal(t, uint64(4), request.Gen)
		require.False(t, ids[request.ID])
		ids[request.ID] = true
		at = append(at, now)
	}
	for second := range 600 {
		now := start.Add(time.Duration(second) * time.Second)
		if second < 50 || second%7 == 0 {
			_, err := r.Open(&messages[second%50].Message)
			if request, err := repair.Ask(err, now); err == nil {
				note(request, now)
			}
		}
		requests, err := repair.Due(now)
		require.NoError(t, err)
		for _, request := range requests {
			note(request, now)
		}
		reload(t, &repair)
	}
	require.Equal(t, []time.Time{start, start.Add(time.Minute), start.Add(2 * time.Minute)}, at)
	_, ok := repair.Next()
	require.False(t, ok)
	_, err := repair.Ask(staleOf(t, "alice", kidOf(4), 4), start.Add(time.Hour))
	require.ErrorIs(t, err, senderkey.ErrGivenUp)
	repair.Unavailable("alice", senderkey.KeyUnavailable{KID: kidOf(4), Gen: 4})
	_, err = repair.Ask(staleOf(t, "alice", kidOf(4), 4), start.Add(time.Hour))
	require.ErrorIs(t, err, senderkey.ErrUnavailable)
}

// FAULTS BL-J06: the answer key_unavailable ends it, if it is the sender's.
func TestUnavailableEndsARepair(t *testing.T) {
	t.Parallel()
	var repair senderkey.Repair
	stale := staleOf(t, "alice", kidOf(1), 1)
	_, err := repair.Ask(stale, start)
	require.NoError(t, err)
	gone := senderkey.KeyUnavailable{KID: kidOf(1), Gen: 1}
	repair.Unavailable("mallory", gone)
	repair.Unavailable("alice", senderkey.KeyUnavailable{KID: kidOf(2), Gen: 1})
	at, ok := repair.Next()
	require.True(t, ok)
	require.True(t, start.Add(senderkey.RepairCooldown).Equal(at))
	repair.Unavailable("alice", gone)
	reload(t, &repair)
	_, ok = repair.Next()
	require.False(t, ok)
	for _, later := range []time.Duration{time.Minute, time.Hour, 1000 * time.Hour} {
		requests, err := repair.Due(start.Add(later))
		require.NoError(t, err)
		require.Empty(t, requests)
		_, err = repair.Ask(stale, start.Add(later))
		require.ErrorIs(t, err, senderkey.ErrUnavailable)
	}
}

// FAULTS BL-J06: nothing but a verified message's stale key leads to a request.
func TestWhatStartsNoRepair(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	m := send(t, s, "alice")
	var r senderkey.Receivers
	failures := []error{
		nil, errors.New("stale_sender_key"), senderkey.ErrStaleSenderKey, fmt.Errorf("control: %w", senderkey.ErrStaleSenderKey),
		seal.ErrOpen, senderkey.ErrUnknownKey, senderkey.ErrTooFar, senderkey.ErrPayload,
	}
	add := func(err error) {
		require.Error(t, err)
		failures = append(failures, err)
	}
	_, err := senderkey.ParseDistribution([]byte("damaged"))
	add(err)
	unverified := m.Message
	unverified.Verified = false
	_, err = r.Open(&unverified)
	add(err)
	accept(t, &r, "alice", d)
	other := d
	other.CK[0] ^= 1
	_, err = r.Accept("alice", other)
	add(err)
	opens(t, &r, m)
	_, err = r.Open(&m.Message)
	add(err)
	moved := m.Message
	moved.Gen = 2
	_, err = r.Open(&moved)
	add(err)
	var repair senderkey.Repair
	for _, failure := range failures {
		_, err := repair.Ask(failure, start)
		require.ErrorIs(t, err, senderkey.ErrNotRepairable, "%v", failure)
	}
	_, err = repair.Ask(staleOf(t, "alice", kidOf(1), 1), time.Time{})
	require.ErrorIs(t, err, senderkey.ErrArgument)
	_, err = repair.Due(time.Time{})
	require.ErrorIs(t, err, senderkey.ErrArgument)
	require.Len(t, save(t, &repair), 4)
}

// Two senders at once do not count for one another, but false gens with one kid do; a key that
// came ends the requests, and what it does not open has the attempts that are left.
func TestRepairsOfSeveralKeys(t *testing.T) {
	t.Parallel()
	var repair senderkey.Repair
	for _, from := range []string{"alice", "bob"} {
		_, err := repair.Ask(staleOf(t, from, kidOf(1), 1), start)
		require.NoError(t, err)
	}
	for gen := range uint64(50) {
		_, err := repair.Ask(fmt.Errorf("open: %w", staleOf(t, "alice", kidOf(1), gen)), start)
		require.ErrorIs(t, err, senderkey.ErrCooldown)
	}
	for gen := range uint64(3) { // without a kid they are keys of their own
		_, err := repair.Ask(staleOf(t, "carol", senderkey.KID{}, gen), start)
		require.NoError(t, err)
	}
	repair.Resolved(senderkey.Key{Sender: "alice", KID: kidOf(1), Gen: 1})
	repair.Resolved(senderkey.Key{Sender: "dave", KID: kidOf(1), Gen: 1})
	repair.Forget("carol")
	reload(t, &repair)
	requests, err := repair.Due(start.Add(time.Minute))
	require.NoError(t, err)
	require.Len(t, requests, 1)
	require.Equal(t, "bob", requests[0].To)
	now := start
	for range 2 {
		now = now.Add(time.Minute)
		_, err = repair.Ask(staleOf(t, "alice", kidOf(1), 1), now)
		require.NoError(t, err)
		repair.Resolved(senderkey.Key{Sender: "alice", KID: kidOf(1), Gen: 1})
	}
	_, err = repair.Ask(staleOf(t, "alice", kidOf(1), 1), now.Add(time.Minute))
	require.ErrorIs(t, err, senderkey.ErrGivenUp)
}

// The clock is set back: not at once, and not never again.
func TestRepairWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	var repair senderkey.Repair
	stale := staleOf(t, "alice", kidOf(1), 1)
	_, err := repair.Ask(stale, start)
	require.NoError(t, err)
	past := start.Add(-24 * time.Hour)
	_, err = repair.Ask(stale, past)
	require.ErrorIs(t, err, senderkey.ErrCooldown)
	_, err = repair.Ask(stale, past.Add(senderkey.RepairCooldown-time.Millisecond))
	require.ErrorIs(t, err, senderkey.ErrCooldown)
	_, err = repair.Ask(stale, past.Add(senderkey.RepairCooldown))
	require.NoError(t, err)
}

// A sender that invents keys gets few requests, and others are repaired all the same.
func TestRepairsAreBounded(t *testing.T) {
	t.Parallel()
	var repair senderkey.Repair
	asked := 0
	for i := range 1000 {
		if _, err := repair.Ask(staleOf(t, "mallory", senderkey.KID{1, byte(i >> 8), byte(i)}, 1), start); err == nil {
			asked++
		} else {
			require.ErrorIs(t, err, senderkey.ErrFull)
		}
	}
	require.Equal(t, senderkey.MaxRepairsPerSender, asked)
	for i := range senderkey.MaxRepairs - senderkey.MaxRepairsPerSender {
		_, err := repair.Ask(staleOf(t, fmt.Sprint("p", i), kidOf(1), 1), start.Add(time.Second))
		require.NoError(t, err)
	}
	_, err := repair.Ask(staleOf(t, "alice", kidOf(1), 1), start.Add(2*time.Minute))
	require.ErrorIs(t, err, senderkey.ErrFull)
	repair.Resolved(senderkey.Key{Sender: "p7", KID: kidOf(1)})
	_, err = repair.Ask(staleOf(t, "alice", kidOf(1), 1), start.Add(59*time.Second))
	require.ErrorIs(t, err, senderkey.ErrFull)
	_, err = repair.Ask(staleOf(t, "alice", kidOf(1), 1), start.Add(2*time.Minute))
	require.NoError(t, err)
	reload(t, &repair)
	_, err = repair.Ask(staleOf(t, "mallory", kidOf(1), 1), start.Add(24*time.Hour))
	require.NoError(t, err, "the oldest was a day ago")
	require.Less(t, len(save(t, &repair)), senderkey.MaxRepairs*50)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

// Without an id there is no request, and it does not count.
func TestRequestWithoutRandomness(t *testing.T) {
	t.Parallel()
	repair := senderkey.Repair{Random: broken{}}
	stale := staleOf(t, "alice", kidOf(1), 1)
	_, err := repair.Ask(stale, start)
	require.ErrorContains(t, err, "broken")
	require.Len(t, save(t, &repair), 4)
	repair.Random = rand.Reader
	_, err = repair.Ask(stale, start)
	require.NoError(t, err)
	repair.Random = broken{}
	_, err = repair.Due(start.Add(time.Minute))
	require.ErrorContains(t, err, "broken")
}

// Both sides together: the distribution was lost, the request brings the key, and what was sent
// before and after opens once.
func TestRepairBringsTheKey(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob"))
	_, err := o.Distribute("bob") // lost
	require.NoError(t, err)
	messages := sendMany(t, o.Present(), "alice", 20)

	var r senderkey.Receivers
	var repair senderkey.Repair
	_, failed := r.Open(&messages[0].Message)
	request, err := repair.Ask(failed, start)
	require.NoError(t, err)
	parsed, err := senderkey.ParseKeyRequest(request.Encode())
	require.NoError(t, err)
	answer, err := o.Answer("bob", parsed, start)
	require.NoError(t, err)
	d, err := senderkey.ParseDistribution(answer.Key.Encode())
	require.NoError(t, err)
	key, err := r.Accept("alice", d)
	require.NoError(t, err)
	repair.Resolved(key)
	_, waits := repair.Next()
	require.False(t, waits)
	for _, m := range messages {
		opens(t, &r, m)
		refuses(t, &r, m.Message, senderkey.ErrDuplicate)
	}
	opens(t, &r, send(t, o.Present(), "alice"))
}

// The third answer may still come when no further request may be made.
func TestWhoAskedWaits(t *testing.T) {
	t.Parallel()
	var repair senderkey.Repair
	stale, key := staleOf(t, "alice", kidOf(1), 1), senderkey.Key{Sender: "alice", KID: kidOf(1), Gen: 1}
	require.False(t, repair.Waits(stale, start), "nothing was asked")
	require.False(t, repair.Asked(key))
	last := start
	for attempt := range senderkey.RepairAttempts {
		last = start.Add(time.Duration(attempt) * senderkey.RepairCooldown)
		_, err := repair.Ask(stale, last)
		require.NoError(t, err)
	}
	_, err := repair.Ask(stale, last.Add(time.Second))
	require.ErrorIs(t, err, senderkey.ErrGivenUp)
	reload(t, &repair)
	require.True(t, repair.Asked(key))
	require.False(t, repair.Asked(senderkey.Key{Sender: "bob", KID: kidOf(1), Gen: 1}))
	require.True(t, repair.Waits(stale, last.Add(senderkey.RepairCooldown-time.Millisecond)))
	require.False(t, repair.Waits(stale, last.Add(senderkey.RepairCooldown)))
	require.False(t, repair.Waits(errors.New("another"), last))
	require.False(t, repair.Waits(staleOf(t, "alice", kidOf(2), 1), last))
	repair.Unavailable("alice", senderkey.KeyUnavailable{KID: kidOf(1), Gen: 1})
	require.False(t, repair.Waits(stale, last))
}
