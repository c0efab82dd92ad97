// Package secretfile keeps a secret that a command is given: in a new file that only its
// owner may read.
package secretfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// File is where one secret goes. It is made before the secret is, so that one that cannot
// be kept is never made. The zero File keeps nothing.
type File struct {
	file *os.File // nil: none was asked for
	kept bool
}

// New makes the file at path, which the flag named: it must not be there yet. An empty path
// asks for none.
func New(path, flag string) (*File, error) {
	if path == "" {
		return new(File), nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already and stays as it is: name another %s, or remove it", path, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("make the file: %w", err)
	}
	return &File{file: file}, nil
}

// Name is the path; empty where no file was asked for.
func (f *File) Name() string {
	if f.file == nil {
		return ""
	}
	return f.file.Name()
}

// Keep writes the secret, as a line, and returns when it is on the disk.
func (f *File) Keep(secret string) error {
	if f.file == nil {
		return nil
	}
	f.kept = true // in part at least: it is not removed
	if _, err := f.file.WriteString(secret + "\n"); err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	return nil
}

// Close removes a file that received nothing.
func (f *File) Close() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	if !f.kept {
		_ = os.Remove(f.file.Name())
	}
}
