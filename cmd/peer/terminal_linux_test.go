package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// teletype is a terminal, and what it shows.
type teletype struct {
	t         *testing.T
	keyboard  *os.File
	line      *os.File // what a program has open
	mu        sync.Mutex
	screen    bytes.Buffer // guarded by mu
	refreshed chan struct{}
}

func newTeletype(t *testing.T) *teletype {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	raw, err := keyboard.SyscallConn()
	require.NoError(t, err)
	var name string
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		require.NoError(t, err)
		name = "/dev/pts/" + strconv.Itoa(n)
	}))
	line, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	tty := &teletype{t: t, keyboard: keyboard, line: line, refreshed: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() { defer close(done); tty.show() }()
	t.Cleanup(func() { _ = line.Close(); _ = keyboard.Close(); <-done })
	return tty
}

func (tty *teletype) show() {
	shown := make([]byte, 4096)
	for {
		n, err := tty.keyboard.Read(shown)
		tty.mu.Lock()
		tty.screen.Write(shown[:n])
		tty.mu.Unlock()
		select {
		case tty.refreshed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// await waits until the screen ends with a prompt, and forgets what was shown.
func (tty *teletype) await(prompt string) (before string) {
	tty.t.Helper()
	late := time.After(20 * time.Second)
	for {
		tty.mu.Lock()
		text, ends := strings.CutSuffix(tty.screen.String(), prompt)
		if ends {
			tty.screen.Reset()
		}
		tty.mu.Unlock()
		if ends {
			return text
		}
		select {
		case <-tty.refreshed:
		case <-late:
			tty.t.Fatalf("the terminal shows %q and no %q", tty.screen.String(), prompt)
		}
	}
}

// echoes reports whether the terminal shows what is typed.
func (tty *teletype) echoes() bool {
	tty.t.Helper()
	raw, err := tty.line.SyscallConn()
	require.NoError(tty.t, err)
	var modes *unix.Termios
	require.NoError(tty.t, raw.Control(func(fd uintptr) { modes, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }))
	require.NoError(tty.t, err)
	return modes.Lflag&unix.ECHO != 0
}

// types answers one prompt, as soon as the terminal hides what is typed.
func (tty *teletype) types(text string) {
	tty.t.Helper()
	require.Eventually(tty.t, func() bool { return !tty.echoes() }, 20*time.Second, time.Millisecond)
	_, err := tty.keyboard.WriteString(text + "\n")
	require.NoError(tty.t, err)
}

// runs begins a command on the terminal; what it prints as its result is apart.
func (tty *teletype) runs(args ...string) (ended func() outcome) {
	tty.t.Helper()
	done := make(chan outcome, 1)
	go func() {
		var out bytes.Buffer
		code := run(tty.t.Context(), args, console{in: tty.line, out: &out, err: tty.line, program: "peer"})
		done <- outcome{code: code, out: out.String()}
	}()
	return func() outcome { return <-done }
}

func TestAPassphraseIsTypedUnseen(t *testing.T) {
	h := newHousehold(t)
	tty := newTeletype(t)
	invite := h.keep(t, "invite", h.relay.Invite(t, "human", true).Token)
	enroll := []string{"enroll", "--home", h.home("alice"), "--url", h.relay.URL(), "--invite-file", invite, "--passphrase"}
	var shown strings.Builder
	prompted := func(prompt, answer string) {
		t.Helper()
		shown.WriteString(tty.await(prompt))
		tty.types(answer)
	}

	ended := tty.runs(enroll...)
	prompted("New passphrase: ", "correct horse")
	prompted("The same again: ", "correct hores")
	require.Equal(t, exitFailed, ended().code)
	shown.WriteString(tty.await("the two passphrases differ\r\n"))
	require.NoDirExists(t, h.home("alice"))

	ended = tty.runs(enroll...)
	prompted("New passphrase: ", "correct horse")
	prompted("The same again: ", "correct horse")
	require.Equal(t, exitOK, ended().code)
	require.NoFileExists(t, filepath.Join(h.home("alice"), "key-file"))

	for typed, code := range map[string]int{"correct horse": exitOK, "battery staple": exitFailed, "": exitUsage} {
		ended = tty.runs("status", "--home", h.home("alice"))
		prompted("Passphrase: ", typed)
		require.Equal(t, code, ended().code, typed)
	}
	shown.WriteString(tty.await("")) // the rest
	for _, secret := range []string{"horse", "hores", "staple"} {
		require.NotContains(t, shown.String(), secret)
	}
	require.True(t, tty.echoes(), "as it was")
}

func TestAnInterruptedPromptLeavesTheTerminalAsItWas(t *testing.T) {
	tty := newTeletype(t)
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := ask(console{err: tty.line}, tty.line, "Passphrase: ")
		answered <- answer{text, err}
	}()
	tty.await("Passphrase: ")
	require.Eventually(t, func() bool { return !tty.echoes() }, 20*time.Second, time.Millisecond)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	got := <-answered
	require.ErrorContains(t, got.err, "interrupted")
	require.Empty(t, got.text)
	require.True(t, tty.echoes())
	_, err := tty.keyboard.WriteString("\n") // for the reader that the end of a program would end
	require.NoError(t, err)
}

// Nothing but what is typed ends a read of a terminal: Ctrl-C has to end the command.
func TestCtrlCEndsTheQuestionForAnInvite(t *testing.T) {
	t.Parallel()
	tty := newTeletype(t)
	folder := t.TempDir()
	enroll := household{folder: folder}.program(t, "nobody", folder, "enroll", "--json")
	enroll.Stdin, enroll.Stderr = tty.line, tty.line
	require.NoError(t, enroll.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = enroll.Wait() }()
	tty.await("paste the invite's token and press Enter\r\n")
	require.Eventually(t, func() bool {
		_ = enroll.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, exitFailed, enroll.ProcessState.ExitCode())
	tty.await(`{"error":"interrupted","detail":"read the invite's token: interrupted"}` + "\r\n")
}
