package senderkey_test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/internal/testkit/long"
)

// Several senders with several generations each, whose messages come in any order, some
// never and some more than once, while everybody restarts at every step: each opens exactly
// once, as long as no bound is met (FAULTS BL-J03, BL-J07, BL-J10).
func TestAnyOrderLossAndDuplication(t *testing.T) {
	t.Parallel()
	for seed := range uint64(long.Times(8, 200)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			anyOrder(t, mathrand.New(mathrand.NewPCG(seed, 7)))
		})
	}
}

func anyOrder(t *testing.T, random *mathrand.Rand) {
	t.Helper()
	names := []string{"alice", "bob", "carol"}
	own := make(map[string]*senderkey.Outgoing)
	for _, name := range names {
		own[name] = &senderkey.Outgoing{}
	}
	var r senderkey.Receivers
	var waiting []sent
	opened := make(map[string]bool)
	gens := make(map[string]uint64)
	deliver := func(m sent) {
		id := fmt.Sprint(m.From, m.Gen, ":", m.iteration)
		if opened[id] {
			refuses(t, &r, m.Message, senderkey.ErrDuplicate)
			return
		}
		opens(t, &r, m)
		opened[id] = true
	}
	for range 400 {
		name := names[random.IntN(len(names))]
		o := own[name]
		if o.Present() == nil || random.IntN(80) == 0 && gens[name] < senderkey.MaxGenerations {
			gens[name]++
			kid, err := senderkey.NewKID(rand.Reader)
			require.NoError(t, err)
			require.NoError(t, o.Begin(rand.Reader, gens[name], kid, roster(gens[name], "me", "else")))
			d, err := o.Distribute("me")
			require.NoError(t, err)
			accept(t, &r, name, d)
		}
		reload(t, o)
		o.Confirm(gens[name])
		waiting = append(waiting, send(t, o.Present(), name))
		for range random.IntN(3) {
			at := random.IntN(len(waiting))
			m := waiting[at]
			switch random.IntN(6) {
			case 0: // lost
				waiting = append(waiting[:at], waiting[at+1:]...)
			case 1: // comes, and will come again
				deliver(m)
			default:
				deliver(m)
				waiting = append(waiting[:at], waiting[at+1:]...)
			}
			reload(t, &r)
			if len(waiting) == 0 {
				break
			}
		}
	}
	for _, at := range random.Perm(len(waiting)) {
		deliver(waiting[at])
		deliver(waiting[at])
		reload(t, &r)
	}
	require.NotEmpty(t, opened)
}
