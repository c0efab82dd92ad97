package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/wire"
)

// Errors. What wraps them names the rule, and repeats nothing of the content.
var (
	ErrContent  = errors.New("not the content of a message")
	ErrTooLarge = errors.New("the content is larger than a message may be")
)

// Version is the value of a payload's "v".
const Version = 1

// Bounds.
const (
	MaxPayload = signed.MaxPlaintext // bytes of one payload
	MaxParts   = 64                  // of one payload
	InlineFile = ChunkSize           // bytes of a file that is one part
	ChunkSize  = 32 << 10            // bytes of every chunk but the last one
	MaxChunks  = 256                 // of one file
	MaxFile    = MaxChunks * ChunkSize
)

// Part is a Text, a File or a Chunk.
type Part interface{ part() }

// Text is a text of 1 byte or more, in UTF-8.
type Text string

// File is a whole file.
type File struct {
	Name     string
	MIMEType string
	Data     []byte
}

// Chunk is one of several that a file was split into.
type Chunk struct {
	FileID   [16]byte
	Index    int // from 0
	Count    int // 2 to MaxChunks
	Name     string
	MIMEType string
	Size     int               // of the whole, in bytes
	SHA256   [sha256.Size]byte // of the whole
	Data     []byte
}

func (Text) part()   {}
func (*File) part()  {}
func (*Chunk) part() {}

// Encode returns the payload of 1 to MaxParts parts. The error is ErrContent, or ErrTooLarge
// for more than MaxPayload bytes: Split divides what is too large.
func Encode(parts ...Part) ([]byte, error) {
	if len(parts) == 0 || len(parts) > MaxParts {
		return nil, fmt.Errorf("%w: there are not 1 to 64 parts", ErrContent)
	}
	payload := []byte(`{"parts":[`)
	for i, part := range parts {
		if i > 0 {
			payload = append(payload, ',')
		}
		var err error
		if payload, err = appendPart(payload, part); err != nil {
			return nil, err
		}
		if len(payload) > MaxPayload {
			return nil, ErrTooLarge
		}
	}
	payload = append(payload, `],"v":1}`...)
	if len(payload) > MaxPayload {
		return nil, ErrTooLarge
	}
	return payload, nil
}

func appendPart(dst []byte, part Part) ([]byte, error) {
	switch p := part.(type) {
	case Text:
		return p.append(dst)
	case *File:
		return p.append(dst)
	case *Chunk:
		return p.append(dst)
	}
	return nil, fmt.Errorf("%w: a part is of no known type", ErrContent)
}

func (t Text) append(dst []byte) ([]byte, error) {
	if t == "" || !utf8.ValidString(string(t)) {
		return nil, fmt.Errorf("%w: a text is empty or no UTF-8", ErrContent)
	}
	if len(t) > MaxPayload {
		return nil, ErrTooLarge
	}
	dst = append(dst, `{"text":`...)
	dst, _ = jsontext.AppendQuote(dst, string(t))
	return append(dst, `,"type":"text"}`...), nil
}

func (f *File) append(dst []byte) ([]byte, error) {
	if f == nil || !validLabels(f.Name, f.MIMEType) {
		return nil, errLabels
	}
	if len(f.Data) > InlineFile {
		return nil, ErrTooLarge
	}
	dst = appendData(append(dst, `{"data":`...), f.Data)
	dst = appendLabels(dst, f.Name, f.MIMEType)
	dst = fmt.Appendf(dst, `,"size_bytes":%d,"type":"file"}`, len(f.Data))
	return dst, nil
}

func (c *Chunk) append(dst []byte) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	dst = appendData(fmt.Appendf(dst, `{"count":%d,"data":`, c.Count), c.Data)
	dst = fmt.Appendf(dst, `,"file_id":"%s","index":%d`, base64.RawURLEncoding.EncodeToString(c.FileID[:]), c.Index)
	dst = appendLabels(dst, c.Name, c.MIMEType)
	dst = appendData(append(dst, `,"sha256":`...), c.SHA256[:])
	dst = fmt.Appendf(dst, `,"size_bytes":%d,"type":"chunk"}`, c.Size)
	return dst, nil
}

var errLabels = fmt.Errorf("%w: a file breaks a rule of its name or type", ErrContent)

func validLabels(name, mimeType string) bool {
	return wire.ValidFileName(name) && wire.ValidMIMEType(mimeType)
}

// appendLabels appends what was checked to be UTF-8.
func appendLabels(dst []byte, name, mimeType string) []byte {
	dst, _ = jsontext.AppendQuote(append(dst, `,"mime_type":`...), mimeType)
	dst, _ = jsontext.AppendQuote(append(dst, `,"name":`...), name)
	return dst
}

func appendData(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// payload and member are what is read; Decode compares what they are written as with what
// was read.
type payload struct {
	Parts []member `json:"parts"`
	V     uint64   `json:"v"`
}

type member struct {
	Count    uint64 `json:"count"`
	Data     []byte `json:"data"`
	FileID   string `json:"file_id"`
	Index    uint64 `json:"index"`
	MIMEType string `json:"mime_type"`
	Name     string `json:"name"`
	SHA256   []byte `json:"sha256"`
	Size     uint64 `json:"size_bytes"`
	Text     string `json:"text"`
	Type     string `json:"type"`
}

// Decode reads a payload. The error is ErrContent or ErrTooLarge.
func Decode(data []byte) ([]Part, error) {
	if len(data) > MaxPayload {
		return nil, ErrTooLarge
	}
	form, err := signed.Canonical(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContent, err)
	}
	var read payload
	if err := json.Unmarshal(form, &read, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: a member is unknown or of another type", ErrContent)
	}
	if len(read.Parts) > MaxParts {
		return nil, fmt.Errorf("%w: there are not 1 to 64 parts", ErrContent)
	}
	parts := make([]Part, 0, len(read.Parts))
	for i := range read.Parts {
		part, err := read.Parts[i].decode()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	// What is missing, empty, null, of another part or spelled in another way is written
	// differently.
	written, err := Encode(parts...)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(form, written) {
		return nil, fmt.Errorf("%w: a member is missing, of another part or spelled in another way", ErrContent)
	}
	return parts, nil
}

func (m *member) decode() (Part, error) {
	switch m.Type {
	case "text":
		return Text(m.Text), nil
	case "file":
		return &File{Name: m.Name, MIMEType: m.MIMEType, Data: m.Data}, nil
	case "chunk":
		return m.chunk()
	}
	return nil, fmt.Errorf("%w: a part is of no known type", ErrContent)
}

func (m *member) chunk() (*Chunk, error) {
	id, err := base64.RawURLEncoding.DecodeString(m.FileID)
	if err != nil || len(id) != 16 || len(m.SHA256) != sha256.Size {
		return nil, fmt.Errorf("%w: file_id does not have 16 bytes, or sha256 32", ErrContent)
	}
	if m.Count > MaxChunks || m.Index > MaxChunks || m.Size > MaxFile {
		return nil, errChunk
	}
	return &Chunk{
		FileID: [16]byte(id), Index: int(m.Index), Count: int(m.Count), Name: m.Name, MIMEType: m.MIMEType,
		Size: int(m.Size), SHA256: [sha256.Size]byte(m.SHA256), Data: m.Data,
	}, nil
}
