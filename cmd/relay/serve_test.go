package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/node"
	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/internal/testkit/pgtest"
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

// The first start shows the owner's invite, and what to do with it, before anything else that can be
// typed; once there is an admin no start does.
func TestTheOwnerIsInvited(t *testing.T) {
	server, err := node.Start(t.Context(), node.Config{
		Data: t.TempDir(), DatabaseURL: pgtest.URL(t), Listen: "127.0.0.1:0", MetricsListen: "off", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close(context.Background())) })
	said := func() string {
		var out bytes.Buffer
		new(ServeCmd).announce(&out, server, 0)
		new(ServeCmd).inviteOwner(t.Context(), &out, server, slog.New(slog.DiscardHandler))
		new(ServeCmd).next(&out, server)
		return out.String()
	}
	text := said()
	require.Regexp(t, `(?s)bin/peer enroll --home.*bin/peer activate --home.*raw listen`, text)
	require.NotRegexp(t, `(?s)(room create|raw listen).*bin/peer enroll`, text)
	require.Contains(t, text, "invite create --admin")
	token := regexp.MustCompile(`(?m)^  ([A-Za-z0-9_-]{43})$`).FindStringSubmatch(text)
	require.NotNil(t, token, text)
	body, err := json.Marshal(testkit.NewDevice(t).Enrollment(t, token[1], "human"))
	require.NoError(t, err)
	answer, err := http.Post("http://"+server.Addr().String()+"/v1/enroll", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer answer.Body.Close()
	var enrolled struct {
		State string `json:"state"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&enrolled))
	require.Equal(t, "APPROVED", enrolled.State, "without a second admin")
	require.NotContains(t, said(), "enroll")
}
