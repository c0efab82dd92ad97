package testkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

// BrokerProcess is an external NATS server in a process of its own: it can be
// killed, stopped for a while, and run out of disk.
type BrokerProcess struct {
	config     brokerConfig
	attributes *syscall.SysProcAttr
	child      *child
}

type brokerConfig struct {
	Dir  string
	Port int
	Disk int // bytes of a file system of its own; 0: none
}

// StartBrokerProcess runs one until the test ends. The test's TestMain has to begin
// with RunChild.
func StartBrokerProcess(t testing.TB) *BrokerProcess {
	t.Helper()
	b := &BrokerProcess{config: brokerConfig{Dir: t.TempDir(), Port: port.Free(t)}}
	b.Start(t)
	t.Cleanup(b.Kill)
	return b
}

// Start starts it, after Kill on its data and its port.
func (b *BrokerProcess) Start(t testing.TB) {
	t.Helper()
	b.child = startChild(t, childBroker, b.config, b.attributes)
}

// URL is where it listens.
func (b *BrokerProcess) URL() string { return "nats://" + b.Addr() }

// Addr is its host and port.
func (b *BrokerProcess) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.config.Port) }

// Kill ends it with SIGKILL. Killing a killed one does nothing.
func (b *BrokerProcess) Kill() { b.child.kill() }

// Pause makes it stand still, its connections open, until Continue.
func (b *BrokerProcess) Pause(t testing.TB) {
	t.Helper()
	require.NoError(t, b.child.command.Process.Signal(syscall.SIGSTOP))
}

// Continue ends a pause.
func (b *BrokerProcess) Continue(t testing.TB) {
	t.Helper()
	require.NoError(t, b.child.command.Process.Signal(syscall.SIGCONT))
}

// Fill takes that much of its disk away, FreeDisk gives it back.
func (b *BrokerProcess) Fill(t testing.TB, bytes int) {
	t.Helper()
	b.child.do(t, "fill "+strconv.Itoa(bytes))
}

// FreeDisk undoes Fill.
func (b *BrokerProcess) FreeDisk(t testing.TB) {
	t.Helper()
	b.child.do(t, "free")
}

// Restart shuts it down in order and starts it again, within its process.
func (b *BrokerProcess) Restart(t testing.TB) {
	t.Helper()
	b.child.do(t, "restart")
}

// runBroker is the main of a broker's process.
func runBroker(config []byte) error {
	var cfg brokerConfig
	if err := json.Unmarshal(config, &cfg); err != nil {
		return err
	}
	if cfg.Disk > 0 {
		if err := mount(cfg.Dir, cfg.Disk); err != nil {
			return err
		}
	}
	broker, err := serveBroker(cfg)
	if err != nil {
		return err
	}
	say(childReady{Listen: broker.Addr().String()})
	ballast := filepath.Join(cfg.Dir, "ballast")
	return commands(func(command, argument string) error {
		switch command {
		case "restart":
			broker.Shutdown()
			broker.WaitForShutdown()
			broker, err = serveBroker(cfg)
			return err
		case "fill":
			size, err := strconv.Atoi(argument)
			if err != nil {
				return err
			}
			return os.WriteFile(ballast, make([]byte, size), 0o600)
		case "free":
			return os.Remove(ballast)
		default:
			return fmt.Errorf("unknown command %q", command)
		}
	})
}

func serveBroker(cfg brokerConfig) (*server.Server, error) {
	broker, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: cfg.Port, JetStream: true, StoreDir: filepath.Join(cfg.Dir, "nats"),
		NoLog: true, NoSigs: true, SyncInterval: time.Second,
	})
	if err != nil {
		return nil, err
	}
	broker.Start()
	if !broker.ReadyForConnections(patience) {
		return nil, errors.New("not ready")
	}
	return broker, nil
}
