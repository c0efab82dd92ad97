package wire

import (
	"encoding/hex"
	"errors"
	"math"
	"strconv"
)

// UUID is the binary form of the server-made ids on the wire: rooms and participants.
type UUID = [16]byte

// ParseUUID reads the one accepted text form: 36 bytes, lower-case hexadecimal
// digits with hyphens at 8-4-4-4-12. It does not allocate.
func ParseUUID(text []byte) (UUID, bool) {
	var id UUID
	if len(text) != 36 {
		return id, false
	}
	at := 0
	for i := 0; i < 36; {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if text[i] != '-' {
				return UUID{}, false
			}
			i++
			continue
		}
		high, low := hexValue(text[i]), hexValue(text[i+1])
		if high > 15 || low > 15 {
			return UUID{}, false
		}
		id[at] = high<<4 | low
		at++
		i += 2
	}
	return id, true
}

func hexValue(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return math.MaxUint8
}

// AppendUUID appends the 36-byte text form of id.
func AppendUUID(dst []byte, id UUID) []byte {
	dst = hex.AppendEncode(dst, id[0:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:16]} {
		dst = append(dst, '-')
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// StreamID names one stored row of an inbox: the creation time of its stream in
// Unix milliseconds, then the JetStream sequence (DESIGN section 5).
type StreamID struct {
	Incarnation uint64
	Sequence    uint64
}

// Append appends the text form, "<incarnation>-<sequence>", without quotes.
func (id StreamID) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, id.Incarnation, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, id.Sequence, 10)
}

func (id StreamID) String() string { return string(id.Append(nil)) }

// Compare orders ids as numbers, incarnation first.
func (id StreamID) Compare(other StreamID) int {
	switch {
	case id.Incarnation != other.Incarnation && id.Incarnation < other.Incarnation:
		return -1
	case id.Incarnation != other.Incarnation:
		return 1
	case id.Sequence < other.Sequence:
		return -1
	case id.Sequence > other.Sequence:
		return 1
	}
	return 0
}

// CursorKind tells the three forms of a resume's last_id apart.
type CursorKind uint8

// The forms of a cursor.
const (
	CursorNew CursorKind = iota // "$": nothing that is already stored
	CursorAll                   // "0": all that is retained
	CursorAt                    // a stream id: what follows it
)

// Cursor is the position a client resumes from.
type Cursor struct {
	Kind CursorKind
	ID   StreamID // when Kind is CursorAt
}

// ErrInvalidCursor reports a last_id that is not "$", "0" or a stream id.
var ErrInvalidCursor = errors.New("last_id is not \"$\", \"0\" or a stream id")

// ParseCursor reads a last_id. Numbers are plain decimal digits without leading
// zeros that fit 64 bits.
func ParseCursor(text []byte) (Cursor, error) {
	switch string(text) {
	case "$":
		return Cursor{Kind: CursorNew}, nil
	case "0":
		return Cursor{Kind: CursorAll}, nil
	}
	id, ok := ParseStreamID(text)
	if !ok {
		return Cursor{}, ErrInvalidCursor
	}
	return Cursor{Kind: CursorAt, ID: id}, nil
}

// ParseStreamID reads "<incarnation>-<sequence>".
func ParseStreamID(text []byte) (StreamID, bool) {
	for i, c := range text {
		if c != '-' {
			continue
		}
		incarnation, ok := parseUint(text[:i])
		if !ok {
			return StreamID{}, false
		}
		sequence, ok := parseUint(text[i+1:])
		return StreamID{Incarnation: incarnation, Sequence: sequence}, ok
	}
	return StreamID{}, false
}

// parseUint reads plain decimal digits: no sign, no leading zero, no overflow.
func parseUint(text []byte) (uint64, bool) {
	if len(text) == 0 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, true
}
