package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/peerrelay/peerrelay/client/keystore"
)

// secret reads one token: the first line of a file or of standard input.
func secret(con console, file, what string) (string, error) {
	in, closeIn, err := openSecret(con, file)
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	defer closeIn()
	if in == con.in && interactive(in) {
		con.notef("paste the %s and press Enter", what)
	}
	line, err := unlessStopped(func() ([]byte, error) { return firstLine(in, maxCredential) })
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	token := strings.TrimSpace(string(line))
	if token == "" {
		if file == "" || file == "-" {
			file = "standard input"
		}
		return "", fmt.Errorf("there is no %s in %s", what, file)
	}
	return token, nil
}

// openSecret opens a file, or is standard input for "" and "-".
func openSecret(con console, file string) (in io.Reader, closeIn func(), err error) {
	if file == "" || file == "-" {
		return con.in, func() {}, nil
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	return opened, func() { _ = opened.Close() }, nil
}

// firstLine reads a line of at most limit bytes, without its end and without anything behind it:
// another secret may follow on standard input.
func firstLine(in io.Reader, limit int) ([]byte, error) {
	var line []byte
	one := make([]byte, 1)
	for len(line) < limit {
		n, err := in.Read(one)
		if n == 1 && one[0] == '\n' {
			break
		}
		line = append(line, one[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// passphrase makes a secret of what was typed or read.
func passphrase(text []byte) (keystore.Secret, error) {
	made, err := keystore.Passphrase(text)
	if err != nil {
		return made, usageError{err.Error()}
	}
	return made, nil
}

// passphraseIn reads a passphrase: the first line of a file, which has to be the owner's alone,
// or of standard input for "-".
func passphraseIn(con console, file string) (keystore.Secret, error) {
	in, closeIn, err := openSecret(con, file)
	if err != nil {
		return keystore.Secret{}, fmt.Errorf("read the passphrase: %w", err)
	}
	defer closeIn()
	if opened, ok := in.(*os.File); ok && in != con.in {
		info, err := opened.Stat()
		if err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			err = fmt.Errorf("%w: chmod 600 %s", keystore.ErrPermissions, file)
		}
		if err != nil {
			return keystore.Secret{}, fmt.Errorf("read the passphrase: %w", err)
		}
	}
	line, err := unlessStopped(func() ([]byte, error) { return firstLine(in, keystore.MaxPassphrase+len("x\r")) })
	if err != nil {
		return keystore.Secret{}, fmt.Errorf("read the passphrase: %w", err)
	}
	return passphrase(line)
}

// errNoTerminal says that nobody can be asked.
var errNoTerminal = errors.New("there is no terminal to ask for the passphrase on")

// terminal is where a person can be asked: standard input, or the controlling terminal where
// only the error output is one.
func terminal(con console) (asked *os.File, done func(), err error) {
	if in, ok := con.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		return in, func() {}, nil
	}
	if out, ok := con.err.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
			return tty, func() { _ = tty.Close() }, nil
		}
	}
	return nil, nil, errNoTerminal
}

// askPassphrase asks for a passphrase once.
func askPassphrase(con console) (keystore.Secret, error) {
	asked, done, err := terminal(con)
	if err != nil {
		return keystore.Secret{}, err
	}
	defer done()
	text, err := ask(con, asked, "Passphrase: ")
	if err != nil {
		return keystore.Secret{}, err
	}
	return passphrase(text)
}

// askNewPassphrase asks for a passphrase that is new, so that a slip of the finger loses nothing.
func askNewPassphrase(con console) (keystore.Secret, error) {
	asked, done, err := terminal(con)
	if err != nil {
		return keystore.Secret{}, err
	}
	defer done()
	text, err := ask(con, asked, "New passphrase: ")
	if err != nil {
		return keystore.Secret{}, err
	}
	made, err := passphrase(text)
	if err != nil {
		return made, err
	}
	again, err := ask(con, asked, "The same again: ")
	if err != nil {
		return keystore.Secret{}, err
	}
	if !bytes.Equal(text, again) {
		return keystore.Secret{}, errors.New("the two passphrases differ")
	}
	return made, nil
}

// ask reads a line that the terminal does not show. Interrupted, it leaves the terminal as it was.
func ask(con console, terminal *os.File, prompt string) ([]byte, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("ask for the passphrase: %w", err)
	}
	fmt.Fprint(con.err, prompt)
	defer fmt.Fprintln(con.err)
	text, err := unlessStopped(func() ([]byte, error) { return term.ReadPassword(fd) })
	if errors.Is(err, errStopped) {
		_ = term.Restore(fd, before)
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the passphrase: %w", err)
	}
	return text, nil
}

// unlessStopped reads until Ctrl-C, which ends no read by itself. What reads then ends with the
// program.
func unlessStopped(read func() ([]byte, error)) ([]byte, error) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := read()
		answered <- answer{text, err}
	}()
	select {
	case got := <-answered:
		return got.text, got.err
	case <-stop:
		return nil, errStopped
	}
}
