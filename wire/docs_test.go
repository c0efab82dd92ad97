package wire_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

func protocolPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	return string(page)
}

// generatedTable returns what stands between the marks of a table.
func generatedTable(t *testing.T, page, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<!-- table: "+name+" -->\n")
	require.True(t, found, "docs/protocol.md has no table %s", name)
	table, _, found := strings.Cut(rest, "<!-- end -->")
	require.True(t, found)
	return table
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number(n int, none string) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

func codeTable(frame string) string {
	var rows strings.Builder
	head := map[string]string{
		"nack":  "| reason | again | closes | HTTP | meaning |\n|---|---|---|---|---|\n",
		"error": "| reason | meaning |\n|---|---|\n",
		"http":  "| code | HTTP | meaning |\n|---|---|---|\n",
	}
	rows.WriteString(head[frame])
	for _, info := range wire.Codes() {
		if info.Frame != frame {
			continue
		}
		text := strings.ReplaceAll(info.Text, `"`, "`")
		switch frame {
		case "nack":
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", info.Code, yes(info.Resend), number(int(info.Close), "no"), number(info.Status, ""), text)
		case "error":
			fmt.Fprintf(&rows, "| `%s` | %s |\n", info.Code, text)
		case "http":
			fmt.Fprintf(&rows, "| `%s` | %d | %s |\n", info.Code, info.Status, text)
		}
	}
	return rows.String()
}

func closeTable() string {
	var rows strings.Builder
	rows.WriteString("| code | reason | again | meaning |\n|---|---|---|---|\n")
	for _, info := range wire.Closes() {
		reason := ""
		if info.Reason != "" {
			reason = "`" + info.Reason + "`"
		}
		fmt.Fprintf(&rows, "| %d | %s | %s | %s |\n", info.Code, reason, yes(info.Again), strings.ReplaceAll(info.Text, `"`, "`"))
	}
	return rows.String()
}

func roomEventTable() string {
	var rows strings.Builder
	rows.WriteString("| event | for whom | members | meaning |\n|---|---|---|---|\n")
	for _, info := range wire.RoomEvents() {
		members := ""
		if len(info.Members) > 0 {
			members = "`" + strings.Join(info.Members, "`, `") + "`"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", info.Event, info.For, members, strings.ReplaceAll(info.Text, `"`, "`"))
	}
	return rows.String()
}

func limitTable() string {
	var rows strings.Builder
	rows.WriteString("| what | limit |\n|---|---|\n")
	for _, row := range [][2]string{
		{"one message of a client", grouped(wire.MaxMessage) + " bytes"},
		{"nesting", grouped(wire.MaxDepth)},
		{"integers", grouped(wire.MaxInteger)},
		{"envelope id", grouped(wire.MaxIDLength) + " characters"},
		{"`file.name`", grouped(wire.MaxFileName) + " code points"},
		{"`file.mimeType`", grouped(wire.MaxMIMEType) + " code points"},
		{"`file.sizeBytes`", grouped(wire.MaxFileSize)},
		{"`limit` of a resume", grouped(wire.MaxResumeLimit) + " rows"},
		{"rows an inbox keeps", grouped(wire.MaxInboxRows)},
		{"age of a row", wire.InboxMaxAge.String()},
		{"time for `hello`", wire.HelloTimeout.String()},
		{"`ping`", "every " + wire.PingInterval.String()},
		{"envelopes of a participant", grouped(wire.EnvelopesPerSec) + " in a second"},
		{"a refused rate is forgiven", wire.RateForgiveness.String() + " after the last envelope over it"},
		{"frames waiting for a slow reader", grouped(wire.MaxQueueFrames)},
		{"bytes waiting for a slow reader", grouped(wire.MaxQueueBytes)},
		{"generations remembered for `seq`", grouped(wire.MaxGenerations)},
	} {
		fmt.Fprintf(&rows, "| %s | %s |\n", row[0], row[1])
	}
	return rows.String()
}

// grouped writes a number with a comma before every three digits.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Every verdict, error, close code, limit and room event is documented, and as it is.
func TestTheProtocolPageHasTheTables(t *testing.T) {
	page := protocolPage(t)
	for name, want := range map[string]string{
		"nack": codeTable("nack"), "error": codeTable("error"), "http": codeTable("http"),
		"close": closeTable(), "limits": limitTable(), "room events": roomEventTable(),
	} {
		require.Equal(t, want, generatedTable(t, page, name), "put this table into docs/protocol.md:\n%s", want)
	}
}

// The examples are frames this package reads, and every type has one.
func TestTheExamplesOfTheProtocolPageAreFrames(t *testing.T) {
	page := protocolPage(t)
	clients, servers := map[wire.FrameType]bool{}, map[wire.ServerType]bool{}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSuffix(line, "\n")
			var sent wire.ClientFrame
			if err := wire.ParseClient([]byte(line), &sent); err == nil && sent.Type != wire.FrameUnknown {
				require.Nil(t, sent.Envelope.Check(), line)
				clients[sent.Type] = true
				continue
			}
			received, err := wire.ParseServer([]byte(line))
			require.NoError(t, err, line)
			require.NotEqual(t, wire.ServerUnknown, received.Type, line)
			servers[received.Type] = true
		}
	}
	for frame := wire.FrameEnvelope; frame < wire.FrameUnknown; frame++ {
		require.True(t, clients[frame], "no example of %s", frame)
	}
	for frame := wire.ServerWelcome; frame < wire.ServerUnknown; frame++ {
		require.True(t, servers[frame], "no example of %s", frame)
	}
}

// What a reader types in the session by hand is what the relay understands.
func TestTheSessionOfTheProtocolPage(t *testing.T) {
	sent, received := 0, 0
	for line := range strings.Lines(protocolPage(t)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "> {"):
			var frame wire.ClientFrame
			require.NoError(t, wire.ParseClient([]byte(line[2:]), &frame), line)
			require.Nil(t, frame.Envelope.Check(), line)
			sent++
		case strings.HasPrefix(line, "< {"):
			frame, err := wire.ParseServer([]byte(line[2:]))
			require.NoError(t, err, line)
			require.NotEqual(t, wire.ServerUnknown, frame.Type, line)
			if frame.Reason != "" {
				_, known := wire.Lookup(frame.Reason)
				require.True(t, known, line)
			}
			received++
		}
	}
	require.Greater(t, sent, 5)
	require.Greater(t, received, 5)
}

// Reasons the text names exist.
func TestTheProtocolPageNamesOnlyWhatExists(t *testing.T) {
	known := map[string]bool{}
	for _, info := range wire.Codes() {
		known[string(info.Code)] = true
	}
	for _, info := range wire.Closes() {
		known[info.Reason] = true
	}
	named := regexp.MustCompile("(?:reason: \"|`nack |(?:1001|1008|1009|1012|1013) `|with 1013\n`)([a-z_]+)").FindAllStringSubmatch(protocolPage(t), -1)
	require.NotEmpty(t, named)
	for _, found := range named {
		require.True(t, known[found[1]], found[0])
	}
}
