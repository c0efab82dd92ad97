package signed

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// Errors of building and of reading. What wraps them names the rule, and repeats nothing of
// the envelope.
var (
	ErrEnvelope  = errors.New("not an envelope that clients sign")
	ErrTooLarge  = errors.New("the envelope is larger than a message may be")
	ErrSignature = errors.New("the envelope is not signed by the expected participant")
	ErrContext   = errors.New("the envelope is meant for another place")
)

const labelEnvelope = "peerrelay/envelope/v1\x00"

// Bounds of what is in an envelope. One with the longest of everything and a text of
// MaxPlaintext bytes is not larger than wire.MaxMessage.
const (
	MaxPlaintext = 46_080 // bytes that are sealed
	MaxHdr       = 512    // bytes of Hdr
	MaxEnc       = 32     // characters of Enc
)

// File is what a sender declares of a file, unencrypted (RELAY, "file: {name, mimeType,
// sizeBytes}"). The bounds are those of wire: ValidFileName, ValidMIMEType, MaxFileSize.
type File struct {
	Name      string
	MIMEType  string
	SizeBytes uint64
}

// Envelope is all of an envelope but nonce, ct and sig; v is 1.
//
//	ID                   1 to 128 printable ASCII characters
//	SessionID, From, To  UUIDs in small letters; To is the session's or a participant's, not From's
//	Kind                 one of the five
//	Gen, Seq, TS         up to 2^53-1
//	KID                  16 bytes in base64url; "" is none
//	Enc                  messages only: 1 to MaxEnc of a-z, 0-9, "_" and "-"; "" is none
//	File                 messages only; nil is none
//	Hdr                  messages only: 1 to MaxHdr bytes; nil is none
//	ExpiresAt            notices only, which have to have it and go to the session: 1 to 2^53-1
//
// The zero values of the optional members mean that they are absent.
type Envelope struct {
	ID        string
	SessionID string
	From      string
	To        string
	Kind      wire.Kind
	Gen       uint64
	Seq       uint64
	TS        uint64 // Unix milliseconds
	KID       string
	Enc       string
	File      *File
	Hdr       []byte
	ExpiresAt uint64 // Unix milliseconds
}

// AAD returns what is authenticated beside the text that is sealed: the canonical form of
// the envelope without ct and sig. nonce is seal.NonceSize bytes, or empty where the
// scheme has none of its own. The error is ErrEnvelope.
func (e *Envelope) AAD(nonce []byte) ([]byte, error) {
	if err := e.check(nonce); err != nil {
		return nil, err
	}
	return e.append(nil, nonce, nil, nil), nil
}

// Sign returns the envelope as it is to be sent, signed with the identity key of From. The
// relay takes it as it is and forwards it so. The error is ErrEnvelope or, for more than
// wire.MaxMessage bytes, ErrTooLarge.
func (e *Envelope) Sign(key ed25519.PrivateKey, nonce, ct []byte) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("%w: the identity key does not have 64 bytes", ErrEnvelope)
	}
	if err := e.check(nonce); err != nil {
		return nil, err
	}
	if len(ct) > wire.MaxMessage {
		return nil, ErrTooLarge
	}
	if ct == nil {
		ct = []byte{}
	}
	sig := ed25519.Sign(key, e.append([]byte(labelEnvelope), nonce, ct, nil))
	raw := e.append(nil, nonce, ct, sig)
	if len(raw) > wire.MaxMessage {
		return nil, ErrTooLarge
	}
	return raw, nil
}

// Seal encrypts plaintext with a nonce of its own and the envelope as additional data, and
// returns what Sign does. A plaintext over MaxPlaintext is ErrTooLarge.
func (e *Envelope) Seal(signer ed25519.PrivateKey, key [seal.KeySize]byte, plaintext []byte) ([]byte, error) {
	if len(plaintext) > MaxPlaintext {
		return nil, ErrTooLarge
	}
	nonce := seal.NewNonce()
	aad, err := e.AAD(nonce[:])
	if err != nil {
		return nil, err
	}
	return e.Sign(signer, nonce[:], seal.WithNonce(key, nonce, plaintext, aad))
}

// append appends the canonical form; ct and sig are absent when they are nil.
func (e *Envelope) append(dst, nonce, ct, sig []byte) []byte {
	w := writer{dst: append(dst, '{'), empty: true}
	if ct != nil {
		w.bytes("ct", ct)
	}
	w.optional("enc", e.Enc)
	if e.ExpiresAt != 0 {
		w.integer("expires_at", e.ExpiresAt)
	}
	if e.File != nil {
		w.file(e.File)
	}
	w.text("from", e.From)
	w.integer("gen", e.Gen)
	if len(e.Hdr) != 0 {
		w.bytes("hdr", e.Hdr)
	}
	w.text("id", e.ID)
	w.optional("kid", e.KID)
	w.text("kind", e.Kind.String())
	w.bytes("nonce", nonce)
	w.integer("seq", e.Seq)
	w.text("session_id", e.SessionID)
	if sig != nil {
		w.bytes("sig", sig)
	}
	w.text("to", e.To)
	w.integer("ts", e.TS)
	w.integer("v", wire.Version)
	return append(w.dst, '}')
}

// writer appends members, whose order is the caller's.
type writer struct {
	dst   []byte
	empty bool
}

func (w *writer) name(name string) {
	if !w.empty {
		w.dst = append(w.dst, ',')
	}
	w.empty = false
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, `":`...)
}

// text appends a string that was checked to be UTF-8, escaped as RFC 8785 has it.
func (w *writer) text(name, value string) {
	w.name(name)
	w.dst, _ = jsontext.AppendQuote(w.dst, value)
}

func (w *writer) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *writer) integer(name string, value uint64) {
	w.name(name)
	w.dst = strconv.AppendUint(w.dst, value, 10)
}

func (w *writer) bytes(name string, value []byte) {
	w.name(name)
	w.dst = append(w.dst, '"')
	w.dst = base64.StdEncoding.AppendEncode(w.dst, value)
	w.dst = append(w.dst, '"')
}

func (w *writer) file(f *File) {
	w.name("file")
	w.dst = append(w.dst, '{')
	w.empty = true
	w.text("mimeType", f.MIMEType)
	w.text("name", f.Name)
	w.integer("sizeBytes", f.SizeBytes)
	w.dst = append(w.dst, '}')
}
