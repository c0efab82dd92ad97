package inbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A NATS server in a process of its own, which can be killed, and can have a small
// disk of its own. The process is this test binary, told so by its environment.
const (
	envDir  = "INBOX_TEST_NATS_DIR"
	envPort = "INBOX_TEST_NATS_PORT"
	envDisk = "INBOX_TEST_NATS_DISK" // bytes of a file system made for it
)

// serveNATS is the main function of that process: it serves until its input ends.
// Input lines are "restart", "fill <bytes>" and "free".
func serveNATS(dir string) error {
	if disk := os.Getenv(envDisk); disk != "" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+disk); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	port, err := strconv.Atoi(os.Getenv(envPort))
	if err != nil {
		return err
	}
	start := func() (*server.Server, error) {
		srv, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: filepath.Join(dir, "nats"),
			NoSigs: true, NoLog: true, SyncInterval: time.Second,
		})
		if err != nil {
			return nil, err
		}
		srv.Start()
		if !srv.ReadyForConnections(20 * time.Second) {
			return nil, errors.New("not ready")
		}
		return srv, nil
	}
	srv, err := start()
	if err != nil {
		return err
	}
	fmt.Println("ok")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "restart":
			srv.Shutdown()
			srv.WaitForShutdown()
			srv, err = start()
		case "fill":
			size, _ := strconv.Atoi(argument)
			err = os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, size), 0o600)
		case "free":
			err = os.Remove(filepath.Join(dir, "ballast"))
		}
		if err != nil {
			return err
		}
		fmt.Println("ok")
	}
	return nil
}

type natsProcess struct {
	tb      testing.TB
	dir     string
	port    int
	disk    int
	command *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Reader
}

func startProcess(tb testing.TB, disk int) *natsProcess {
	tb.Helper()
	free := startNATS(tb) // a port that is free
	port := free.port
	free.stop()
	p := &natsProcess{tb: tb, dir: tb.TempDir(), port: port, disk: disk}
	p.start()
	tb.Cleanup(p.kill)
	return p
}

func (p *natsProcess) start() {
	p.tb.Helper()
	p.command = exec.Command(os.Args[0])
	p.command.Env = append(os.Environ(), envDir+"="+p.dir, envPort+"="+strconv.Itoa(p.port))
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.disk > 0 {
		p.command.Env = append(p.command.Env, envDisk+"="+strconv.Itoa(p.disk))
		p.command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		if os.Getuid() != 0 { // an ordinary user may mount in a user namespace of its own
			p.command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			p.command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			p.command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
	}
	stdin, err := p.command.StdinPipe()
	require.NoError(p.tb, err)
	stdout, err := p.command.StdoutPipe()
	require.NoError(p.tb, err)
	require.NoError(p.tb, p.command.Start())
	p.stdin, p.answers = stdin, bufio.NewReader(stdout)
	p.answered()
}

func (p *natsProcess) answered() {
	p.tb.Helper()
	line, err := p.answers.ReadString('\n')
	require.NoError(p.tb, err)
	require.Equal(p.tb, "ok\n", line)
}

func (p *natsProcess) do(command string) {
	p.tb.Helper()
	_, err := fmt.Fprintln(p.stdin, command)
	require.NoError(p.tb, err)
	p.answered()
}

func (p *natsProcess) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // says that it was killed
}

func (p *natsProcess) dial(name string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", p.port), append(options, nats.Name(name))...)
}
