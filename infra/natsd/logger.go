package natsd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// serverLog hands the server's log lines to slog, at most a few a second, and turns what
// the server calls fatal into an error: the server's own logger would end the process.
//
// What the server calls a notice (a page of them at each start) is debug to the relay.
type serverLog struct {
	log     *slog.Logger
	limit   *rate.Limiter
	dropped atomic.Int64

	once  sync.Once
	fatal chan struct{} // closed at the first fatal line; err is set then
	err   error
}

func newServerLog(log *slog.Logger) *serverLog {
	return &serverLog{log: log, limit: rate.NewLimiter(10, 100), fatal: make(chan struct{})}
}

func (l *serverLog) line(level slog.Level, format string, v []any) {
	ctx := context.Background() // the server has none
	if !l.log.Enabled(ctx, level) {
		return
	}
	if !l.limit.Allow() {
		l.dropped.Add(1)
		return
	}
	attrs := []slog.Attr{slog.String("line", strings.TrimSpace(fmt.Sprintf(format, v...)))}
	if n := l.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("lines_dropped", n))
	}
	l.log.LogAttrs(ctx, level, "nats server", attrs...)
}

func (l *serverLog) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }

func (l *serverLog) Warnf(format string, v ...any) {
	// Ours are random and never typed by anyone: bcrypt would only slow connecting down.
	if !strings.HasPrefix(format, "Plaintext passwords detected") {
		l.line(slog.LevelWarn, format, v)
	}
}

func (l *serverLog) Errorf(format string, v ...any) { l.line(slog.LevelError, format, v) }
func (l *serverLog) Debugf(format string, v ...any) { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Tracef(string, ...any)          {} // would print payloads; never turned on

// Fatalf must not call the server: some callers hold its lock.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.once.Do(func() {
		l.err = fmt.Errorf(format, v...)
		close(l.fatal)
	})
	l.line(slog.LevelError, format, v)
}

// failure is the first fatal line, or nil.
func (l *serverLog) failure() error {
	select {
	case <-l.fatal:
		return l.err
	default:
		return nil
	}
}
