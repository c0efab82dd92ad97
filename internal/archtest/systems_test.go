package archtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is what `go list -deps` says of a package, or of the variant of it that a test needs.
type listed struct {
	Dir        string
	ImportPath string
	GoFiles    []string
	ImportMap  map[string]string // where a path in the source names another package
	Module     *struct {
		Path, GoVersion string
	}
}

func (p *listed) ours() bool { return p.Module != nil && p.Module.Path == module }

// The relay and its tests also fit a system without epoll and /proc. Types are checked, with
// the function bodies of this module: compiling all dependencies for it takes a minute.
func TestTypesFitMacOS(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-json=Dir,ImportPath,GoFiles,ImportMap,Module", "./relay/front", "./infra/...", "./cmd/...")
	list.Dir = repositoryRoot(t)
	list.Env = append(os.Environ(), "GOOS=darwin", "CGO_ENABLED=0")
	list.Stderr = t.Output()
	out, err := list.Output()
	require.NoError(t, err)

	checked := checker{files: token.NewFileSet(), packages: map[string]*types.Package{"unsafe": types.Unsafe}}
	ours := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; { // dependencies come first
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // which is generated
			continue
		}
		if p.ours() {
			ours++
		}
		require.NoError(t, checked.add(&p), p.ImportPath)
	}
	require.Greater(t, ours, 10)
}

// checker has the types of packages.
type checker struct {
	files    *token.FileSet
	packages map[string]*types.Package
}

func (c *checker) add(p *listed) error {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	config := types.Config{
		IgnoreFuncBodies: !p.ours(),
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		Importer: importer(func(path string) (*types.Package, error) {
			if other, ok := p.ImportMap[path]; ok {
				path = other
			}
			if found := c.packages[path]; found != nil {
				return found, nil
			}
			return nil, fmt.Errorf("%s is not listed before it", path)
		}),
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	name, _, _ := strings.Cut(p.ImportPath, " ")
	found, err := config.Check(name, c.files, parsed, nil)
	c.packages[p.ImportPath] = found
	return err
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
