package doctest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go example of docs/client.md is part of one that is run (client's Example… tests).
func TestClientExamplesAreRun(t *testing.T) {
	t.Parallel()
	examples, err := os.ReadFile(filepath.Join(root, "client", "example_test.go"))
	require.NoError(t, err)
	found := 0
	for _, b := range readPage(t, filepath.Join(root, "docs", "client.md")).blocks {
		if b.language != "go" {
			continue
		}
		found++
		require.Contains(t, string(examples), strings.Trim(b.text, "\n"), "docs/client.md")
	}
	require.Greater(t, found, 6)
}
