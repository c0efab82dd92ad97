//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd && !windows

package keystore

import (
	"errors"
	"fmt"
	"os"
)

// lockFile refuses: without a lock two clients of one device would use one store.
func lockFile(*os.File) error {
	return fmt.Errorf("lock the key store: %w", errors.ErrUnsupported)
}
