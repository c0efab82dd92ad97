package natsd

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var passwordShape = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// loadSecrets reads the passwords of <data>/keys, making those that are missing. The
// gate's is new at every start: nobody else needs it.
func loadSecrets(keys string, edges bool) (secrets, error) {
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return secrets{}, fmt.Errorf("make keys folder: %w", err)
	}
	relay, err := password(filepath.Join(keys, "nats-relay.password"))
	if err != nil {
		return secrets{}, err
	}
	debug, err := password(filepath.Join(keys, "nats-debug.password"))
	if err != nil {
		return secrets{}, err
	}
	loaded := secrets{relay: relay, debug: debug, gate: newPassword()}
	if edges {
		loaded.edge, err = password(filepath.Join(keys, "nats-edge.password"))
	}
	return loaded, err
}

func newPassword() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return base64.RawURLEncoding.EncodeToString(b)
}

// password returns the password in a file, which it makes if there is none.
func password(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		p := newPassword()
		return p, writeFile(path, []byte(p+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	p := strings.TrimSpace(string(b))
	if !passwordShape.MatchString(p) {
		return "", fmt.Errorf("password file %s is damaged: remove it and a new one is made", path)
	}
	return p, nil
}

// writeFile puts a file in place whole, readable by its owner only.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// keptPort returns the port of the earlier run if it is free on host, else 0.
func keptPort(ctx context.Context, path, host string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return 0
	}
	if l.Close() != nil {
		return 0
	}
	return port
}

// contextFile is what nats --context FILE.json reads (natscli, jsm.go/natscontext).
func contextFile(description, url, user, password string) ([]byte, error) {
	return json.MarshalIndent(map[string]string{
		"description": description,
		"url":         url,
		"user":        user,
		"password":    password,
	}, "", "  ")
}
