package archtest_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	Dir          string
	ImportPath   string
	Name         string
	Imports      []string // direct, production
	Deps         []string // all, production
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// short is the package's path within the module.
func (p goPackage) short() string { return shorten(p.ImportPath) }

func shorten(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// matches reports whether path is pattern, or below it when the pattern ends in "...".
func matches(pattern, path string) bool {
	folder, below := strings.CutSuffix(pattern, "...")
	if !below {
		return path == pattern
	}
	return strings.HasPrefix(path+"/", folder)
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, path) })
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.mod"))
	return root
}

// listPackages returns all packages of the module.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-e",
		"-json=Dir,ImportPath,Name,Imports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	list.Dir = repositoryRoot(t)
	list.Stderr = t.Output()
	out, err := list.Output()
	require.NoError(t, err)

	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
	require.NotEmpty(t, packages)
	return packages
}

func TestPackagesImportOnlyWhatTheirLayerAllows(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		at := slices.IndexFunc(layers, func(l layer) bool { return matches(l.pkg, p.short()) })
		if at < 0 {
			t.Errorf("%s has no row in the table of layers: say what it may import, and why", p.short())
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) && !matchesAny(layers[at].may, shorten(imported)) {
				t.Errorf("%s imports %s: %s", p.short(), shorten(imported), layers[at].reason)
			}
		}
	}
}

func TestWireNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if p.short() != "wire" {
			continue
		}
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			require.NotContains(t, first, ".", "wire reaches %s", dep)
		}
		return
	}
	t.Error("there is no package wire")
}

func TestLibrariesStayBehindTheirFence(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, f := range fences {
			crosses := func(path string) bool { return matches(f.library, path) }
			if slices.ContainsFunc(p.Imports, crosses) && !matchesAny(f.only, p.short()) {
				t.Errorf("%s imports %s: %s", p.short(), f.library, f.reason)
			}
			if slices.ContainsFunc(p.Deps, crosses) && matchesAny(f.never, p.short()) {
				t.Errorf("%s reaches %s through an import: %s", p.short(), f.library, f.reason)
			}
		}
	}
}

func TestProgramsContainNoTestPackages(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if p.Name != "main" {
			continue
		}
		for _, dep := range p.Deps {
			if matchesAny(testOnly, dep) {
				t.Errorf("%s contains %s", p.short(), dep)
			}
		}
	}
}

// The legacy API has no direct gets over a pool, no atomic batches, and other
// defaults; one API in the whole module.
func TestLegacyJetStreamContextIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			if !importsNATS(file) {
				continue
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if selector := legacySelector(node); selector != nil {
					t.Errorf("%s uses the legacy %s of nats.go", files.Position(selector.Pos()), selector.Sel.Name)
				}
				return true
			})
		}
	}
}

func importsNATS(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool {
		return spec.Path.Value == `"github.com/nats-io/nats.go"`
	})
}

// legacySelector finds nats.JetStreamContext and the like, and conn.JetStream().
func legacySelector(node ast.Node) *ast.SelectorExpr {
	if call, ok := node.(*ast.CallExpr); ok {
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "JetStream" {
			return selector
		}
	}
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	pkg, ok := selector.X.(*ast.Ident)
	if ok && pkg.Name == "nats" && slices.Contains([]string{"JetStreamContext", "JetStreamManager", "KeyValue", "StreamConfig"}, selector.Sel.Name) {
		return selector
	}
	return nil
}

func TestPackageNamesSayWhatThePackageIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		require.NotContains(t, badNames, p.Name, p.ImportPath)
		for folder := range strings.SplitSeq(p.short(), "/") {
			require.NotContains(t, badNames, folder, p.ImportPath)
		}
	}
}

func TestTopLevelFolders(t *testing.T) {
	t.Parallel()
	root := repositoryRoot(t)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	ignored, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	require.NoError(t, err)
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || strings.Contains(string(ignored), "/"+entry.Name()+"/") {
			continue
		}
		require.Contains(t, folders, entry.Name(), "a new top-level folder: put it where it belongs, or name it in the table")
	}
}

// The patterns of the tables are only as good as their matcher.
func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"relay", "relay", true},
		{"relay", "relay/front", false},
		{"relay/...", "relay", true},
		{"relay/...", "relay/front", true},
		{"relay/...", "relayed", false},
		{"...", "anything/at/all", true},
	} {
		require.Equal(t, c.want, matches(c.pattern, c.path), "%s %s", c.pattern, c.path)
	}
}
