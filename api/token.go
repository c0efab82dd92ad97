package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/peerrelay/peerrelay/store"
)

// OperatorTokenFile is where LoadOperatorToken keeps the token, below the data folder.
const OperatorTokenFile = "keys/operator.token"

// LoadOperatorToken returns the hash of the operator token in the data folder. Where
// there is none it makes one, in a file only its owner may read. An unreadable or
// damaged file is an error: it is never replaced.
func LoadOperatorToken(data string) (store.TokenHash, error) {
	path := filepath.Join(data, OperatorTokenFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return store.TokenHash{}, fmt.Errorf("make the keys folder: %w", err)
	}
	hash, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return hash, err
	}
	if err := writeToken(path); err != nil {
		return store.TokenHash{}, fmt.Errorf("write %s: %w", path, err)
	}
	return readToken(path)
}

func readToken(path string) (store.TokenHash, error) {
	file, err := os.Open(path)
	if err != nil {
		return store.TokenHash{}, fmt.Errorf("open the operator token: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return store.TokenHash{}, fmt.Errorf("look at the operator token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return store.TokenHash{}, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it, or delete it and start again", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, 1024))
	if err != nil {
		return store.TokenHash{}, fmt.Errorf("read the operator token: %w", err)
	}
	hash, ok := store.HashToken([]byte(strings.TrimSuffix(string(text), "\n")))
	if !ok {
		return store.TokenHash{}, fmt.Errorf("%s holds no token: delete it to have a new one made", path)
	}
	return hash, nil
}

// writeToken makes the file whole or not at all, and never over another.
func writeToken(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".operator-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	token, _ := store.NewToken()
	_, err = file.WriteString(token + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
