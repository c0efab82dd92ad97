package doctest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The walk-through of a cluster on one machine, typed as it stands in one shell: three NATS
// servers, an API node and two edges, one server killed.
func TestClusterOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, b := range operationsPage(t).shell() {
		if strings.HasPrefix(b.comment, "cluster:") {
			script.WriteString(b.text)
		}
	}
	typed := elsewhere(t, script.String())
	require.Contains(t, typed, "make build nats-server\n")
	typed = strings.Replace(typed, "make build nats-server\n", "", 1) // the programs are there

	folder := t.TempDir()
	require.NoError(t, os.Symlink(clusterPrograms(t), filepath.Join(folder, "bin")))
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(deploy, filepath.Join(folder, "deploy")))

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", typed)
	shell.Dir = folder
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	output := filepath.Join(folder, "output")
	file, err := os.Create(output)
	require.NoError(t, err)
	defer file.Close()
	shell.Stdout, shell.Stderr = file, file
	ended := shell.Run()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // what a failure has left running
	said, err := os.ReadFile(output)
	require.NoError(t, err)
	require.NoError(t, ended, "%s", said)
	require.Equal(t, 3, strings.Count(string(said), `{"ok":true}`), "%s", said)
	queued := regexp.MustCompile(`(?m)^queued +(\S+)`).FindAllSubmatch(said, -1)
	require.GreaterOrEqual(t, len(queued), 4, "three before, and one without a server: %s", said)
	for _, id := range queued {
		// Live, or by replay where his connection was closed meanwhile.
		require.Regexp(t, `(?m)^\S+ (live|replay) .*"message" "`+string(id[1])+`"`, string(said), "bob got what alice sent")
	}
	require.Contains(t, string(said), "role edge at")
}

// clusterPrograms is programFolder with the NATS server in it.
func clusterPrograms(t *testing.T) string {
	t.Helper()
	folder := programFolder(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(folder, "nats-server"), "github.com/nats-io/nats-server/v2")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "build nats-server: %s", out)
	return folder
}

// elsewhere puts free ports in the place of the documented ones.
func elsewhere(t *testing.T, script string) string {
	t.Helper()
	pairs := []string{":422", ":" + freeTen(t), ":622", ":" + freeTen(t)}
	for _, port := range []string{"8786", "8787", "8797"} {
		_, free, err := net.SplitHostPort(freeAddress(t))
		require.NoError(t, err)
		pairs = append(pairs, port, free)
	}
	return strings.NewReplacer(pairs...).Replace(script)
}

// freeTen is a port without its last digit, of which 1 to 3 are free.
func freeTen(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	for range 100 {
		ten := 2000 + rand.IntN(1200)
		free := true
		for last := 1; last <= 3 && free; last++ {
			listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d%d", ten, last))
			if free = err == nil; free {
				require.NoError(t, listener.Close())
			}
		}
		if free {
			return fmt.Sprint(ten)
		}
	}
	require.Fail(t, "no free ports")
	return ""
}
