package pgd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest PostgreSQL major version the relay works with.
const MinVersion = 15

// BinEnv names the environment variable with the folder of the server programs.
const BinEnv = "RELAY_PG_BIN"

// Errors of looking for the server programs.
var (
	// ErrNoPrograms: no usable server programs. The text says what to install.
	ErrNoPrograms = errors.New("no PostgreSQL server programs found")
	// ErrVersion: the data folder needs another major version than is installed.
	ErrVersion = errors.New("PostgreSQL version does not fit the data folder")
)

// programs is one folder with server programs.
type programs struct {
	dir     string
	version int // major
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// binPatterns are the usual places, besides PATH: Debian, Red Hat, a build from source,
// Homebrew (both prefixes), Postgres.app.
var binPatterns = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findPrograms returns the programs that can open a data folder of major version want,
// or the newest where want is 0. A folder given by the caller or in BinEnv is the only
// one looked at.
func findPrograms(ctx context.Context, binDir string, want int) (programs, error) {
	dirs, where := candidateDirs(binDir)
	var found []programs
	var tooOld []string
	for _, dir := range dirs {
		p, err := inspect(ctx, dir)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return programs{}, fmt.Errorf("look for server programs: %w", ctx.Err())
			}
		case p.version < MinVersion:
			tooOld = append(tooOld, fmt.Sprintf("%s has version %d", dir, p.version))
		default:
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return programs{}, missing(where, tooOld)
	}
	return choose(found, want)
}

func choose(found []programs, want int) (programs, error) {
	if want == 0 {
		return slices.MaxFunc(found, func(a, b programs) int { return a.version - b.version }), nil
	}
	for _, p := range found {
		if p.version == want {
			return p, nil
		}
	}
	var have []string
	for _, p := range found {
		have = append(have, fmt.Sprintf("%d in %s", p.version, p.dir))
	}
	return programs{}, fmt.Errorf("%w: it was made by version %d, installed is %s; install the Debian package postgresql-%d, "+
		"or move the data with pg_upgrade or pg_dump", ErrVersion, want, strings.Join(have, ", "), want)
}

func missing(where string, tooOld []string) error {
	detail := ""
	if len(tooOld) > 0 {
		detail = " (" + strings.Join(tooOld, "; ") + ")"
	}
	return fmt.Errorf("%w: looked for initdb and postgres, version %d or newer, in %s%s; install the Debian package postgresql "+
		"(apt-get install postgresql), set %s to the folder that has them, or use a server of your own with --database-url",
		ErrNoPrograms, MinVersion, where, detail, BinEnv)
}

func candidateDirs(binDir string) (dirs []string, where string) {
	if binDir == "" {
		binDir = os.Getenv(BinEnv)
	}
	if binDir != "" {
		return []string{binDir}, binDir
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// Through links: a postgres linked into /usr/local/bin has its initdb elsewhere.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, pattern := range binPatterns {
		matches, _ := filepath.Glob(pattern) // fails on a bad pattern only
		dirs = append(dirs, matches...)
	}
	return dirs, "PATH and " + strings.Join(binPatterns[:3], ", ")
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks the programs in dir for their version.
func inspect(ctx context.Context, dir string) (programs, error) {
	p := programs{dir: dir}
	if _, err := exec.LookPath(p.path("initdb")); err != nil {
		return p, fmt.Errorf("look for initdb: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path("postgres"), "--version")
	cmd.Env = cleanEnv()
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("ask postgres for its version: %w", err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return p, fmt.Errorf("ask postgres for its version: unexpected answer %.60q", out)
	}
	p.version, err = strconv.Atoi(string(m[1]))
	return p, err
}

// cleanEnv is the whole environment of the server programs: PG* variables of the user
// must not change what they do.
func cleanEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}
