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
	require.True(t, s.raise(1, 5), "any first seq")
	require.True(t, s.raise(1, 6))
	require.True(t, s.raise(2, 1), "generations count apart")
	require.True(t, s.raise(1, wire.MaxInteger))
	for _, seq := range []uint64{0, 1, 6, wire.MaxInteger} {
		require.False(t, s.raise(1, seq))
	}
	for gen := uint64(10); gen < 10+wire.MaxGenerations; gen++ {
		require.True(t, s.raise(gen, 1))
	}
	require.Len(t, s.seqs, wire.MaxGenerations)
	require.False(t, s.raise(10, 1), "the newest are remembered")
	require.True(t, s.raise(1, 1), "the oldest is forgotten")
}
