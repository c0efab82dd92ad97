package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/peerrelay/peerrelay/client"
)

// keeper saves files that came, in one folder.
type keeper struct {
	folder string
	root   *os.Root
}

// newKeeper makes the folder. The empty one keeps nothing.
func newKeeper(folder string) (*keeper, error) {
	if folder == "" {
		return nil, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("--files: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("--files: %w", err)
	}
	return &keeper{folder: folder, root: root}, nil
}

func (k *keeper) close() {
	if k != nil {
		_ = k.root.Close()
	}
}

// copies is how many files of one name are numbered.
const copies = 1000

// file saves a file under its own name, or one like it where that is taken, and never over
// another one. A message that comes again finds the file that was saved for it.
func (k *keeper) file(f *client.File) (path string, err error) {
	name := fileName(f.Name)
	part := ".part-" + rand.Text()
	if err := k.write(part, f.Data); err != nil {
		_ = k.root.Remove(part)
		return "", err
	}
	defer func() { _ = k.root.Remove(part) }()
	extension := filepath.Ext(name)
	stem := strings.TrimSuffix(name, extension)
	for i := 1; i <= copies+1; i++ {
		switch {
		case i > copies: // no sender of files keeps the others' from being saved
			name = stem + " " + rand.Text() + extension
		case i > 1:
			name = fmt.Sprintf("%s (%d)%s", stem, i, extension)
		}
		err := k.root.Link(part, name)
		if err == nil || errors.Is(err, fs.ErrExist) && k.has(name, f.Data) {
			return filepath.Join(k.folder, name), nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s has %d files of that name", k.folder, copies)
}

func (k *keeper) write(name string, data []byte) error {
	file, err := k.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

// has reports whether a file has this content.
func (k *keeper) has(name string, data []byte) bool {
	info, err := k.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(data)) {
		return false
	}
	file, err := k.root.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	found, err := io.ReadAll(io.LimitReader(file, int64(len(data))+1))
	return err == nil && bytes.Equal(found, data)
}

// maxName is the longest name of a file here, in bytes, of the 255 that systems take.
const maxName = 200

// fileName is a sender's name of a file as one that no system takes for anything else: without
// folders, what a terminal does not print, and characters with a meaning.
func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '\n' || shown(r) < 0 {
			return -1
		}
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	for len(name) > maxName {
		runes := []rune(name)
		name = string(runes[1:]) // the end says what kind of file it is
	}
	name = strings.TrimRight(strings.TrimLeft(name, "."), ". ")
	stem, _, _ := strings.Cut(name, ".")
	if reserved(strings.ToUpper(strings.TrimSpace(stem))) {
		name = "_" + name
	}
	if strings.TrimSpace(name) == "" {
		return "file"
	}
	return name
}

// reserved reports a name that is a device of Windows.
func reserved(name string) bool {
	switch name {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(name) == 4 && (name[:3] == "COM" || name[:3] == "LPT") && name[3] >= '0' && name[3] <= '9'
}
