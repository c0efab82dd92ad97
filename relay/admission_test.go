package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// DESIGN section 6, "Admission": the order is part of the contract.
func TestAdmissionOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range admission {
		names = append(names, c.name)
	}
	require.Equal(t, []string{
		"viewer", "rate", "shape", "from", "lease", "roster", "to", "seq", "permission", "policy", "recipients",
	}, names)
}

// RELAY: seq rises per generation; DESIGN section 7: the newest 64 are remembered.
func TestSeqRisesPerGeneration(t *testing.T) {
	t.Parallel()
	s := new(session)
	send := func(gen, seq uint64) *refusal {
		return checkSeq(t.Context(), &attempt{session: s, envelope: &wire.Envelope{Gen: gen, Seq: seq}})
	}
	require.Nil(t, send(1, 5), "any first seq")
	require.Nil(t, send(1, 6))
	require.Nil(t, send(2, 1), "generations count apart")
	require.Nil(t, send(1, wire.MaxInteger))
	for _, seq := range []uint64{0, 1, 6, wire.MaxInteger} {
		refused := send(1, seq)
		require.Equal(t, &refusal{wire.SeqRegression, true}, refused)
	}
	for gen := uint64(10); gen < 10+wire.MaxGenerations; gen++ {
		require.Nil(t, send(gen, 1))
	}
	require.Len(t, s.seqs, wire.MaxGenerations)
	require.NotNil(t, send(10, 1), "the newest are remembered")
	require.Nil(t, send(1, 1), "the oldest is forgotten")
}
