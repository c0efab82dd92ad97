package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// page is one Markdown file.
type page struct {
	name     string // from the root of the repository, with slashes
	lines    []string
	blocks   []block
	headings []string
}

// block is one fenced block.
type block struct {
	line     int // of its first line of text, from 1
	language string
	comment  string // the HTML comment in the line before it, trimmed; or empty
	text     string
}

// pages returns README.md and docs/*.md.
func pages(t *testing.T) []page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	var all []page
	for _, name := range append(names, filepath.Join(root, "README.md")) {
		all = append(all, readPage(t, name))
	}
	return all
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	name, err := filepath.Rel(root, path)
	require.NoError(t, err)
	return parsePage(filepath.ToSlash(name), string(text))
}

var (
	fence   = regexp.MustCompile("^\\s*```+\\s*(\\w*)")
	comment = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*$`)
)

func parsePage(name, text string) page {
	p := page{name: name, lines: strings.Split(text, "\n")}
	var open *block
	for i, line := range p.lines {
		mark := fence.FindStringSubmatch(line)
		switch {
		case mark != nil && open == nil:
			open = &block{line: i + 2, language: mark[1]}
			if i > 0 {
				if said := comment.FindStringSubmatch(p.lines[i-1]); said != nil {
					open.comment = said[1]
				}
			}
		case mark != nil:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		default:
			if title := heading.FindStringSubmatch(line); title != nil {
				p.headings = append(p.headings, title[1])
			}
		}
	}
	return p
}

// shell returns the blocks a reader types into a shell.
func (p page) shell() []block {
	var shell []block
	for _, b := range p.blocks {
		if b.language == "sh" || b.language == "console" {
			shell = append(shell, b)
		}
	}
	return shell
}

// section returns the text from a heading to the next one of any depth.
func (p page) section(t *testing.T, title string) string {
	t.Helper()
	var text strings.Builder
	inside := false
	for _, line := range p.lines {
		if found := heading.FindStringSubmatch(line); found != nil {
			inside = found[1] == title
			continue
		}
		if inside {
			text.WriteString(line + "\n")
		}
	}
	require.NotEmpty(t, text.String(), "%s has no section %q", p.name, title)
	return text.String()
}

// anchor is the fragment that leads to a heading, by the rules of the common hosts.
func anchor(title string) string {
	var slug strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ' || r == '-':
			slug.WriteByte('-')
		case r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
			slug.WriteRune(r)
		}
	}
	return slug.String()
}

func TestParsePage(t *testing.T) {
	t.Parallel()
	p := parsePage("x.md", "# A title, `code`\n\n<!-- run: ok -->\n```sh\nmake run\n```\ntext\n```\n# no heading\n```\n")
	require.Equal(t, []string{"A title, `code`"}, p.headings)
	require.Equal(t, "a-title-code", anchor(p.headings[0]))
	require.Equal(t, []block{
		{line: 5, language: "sh", comment: "run: ok", text: "make run\n"},
		{line: 9, text: "# no heading\n"},
	}, p.blocks)
	require.Len(t, p.shell(), 1)
}
