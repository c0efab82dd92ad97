package signed

import (
	"encoding/base64"
	"fmt"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/wire"
)

// check returns the first rule that the envelope breaks, which is ErrEnvelope.
func (e *Envelope) check(nonce []byte) error {
	for _, rule := range [...]struct {
		kept bool
		text string
	}{
		{wire.ValidID([]byte(e.ID)), "id is not 1 to 128 printable ASCII characters without space"},
		{validUUID(e.SessionID), "session_id is not a UUID in small letters"},
		{validUUID(e.From), "from is not a UUID in small letters"},
		{validUUID(e.To), "to is not a UUID in small letters"},
		{e.From != e.To && e.From != e.SessionID, "from is to, or the session"},
		{e.Kind >= wire.KindMessage && e.Kind <= wire.KindKeyRequest, "kind is not one of the five"},
		{max(e.Gen, e.Seq, e.TS, e.ExpiresAt) <= wire.MaxInteger, "an integer is over 2^53-1"},
		{len(nonce) == 0 || len(nonce) == seal.NonceSize, "nonce does not have 24 bytes"},
		{e.KID == "" || ValidKID(e.KID), "kid is not 16 bytes in base64url"},
		{e.Kind == wire.KindMessage || e.Enc == "" && e.File == nil && e.Hdr == nil, "enc, file and hdr are for messages"},
		{e.Enc == "" || validEnc(e.Enc), "enc is not 1 to 32 characters of a-z, 0-9, _ and -"},
		{e.Hdr == nil || len(e.Hdr) > 0 && len(e.Hdr) <= MaxHdr, "hdr does not have 1 to 512 bytes"},
		{(e.Kind == wire.KindNotice) == (e.ExpiresAt != 0), "expires_at is for notices, which have to have it"},
		{e.Kind != wire.KindNotice || e.To == e.SessionID, "a notice goes to the session"},
		{e.File == nil || e.File.valid(), "file breaks a rule of its name, mimeType or sizeBytes"},
	} {
		if !rule.kept {
			return fmt.Errorf("%w: %s", ErrEnvelope, rule.text)
		}
	}
	return nil
}

func (f *File) valid() bool {
	return wire.ValidFileName(f.Name) && wire.ValidMIMEType(f.MIMEType) && f.SizeBytes <= wire.MaxFileSize
}

func validUUID(text string) bool {
	_, ok := wire.ParseUUID([]byte(text))
	return ok
}

// ValidKID reports whether text is 16 bytes in base64url without padding, in their one
// spelling (RELAY, "Sender-key identity").
func ValidKID(text string) bool {
	var kid [16]byte
	if len(text) != 22 {
		return false
	}
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' { // which the decoder skips
			return false
		}
	}
	n, err := base64.RawURLEncoding.Strict().Decode(kid[:], []byte(text))
	return err == nil && n == len(kid)
}

func validEnc(text string) bool {
	if len(text) > MaxEnc {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
