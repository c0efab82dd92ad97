package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/store"
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

// What everybody in a room is told of takes places in all inboxes: one device may not fill
// them faster than with envelopes. The operator may.
func TestRoomChangesOfOneDeviceAreLimited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	a := newAPI(Config{Now: func() time.Time { return now }})
	a.metrics = newMetrics(nil, nil)
	change := a.changingRoom(func(*http.Request) (int, any, error) { return http.StatusOK, nil, nil })
	by := func(who caller) error {
		_, _, err := change(withCaller(httptest.NewRequest(http.MethodPost, "/v1/rooms", http.NoBody), who))
		return err
	}
	one, other := caller{device: store.Device{ID: uuid.New()}}, caller{device: store.Device{ID: uuid.New()}}
	for range 100 {
		require.NoError(t, by(one))
	}
	require.ErrorContains(t, by(one), string(wire.RateLimited))
	require.NoError(t, by(other))
	for range 200 {
		require.NoError(t, by(caller{operator: true}))
	}
	now = now.Add(100 * time.Millisecond)
	require.NoError(t, by(one))
	require.Error(t, by(one))
}
