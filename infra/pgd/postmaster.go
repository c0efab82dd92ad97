package pgd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// postmaster is one run of the server.
type postmaster struct {
	cmd     *exec.Cmd
	output  *os.File // read end of the server's stderr
	logs    *logFile
	drained chan struct{} // closed when the log has been read to its end
	exited  chan struct{} // closed when the postmaster has ended; err is set then
	err     error

	drainOnce sync.Once
	drainErr  error
}

// launch starts the postmaster and the two goroutines that own it.
func launch(f folder, socketDir string, progs programs) (*postmaster, error) {
	base, inherit, err := f.reach()
	if err != nil {
		return nil, err
	}
	defer closeAll(inherit)
	p := &postmaster{drained: make(chan struct{}), exited: make(chan struct{})}
	if p.logs, err = openLog(f.log()); err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		p.logs.file.Close()
		return nil, fmt.Errorf("make log pipe: %w", err)
	}
	defer in.Close()
	serverSide := socketDir
	if base != f.root {
		serverSide = filepath.Join(base, "run")
	}
	args := append([]string{"-D", filepath.Join(base, "data")}, fixedArgs(base, serverSide)...)
	cmd := exec.Command(progs.path("postgres"), args...) //nolint:noctx // it outlives Start's context
	cmd.Dir = "/"
	cmd.Env = cleanEnv()
	cmd.ExtraFiles = inherit
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = f.acct.sysProcAttr()
	dieWithRelay(cmd.SysProcAttr, syscall.SIGINT) // fast shutdown
	ended, err := startBound(cmd)
	if err != nil {
		out.Close()
		p.logs.file.Close()
		return nil, fmt.Errorf("start server: %w", err)
	}
	p.cmd, p.output = cmd, out
	go func() {
		defer close(p.drained)
		p.logs.drain(out)
	}()
	go func() {
		defer close(p.exited)
		if p.err = <-ended; p.err == nil {
			p.err = errors.New("exit status 0")
		}
	}()
	return p, nil
}

// abort ends a postmaster that did not come up.
func (p *postmaster) abort(log *slog.Logger) {
	select {
	case <-p.exited:
		_ = p.drain()
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		log.Warn("end a server that did not come up", "error", err)
	}
}

// stop ends the postmaster and waits for it, its children and its log.
func (p *postmaster) stop(ctx context.Context) error {
	return errors.Join(p.shutdown(ctx), p.drain())
}

// drain waits for the end of the log after that of the postmaster. The children hold the
// pipe: its end is theirs.
func (p *postmaster) drain() error {
	p.drainOnce.Do(func() {
		select {
		case <-p.drained:
		case <-time.After(10 * time.Second):
			p.drainErr = errors.Join(errors.New("server processes still hold the log"), p.output.SetReadDeadline(time.Now()))
			<-p.drained
		}
		p.output.Close()
	})
	return p.drainErr
}

func (p *postmaster) shutdown(ctx context.Context) error {
	select {
	case <-p.exited:
		return fmt.Errorf("server had ended by itself: %w", p.err)
	default:
	}
	p.signal(syscall.SIGINT)
	select {
	case <-p.exited:
		return p.exitErr()
	case <-ctx.Done():
	}
	err := fmt.Errorf("fast shutdown was cut short: %w", ctx.Err())
	p.signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
		return err
	case <-time.After(5 * time.Second):
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	return err
}

// exitErr is nil when the postmaster ended as it should.
func (p *postmaster) exitErr() error {
	if p.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("fast shutdown: %w", p.err)
}

// signal fails only when the postmaster has just ended, and then there is no need.
func (p *postmaster) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }
