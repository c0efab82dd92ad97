package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

func skill(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../skill/SKILL.md")
	require.NoError(t, err)
	return string(page)
}

// Agents type what the skill says as it stands: this program has to understand each line.
func TestTheCommandsOfTheSkillAreUnderstood(t *testing.T) {
	page := skill(t)
	require.Regexp(t, `^---\nname: [a-z-]+\ndescription: .{40,1000}\n---\n`, page)
	called := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.SplitSeq(block[1], "\n") {
			_, arguments, ok := strings.Cut(line, "peer ")
			if !ok || strings.HasPrefix(line, "export ") {
				continue
			}
			words := shellWords(t, strings.NewReplacer("ROOM_ID", session, "CARD_ID", other, "PARTICIPANT_ID", participant).Replace(arguments))
			parser, err := kong.New(grammar(words), kong.Name("peer"))
			require.NoError(t, err)
			parsed, err := parser.Parse(words)
			require.NoError(t, err, line)
			require.True(t, printsJSON(parsed), "%s: agents read JSON", line)
			called[strings.TrimSpace(commandOf(parsed))] = true
		}
	}
	for _, command := range []string{"enroll", "activate", "rooms", "poll", "listen", "send", "notice send", "board events"} {
		require.True(t, called[command], command)
	}
}

// shellWords are the words of a simple command, with double quotes.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, found[1]+found[2])
	}
	require.NotEmpty(t, words, line)
	return words
}

// What the skill says of errors is what there is, and it leaves out none of this program's.
func TestTheErrorsOfTheSkillAreThoseOfThisProgram(t *testing.T) {
	_, table, ok := strings.Cut(skill(t), "## When it fails")
	require.True(t, ok)
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		require.False(t, told[row[1]], "%s is there twice", row[1])
		told[row[1]] = true
	}
	known := map[string]bool{"usage": true, "closed": true, "not_a_relay": true, "unreachable": true, "failed": true, notAuthentic: true}
	for _, e := range errorCodes {
		known[e.code] = true
	}
	for code := range known {
		require.True(t, told[code], code)
	}
	for code := range told {
		_, relays := wire.Lookup(wire.Code(code))
		require.True(t, known[code] || relays, code)
	}
}

// A command is the same whether all are prepared for, or it alone.
func TestOneCommandIsWhatItIsAmongAll(t *testing.T) {
	t.Parallel()
	help := func(all any, words ...string) string {
		var out strings.Builder
		parser, err := kong.New(all, kong.Name("peer"), kong.Writers(&out, &out), kong.Exit(func(int) {}))
		require.NoError(t, err)
		_, _ = parser.Parse(append(words, "--help"))
		return out.String()
	}
	for _, words := range [][]string{{"send"}, {"notice"}, {"board", "create"}, {"raw", "send"}} {
		require.Equal(t, help(new(commands), words...), help(grammar(words), words...))
		require.NotContains(t, help(grammar(words), words...), "Enroll a device")
	}
	for _, words := range [][]string{nil, {"--help"}, {"shout"}, {"Send"}} {
		require.Equal(t, new(commands), grammar(words))
	}
}
