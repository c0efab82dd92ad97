package pgd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/infra/pgd"
)

// fakePrograms is a folder of programs that only know their version.
func fakePrograms(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}

func TestMissingPrograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for name, bin := range map[string]string{"empty folder": t.TempDir(), "too old": fakePrograms(t, "14.11")} {
		_, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, BinDir: bin})
		require.ErrorIs(t, err, pgd.ErrNoPrograms, name)
		require.ErrorContains(t, err, bin)
		require.ErrorContains(t, err, "Debian package postgresql")
		require.ErrorContains(t, err, "--database-url")
	}
	t.Setenv(pgd.BinEnv, filepath.Join(dir, "nowhere"))
	_, err := pgd.Start(t.Context(), pgd.Config{Dir: dir})
	require.ErrorIs(t, err, pgd.ErrNoPrograms)
	require.NoDirExists(t, dir, "nothing is made before the programs are found")
}

func TestVersionOfData(t *testing.T) {
	for name, c := range map[string]struct{ inFolder, bin, want string }{
		"older":   {"14\n", "15.3", "made by version 14, installed is 15"},
		"newer":   {"18\n", "17beta1", "made by version 18, installed is 17"},
		"damaged": {"fifteen\n", "15.3", `"fifteen\n"`},
	} {
		dir := t.TempDir()
		data := filepath.Join(dir, "postgres", "data")
		require.NoError(t, os.MkdirAll(data, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(c.inFolder), 0o600))
		_, err := pgd.Start(t.Context(), pgd.Config{Dir: dir, BinDir: fakePrograms(t, c.bin)})
		require.ErrorIs(t, err, pgd.ErrVersion, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second finds the first one's files
		log, err := pgd.NewLog(dir, 1000)
		require.NoError(t, err)
		pgd.Drain(log, strings.NewReader(strings.Repeat("a line of the server's log\n", 10_000)))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(1000))
	}
}
