package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/client"
	"github.com/peerrelay/peerrelay/wire"
)

// envelope is what a test envelope holds (DESIGN section 6). Its ciphertext is
// random text: it is valid for the relay and opens for nobody.
type envelope struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	SessionID string `json:"session_id"`
	From      string `json:"from"`
	To        string `json:"to"`
	Kind      string `json:"kind"`
	Gen       uint64 `json:"gen"`
	Seq       uint64 `json:"seq"`
	TS        int64  `json:"ts"`
	ExpiresAt int64  `json:"expires_at,omitempty"` // only in notices
	Nonce     string `json:"nonce"`
	CT        string `json:"ct"`
	Sig       string `json:"sig"`
}

// noticeLife is how long a test notice is valid.
const noticeLife = time.Hour

// checkSize refuses a size that no relay takes, before anything is sent.
func checkSize(size int) error {
	if size < 1 || size > wire.MaxMessage {
		return usageError{fmt.Sprintf("--size is at most %d bytes, the largest message a relay takes", wire.MaxMessage)}
	}
	return nil
}

// newEnvelope makes a test envelope that is exactly size bytes long.
func newEnvelope(session, from, to, kind string, gen, seq uint64, size int, now time.Time) ([]byte, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	e := envelope{
		V: wire.Version, ID: id.String(), SessionID: session, From: from, To: to, Kind: kind,
		Gen: gen, Seq: seq, TS: now.UnixMilli(), Nonce: randomText(32), Sig: randomText(86),
	}
	if kind == wire.KindNotice.String() {
		e.ExpiresAt = now.Add(noticeLife).UnixMilli()
	}
	bare, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if size < len(bare) {
		return nil, usageError{fmt.Sprintf("--size must be at least %d bytes for these ids", len(bare))}
	}
	e.CT = randomText(size - len(bare))
	return json.Marshal(e)
}

// randomText returns n random characters of base64url.
func randomText(n int) string {
	raw := make([]byte, n*3/4+1)
	_, _ = rand.Read(raw) // never fails
	return base64.RawURLEncoding.EncodeToString(raw)[:n]
}

type rawTemplateCommand struct {
	connection
	To   string `default:"room" help:"Recipient: a participant id, or room."`
	Kind string `default:"message" enum:"message,notice,senderkey,control,key_request" help:"Kind of the envelope."`
	Size int    `default:"640" help:"Size of the whole envelope in bytes."`
}

// Help is kong's long text of the command.
func (*rawTemplateCommand) Help() string {
	return "Connects once to learn the participant and the room.\n\nExample: peer raw template --credential-file alice.cred --kind control --to 0198c0de-… > envelope.json"
}

// Run connects, so that the ids in the envelope are this participant's own.
func (c *rawTemplateCommand) Run(ctx context.Context, con console) error {
	if err := checkSize(c.Size); err != nil {
		return err
	}
	dialer, err := c.dialer(con)
	if err != nil {
		return err
	}
	defer dialer.close()
	conn, err := dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	line, err := newEnvelope(conn.SessionID(), conn.ParticipantID(), recipient(c.To, conn), c.Kind, 0, 1, c.Size, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "%s\n", line)
	return err
}

// recipient resolves the word "room".
func recipient(to string, conn *client.Conn) string {
	if strings.EqualFold(to, "room") {
		return conn.SessionID()
	}
	return to
}
