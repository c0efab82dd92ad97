package doctest_test

import (
	"path/filepath"
	"testing"
)

// The examples of the guide to the HTTP API, typed by a new user.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	p := startPlace(t)
	typePage(t, readPage(t, filepath.Join(root, "docs", "api.md")), p.terminal(t), func() {})
}
