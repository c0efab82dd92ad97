package testkit

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/peerrelay/peerrelay/internal/testkit/port"
)

// StartBrokerOnDisk runs an external NATS server in a process of its own, whose
// store is a file system of that many bytes.
func StartBrokerOnDisk(t testing.TB, bytes int) *BrokerProcess {
	t.Helper()
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 { // an ordinary user may mount in a user namespace of its own
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	b := &BrokerProcess{config: brokerConfig{Dir: t.TempDir(), Port: port.Free(t), Disk: bytes}, attributes: attributes}
	b.Start(t)
	t.Cleanup(b.Kill)
	return b
}

// mount puts a small file system at dir, seen by this process only.
func mount(dir string, bytes int) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(bytes)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}
