package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// secret reads one token: the first line of a file or of standard input.
func secret(con console, file, what string) (string, error) {
	in := con.in
	if file != "" && file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read the %s: %w", what, err)
		}
		defer opened.Close()
		in = opened
	} else if interactive(in) {
		con.notef("paste the %s and press Enter", what)
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxCredential)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	token := strings.TrimSpace(line)
	if token == "" {
		return "", fmt.Errorf("there is no %s in it", what)
	}
	return token, nil
}

// secretFile is where a token goes: a new file that only its owner may read. It is made
// before the token is, so that one that cannot be kept is never made.
type secretFile struct {
	file *os.File // nil: none was asked for
	kept bool
}

func newSecretFile(path string) (*secretFile, error) {
	if path == "" {
		return new(secretFile), nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is there already and stays as it is: name another --out, or remove it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the file: %w", err)
	}
	return &secretFile{file: file}, nil
}

func (s *secretFile) keep(token string) error {
	if s.file == nil {
		return nil
	}
	s.kept = true // in part at least: it is not removed
	if _, err := s.file.WriteString(token + "\n"); err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	return nil
}

// close removes a file that received nothing.
func (s *secretFile) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	if !s.kept {
		_ = os.Remove(s.file.Name())
	}
}
