package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The members are a contract (DESIGN section 8).
func TestResultAsJSON(t *testing.T) {
	t.Parallel()
	runs := []sample{newSample(30, 100, map[string]float64{"ack_p50_ms": 1}), newSample(50, 100, nil), newSample(40, 80, nil)}
	r := summarize("pairwise", "envelopes/s", runs, &bar{value: 0.35, ofRatio: true}, thisMachine())
	var out bytes.Buffer
	require.NoError(t, r.write(&out, true))
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))

	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	for _, member := range []string{"bench", "figure", "unit", "floor", "ratio", "bar", "ok", "runs", "machine"} {
		require.Contains(t, got, member)
	}
	require.Len(t, got, 9)
	require.Equal(t, "pairwise", got["bench"])
	require.InDelta(t, 40, got["figure"], 0)
	require.InDelta(t, 100, got["floor"], 0)
	require.InDelta(t, 0.5, got["ratio"], 1e-9, "the median of each run's own ratio")
	require.Equal(t, true, got["ok"])
	require.Len(t, got["runs"], 3)
	for _, member := range []string{"cpu", "cores", "kernel", "go", "inbox_sync", "inbox_shards"} {
		require.Contains(t, got["machine"], member)
	}
}

func TestWhatHasNoFloorOrBarIsNull(t *testing.T) {
	t.Parallel()
	r := summarize("replay", "replays/s", []sample{newSample(7, 0, nil)}, nil, machine{})
	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"floor":null,"ratio":null,"bar":null,"ok":true`)
}

func TestBars(t *testing.T) {
	t.Parallel()
	ratio := func(v float64) *float64 { return &v }
	require.True(t, bar{value: 4, atMost: true}.met(4, ratio(9)))
	require.False(t, bar{value: 4, atMost: true}.met(4.1, nil))
	require.True(t, bar{value: 0.5, ofRatio: true}.met(1, ratio(0.5)))
	require.False(t, bar{value: 0.5, ofRatio: true}.met(1, ratio(0.49)))
	require.False(t, bar{value: 0.5, ofRatio: true}.met(1, nil), "a floor that was not measured")
	require.True(t, bar{value: 2, ofRatio: true, atMost: true}.met(99, ratio(1.9)))
}

func TestMedian(t *testing.T) {
	t.Parallel()
	require.Zero(t, median(nil))
	require.InDelta(t, 3, median([]float64{3}), 0)
	require.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
}

func TestResultForPeople(t *testing.T) {
	t.Parallel()
	runs := []sample{newSample(30_000.4, 100_000, map[string]float64{"ack_p50_ms": 0.123}), newSample(40_000, 100_000, map[string]float64{"ack_p50_ms": 12.34})}
	var out bytes.Buffer
	require.NoError(t, summarize("pairwise", "envelopes/s", runs, &bar{value: 0.5, ofRatio: true}, machine{Kernel: "6.1"}).write(&out, false))
	require.Contains(t, out.String(), "pairwise: 35000 [30000, 40000] envelopes/s; floor 100000 [100000, 100000]; ratio 0.35 [0.30, 0.40]; bar 0.5 MISSED")
	require.Contains(t, out.String(), "6.23 [0.12, 12.3]")
	require.Contains(t, out.String(), "Linux 6.1")
}

// A run that shows nothing is no part of the figure, and is no success.
func TestInvalidRuns(t *testing.T) {
	t.Parallel()
	wrong := newSample(-2, 0, nil)
	wrong.Invalid = "memory did not grow"
	for _, runs := range [][]sample{{newSample(3, 0, nil), wrong}, {wrong}} {
		r := summarize("idle", "KiB", runs, &bar{value: 4, atMost: true}, machine{})
		require.False(t, r.OK)
		require.InDelta(t, runs[0].Figure, r.Figure, 0)
		var text, encoded bytes.Buffer
		require.NoError(t, r.write(&text, false))
		require.Contains(t, text.String(), "bar 4 NOT MEASURED")
		require.Contains(t, text.String(), "runs INVALID: memory did not grow")
		require.NoError(t, r.write(&encoded, true))
		require.Contains(t, encoded.String(), `"invalid":"memory did not grow"`)
	}
}

func TestHistogramKeepsWhatIsOutOfRange(t *testing.T) {
	t.Parallel()
	h := newHistogram()
	record(h, -5)
	record(h, int64(time.Millisecond))
	record(h, int64(time.Hour))
	require.Equal(t, int64(3), h.TotalCount())
	require.InDelta(t, 1, millis(h, 50), 0.01)
	require.InDelta(t, 120_000, millis(h, 100), 200)
}
