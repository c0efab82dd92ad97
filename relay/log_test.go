package relay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// DESIGN section 7: log lines a second are bounded, each kind by itself, and a line
// tells how many were left out before it. FAULTS K01: what a client wrote cannot forge
// a line.
func TestLinesAreLimited(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLimitedLog(slog.New(slog.NewTextHandler(&out, nil)))
	for range 100 {
		l.warn("one", slog.String("frame_type", "x\n[INFO] auth ok\u2028\x1b[2J"))
	}
	l.info("other")
	require.Equal(t, linesPerSecond+1, strings.Count(out.String(), "\n"))
	require.NotContains(t, out.String(), "\x1b")

	dropped, ok := l.allow("one", time.Now().Add(time.Second))
	require.True(t, ok)
	require.Equal(t, 100-linesPerSecond, dropped)
}
