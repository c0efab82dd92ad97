package pgd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// logMax bounds one log file; there are two.
const logMax = 8 << 20

// logFile is the server's log: postgres.log, and postgres.log.1 before it.
type logFile struct {
	path string
	max  int64
	file *os.File
	size int64
	tail tail // for the error text of a failed start
}

func openLog(dir string) (*logFile, error) {
	l := &logFile{path: filepath.Join(dir, "postgres.log"), max: logMax, tail: tail{max: 1500}}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open PostgreSQL log: %w", err)
	}
	return l, nil
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	return nil
}

// drain copies r into the log until its end. It reads on when the log can't be written,
// for a full pipe would stop the server.
func (l *logFile) drain(r io.Reader) {
	buf := make([]byte, 8192)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			_, _ = l.tail.Write(buf[:n])
			l.write(buf[:n])
		}
		if err != nil {
			break
		}
	}
	if l.file != nil {
		l.file.Close()
	}
}

func (l *logFile) write(b []byte) {
	if l.file != nil && l.size+int64(len(b)) > l.max {
		l.file.Close()
		l.file = nil
		_ = os.Rename(l.path, l.path+".1")
	}
	if l.file == nil && l.open() != nil {
		return
	}
	if l.size+int64(len(b)) > l.max {
		return // it could not be moved away
	}
	n, _ := l.file.Write(b)
	l.size += int64(n)
}

// tail keeps the last max bytes written to it.
type tail struct {
	max int
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - t.max; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
