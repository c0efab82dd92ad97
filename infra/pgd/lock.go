package pgd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked says that a running process holds the lock of a folder.
var ErrLocked = errors.New("another relay uses this data folder")

const lockName = "relay.lock"

// FolderLock is a held lock. The kernel gives it up when the process ends.
type FolderLock struct{ file *os.File }

// Lock takes the folder for this process, or fails with ErrLocked at once. It locks the
// file relay.lock in dir, which must exist. Start takes the lock of <data>/postgres by
// itself; the lock of <data> is the caller's business.
func Lock(dir string) (*FolderLock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s%s", ErrLocked, dir, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Only a hint for the error above; the lock holds without it.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &FolderLock{file: f}, nil
}

// holder names the process that wrote itself into the lock file.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if pid, convErr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && convErr == nil {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}

// Unlock gives the folder up; a second call does nothing. The file stays: removing it
// would let two processes lock two files of the same name.
func (l *FolderLock) Unlock() error {
	if l == nil || l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}
