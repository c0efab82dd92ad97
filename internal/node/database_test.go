package node

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A database folder that is gone is not quietly replaced by an empty one.
func TestDatabaseFolderGone(t *testing.T) {
	t.Parallel()
	n := &Node{cfg: Config{Data: t.TempDir()}}
	require.NoError(t, n.checkDatabaseThere(), "a new data folder")
	require.NoError(t, os.MkdirAll(filepath.Join(n.cfg.Data, "postgres", "data"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(n.cfg.Data, "nats", "jetstream"), 0o700))
	require.NoError(t, n.checkDatabaseThere(), "one in use")
	require.NoError(t, os.RemoveAll(filepath.Join(n.cfg.Data, "postgres")))
	require.ErrorContains(t, n.checkDatabaseThere(), "is missing")
}

// A PostgreSQL of its own that is killed takes no relay with it: it is started again, and
// the node is ready again by itself.
func TestAKilledDatabaseIsStartedAgain(t *testing.T) {
	t.Parallel()
	n, err := Start(t.Context(), Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", MetricsListen: "off", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, n.Close(ctx))
	})
	postmaster := func() int {
		text, err := os.ReadFile(filepath.Join(n.Data(), "postgres", "data", "postmaster.pid"))
		if err != nil {
			return 0 // it is not there yet
		}
		first, _, _ := strings.Cut(string(text), "\n")
		pid, err := strconv.Atoi(first)
		require.NoError(t, err)
		return pid
	}
	first := postmaster()
	require.NotZero(t, first)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		if again := postmaster(); again == 0 || again == first {
			return false
		}
		answer, err := http.Get("http://" + n.Addr().String() + "/readyz")
		require.NoError(t, err)
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	select {
	case err := <-n.Failed():
		require.NoError(t, err)
	default:
	}
}
