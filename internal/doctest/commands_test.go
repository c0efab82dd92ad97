package doctest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// command is a call of one of our programs, or of make, in a shell block.
type command struct {
	program string
	words   []string
}

// call finds our programs where a command may begin: at the start of a line, after a
// pipe, a semicolon, "&&", "(" or an assignment of a variable.
var call = regexp.MustCompile(`(?:^|[|;&(]|\$\s|\bsudo\s|\bexec\s|[A-Z_]+=\S*\s)\s*(?:\./)?(?:bin/)?(relay|peer|relaybench|make)\s+([^|;&)<>]*)`)

// commandsIn reads the commands of a shell block: without comments, prompts, and with
// continued lines joined.
func commandsIn(text string) []command {
	text = strings.ReplaceAll(text, "\\\n", " ")
	var found []command
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if at := strings.Index(" "+line, " #"); at >= 0 {
			line = line[:max(0, at-1)]
		}
		for _, match := range call.FindAllStringSubmatch(line, -1) {
			found = append(found, command{match[1], strings.Fields(match[2])})
		}
	}
	return found
}

func TestCommandsIn(t *testing.T) {
	t.Parallel()
	require.Equal(t, []command{
		{"relay", []string{"room", "create", "--json"}},
		{"peer", []string{"listen", "--after", "0"}},
		{"make", []string{"run"}},
		{"relay", []string{"serve", "--data", "/srv"}},
	}, commandsIn("ROOM=$(bin/relay room create --json | sed s/x/y/) # relay nothing\npeer listen \\\n  --after 0 &\n$ make run\nRELAY_LISTEN=:1 relay serve --data /srv\n# make coffee\n"))
}

// buildFolder is where programFolder builds; TestMain makes and removes it.
var buildFolder string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "relay-doctest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	buildFolder = folder
	return m.Run()
}

// buildPrograms builds our programs once for all tests of the package, as `make build` does, so
// that neither compiles what the other has compiled.
var buildPrograms = sync.OnceValue(func() error {
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", buildFolder+"/", "./cmd/...")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return nil
})

// programFolder is where bin/relay, bin/peer and bin/relaybench are.
func programFolder(t *testing.T) string {
	t.Helper()
	require.NoError(t, buildPrograms())
	return buildFolder
}

// help returns what a program says about a command, and about all of it for none.
func help(t *testing.T, program string, words ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(programFolder(t), program), append(slices.Clone(words), "--help")...).CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out)
}

func TestCommandsInTheDocumentationExist(t *testing.T) {
	t.Parallel()
	targets := makeTargets(t)
	checked := 0
	for _, p := range pages(t) {
		for _, b := range p.shell() {
			for _, c := range commandsIn(b.text) {
				checked++
				if why := check(t, targets, c); why != "" {
					t.Errorf("%s:%d: %s %s: %s", p.name, b.line, c.program, strings.Join(c.words, " "), why)
				}
			}
		}
	}
	require.Positive(t, checked)
}

// check says what is wrong with a command, or nothing.
func check(t *testing.T, targets []string, c command) string {
	t.Helper()
	if c.program == "make" {
		return checkMake(targets, c)
	}
	return checkProgram(t, c)
}

func makeTargets(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	var targets []string
	for _, found := range regexp.MustCompile(`(?m)^## ([a-z-]+): `).FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, found[1])
	}
	return targets
}

func checkMake(targets []string, c command) string {
	for _, word := range c.words {
		if !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") && !slices.Contains(targets, word) {
			return "there is no target " + word
		}
		if strings.Contains(word, "=") {
			break // ARGS="..." may hold anything
		}
	}
	return ""
}

var flagName = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// checkProgram asks the program itself: its usage line must name the command, and its
// help each flag.
func checkProgram(t *testing.T, c command) string {
	t.Helper()
	var path, flags []string
	for _, word := range c.words {
		if flag := flagName.FindString(word); strings.HasPrefix(word, "-") {
			flags = append(flags, flag)
		} else if len(flags) == 0 {
			path = append(path, word)
		}
	}
	for ; len(path) > 0; path = path[:len(path)-1] { // the last words may be arguments
		said := help(t, c.program, path...)
		usage := "Usage: " + c.program + " " + strings.Join(path, " ")
		if !strings.HasPrefix(said, usage+" ") && !strings.HasPrefix(said, usage+"\n") {
			continue
		}
		known := flagName.FindAllString(strings.ReplaceAll(said, "--[no-]", "--"), -1)
		for _, flag := range flags {
			if flag != "" && !slices.Contains(known, flag) {
				return "there is no flag " + flag
			}
		}
		return ""
	}
	if said := help(t, c.program); len(flags) > 0 && said != "" { // relay --help and the like
		return ""
	}
	return "there is no such command"
}
