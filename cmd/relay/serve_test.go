package main

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
)

const (
	patience = 20 * time.Second
	poll     = 10 * time.Millisecond
)

// typed runs a command and returns its exit code and what it said.
func typed(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, console{&stdout, &stderr, "relay"})
	return code, stdout.String(), stderr.String()
}

// A role that lacks what it needs, or has what it cannot have, is wrong use: exit code 2,
// and nothing is started or made.
func TestServeRefusesRoles(t *testing.T) {
	data := t.TempDir() + "/data"
	edge := []string{"serve", "--data", data, "--role", "edge"}
	for text, args := range map[string][]string{
		"must be one of \"all\",\"api\",\"edge\"": {"serve", "--data", data, "--role", "front"},
		"needs --api-url":                         edge,
		"needs --nats-url or --nats-context":      append(edge, "--api-url", "http://127.0.0.1:1"),
		"needs the service token":                 append(edge, "--api-url", "http://127.0.0.1:1", "--nats-url", "nats://127.0.0.1:1"),
		"has no database":                         append(edge, "--api-url", "http://127.0.0.1:1", "--database-url", "postgres://"),
		"--tls-cert and --tls-key go together":    {"serve", "--data", data, "--tls-cert", "x"},
	} {
		code, _, said := typed(t, args...)
		require.Equal(t, exitUsage, code, said)
		require.Contains(t, said, text)
	}
	require.NoDirExists(t, data)
}

// An edge has no operator socket: doctor asks its listener whether it is ready.
func TestDoctorOfAnEdge(t *testing.T) {
	api := testkit.StartAPI(t)
	edge := testkit.StartEdge(t, api)
	require.NoError(t, os.Chmod(edge.Data(), 0o700))
	require.Eventually(t, func() bool { return edge.Ready(t) == http.StatusOK }, patience, poll)
	code, out, said := typed(t, "doctor", "--data", edge.Data())
	require.Equal(t, exitOK, code, out+said)
	require.Contains(t, out, "role edge at "+edge.Addr())
	require.NotContains(t, out, "PostgreSQL")

	api.Stop(t)
	require.Eventually(t, func() bool { return edge.Ready(t) == http.StatusServiceUnavailable }, patience, poll)
	code, out, _ = typed(t, "doctor", "--data", edge.Data())
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "FAIL  api")

	edge.Stop(t)
	code, out, _ = typed(t, "doctor", "--data", edge.Data())
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "no edge answers at "+edge.Addr())
}
