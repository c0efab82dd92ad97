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

// Where tokens are kept, below the data folder.
const (
	OperatorTokenFile = "keys/operator.token"
	ServiceTokenFile  = "keys/service.token"
)

// LoadOperatorToken returns the hash of the operator token in the data folder. Where
// there is none it makes one, in a file only its owner may read. An unreadable or
// damaged file is an error: it is never replaced.
func LoadOperatorToken(data string) (store.TokenHash, error) {
	return loadToken(filepath.Join(data, OperatorTokenFile))
}

// LoadServiceToken does for the token of edge nodes what LoadOperatorToken does.
func LoadServiceToken(data string) (store.TokenHash, error) {
	return loadToken(filepath.Join(data, ServiceTokenFile))
}

// ReadServiceToken returns the token itself from a file only its owner may read: what an
// edge node brings. It never makes one.
func ReadServiceToken(path string) (string, error) {
	text, _, err := readToken(path)
	return text, err
}

func loadToken(path string) (store.TokenHash, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return store.TokenHash{}, fmt.Errorf("make the keys folder: %w", err)
	}
	_, hash, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return hash, err
	}
	if err := writeToken(path); err != nil {
		return store.TokenHash{}, fmt.Errorf("write %s: %w", path, err)
	}
	_, hash, err = readToken(path)
	return hash, err
}

func readToken(path string) (string, store.TokenHash, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", store.TokenHash{}, fmt.Errorf("open a token: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", store.TokenHash{}, fmt.Errorf("look at a token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", store.TokenHash{}, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it, or delete it and start again", path, info.Mode().Perm())
	}
	content, err := io.ReadAll(io.LimitReader(file, 1024))
	if err != nil {
		return "", store.TokenHash{}, fmt.Errorf("read a token: %w", err)
	}
	text := strings.TrimSuffix(string(content), "\n")
	hash, ok := store.HashToken([]byte(text))
	if !ok {
		return "", store.TokenHash{}, fmt.Errorf("%s holds no token: delete it to have a new one made", path)
	}
	return text, hash, nil
}

// writeToken makes the file whole or not at all, and never over another.
func writeToken(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
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
