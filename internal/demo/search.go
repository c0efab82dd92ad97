package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// mark is in everything that is written, and nowhere else.
const mark = "heliotrope-quartz-lantern"

// secret is something that must be nowhere on the server.
type secret struct {
	what  string
	value []byte
}

func (s *scenario) hide(what string, value []byte) {
	s.secrets = append(s.secrets, secret{what, value})
}

// search looks for plaintexts, invites and private keys in everything the server keeps: its data
// folder, both databases, and its log.
func (s *scenario) search(ctx context.Context) error {
	s.hide("a plaintext", []byte(mark))
	for _, p := range []*person{s.alice, s.bob, s.carol} {
		if p.stop != nil {
			if err := p.stop(); err != nil {
				return err
			}
		}
		if err := p.device.Close(); err != nil {
			return err
		}
		if err := s.hideKeys(p); err != nil {
			return err
		}
	}
	dump, err := s.server.dump(ctx)
	if err != nil {
		return err
	}
	proof := secret{"the id of an envelope", []byte(s.last.IDs[0])}
	searched := &searched{wanted: s.secrets, proof: forms(proof.value)}
	if err := searched.look("a dump of PostgreSQL", dump); err != nil {
		return err
	}
	if !searched.proven {
		return errors.New("the search does not find what is in PostgreSQL")
	}
	if err := searched.tree(s.server.data); err != nil {
		return err
	}
	searched.proven = false
	if err := searched.tree(filepath.Join(s.server.data, "nats")); err != nil {
		return err
	}
	if !searched.proven {
		return errors.New("the search does not find what is in JetStream")
	}
	log, err := os.ReadFile(s.server.log)
	if err != nil {
		return err
	}
	if err := searched.look("the log", log); err != nil {
		return err
	}
	s.say("searched %d files (%d MB) of the server, a dump of PostgreSQL and the log for plaintexts, %d private keys and invites: none",
		searched.files, searched.bytes>>20, len(s.secrets)-1)
	return nil
}

// hideKeys takes the private keys out of a device's key store.
func (s *scenario) hideKeys(p *person) error {
	secretFile, err := keystore.KeyFile(filepath.Join(p.home, "key-file"))
	if err != nil {
		return err
	}
	store, err := keystore.Open(filepath.Join(p.home, "keys"), secretFile)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.View(func(tx *keystore.Tx) error {
		var record struct {
			Identity  []byte `json:"identity_key"`
			Agreement []byte `json:"agreement_key"`
		}
		if err := json.Unmarshal(tx.Get(keystore.Device, "record"), &record); err != nil {
			return fmt.Errorf("%s's device: %w", p.name, err)
		}
		for _, key := range [][]byte{record.Identity, record.Agreement} {
			if len(key) != 32 {
				return fmt.Errorf("%s's device has no private keys", p.name)
			}
			s.hide("a private key of "+p.name, key)
		}
		return nil
	})
}

// forms are the ways in which bytes may stand in a file.
func forms(value []byte) [][]byte {
	all := [][]byte{value, []byte(hex.EncodeToString(value)), bytes.ToUpper([]byte(hex.EncodeToString(value)))}
	for shift := range 3 { // where the bytes begin within base64 of something longer
		text := base64.StdEncoding.EncodeToString(append(make([]byte, shift), value...))
		whole := []byte(text[(shift*8+5)/6 : len(text)-4])
		all = append(all, whole, []byte(hex.EncodeToString(whole)))
	}
	return all
}

// searched is what was looked at so far.
type searched struct {
	wanted []secret
	proof  [][]byte // of what has to be found
	proven bool
	files  int
	bytes  int64
}

func (s *searched) look(where string, data []byte) error {
	for _, secret := range s.wanted {
		for _, form := range forms(secret.value) {
			if bytes.Contains(data, form) {
				return fmt.Errorf("%s is in %s", secret.what, where)
			}
		}
	}
	s.proven = s.proven || slices.ContainsFunc(s.proof, func(form []byte) bool { return bytes.Contains(data, form) })
	return nil
}

func (s *searched) tree(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the server goes on meanwhile
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // the folder is the demo's own
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s.files++
		s.bytes += int64(len(data))
		return s.look(path, data)
	})
}

// dump is all of the database as text, in which nothing is compressed.
func (s *server) dump(ctx context.Context) ([]byte, error) {
	program, err := pgDump()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, "--host="+filepath.Join(s.data, "postgres", "run"), "--username=relay_owner", "relay")
	var refusal bytes.Buffer
	command.Stderr = &refusal
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("pg_dump: %w: %s", err, bytes.TrimSpace(refusal.Bytes()))
	}
	return out, nil
}

// pgDump finds the program where the server's own programs are.
func pgDump() (string, error) {
	if folder := os.Getenv("RELAY_PG_BIN"); folder != "" {
		return filepath.Join(folder, "pg_dump"), nil
	}
	if found, err := exec.LookPath("pg_dump"); err == nil {
		return found, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	if err != nil || len(found) == 0 {
		return "", errors.New("pg_dump is not installed: it comes with PostgreSQL's client programs")
	}
	return found[len(found)-1], nil
}
