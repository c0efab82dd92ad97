//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programFolder holds the relay that the first smoke test builds.
var programFolder = filepath.Join(os.TempDir(), "relaybench-test-"+newTag())

var buildRelay = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programFolder, "relay")
	build := exec.Command("go", "build", "-o", program, "../relay")
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	return program, nil
})

// bench runs one short measurement against the real relay and returns its JSON.
func runBench(t *testing.T, args ...string) result {
	t.Helper()
	program, err := buildRelay()
	require.NoError(t, err, program)
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args = append(args, "--json", "--verbose", "--relay-bin", program)
	code := run(ctx, args, console{strings.NewReader(""), &out, &errs})
	require.Equal(t, exitOK, code, errs.String())
	var r result
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), out.String())
	require.Equal(t, args[0], r.Bench)
	require.NotEmpty(t, r.Runs)
	return r
}

func TestPairwise(t *testing.T) {
	t.Parallel()
	r := runBench(t, "pairwise", "--runs", "1", "--time", "300ms", "--senders", "8")
	require.Positive(t, r.Figure)
	require.Positive(t, *r.Floor)
	require.InDelta(t, r.Figure / *r.Floor, *r.Ratio, 1e-9)
	require.Zero(t, r.Runs[0].More["nacks"])
	require.Zero(t, r.Runs[0].More["undelivered"])
	require.Positive(t, r.Runs[0].More["server_cpu_us_per_envelope"])
}

// It has the machine to itself, so that the rate is kept.
func TestRoom(t *testing.T) {
	var r result
	for range 5 { // a machine that is busy for a while does not keep it
		r = runBench(t, "room", "--runs", "1", "--time", "300ms", "--senders", "6", "--members", "3", "--rate", "200")
		if r.Figure >= 200 {
			break
		}
	}
	require.InDelta(t, 400, r.Figure, 200, "two writes for each envelope of the rate")
	require.Zero(t, r.Runs[0].More["undelivered"])
}

func TestLatency(t *testing.T) {
	t.Parallel()
	r := runBench(t, "latency", "--runs", "1", "--rounds", "20", "--members", "3", "--pause", "1ms")
	require.Positive(t, r.Figure)
	require.Positive(t, r.Runs[0].More["floor_commit_ms"])
	require.Positive(t, r.Runs[0].More["floor_ack_ms"])
}

func TestIdle(t *testing.T) {
	t.Parallel()
	r := runBench(t, "idle", "--runs", "1", "--from", "20", "--to", "60", "--readings", "3", "--members", "5", "--settle", "200ms", "--quiet", "400ms")
	require.Positive(t, r.Runs[0].More["resident_at_first_mib"])
	require.Positive(t, r.Runs[0].More["goroutines_at_last"])
	require.Equal(t, r.Runs[0].Invalid == "", r.OK, "so few are lost in the noise, more often than not: then it says so")
}

func TestReconnect(t *testing.T) {
	t.Parallel()
	r := runBench(t, "reconnect", "--runs", "1", "--clients", "30", "--rows", "7", "--members", "5", "--live-rate", "100")
	require.Positive(t, r.Figure)
	require.Positive(t, r.Runs[0].More["running_rows_per_s"])
	require.Positive(t, r.Runs[0].More["restarted_rows_per_s"])
}

func TestReplay(t *testing.T) {
	t.Parallel()
	r := runBench(t, "replay", "--shards", "2,3", "--inboxes", "40", "--rows", "8", "--readers", "4", "--time", "200ms")
	require.Len(t, r.Runs, 2)
	for _, s := range r.Runs {
		require.Positive(t, s.Figure)
		require.Positive(t, s.More["newest_5_replays_per_s"])
		require.Positive(t, s.More["envelopes_per_s"])
	}
}

func TestInboxes(t *testing.T) {
	t.Parallel()
	r := runBench(t, "inboxes", "--runs", "1", "--many", "40", "--few", "20", "--rows", "2", "--busy", "2", "--time", "1s")
	require.Positive(t, r.Figure)
	require.Positive(t, r.Runs[0].More["cost_ratio"])
}

func TestKill(t *testing.T) {
	t.Parallel()
	r := runBench(t, "kill", "--rounds", "2", "--rooms", "4", "--longest", "300ms", "--seed", "3")
	require.Len(t, r.Runs, 2)
	require.Zero(t, r.Figure)
	require.True(t, r.OK)
	require.Positive(t, r.Runs[1].More["verified"])
}

func TestEdge(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"external", "embedded"} {
		folder := t.TempDir()
		r := runBench(t, "edge", "--runs", "1", "--time", "300ms", "--senders", "6", "--members", "3", "--nats", where, "--profile", folder)
		requireTraffic(t, r)
		for _, name := range []string{"all", "edge", "api"} {
			requireProfiles(t, folder, name)
		}
		if where == "external" {
			requireProfiles(t, folder, "nats")
		}
	}
}

func requireProfiles(t *testing.T, folder, process string) {
	t.Helper()
	for _, kind := range []string{"cpu", "heap"} {
		info, err := os.Stat(filepath.Join(folder, "01-"+process+"-"+kind+".pprof"))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
}

// requireTraffic looks at a bench whose figure and floor are both envelopes.
func requireTraffic(t *testing.T, r result) {
	t.Helper()
	require.Positive(t, r.Figure)
	require.Positive(t, *r.Floor)
	for _, of := range []string{"", "floor_"} {
		require.Zero(t, r.Runs[0].More[of+"nacks"])
		require.Zero(t, r.Runs[0].More[of+"undelivered"])
		require.Positive(t, r.Runs[0].More[of+"envelopes_per_s"])
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	requireTraffic(t, runBench(t, "private", "--runs", "1", "--time", "300ms", "--senders", "8"))
}

// Each participant sends as many notices as it may; with one more there were refusals.
func TestNotices(t *testing.T) {
	t.Parallel()
	r := runBench(t, "notices", "--runs", "2", "--time", "200ms", "--senders", "4", "--members", "3", "--notices", "100")
	require.Len(t, r.Runs, 2)
	requireTraffic(t, r)
}

func TestBoard(t *testing.T) {
	t.Parallel()
	r := runBench(t, "board", "--runs", "1", "--time", "300ms", "--rooms", "2", "--members", "3", "--writers", "2")
	require.Positive(t, r.Figure)
	require.Positive(t, *r.Floor)
	require.Positive(t, r.Runs[0].More["hints_per_s"])
	require.LessOrEqual(t, r.Runs[0].More["undelivered_hints"], 0.0, "a hint may come twice, and none is missing")
}

func TestHistory(t *testing.T) {
	t.Parallel()
	r := runBench(t, "history", "--runs", "1", "--time", "300ms", "--rooms", "4", "--rows", "25", "--limit", "10", "--readers", "2")
	require.Positive(t, r.Figure)
	require.Positive(t, *r.Floor)
	require.InDelta(t, r.Figure*10, r.Runs[0].More["messages_per_s"], 1e-6)
}

// A relay somebody else runs is measured and left as it was.
func TestRunningRelay(t *testing.T) {
	t.Parallel()
	program, err := buildRelay()
	require.NoError(t, err, program)
	other, err := newRelay(program, limits)
	require.NoError(t, err)
	t.Cleanup(other.remove)
	_, err = other.start(t.Context())
	require.NoError(t, err)
	r := runBench(t, "pairwise", "--runs", "1", "--time", "200ms", "--senders", "4",
		"--url", "ws://"+other.listen+"/v1/relay", "--data", other.data, "--metrics", other.metrics)
	require.Positive(t, r.Figure)
	require.True(t, other.ready(t.Context()))
}

func TestAnInterruptLeavesNothingBehind(t *testing.T) {
	program, err := buildRelay()
	require.NoError(t, err, program)
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := &noticed{word: "the relay is ready", then: cancel}
	code := run(ctx, []string{"pairwise", "--relay-bin", program, "-v"}, console{strings.NewReader(""), &out, errs})
	require.Equal(t, exitFailed, code)
	require.Empty(t, out.String())
	left, err := filepath.Glob(filepath.Join(folder, "relaybench-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// noticed calls then once word was written to it.
type noticed struct {
	bytes.Buffer
	word string
	then func()
}

func (n *noticed) Write(p []byte) (int, error) {
	count, err := n.Buffer.Write(p)
	if strings.Contains(n.String(), n.word) {
		n.then()
	}
	return count, err
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"pairwise", "--relay-bin", "/nowhere/relay"},
		{"pairwise", "--runs", "0"},
		{"room", "--members", "1"},
		{"latency", "--rounds", "0"},
		{"idle", "--from", "10", "--to", "10"},
		{"idle", "--to", "20000"},
		{"idle", "--readings", "2"},
		{"talk", "--rooms", "-1"},
		{"reconnect", "--clients", "0"},
		{"replay", "--rows", "501"},
		{"inboxes", "--few", "5"},
		{"kill", "--rounds", "0"},
		{"edge", "--members", "1"},
		{"edge", "--nats", "nowhere"},
		{"notices", "--notices", "100"},
		{"notices", "--notices", "400000"},
		{"board", "--writers", "0"},
		{"history", "--limit", "501"},
		{"history", "--rows", "100"},
		{"pairwise", "--url", "http://127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, console{strings.NewReader(""), &out, &errs})
		require.Equal(t, exitUsage, code, "%v: %s", args, errs.String())
		require.Empty(t, out.String())
	}
}
