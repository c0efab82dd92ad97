package relay

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// RELAY: 20 envelopes a second; FAULTS B06: the limiter forgives, and refused
// attempts use no budget.
func TestRateForgives(t *testing.T) {
	t.Parallel()
	r := newRates(20)
	id := uuid.New()
	now := time.Now()
	for range 20 {
		require.Equal(t, rateOK, r.admit(id, now))
	}
	require.Equal(t, rateNack, r.admit(id, now), "the first one over gets a nack")
	require.Equal(t, rateOK, r.admit(id, now.Add(2*time.Second)), "after a pause it is accepted")
	require.Equal(t, rateOK, r.admit(uuid.New(), now), "others are not concerned")
}

func TestRateClosesOnContinuedAbuse(t *testing.T) {
	t.Parallel()
	r := newRates(20)
	id := uuid.New()
	now := time.Now()
	for range 20 {
		r.admit(id, now)
	}
	require.Equal(t, rateNack, r.admit(id, now))
	require.Equal(t, rateClose, r.admit(id, now.Add(time.Millisecond)))

	for range 20 {
		r.admit(id, now.Add(20*time.Second))
	}
	require.Equal(t, rateNack, r.admit(id, now.Add(20*time.Second)), "10 s later the first one is forgiven")
}

// FAULTS B06(c): a reconnect does not bring a fresh budget, and the map is bounded
// by who sent within the last seconds.
func TestRateSweepKeepsBudgetsInUse(t *testing.T) {
	t.Parallel()
	r := newRates(20)
	id := uuid.New()
	now := time.Now()
	for range 20 {
		r.admit(id, now)
	}
	r.sweep(now.Add(500 * time.Millisecond))
	require.Equal(t, rateOK, r.admit(id, now.Add(500*time.Millisecond)))
	require.Len(t, r.byID, 1)
	r.sweep(now.Add(11 * time.Second))
	require.Empty(t, r.byID)
}
