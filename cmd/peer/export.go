package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/peerrelay/peerrelay/client"
)

type exportCommand struct {
	roomCommand
	Out string `type:"path" placeholder:"FILE" help:"Write to a new file that only you may read, instead of standard output."`
}

// Help is kong's long text of the command.
func (*exportCommand) Help() string {
	return `Writes the envelopes to a room that the relay keeps (by default the newest 10,000, of 30 days, since this device joined; no private
ones), one JSON object a line, oldest first: who sent it, when, its kind and size, and the envelope, byte for byte. verified says that
its signature is the sender's, by the keys that this device remembers; received_at is the relay's word.

It is proof of who wrote when, and not a transcript: what the messages say is sealed, and their keys are deleted when they were read.

Example:
  peer export --home alice --room ROOM_ID --out room.jsonl`
}

// exportLine is one envelope.
type exportLine struct {
	ID         string    `json:"id"`
	From       string    `json:"from"` // participant
	Kind       string    `json:"kind"`
	Gen        uint64    `json:"gen"`
	KID        string    `json:"kid,omitempty"`
	ReceivedAt time.Time `json:"received_at"`
	SizeBytes  int       `json:"size_bytes"` // of the envelope
	Verified   bool      `json:"verified"`
	Problem    string    `json:"problem,omitempty"` // why it is not verified
	Envelope   string    `json:"envelope"`          // base64
}

// Run exports the room.
func (c *exportCommand) Run(ctx context.Context, con console) error {
	return c.in(ctx, con, func(r *running, s *client.Session) error {
		out, done, err := c.output(con)
		if err != nil {
			return err
		}
		count, err := export(ctx, r.device, s, out)
		if err := errors.Join(err, done(err == nil)); err != nil {
			return err
		}
		if c.Out == "" {
			return nil
		}
		return c.show(con, map[string]any{"file": c.Out, "envelopes": count}, func(w io.Writer) {
			fmt.Fprintf(w, "%s are in %s.\n", counted(count, "envelope"), c.Out)
		})
	})
}

// output is where to write. done keeps a file, or removes it again.
func (c *exportCommand) output(con console) (out io.Writer, done func(keep bool) error, err error) {
	if c.Out == "" {
		return con.out, func(bool) error { return nil }, nil
	}
	file, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	buffered := bufio.NewWriter(file)
	return buffered, func(keep bool) error {
		err := errors.Join(buffered.Flush(), file.Sync(), file.Close())
		if !keep || err != nil {
			err = errors.Join(err, os.Remove(c.Out))
		}
		return err
	}, nil
}

func export(ctx context.Context, d *client.Device, s *client.Session, out io.Writer) (count int, err error) {
	for row, err := range d.History(ctx, s.Room(), client.OldestFirst) {
		if err != nil {
			return count, err
		}
		line := exportLine{
			ID: row.MessageID, From: row.From, Kind: row.Kind, Gen: row.Gen, KID: row.KID, ReceivedAt: row.ReceivedAt,
			SizeBytes: len(row.Envelope), Verified: true, Envelope: base64.StdEncoding.EncodeToString(row.Envelope),
		}
		if err := s.Verify(ctx, row.From, row.Envelope); err != nil {
			line.Verified, line.Problem = false, err.Error()
		}
		if err := writeJSON(out, line); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}
