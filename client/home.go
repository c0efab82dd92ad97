package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// Files in a device's folder, beside the empty one that is the key store's lock.
const (
	keysFile = "keys"     // the key store: everything that makes a device
	keyFile  = "key-file" // what opens it; there is none where a passphrase does
)

// Modes of the folder and of the files in it: they are the owner's alone.
const (
	folderMode = 0o700
	fileMode   = 0o600
	others     = 0o077
)

// folder keeps a device.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// make makes the folder, or accepts one that only its owner can look into.
func (f folder) make() error {
	if err := os.MkdirAll(string(f), folderMode); err != nil {
		return fmt.Errorf("make the device's folder: %w", err)
	}
	return private(string(f), folderMode)
}

// private refuses what others on the machine can read or write.
func private(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&others != 0 {
		return fmt.Errorf("%w: chmod %o %s", keystore.ErrPermissions, mode, path)
	}
	return nil
}

// has reports whether there is such a file.
func (f folder) has(name string) (bool, error) {
	switch _, err := os.Lstat(f.path(name)); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// device opens the key store of a device that has enrolled here. One that an older version
// keeps in the clear is taken over. pause is called between any two changes of the folder, for
// tests that stop there.
func (f folder) device(given keystore.Secret, pause func()) (*keystore.Store, record, error) {
	older, err := f.older()
	if err != nil {
		return nil, record{}, err
	}
	store, err := f.store(given, older.DeviceID != "", pause)
	if err != nil {
		return nil, record{}, err
	}
	self, err := f.adopt(store, &older, pause)
	if err != nil {
		return nil, record{}, errors.Join(err, store.Close())
	}
	return store, self, nil
}

// adopt returns whose the store is. The record of an older version is saved in it first, where
// it has none; then nothing of it is needed outside any more.
func (f folder) adopt(store *keystore.Store, older *record, pause func()) (record, error) {
	self, err := loadRecord(store)
	switch {
	case err != nil:
		return record{}, fmt.Errorf("%s: %w", f.path(keysFile), err)
	case self.DeviceID == "" && older.DeviceID == "": // of an enrollment that was not finished
		return record{}, fmt.Errorf("%s: %w", string(f), ErrNoDevice)
	case self.DeviceID == "":
		self = *older
		if err := saveRecord(store, &self); err != nil {
			return record{}, err
		}
		pause()
	case older.DeviceID != "" && older.DeviceID != self.DeviceID:
		return record{}, fmt.Errorf("%s is of another device than %s: move it to a folder of its own", f.path(olderFile), f.path(keysFile))
	}
	return self, f.tidy(pause)
}

// store opens the key store. Where there is none yet it makes an empty one, or returns ErrNoDevice.
func (f folder) store(given keystore.Secret, create bool, pause func()) (*keystore.Store, error) {
	there, err := f.has(keysFile)
	switch {
	case err != nil:
		return nil, err
	case there:
		return f.open(given)
	case !create:
		return nil, fmt.Errorf("%s: %w", string(f), ErrNoDevice)
	}
	secret := given
	if given.IsZero() {
		if secret, err = f.ownKeyFile(); err != nil {
			return nil, err
		}
		pause()
	}
	store, err := keystore.Create(f.path(keysFile), secret)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", f.path(keysFile), err)
	}
	pause()
	return store, nil
}

func (f folder) open(given keystore.Secret) (*keystore.Store, error) {
	secret, err := f.secret(given)
	if err != nil {
		return nil, err
	}
	store, err := keystore.Open(f.path(keysFile), secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(keysFile), err)
	}
	return store, nil
}

// secret is what was given, or else what is in the folder's key file.
func (f folder) secret(given keystore.Secret) (keystore.Secret, error) {
	if !given.IsZero() {
		return given, nil
	}
	passphrase, err := keystore.TakesPassphrase(f.path(keysFile))
	if err != nil {
		return given, fmt.Errorf("%s: %w", f.path(keysFile), err)
	}
	if passphrase {
		return given, fmt.Errorf("%s: %w", f.path(keysFile), ErrPassphrase)
	}
	secret, err := keystore.KeyFile(f.path(keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return given, fmt.Errorf("the key file is missing, and nothing else opens %s: %w", f.path(keysFile), err)
	}
	return secret, err
}

// ownKeyFile is the folder's key file, which is made where there is none.
func (f folder) ownKeyFile() (keystore.Secret, error) {
	secret, err := keystore.NewKeyFile(f.path(keyFile))
	if errors.Is(err, fs.ErrExist) {
		return keystore.KeyFile(f.path(keyFile))
	}
	return secret, err
}

// tidy removes what is secret and not needed where the store is whole: the files of an older
// version, a key file that opens nothing as a passphrase does, and what an interrupted program left of
// writing one of them. Whoever calls it holds the store.
func (f folder) tidy(pause func()) error {
	passphrase, err := keystore.TakesPassphrase(f.path(keysFile))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return err
	}
	removed := false
	for _, entry := range entries {
		if !leftOver(entry.Name(), passphrase) {
			continue
		}
		if err := os.Remove(f.path(entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is not needed any more: %w", err)
		}
		removed = true
		pause()
	}
	if !removed {
		return nil
	}
	return f.sync()
}

func leftOver(name string, passphrase bool) bool {
	switch name {
	case olderFile, olderToken:
		return true
	case keyFile:
		return passphrase
	}
	for _, written := range [...]string{olderFile, olderToken, keyFile} {
		if strings.HasPrefix(name, "."+written+".") {
			return true
		}
	}
	return false
}

// sync makes the names in the folder last; not every system can.
func (f folder) sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(string(f))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
