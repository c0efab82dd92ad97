//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeviceCalls(t *testing.T) {
	t.Parallel()
	for _, bench := range [][]string{
		{"enroll"}, {"signin", "--devices", "8"}, {"mint", "--devices", "32"},
	} {
		t.Run(bench[0], func(t *testing.T) {
			r := runBench(t, append(bench, "--runs", "1", "--time", "300ms", "--workers", "4")...)
			require.Positive(t, r.Figure)
			require.Positive(t, *r.Floor)
		})
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	r := runBench(t, "members", "--runs", "1", "--time", "300ms", "--members", "5")
	require.Positive(t, r.Figure)
	require.LessOrEqual(t, r.Runs[0].More["undelivered_events"], 0.0, "an event may come twice, and none is missing")
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	r := runBench(t, "revoke", "--runs", "2", "--rooms", "20")
	require.Positive(t, r.Runs[1].More["closed_ms"])
	require.Positive(t, r.Runs[1].More["answered_ms"])
}

func TestCommits(t *testing.T) {
	t.Parallel()
	r := runBench(t, "commits", "--runs", "2", "--racers", "5", "--rounds", "3")
	require.Positive(t, r.Figure)
}

func TestSeal(t *testing.T) {
	r := runBench(t, "seal", "--runs", "1", "--time", "200ms")
	require.Positive(t, r.Figure)
	require.Positive(t, r.Runs[0].More["envelopes_read_per_second"])
}

func TestTalk(t *testing.T) {
	for _, scheme := range []string{"sender_keys", "pairwise", "double_ratchet"} {
		r := runBench(t, "talk", "--runs", "1", "--rounds", "3", "--scheme", scheme)
		require.Positive(t, r.Figure)
		require.Positive(t, *r.Floor)
	}
}
