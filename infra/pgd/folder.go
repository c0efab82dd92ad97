package pgd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPathMax is the longest path a unix socket can have (sun_path without its NUL).
const socketPathMax = 107

const (
	socketName      = ".s.PGSQL.5432"
	socketDirPrefix = "relay-pg-"
)

// folder is <data>/postgres. Paths are absolute and as the relay sees them.
type folder struct {
	root string
	acct account
}

func (f folder) data() string { return filepath.Join(f.root, "data") }
func (f folder) conf() string { return filepath.Join(f.root, "conf") }

// draft is where initdb makes data.
func (f folder) draft() string { return f.data() + ".new" }

func (f folder) run() string { return filepath.Join(f.root, "run") }
func (f folder) log() string { return filepath.Join(f.root, "log") }

// openFolder makes what is missing and checks who owns what is there.
func openFolder(dataDir string, candidates []string) (folder, error) {
	f := folder{root: filepath.Join(dataDir, "postgres")}
	var err error
	if f.acct, err = chooseAccount(candidates); err != nil {
		return f, err
	}
	if info, err := os.Lstat(f.data()); err == nil {
		if f.acct, err = accountOfData(info, f.acct); err != nil {
			return f, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("look at the PostgreSQL data: %w", err)
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return f, fmt.Errorf("make data folder: %w", err)
	}
	return f, f.make()
}

func (f folder) make() error {
	mode := os.FileMode(0o700)
	if f.acct.other {
		mode = 0o711
	}
	for _, d := range []struct {
		path  string
		mode  os.FileMode
		owner int
	}{
		{f.root, mode, os.Geteuid()},
		{f.conf(), mode, os.Geteuid()},
		{f.log(), 0o700, os.Geteuid()},
		{f.run(), 0o700, f.acct.uid},
	} {
		if err := makeDir(d.path, d.mode, d.owner, f.acct.gid); err != nil {
			return fmt.Errorf("make PostgreSQL folder: %w", err)
		}
	}
	return nil
}

// makeDir makes path with that mode and owner, or demands that an existing one has that
// owner. The parent must be the relay's own: then nobody can swap path meanwhile.
func makeDir(path string, mode os.FileMode, uid, gid int) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", path)
	}
	if uid != os.Geteuid() {
		if err := os.Lchown(path, uid, gid); err != nil {
			return err
		}
	} else if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid {
		return fmt.Errorf("%s belongs to user id %d, not to the relay's user id %d", path, st.Uid, uid)
	}
	return os.Chmod(path, mode) // whatever the umask left
}

// version returns the major version of the data in <data>/postgres, 0 where there is none.
func dataVersion(dataDir string) (int, error) {
	b, err := readSmall(filepath.Join(dataDir, "postgres", "data", "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read version of the PostgreSQL data: %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(b)), ".")
	v, err := strconv.Atoi(major)
	if err != nil {
		return 0, fmt.Errorf("%w: PG_VERSION says %.20q", ErrVersion, b)
	}
	return v, nil
}

// readSmall reads a file of at most 4 KiB that another user may have put there: it
// follows no link and waits for no pipe.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// socketDirRecord holds the path of a folder outside of <data>, so that the next start
// removes it if this process can't.
func (f folder) socketDirRecord() string { return filepath.Join(f.conf(), "socket-folder") }

// socketDir returns the path under which clients find the folder run/. Where its own is
// too long for a socket, or has a comma, which would make it two hosts, that is a link
// in a new private folder below the temporary folder.
func (f folder) socketDir() (string, error) {
	if err := f.removeSocketDir(); err != nil {
		return "", err
	}
	if len(filepath.Join(f.run(), socketName)) <= socketPathMax && !strings.Contains(f.run(), ",") {
		return f.run(), nil
	}
	parent := os.TempDir()
	if len(parent) > socketPathMax/2 || strings.Contains(parent, ",") {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, socketDirPrefix)
	if err != nil {
		return "", fmt.Errorf("make socket folder: %w", err)
	}
	if err := os.WriteFile(f.socketDirRecord(), []byte(dir), 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("note socket folder: %w", err), os.Remove(dir))
	}
	link := filepath.Join(dir, "run")
	if err := os.Symlink(f.run(), link); err != nil {
		return "", fmt.Errorf("link socket folder: %w", err)
	}
	return link, nil
}

// removeSocketDir removes the folder outside of <data>, if there is one.
func (f folder) removeSocketDir() error {
	b, err := readSmall(f.socketDirRecord())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read note of socket folder: %w", err)
	}
	dir := string(b)
	// Other users may make folders of any name there once ours is gone.
	if info, err := os.Lstat(dir); err == nil && info.IsDir() && strings.HasPrefix(filepath.Base(dir), socketDirPrefix) {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove socket folder: %w", err)
			}
		}
	}
	return os.Remove(f.socketDirRecord())
}
