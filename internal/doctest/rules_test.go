package doctest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	namedTest = regexp.MustCompile("`([a-z0-9]+\\.[Tt]est[A-Za-z0-9]+)`")
	ruleRow   = regexp.MustCompile(`^\| (.+) \| (.+) \|$`)
)

// Every rule of docs/rules.md names a test or is a client's, and every test that it names
// exists.
func TestRulesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	known := testFunctions(t)
	require.True(t, known["doctest.TestRulesNameTestsThatExist"])
	rules := 0
	for i, line := range readPage(t, filepath.Join(root, "docs", "rules.md")).lines {
		row := ruleRow.FindStringSubmatch(line)
		if row == nil || row[2] == "tests" {
			continue
		}
		rules++
		named := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 && !strings.Contains(row[2], "*client (later)*") {
			t.Errorf("docs/rules.md:%d: no test: %s", i+1, row[1])
		}
		if strings.Count(row[2], "`") != 2*len(named) {
			t.Errorf("docs/rules.md:%d: something here is not the name of a test: %s", i+1, row[2])
		}
		for _, name := range named {
			if !known[name[1]] {
				t.Errorf("docs/rules.md:%d: there is no test %s", i+1, name[1])
			}
		}
	}
	require.Greater(t, rules, 80)
}

// testFunctions are the functions of the repository that begin as tests do, each with its
// package's name; those of the suites that stores pass, too.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.Contains(filepath.ToSlash(path), "/storetest/"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil {
				found[strings.TrimSuffix(file.Name.Name, "_test")+"."+function.Name.Name] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
