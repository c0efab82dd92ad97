package deploy_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/peerrelay/peerrelay/deploy"
)

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := deploy.Files.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}

// The server takes the configuration of the cluster, with what the relay needs of it. The
// tests of several nodes run on it (internal/testkit), with its permissions.
func TestNATSConfiguration(t *testing.T) {
	for _, match := range regexp.MustCompile(`(?m)^[^#\n]*\$(NATS_[A-Z_0-9]+)`).FindAllStringSubmatch(deploy.NATSCluster, -1) {
		require.Contains(t, deploy.NATSCluster, "#   "+strings.TrimRight(match[1], "123"), "each variable is explained")
	}
	for name, value := range map[string]string{
		"NATS_NAME": "nats-1", "NATS_LISTEN": "127.0.0.1:4222", "NATS_CLUSTER_LISTEN": "127.0.0.1:6222", "NATS_STORE": t.TempDir(),
		"NATS_ROUTE_1": "nats://cluster:c@127.0.0.1:6222", "NATS_ROUTE_2": "nats://cluster:c@127.0.0.1:6223",
		"NATS_ROUTE_3": "nats://cluster:c@127.0.0.1:6224", "NATS_CLUSTER_PASSWORD": "c", "NATS_RELAY_PASSWORD": "r", "NATS_EDGE_PASSWORD": "e",
	} {
		t.Setenv(name, value)
	}
	options := &server.Options{}
	require.NoError(t, options.ProcessConfigString(deploy.NATSCluster))
	require.EqualValues(t, 2<<20, options.MaxPayload)
	require.True(t, options.JetStream)
	require.Len(t, options.Routes, 3)
	require.Len(t, options.Users, 2)
	require.Positive(t, options.JetStreamMaxStore)
}

// settings are the variables that the settings' table of docs/operations.md names, which a
// test compares with the program.
func settings(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile("`(RELAY_[A-Z_0-9]+)`").FindAllStringSubmatch(string(page), -1) {
		names = append(names, match[1])
	}
	require.NotEmpty(t, names)
	return names
}

func TestSettingsExist(t *testing.T) {
	known := settings(t)
	for _, file := range []string{"docker-compose.yml", "relay.service", "relay-edge.service", "Dockerfile"} {
		for _, match := range regexp.MustCompile(`\bRELAY_[A-Z_0-9]+`).FindAllString(read(t, file), -1) {
			if match != "RELAY_" {
				require.Contains(t, known, match, file)
			}
		}
	}
}

// composeKeys are the keys of a service that the file uses, all of the compose
// specification.
var composeKeys = []string{
	"image", "build", "restart", "stop_grace_period", "networks", "environment", "volumes", "ports", "depends_on",
	"healthcheck", "ulimits", "cap_drop", "security_opt", "read_only",
}

type compose struct {
	Name     string                    `yaml:"name"`
	Services map[string]map[string]any `yaml:"services"`
	Networks map[string]any            `yaml:"networks"`
	Volumes  map[string]any            `yaml:"volumes"`
}

// No part of the compose file names something that is not there.
func TestComposeFile(t *testing.T) {
	var file compose
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &file))
	require.Len(t, file.Services, 7)
	for name, service := range file.Services {
		for key := range service {
			require.Contains(t, composeKeys, key, name)
		}
		for _, network := range listOf(t, service["networks"]) {
			require.Contains(t, file.Networks, network, name)
		}
		for _, volume := range listOf(t, service["volumes"]) {
			source, _, _ := strings.Cut(volume, ":")
			require.Contains(t, file.Volumes, source, name)
		}
		if needs, ok := service["depends_on"].(map[string]any); ok {
			for other := range needs {
				require.Contains(t, file.Services, other, name)
			}
		}
		for _, port := range listOf(t, service["ports"]) {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: published on loopback only: %s", name, port)
		}
		if build, ok := service["build"].(map[string]any); ok {
			require.Contains(t, read(t, "Dockerfile"), fmt.Sprintf(" AS %v\n", build["target"]), name)
		}
	}
}

func listOf(t *testing.T, value any) []string {
	t.Helper()
	items, _ := value.([]any)
	var list []string
	for _, item := range items {
		text, ok := item.(string)
		require.True(t, ok)
		list = append(list, text)
	}
	return list
}

// systemd takes the units. Where there is no systemd, their form is what is left to check.
func TestUnits(t *testing.T) {
	for _, unit := range []string{"relay.service", "relay-edge.service"} {
		text := read(t, unit)
		for _, want := range []string{"DynamicUser=yes", "ProtectSystem=strict", "LimitNOFILE=", "StateDirectoryMode=0700"} {
			require.Contains(t, text, want, unit)
		}
		program, err := exec.LookPath("systemd-analyze")
		if err != nil {
			t.Log("no systemd-analyze here")
			continue
		}
		file := filepath.Join(t.TempDir(), unit)
		here := strings.ReplaceAll(text, "/usr/local/bin/relay", "/bin/true") // which need not be installed
		require.NoError(t, os.WriteFile(file, []byte(here), 0o600))
		said, err := exec.CommandContext(context.Background(), program, "verify", "--man=no", file).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.False(t, slices.ContainsFunc(strings.Split(string(said), "\n"), func(line string) bool {
			return strings.Contains(line, unit)
		}), "%s", said)
	}
}
