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

// Every rule of docs/rules.md names a test, and every test that it names exists.
func TestRulesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	rules := readPage(t, filepath.Join(root, "docs", "rules.md"))
	require.Greater(t, checkRules(t, rules.name, rules.lines), 80)
}

// So does each line of the checklist of docs/security.md.
func TestChecklistNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	security := readPage(t, filepath.Join(root, "docs", "security.md"))
	lines := strings.Split(security.section(t, "The checklist"), "\n")
	require.Greater(t, checkRules(t, security.name, lines), 45)
}

// checkRules looks at each row of a table of rules and returns how many there are.
func checkRules(t *testing.T, name string, lines []string) (rules int) {
	t.Helper()
	known := testFunctions(t)
	require.True(t, known["doctest.TestRulesNameTestsThatExist"])
	for _, line := range lines {
		row := ruleRow.FindStringSubmatch(line)
		if row == nil || row[2] == "tests" {
			continue
		}
		rules++
		named := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 {
			t.Errorf("%s: no test: %s", name, row[1])
		}
		if strings.Count(row[2], "`") != 2*len(named) {
			t.Errorf("%s: something here is not the name of a test: %s", name, row[2])
		}
		for _, test := range named {
			if !known[test[1]] {
				t.Errorf("%s: there is no test %s", name, test[1])
			}
		}
	}
	return rules
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
