package keystore

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/crypto/argon2"
)

// Lengths of secrets in bytes.
const (
	MinPassphrase = 8
	MaxPassphrase = 1024
	KeyFileSize   = 32
)

const (
	keySize  = 32
	fileMode = 0o600
	others   = 0o077

	labelKeyFile = "peerrelay/keystore-file/v1\x00"
)

// kind says what a secret is.
type kind byte

const (
	kindPassphrase kind = 1
	kindKeyFile    kind = 2
)

// Secret opens a key store. The zero value opens none. It never prints what it is.
type Secret struct {
	kind kind
	text []byte
}

// Passphrase is a secret that people remember: MinPassphrase to MaxPassphrase bytes, which
// are used as they are. Any others are ErrSecret.
func Passphrase(text []byte) (Secret, error) {
	if len(text) < MinPassphrase || len(text) > MaxPassphrase {
		return Secret{}, fmt.Errorf("a passphrase has %d to %d bytes: %w", MinPassphrase, MaxPassphrase, ErrSecret)
	}
	return Secret{kind: kindPassphrase, text: bytes.Clone(text)}, nil
}

// KeyFile is a secret that a program finds: the KeyFileSize bytes of a regular file. It
// returns ErrPermissions for a file that anybody but its owner can read or write, ErrSecret
// for one that is no key file, and what os.Open returns.
func KeyFile(path string) (Secret, error) {
	file, err := os.Open(path)
	if err != nil {
		return Secret{}, err
	}
	defer file.Close()
	if err := private(file); err != nil {
		return Secret{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, KeyFileSize+1))
	if err != nil {
		return Secret{}, fmt.Errorf("read the key file: %w", err)
	}
	if len(text) != KeyFileSize || bytes.Equal(text, make([]byte, KeyFileSize)) {
		return Secret{}, fmt.Errorf("a key file has %d random bytes: %w", KeyFileSize, ErrSecret)
	}
	return Secret{kind: kindKeyFile, text: text}, nil
}

// NewKeyFile makes a key file of mode 0600 where there is none yet (else fs.ErrExist) and
// returns its secret. It is on disk before this returns, and whole whenever it can be seen; for
// that the folder's file system has to have hard links.
func NewKeyFile(path string) (Secret, error) {
	text := make([]byte, KeyFileSize)
	_, _ = rand.Read(text)                                                       // never fails: the program ends instead (package crypto/rand)
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return Secret{}, fmt.Errorf("make the key file: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Link(file.Name(), path) // unlike renaming, this replaces nothing
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return Secret{}, fmt.Errorf("make the key file: %w", err)
	}
	return Secret{kind: kindKeyFile, text: text}, nil
}

// TakesPassphrase reports whether what opens a store is a passphrase, and not a key file. It
// returns fs.ErrNotExist, ErrDamaged, ErrVersion and ErrCost as Open does, and takes no lock.
func TakesPassphrase(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	first := make([]byte, sector)
	if _, err := io.ReadFull(file, first); err != nil {
		return false, fmt.Errorf("read the header: %w", ErrDamaged)
	}
	h, err := parseHeader(first)
	if err != nil {
		return false, err
	}
	return h.kind == kindPassphrase, nil
}

// IsZero reports whether it is the zero Secret, which opens nothing.
func (s Secret) IsZero() bool { return s.kind == 0 }

// String does not tell the secret.
func (Secret) String() string { return "(secret)" }

// GoString does not tell the secret.
func (Secret) GoString() string { return "(secret)" }

// Format does not tell the secret.
func (Secret) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, "(secret)") }

// private refuses what is no regular file of its owner alone.
func private(file *os.File) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: %w", file.Name(), fs.ErrInvalid)
	case runtime.GOOS != "windows" && info.Mode().Perm()&others != 0:
		return fmt.Errorf("chmod 600 %s: %w", file.Name(), ErrPermissions)
	}
	return nil
}

// cost is how much a passphrase is stretched (RFC 9106, section 3.1).
type cost struct {
	passes  uint32 // t
	memory  uint32 // m, in KiB
	threads uint8  // p
}

// standardCost is the second recommended one of RFC 9106, section 4.
var standardCost = cost{passes: 3, memory: 64 << 10, threads: 4}

// Bounds of what is accepted: below the least is weaker than OWASP's "Password Storage" asks for
// (19 MiB, two passes); above the most, opening a hostile file would be an attack.
const (
	minPasses  = 2
	maxPasses  = 16
	minMemory  = 19 << 10
	maxMemory  = 512 << 10
	maxThreads = 16
	// maxWork bounds passes times memory: 2 GiB are filled in a few seconds.
	maxWork = 2 << 20
)

func (c cost) check() error {
	if c.passes < minPasses || c.passes > maxPasses || c.memory < minMemory || c.memory > maxMemory ||
		c.threads < 1 || c.threads > maxThreads || uint64(c.passes)*uint64(c.memory) > maxWork {
		return fmt.Errorf("%d passes, %d KiB, %d threads: %w", c.passes, c.memory, c.threads, ErrCost)
	}
	return nil
}

// key is what the header of a file is sealed with. The header has been checked.
func (s Secret) key(h *header) (key [keySize]byte, err error) {
	var derived []byte
	switch {
	case s.kind != h.kind:
		return key, ErrWrongSecret
	case s.kind == kindPassphrase:
		derived = argon2.IDKey(s.text, h.salt[:], h.cost.passes, h.cost.memory, h.cost.threads, keySize)
	default:
		derived, err = hkdf.Key(sha256.New, s.text, h.salt[:], labelKeyFile, keySize)
	}
	if err != nil {
		return key, fmt.Errorf("derive the key: %w", err)
	}
	copy(key[:], derived)
	return key, nil
}
