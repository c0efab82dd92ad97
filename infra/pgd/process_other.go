//go:build !linux

package pgd

import (
	"os"
	"path/filepath"
	"syscall"
)

// dieWithRelay does nothing: only Linux has a parent death signal. A postmaster that
// outlives the relay is found by PostgreSQL's own lock file at the next start.
func dieWithRelay(*syscall.SysProcAttr, syscall.Signal) {}

// reach opens the way for another user by letting it pass through <data>.
func (f folder) reach() (base string, inherit []*os.File, err error) {
	if f.acct.other {
		err = os.Chmod(filepath.Dir(f.root), 0o711)
	}
	return f.root, nil, err
}

func serverProcesses(string) ([]int, error) { return nil, nil }

const canSeeProcesses = false
