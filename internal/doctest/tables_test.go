package doctest_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	tableFlag     = regexp.MustCompile("(?m)^\\| `(--[a-z0-9-]+)")
	tableVariable = regexp.MustCompile("\\| `(RELAY_[A-Z0-9_]+)` \\|")
	tableMetric   = regexp.MustCompile("(?m)^\\| `(relay_[a-z0-9_]+)")
	servedMetric  = regexp.MustCompile(`(?m)^# TYPE (relay_[a-z0-9_]+) `)
	helpFlag      = regexp.MustCompile(`(?m)^ +(?:-\w, +)?(--[a-z][a-z0-9-]*)`)
	helpVariable  = regexp.MustCompile(`\$(RELAY_[A-Z0-9_]+)`)
)

// all returns the first group of every match, sorted, each once.
func all(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func operationsPage(t *testing.T) page {
	t.Helper()
	return readPage(t, filepath.Join(root, "docs", "operations.md"))
}

func TestTableOfSettingsIsComplete(t *testing.T) {
	t.Parallel()
	table := operationsPage(t).section(t, "Settings")
	said := help(t, "relay", "serve")
	flags := slices.DeleteFunc(all(helpFlag, said), func(flag string) bool {
		return slices.Contains([]string{"--help", "--version"}, flag)
	})
	require.NotEmpty(t, flags)
	require.Equal(t, flags, all(tableFlag, table))
	require.Equal(t, all(helpVariable, said), all(tableVariable, table))
}
