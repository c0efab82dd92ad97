package pgd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithRelay makes the kernel send sig to the process when the thread that starts it
// ends, see startBound.
func dieWithRelay(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// reach returns the path under which a process with the returned files as first
// inherited files finds the folder. As another user it may not be able to walk there.
func (f folder) reach() (base string, inherit []*os.File, err error) {
	if !f.acct.other {
		return f.root, nil, nil
	}
	fd, err := unix.Open(f.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open PostgreSQL folder: %w", err)
	}
	return "/proc/self/fd/3", []*os.File{os.NewFile(uintptr(fd), f.root)}, nil
}

// serverProcesses returns the processes that run program postgres in folder data, with
// the postmaster and its children. Every one of them has it as working folder. Processes
// of other users are seen by root only, and an ordinary user's data has none.
func serverProcesses(data string) ([]int, error) {
	want, err := os.Stat(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		cwd, err := os.Stat(filepath.Join(dir, "cwd"))
		if err != nil || !os.SameFile(cwd, want) {
			continue
		}
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		// " (deleted)": the package was upgraded meanwhile.
		if err == nil && strings.TrimSuffix(filepath.Base(exe), " (deleted)") == "postgres" {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// canSeeProcesses says that serverProcesses tells the whole truth.
const canSeeProcesses = true
