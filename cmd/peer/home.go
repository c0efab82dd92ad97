package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// home is the flag that names a device.
type home struct {
	Home           string `type:"path" env:"PEER_HOME" placeholder:"DIR" help:"Folder that keeps the device and its keys; by default one in your configuration folder."`
	PassphraseFile string `env:"PEER_PASSPHRASE_FILE" placeholder:"FILE" help:"File whose first line is the passphrase of the device's keys, where they have one; - is standard input. By default it is asked for."`
}

// dir is the device's folder.
func (h home) dir() (string, error) {
	if h.Home != "" {
		return h.Home, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", usageError{"--home DIR or PEER_HOME is needed: there is no configuration folder"}
	}
	return filepath.Join(config, "peerrelay"), nil
}

// flag is how commands that are shown name this device; empty where it is the usual one.
func (h home) flag() string {
	flags := ""
	if h.Home != "" && os.Getenv("PEER_HOME") == "" {
		flags = " --home " + quote(fromHere(h.Home))
	}
	if h.PassphraseFile != "" && h.PassphraseFile != "-" && os.Getenv("PEER_PASSPHRASE_FILE") == "" {
		flags += " --passphrase-file " + quote(fromHere(h.PassphraseFile))
	}
	return flags
}

// fromHere is a path as it is typed in the working folder.
func fromHere(path string) string {
	working, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(working, path); err == nil && !strings.HasPrefix(short, "..") {
		return short
	}
	return path
}

// quote makes one word of text for a shell.
func quote(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\n\"'\\$`&|;<>()*?[]{}~#!") {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// open opens the device that enrolled in the folder. Here, and nowhere else, commands get it.
func (h home) open(con console) (*client.Device, error) {
	dir, err := h.dir()
	if err != nil {
		return nil, err
	}
	secret, err := h.secret(con)
	if err != nil {
		return nil, err
	}
	device, err := client.OpenDevice(dir, client.DeviceOptions{Secret: secret})
	if errors.Is(err, client.ErrPassphrase) {
		if secret, err = h.askSecret(con); err != nil {
			return nil, err
		}
		device, err = client.OpenDevice(dir, client.DeviceOptions{Secret: secret})
	}
	if err != nil {
		return nil, h.explainOpening(con, err)
	}
	warnOfClear(con, device.RelayURL())
	return device, nil
}

// secret is the passphrase that was given; the zero value where none was.
func (h home) secret(con console) (keystore.Secret, error) {
	if h.PassphraseFile == "" {
		return keystore.Secret{}, nil
	}
	return passphraseIn(con, h.PassphraseFile)
}

func (h home) askSecret(con console) (keystore.Secret, error) {
	secret, err := askPassphrase(con)
	if errors.Is(err, errNoTerminal) {
		return secret, neededPassphraseError{usageError{client.ErrPassphrase.Error() + ": --passphrase-file FILE or PEER_PASSPHRASE_FILE names a file with it"}}
	}
	return secret, err
}

// neededPassphraseError is a command line that lacks a passphrase.
type neededPassphraseError struct{ usageError }

// Unwrap tells both what it is and what it is about.
func (e neededPassphraseError) Unwrap() []error { return []error{e.usageError, client.ErrPassphrase} }

// explainOpening adds what to do about a device that does not open.
func (h home) explainOpening(con console, err error) error {
	switch {
	case errors.Is(err, client.ErrNoDevice):
		return fmt.Errorf("%w: enroll one with %s enroll%s", err, con.program, h.flag())
	case errors.Is(err, keystore.ErrInUse):
		return fmt.Errorf("another peer has this device open; it is free when that one ends: %w", err)
	case errors.Is(err, keystore.ErrWrongSecret):
		return fmt.Errorf("%w: the passphrase, or the key file, is another one", err)
	case errors.Is(err, keystore.ErrDamaged):
		return fmt.Errorf("%w; put a copy of the folder in its place, or enroll anew in another one", err)
	}
	return err
}

// warnOfClear says so where tokens go over a network unencrypted.
func warnOfClear(con console, relay string) {
	parsed, err := url.Parse(relay)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "ws" {
		return
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	if parsed.Hostname() != "localhost" && (err != nil || !address.IsLoopback()) {
		con.notef("warning: tokens go to %s unencrypted; use https", parsed.Host)
	}
}

// deviceCommand is the flags of a command that acts as a device.
type deviceCommand struct {
	home
	JSON bool `help:"Print one JSON object."`
}

// as runs do with the device.
func (c deviceCommand) as(con console, do func(d *client.Device) error) error {
	return c.with(con, func(r *running) error { return c.explain(do(r.device)) })
}

// explain adds what to do about a refusal, and what its code means.
func (h home) explain(err error) error {
	if errors.Is(err, client.ErrID) {
		return usageError{err.Error()}
	}
	if errors.Is(err, client.ErrReading) {
		return told{strings.ReplaceAll(err.Error(), client.ErrReading.Error(), "another command of this device, such as peer listen, reads the room already"), err}
	}
	if errors.Is(err, client.ErrNotAdmitted) && errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		doing, _, _ := strings.Cut(err.Error(), client.ErrNotAdmitted.Error())
		return told{doing + client.ErrNotAdmitted.Error() + " (peer status says more)", err} // and not how a device signs in
	}
	if closed, ok := errors.AsType[*client.CloseError](err); ok && closed.Code == wire.CloseAuth {
		return fmt.Errorf("%w: this device is not in the room any more, or was suspended or revoked (peer rooms and peer status say which)", err)
	}
	if refused, ok := errors.AsType[*client.NackError](err); ok {
		if known, ok := wire.Lookup(refused.Reason); ok {
			return fmt.Errorf("%w. %s", err, known.Text)
		}
	}
	return err
}

// show prints a result: one JSON object, or text for people.
func (c deviceCommand) show(con console, result any, text func(w io.Writer)) error {
	if c.JSON {
		return writeJSON(con.out, result)
	}
	var out strings.Builder
	text(&out)
	_, err := io.WriteString(con.out, strings.Map(shown, out.String()))
	return err
}

// shown leaves out what would move a terminal's cursor: part of the text is the relay's, and
// what people compare has to be what they see.
func shown(r rune) rune {
	if r == '\n' || unicode.IsPrint(r) {
		return r
	}
	return -1
}

// next prints what to type now.
func (h home) next(w io.Writer, con console, commands ...string) {
	fmt.Fprint(w, "\nNext:\n")
	for _, command := range commands {
		name, rest, _ := strings.Cut(command, " --")
		if rest != "" {
			rest = " --" + rest
		}
		fmt.Fprintf(w, "  %s %s%s%s\n", con.program, name, h.flag(), rest)
	}
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
