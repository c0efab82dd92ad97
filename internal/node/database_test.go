package node

import (
	"os"
	"path/filepath"
	"testing"

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
