package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/wire"
)

type sendCommand struct {
	roomCommand
	Text []string `arg:"" optional:"" help:"The text; without it, or as -, it is read from standard input."`
	File string   `type:"path" placeholder:"PATH" help:"A file to send, of at most 8 MiB; a text may go with it."`
	To   string   `placeholder:"PARTICIPANT" help:"Send it to this participant alone: its id, or the end of it that peer listen shows."`
}

// Help is kong's long text of the command.
func (*sendCommand) Help() string {
	return `Encrypts a text or a file for everybody else in the room, or for one of them, and ends when the relay has stored it for all. Others
on this machine can see command lines: what is secret comes from standard input or a file. A text that begins with a dash comes
after --.

A large file is sent as many messages and put together again by whoever gets it.

Where no answer comes (no_verdict), the message is kept and goes out with the next peer command in this room: it is not to be sent
again.

Examples:
  peer send --home alice --room ROOM_ID "good morning"
  peer send --home alice --room ROOM_ID --file report.pdf "the report"
  git diff | peer send --home robot --room ROOM_ID --to PARTICIPANT_ID --json`
}

// sentLine is what was sent, as it is printed with --json.
type sentLine struct {
	ID         string   `json:"id"`  // of the message; of a file in many, of the last one
	IDs        []string `json:"ids"` // of all of them
	Recipients []string `json:"recipients"`
}

// Run sends it.
func (c *sendCommand) Run(ctx context.Context, con console) error {
	return c.in(ctx, con, func(_ *running, s *client.Session) error {
		draft := client.Draft{Progress: c.progress(con)}
		var err error
		if draft.File, err = c.file(); err != nil {
			return err
		}
		if draft.Text, err = c.text(ctx, con); err != nil {
			return err
		}
		if draft.To, err = c.recipient(s); err != nil {
			return err
		}
		return c.send(ctx, con, s, draft)
	})
}

// send sends a draft, and tells what became of it.
func (c roomCommand) send(ctx context.Context, con console, s *client.Session, draft client.Draft) error {
	sent, err := s.Send(ctx, draft)
	if err != nil {
		switch waits := errors.Is(err, client.ErrNoVerdict) && !c.JSON; {
		case waits && !draft.Expires.IsZero():
			con.notef("the notice is not kept, and may have been stored: look with peer notice list before you send it again")
		case waits:
			con.notef("the message is kept, and goes out with the next peer command in this room: do not send it again")
		}
		switch {
		case !errors.Is(err, encryption.ErrKind):
			return err
		case views(s):
			return &wire.Error{Code: wire.ReadOnly, Detail: "this device is a viewer in the room, and may only read"}
		}
		return fmt.Errorf("%w: send a plain message, not a notice, and without --to", err)
	}
	id := sent.IDs[len(sent.IDs)-1]
	return c.show(con, sentLine{ID: id, IDs: sent.IDs, Recipients: sent.Recipients}, func(w io.Writer) {
		fmt.Fprintf(w, "%s  sent to %s, message %s\n", time.Now().Format(minute), counted(len(sent.Recipients), "participant"), id)
	})
}

// views reports whether this device may only read in the room.
func views(s *client.Session) bool {
	for _, member := range s.Members() {
		if member.ParticipantID == s.Participant() {
			return member.Role == client.RoleViewer
		}
	}
	return false
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// text is what is to be sent beside a file.
func (c *sendCommand) text(ctx context.Context, con console) (string, error) {
	fromInput := len(c.Text) == 0 && c.File == "" || len(c.Text) == 1 && c.Text[0] == "-"
	if !fromInput {
		return checkText(strings.Join(c.Text, " "), c.File != "")
	}
	if c.PassphraseFile == "-" {
		return "", usageError{"the passphrase and the text cannot both come from standard input"}
	}
	if interactive(con.in) {
		con.notef("type the message; Ctrl-D ends it")
	}
	text, err := readInput(ctx, con.in, client.MaxText+1)
	if err != nil {
		return "", fmt.Errorf("read the text: %w", err)
	}
	return checkText(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), c.File != "")
}

// readInput reads up to limit bytes, until Ctrl-C: nothing else ends a read of a terminal.
func readInput(ctx context.Context, in io.Reader, limit int64) ([]byte, error) {
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(in, limit))
		done <- read{data, err}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return nil, errStopped
		}
		return r.data, r.err
	case <-ctx.Done():
		return nil, errStopped
	}
}

// checkText refuses what is no text.
func checkText(text string, empty bool) (string, error) {
	switch {
	case text == "" && !empty:
		return "", usageError{"there is nothing to send: the text is empty"}
	case len(text) > client.MaxText:
		return "", fmt.Errorf("%w: send it as a file", client.ErrTooLarge)
	case !utf8.ValidString(text):
		return "", usageError{"the text is not UTF-8: send it as a file"}
	}
	return text, nil
}

// file reads the file to send.
func (c *sendCommand) file() (*client.File, error) {
	if c.File == "" {
		return nil, nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, client.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if len(data) > client.MaxFile {
		return nil, fmt.Errorf("--file: %w: at most %d bytes", client.ErrTooLarge, client.MaxFile)
	}
	name := filepath.Base(c.File)
	return &client.File{Name: name, MIMEType: mimeType(name, data), Data: data}, nil
}

// mimeType is what a file's name says, or else its beginning.
func mimeType(name string, data []byte) string {
	full := mime.TypeByExtension(filepath.Ext(name))
	if full == "" {
		full = http.DetectContentType(data)
	}
	plain, _, err := mime.ParseMediaType(full)
	if err != nil || !wire.ValidMIMEType(plain) {
		return "application/octet-stream"
	}
	return plain
}

// recipient is the participant that --to names, if it does.
func (c *sendCommand) recipient(s *client.Session) (string, error) {
	if c.To == "" {
		return "", nil
	}
	var found []string
	for _, member := range s.Members() {
		if c.To == member.DeviceID {
			return "", usageError{"--to: that is the id of a device; in this room it is participant " + member.ParticipantID}
		}
		if len(c.To) >= tagLength && strings.HasSuffix(member.ParticipantID, c.To) {
			found = append(found, member.ParticipantID)
		}
	}
	if _, ok := wire.ParseUUID([]byte(c.To)); ok && len(found) == 0 {
		return c.To, nil // who came meanwhile, perhaps
	}
	if len(found) == 1 && found[0] == s.Participant() {
		return "", usageError{"--to: that is this device itself"}
	}
	switch len(found) {
	case 0:
		return "", usageError{fmt.Sprintf("--to: nobody in the room has the participant id %q", c.To)}
	case 1:
		return found[0], nil
	}
	return "", usageError{fmt.Sprintf("--to: %d participants have ids that end in %q", len(found), c.To)}
}

// progress shows how far a large file is, on a terminal.
func (c *sendCommand) progress(con console) func(done, of int) {
	if !con.look.Progress || c.JSON {
		return nil
	}
	return func(done, of int) {
		switch {
		case of <= 1:
		case done < of:
			fmt.Fprintf(con.err, "\rsending %3d %%", 100*done/of)
		default:
			fmt.Fprint(con.err, "\r\x1b[K")
		}
	}
}
