package pgd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// initialise makes PGDATA where there is none. It works on a folder of another name and
// renames it in the end, so that an interrupted one is never taken for a database.
func (f folder) initialise(ctx context.Context, p programs) (made bool, err error) {
	if _, err := os.Lstat(f.data()); err == nil {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look at the PostgreSQL data: %w", err)
	}
	draft := f.draft()
	if err := os.RemoveAll(draft); err != nil {
		return false, fmt.Errorf("remove unfinished PostgreSQL data: %w", err)
	}
	if err := makeDir(draft, 0o700, f.acct.uid, f.acct.gid); err != nil {
		return false, fmt.Errorf("make PostgreSQL data folder: %w", err)
	}
	if err := f.initdb(ctx, p, filepath.Base(draft)); err != nil {
		return false, errors.Join(err, os.RemoveAll(draft))
	}
	if err := os.Rename(draft, f.data()); err != nil {
		return false, fmt.Errorf("put PostgreSQL data in place: %w", err)
	}
	return true, syncDir(f.root)
}

func (f folder) initdb(ctx context.Context, p programs, name string) error {
	base, inherit, err := f.reach()
	if err != nil {
		return err
	}
	defer closeAll(inherit)
	cmd := exec.CommandContext(ctx, p.path("initdb"), "--pgdata="+filepath.Join(base, name),
		"--username="+OwnerRole, "--auth-local=peer", "--auth-host=reject",
		"--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions")
	cmd.Dir = "/"
	cmd.Env = cleanEnv()
	cmd.ExtraFiles = inherit
	cmd.SysProcAttr = f.acct.sysProcAttr()
	dieWithRelay(cmd.SysProcAttr, syscall.SIGKILL)
	// It leads a session, and with it the group of its children.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out := &tail{max: 2048}
	cmd.Stdout, cmd.Stderr = out, out
	ended, err := startBound(cmd)
	if err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	if err := <-ended; err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("run initdb: %w", ctx.Err())
		}
		return fmt.Errorf("run initdb: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
