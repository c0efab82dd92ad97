package ratchet_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
)

var kib = strings.Repeat("x", 1024)

func BenchmarkSeal1KiB(b *testing.B) {
	owner, _ := pairOf(b)
	b.SetBytes(1024)
	for b.Loop() {
		sealed(b, owner, kib)
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	owner, agent := pairOf(b)
	b.SetBytes(1024)
	for b.Loop() {
		b.StopTimer()
		m := sealed(b, owner, kib)
		b.StartTimer()
		_, err := agent.Open(m)
		require.NoError(b, err)
	}
}

// BenchmarkTurn is one message each way, each of which is a DH step of its receiver.
func BenchmarkTurn(b *testing.B) {
	owner, agent := pairOf(b)
	for b.Loop() {
		opens(b, owner, sealed(b, agent, "ping"), "ping")
		opens(b, agent, sealed(b, owner, "pong"), "pong")
	}
}

// BenchmarkSkip1000 is a forged message of a new chain before which MaxSkip are missing: the
// most that a header can cost, as the chain before is ended after the tag verified only.
func BenchmarkSkip1000(b *testing.B) {
	_, agent := pairOf(b)
	owner, _ := pairOf(b)
	m := forged(b, sealed(b, owner, "x"), func(h *ratchet.Header) {
		h.Session, h.N, h.PN, h.Start = agent.ID(), ratchet.MaxSkip, ratchet.MaxSkip, nil
	})
	for b.Loop() {
		_, err := agent.Open(m)
		require.ErrorIs(b, err, ratchet.ErrNotAuthentic)
	}
}

// BenchmarkTooFarAhead is one more than that.
func BenchmarkTooFarAhead(b *testing.B) {
	_, agent := pairOf(b)
	owner, _ := pairOf(b)
	m := forged(b, sealed(b, owner, "x"), func(h *ratchet.Header) {
		h.Session, h.N, h.Start = agent.ID(), ratchet.MaxSkip+1, nil
	})
	for b.Loop() {
		_, err := agent.Open(m)
		require.ErrorIs(b, err, ratchet.ErrTooFarAhead)
	}
}

func BenchmarkX3DH(b *testing.B) {
	alice, bot := newPerson(b, "owner"), newPerson(b, "agent")
	bundle := bot.bundle(b, 1, 1)
	for b.Loop() {
		owner, err := ratchet.Begin(&alice.Device, bundle, room, noon)
		require.NoError(b, err)
		_, _, _, err = ratchet.Accept(&bot.Device, &alice.Keys, room, bot, sealed(b, owner, "x"))
		require.NoError(b, err)
	}
}

// BenchmarkStored is reading and writing the state, as a client does with each message.
func BenchmarkStored(b *testing.B) {
	_, agent := pairOf(b)
	for b.Loop() {
		restarted(b, agent)
	}
}
