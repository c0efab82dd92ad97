package doctest_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for _, p := range all {
		code := false
		for i, line := range p.lines {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code { // f[T](x) is no link
				continue
			}
			for _, found := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
					continue
				}
				if why := follow(all, p, found[1]); why != "" {
					t.Errorf("%s:%d: link %s: %s", p.name, i+1, found[1], why)
				}
			}
		}
	}
}

// follow says what is wrong with a link, or nothing.
func follow(all []page, from page, target string) string {
	file, fragment, _ := strings.Cut(target, "#")
	name := from.name
	if file != "" {
		name = path.Join(path.Dir(from.name), file)
		if strings.HasPrefix(name, "..") {
			return "leaves the repository"
		}
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			return "there is no such file"
		}
	}
	if fragment == "" {
		return ""
	}
	at := slices.IndexFunc(all, func(p page) bool { return p.name == name })
	if at < 0 {
		return "fragments are checked in README.md and docs only"
	}
	if !slices.ContainsFunc(all[at].headings, func(title string) bool { return anchor(title) == fragment }) {
		return "there is no such heading"
	}
	return ""
}
