package api

import (
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

const maxParts = 32 // of one plaintext message

// plainEnvelope is what recipients get of a plaintext message. It has the members that
// every envelope has, so that a client reads it as one; enc says that nobody encrypted or
// signed it, and parts, which no other envelope has, is the content.
type plainEnvelope struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	SessionID string `json:"session_id"`
	From      string `json:"from"`
	To        string `json:"to"` // participant, or the session
	Kind      string `json:"kind"`
	Gen       uint64 `json:"gen"`
	Seq       uint64 `json:"seq"`
	TS        uint64 `json:"ts"`
	Nonce     string `json:"nonce"`
	CT        string `json:"ct"`
	Enc       string `json:"enc"`
	Parts     []Part `json:"parts"`
}

// readPlain checks a request and makes its envelope.
func (s *sessionRequest) readPlain(body *NewPlainMessage) (*plainMessage, error) {
	m := &plainMessage{envelope: &plainEnvelope{
		V: wire.Version, SessionID: s.room.String(), From: s.who.identity.Participant.String(), To: s.room.String(),
		Kind: wire.KindMessage.String(), Enc: string(store.SchemeNone),
	}}
	if err := m.readIdentity(body, s.api.cfg.Now().UnixMilli()); err != nil {
		return nil, err
	}
	if body.To != nil {
		to, err := bodyID(*body.To, "to")
		if err != nil {
			return nil, err
		}
		if to == uuid.Nil { // it stands for everybody
			return nil, malformed("to must be an id")
		}
		m.to, m.envelope.To = to, to.String()
	}
	if err := m.readParts(body.Parts); err != nil {
		return nil, err
	}
	var err error
	if m.bytes, err = json.Marshal(m.envelope); err != nil {
		return nil, fmt.Errorf("make the envelope: %T", err) // its text may hold content
	}
	if len(m.bytes) > wire.MaxPlaintext {
		return nil, &wire.Error{Code: wire.TooLarge, Detail: "the message is too large"}
	}
	return m, nil
}

// readIdentity reads id and ts, which a caller names both, to be able to repeat the
// request, or leaves to the server both.
func (m *plainMessage) readIdentity(body *NewPlainMessage, now int64) error {
	switch {
	case (body.ID == nil) != (body.TS == nil):
		return malformed("id and ts go together")
	case body.ID == nil:
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a message id: %w", err)
		}
		m.envelope.ID, m.envelope.TS = id.String(), uint64(max(now, 0))
		return nil
	case !wire.ValidID([]byte(*body.ID)):
		return malformed("id is not 1 to 128 printable ASCII characters without space")
	case *body.TS > wire.MaxInteger:
		return malformed("ts is not an integer up to 2^53-1")
	}
	m.envelope.ID, m.envelope.TS, m.repeatable = *body.ID, *body.TS, true
	return nil
}

func (m *plainMessage) readParts(parts []Part) error {
	if len(parts) == 0 || len(parts) > maxParts {
		return malformed("parts must be 1 to 32 parts")
	}
	m.envelope.Parts = parts
	for i := range parts {
		var err error
		switch part := &parts[i]; part.Type {
		case "text":
			err = part.checkText()
		case "file":
			err = m.readFile(part)
		default:
			err = malformed("type of a part must be text or file")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Part) checkText() error {
	if p.Name != nil || p.MIMEType != nil || p.SizeBytes != nil || p.Data != nil {
		return malformed("a text has type and text only")
	}
	if p.Text == nil || *p.Text == "" {
		return malformed("text of a part is missing or empty")
	}
	return nil
}

// readFile checks a file by the rules of the wire's file header, and its size by counting.
func (m *plainMessage) readFile(p *Part) error {
	switch {
	case p.Text != nil:
		return malformed("a file has no text")
	case p.Name == nil || p.MIMEType == nil || p.Data == nil:
		return malformed("a file must have name, mime_type and data")
	case !wire.ValidFileName(*p.Name):
		return invalidFile("name of a file is not 1 to 255 code points without control characters")
	case !wire.ValidMIMEType(*p.MIMEType):
		return invalidFile("mime_type of a file is not 1 to 127 code points without control characters")
	case len(*p.Data) > base64.StdEncoding.EncodedLen(wire.MaxFileSize):
		return invalidFile("a file has more than 700000 bytes")
	}
	data, ok := decodeBase64(*p.Data)
	if !ok {
		return invalidFile("data of a file is not base64, of the standard alphabet and padded")
	}
	size := uint64(len(data))
	switch {
	case size > wire.MaxFileSize:
		return invalidFile("a file has more than 700000 bytes")
	case p.SizeBytes != nil && *p.SizeBytes != size:
		return invalidFile("size_bytes of a file is not what its data has")
	}
	p.SizeBytes = &size
	m.files = append(m.files, store.FileHeader{Name: *p.Name, MIMEType: *p.MIMEType, SizeBytes: size})
	return nil
}

func invalidFile(detail string) error { return &wire.Error{Code: wire.InvalidFilePart, Detail: detail} }
