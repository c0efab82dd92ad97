package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	t.Parallel()
	exact := fit([]float64{1, 2, 4}, []float64{10, 12, 16})
	require.InDelta(t, 2, exact.slope, 1e-9)
	require.InDelta(t, 0, exact.deviation, 1e-9)
	// Computed by hand: slope 1.3, residuals 0.1 -0.2 0.1, so sqrt(0.06 / 1 / 2).
	near := fit([]float64{0, 1, 2}, []float64{0, 1, 2.6})
	require.InDelta(t, 1.3, near.slope, 1e-9)
	require.InDelta(t, 0.1732, near.deviation, 1e-4)
}

// What the readings of a server must look like to show anything.
func TestReadingsThatShowNothing(t *testing.T) {
	t.Parallel()
	counts := []float64{1000, 2000, 3000, 4000}
	lines := func(anonymous, heap func(i float64) float64) string {
		readings := make([]memory, len(counts))
		for i := range readings {
			n := float64(i)
			readings[i] = memory{resident: 1, anonymous: anonymous(n), heap: heap(n)}
		}
		l := newIdleLines(counts, readings)
		return l.invalid()
	}
	per := func(kib float64) func(float64) float64 {
		return func(i float64) float64 { return 50_000 + 1000*kib*i }
	}
	require.Empty(t, lines(per(2.5), per(2.2)))
	require.Contains(t, lines(per(-2), per(2.2)), "did not grow", "it gave back what was of others while connections came")
	require.Contains(t, lines(per(2.5), per(1.2)), "the Go runtime")
	jump := func(i float64) float64 { return per(0)(i) + map[bool]float64{true: 6000}[i == 2] + 1000*i }
	require.Contains(t, lines(jump, per(2)), "on no line")
}

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	values := parseMetrics("# HELP a b\na 3\nb{c=\"d\"} 4\ngo_memstats_heap_idle_bytes 1.5e+06\n")
	require.InDelta(t, 3, values["a"], 0)
	require.InDelta(t, 1.5e6, values["go_memstats_heap_idle_bytes"], 0)
}
