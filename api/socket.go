package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// SocketFile is the name of the operator socket in the data folder.
const SocketFile = "relay.sock"

// maxSocketPath is what every system's socket addresses hold, ending zero included.
const maxSocketPath = 100

// ErrSocketInUse says that another process answers on the socket.
var ErrSocketInUse = errors.New("another relay is running on this data folder")

// ListenSocket listens on a unix socket that only its owner can open (mode 0600 from
// the first moment on). The file of a dead process is replaced; a live one's is not:
// ErrSocketInUse. Closing the listener removes the file.
func ListenSocket(path string) (net.Listener, error) {
	if err := checkStale(path); err != nil {
		return nil, err
	}
	// The socket is made in a folder nobody else may enter and moved into place, so
	// that it is never there with other rights.
	folder, err := os.MkdirTemp(filepath.Dir(path), ".sock-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the operator socket: %w", err)
	}
	defer os.RemoveAll(folder)
	made := filepath.Join(folder, "s")
	listener, err := listenUnix(made)
	if err != nil {
		return nil, fmt.Errorf("listen on the operator socket: %w", err)
	}
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("put the operator socket into place: %w", err), listener.Close())
	}
	return &socketListener{UnixListener: listener, path: path, info: info}, nil
}

func listenUnix(path string) (*net.UnixListener, error) {
	name, done, err := shortName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// checkStale returns nil where path is free or holds a socket nobody answers on.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the operator socket: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is in the way of the operator socket and is not a socket", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := DialSocket(ctx, path)
	switch {
	case err == nil:
		return errors.Join(ErrSocketInUse, conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("see whether a relay answers on %s: %w", path, err)
}

// DialSocket connects to an operator socket.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	name, done, err := shortName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", name)
}

// shortName returns a name of path that fits a socket address: an open descriptor of
// its folder stands for a long one. done closes it.
func shortName(path string) (name string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	name = fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path))
	return name, func() { _ = folder.Close() }, nil
}

// socketListener removes its file when it is closed, unless another has its place.
type socketListener struct {
	*net.UnixListener
	path string
	info os.FileInfo
	once sync.Once
}

func (l *socketListener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.info) {
			_ = os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}
