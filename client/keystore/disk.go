package keystore

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// file is what a log needs of one.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// disk is what a store needs of a file system, so that tests can make it fail.
type disk interface {
	Open(path string) (file, error)
	Create(path string) (file, error) // empty, mode 0600, also where there was one
	Rename(from, to string) error     // lasting when it returns
	Remove(path string) error
}

type systemDisk struct{}

type systemFile struct{ *os.File }

func (f systemFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (systemDisk) Open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := private(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return systemFile{f}, nil
}

func (d systemDisk) Create(path string) (file, error) {
	if err := d.Remove(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (systemDisk) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

func (systemDisk) Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the names in a folder last; not every system can.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lock takes the lock of a store, which ends with the returned file or with the process.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
