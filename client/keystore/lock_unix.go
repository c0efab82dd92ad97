//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package keystore

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func lockFile(f *os.File) error {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return ErrInUse
	case err != nil:
		return fmt.Errorf("lock the key store: %w", err)
	}
	return nil
}
