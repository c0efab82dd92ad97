package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/peerrelay/peerrelay/store"
)

// show prints a command's answer: one JSON object, or text for people.
func show(globals *Globals, con console, answer any, text func(w io.Writer)) error {
	var out bytes.Buffer
	if globals.JSON {
		data, err := json.Marshal(answer, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		out.Write(data)
		out.WriteByte('\n')
	} else {
		text(&out)
	}
	if _, err := con.out.Write(out.Bytes()); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return nil
}

// next prints what to type now: each command with the flags that lead to this relay.
func next(w io.Writer, globals *Globals, con console, commands ...string) {
	fmt.Fprint(w, "\nNext:\n")
	for _, command := range commands {
		fmt.Fprintf(w, "  %s %s%s\n", con.program, command, globals.target())
	}
}

// target are the flags that find the same relay and tenant again; none for the defaults.
func (g *Globals) target() string {
	tenant := ""
	if g.Tenant != os.Getenv("RELAY_TENANT") {
		tenant = " --tenant " + quote(orText(g.Tenant, store.DefaultTenantName))
	}
	return g.relay() + tenant
}

// relay are the flags that find the same relay again.
func (g *Globals) relay() string {
	switch usual, err := filepath.Abs("relay-data"); {
	case g.APIURL != "" && os.Getenv("RELAY_API_URL") == "":
		return " --api-url " + quote(g.APIURL)
	case g.APIURL == "" && os.Getenv("RELAY_DATA") == "" && (err != nil || usual != g.Data):
		return " --data " + quote(g.Data)
	}
	return ""
}

// quote makes one word of text for a shell.
func quote(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\n\"'\\$`&|;<>()*?[]{}~#!") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// secretFile receives a credential: a new file that only its owner may read. It is made
// before the credential is, so that one that cannot be kept is never minted.
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
		return nil, fmt.Errorf("%s is there already and stays as it is: name another --credential-file, or remove it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the credential file: %w", err)
	}
	return &secretFile{file: file}, nil
}

func (s *secretFile) keep(credential string) error {
	if s.file == nil {
		return nil
	}
	s.kept = true // in part at least: it is not removed
	if _, err := s.file.WriteString(credential + "\n"); err != nil {
		return fmt.Errorf("write the credential file: %w", err)
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("write the credential file: %w", err)
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

// tell prints the credential, or where it is.
func (s *secretFile) tell(w io.Writer, credential string, expires time.Time) {
	if s.file != nil {
		fmt.Fprintf(w, "Its credential is in %s, valid until %s.\n", s.file.Name(), moment(expires))
		return
	}
	fmt.Fprintf(w, "Its credential, shown only now and valid until %s:\n\n  %s\n", moment(expires), credential)
}

// listen is the command that uses the credential. relayURL is empty where it is not
// known.
func (s *secretFile) listen(con console, relayURL string) string {
	peer := "peer"
	if folder, ours := strings.CutSuffix(con.program, "relay"); ours {
		peer = folder + "peer"
	}
	peer += " listen"
	if usual := orText(os.Getenv("PEER_URL"), defaultRelayURL); relayURL != "" && relayURL != usual {
		peer += " --url " + quote(relayURL)
	}
	if s.file != nil {
		return peer + " --credential-file " + quote(s.file.Name())
	}
	return peer + " --credential-file FILE   # a file that holds the credential"
}
