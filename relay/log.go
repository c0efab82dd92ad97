package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// linesPerSecond bounds what one kind of event may log: a fault that meets every
// envelope, or a client that sends noise, must not fill the disk.
const linesPerSecond = 5

// limitedLog logs a bounded number of lines a second of each message. Messages are
// constants, so there are few of them.
type limitedLog struct {
	log *slog.Logger

	mu    sync.Mutex
	lines map[string]*lines
}

type lines struct {
	bucket
	dropped int
}

func newLimitedLog(log *slog.Logger) *limitedLog {
	return &limitedLog{log: log, lines: make(map[string]*lines)}
}

func (l *limitedLog) warn(message string, attrs ...slog.Attr) {
	l.write(slog.LevelWarn, message, attrs)
}

func (l *limitedLog) info(message string, attrs ...slog.Attr) {
	l.write(slog.LevelInfo, message, attrs)
}

func (l *limitedLog) write(level slog.Level, message string, attrs []slog.Attr) {
	dropped, ok := l.allow(message, time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("lines_left_out", dropped))
	}
	l.log.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // constants, from this package
}

// allow also returns how many lines of this message were left out since the last one.
func (l *limitedLog) allow(message string, now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := l.lines[message]
	if kind == nil {
		kind = new(lines)
		l.lines[message] = kind
	}
	if !kind.take(now, linesPerSecond, linesPerSecond) {
		kind.dropped++
		return 0, false
	}
	dropped, kind.dropped = kind.dropped, 0
	return dropped, true
}
