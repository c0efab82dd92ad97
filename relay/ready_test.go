package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWrites(t *testing.T) {
	var w writes
	now := time.Now()
	require.False(t, w.failing(now))
	w.refused(now)
	require.True(t, w.failing(now))
	require.True(t, w.failing(now.Add(refusedFor-1)))
	require.False(t, w.failing(now.Add(refusedFor)), "without envelopes nobody could prove it gone")
	w.refused(now)
	w.stored()
	require.False(t, w.failing(now))
}
