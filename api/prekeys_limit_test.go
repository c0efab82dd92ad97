package api

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// One device takes 60 bundles at once and then one a second, so that it does not take all
// that others have; another device is not concerned.
func TestBundlesOfOneDeviceAreLimited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	refused := make(map[string]int)
	limits := newLimiter(Limits{}.withDefaults(), func() time.Time { return now }, func(limit string) { refused[limit]++ })
	one, other := uuid.New(), uuid.New()
	for range 60 {
		require.NoError(t, limits.bundle(one))
	}
	require.ErrorContains(t, limits.bundle(one), string(wire.RateLimited))
	require.NoError(t, limits.bundle(other))
	now = now.Add(time.Second)
	require.NoError(t, limits.bundle(one))
	require.Error(t, limits.bundle(one))
	require.Equal(t, map[string]int{limitBundles: 2}, refused)
}
