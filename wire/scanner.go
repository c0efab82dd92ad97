package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// tokenKind says what a JSON value is. Numbers come in two kinds, since the
// protocol's integers are plain digits and nothing else (DESIGN section 6).
type tokenKind uint8

const (
	tokenAbsent tokenKind = iota
	tokenString
	tokenInteger // digits only, no leading zero
	tokenNumber  // any other JSON number
	tokenObject
	tokenArray
	tokenTrue
	tokenFalse
	tokenNull
)

// token is where a scanned value lies in the data: without the quotes for a
// string, whole for everything else.
type token struct {
	start, end int32
	kind       tokenKind
	escaped    bool // a string with at least one backslash
	nul        bool // a string that holds U+0000
}

// scanner reads JSON as RFC 8259 has it, and refuses on top of that: invalid
// UTF-8, surrogates without their other half, and nesting over maxDepth. It
// allocates nothing and does not recurse. After the first fault it stands still.
type scanner struct {
	data     []byte
	pos      int
	maxDepth int // at most 64
	begun    bool
	fault    fault
}

// maxScan bounds what a scanner is given, so that positions fit a token.
const maxScan = 1 << 30

func (s *scanner) fail(f fault) bool {
	if s.fault == faultNone {
		s.fault = f
	}
	return false
}

// peek returns the next byte and 0 at the end; a 0 byte is never valid outside a
// string, and inside one it is refused.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// open enters the one object the data must hold.
func (s *scanner) open() bool {
	if len(s.data) > maxScan {
		return s.fail(faultSize)
	}
	s.space()
	if s.peek() != '{' {
		return s.fail(faultNotObject)
	}
	s.pos++
	return true
}

// next reads the next member of the opened object. It returns false at the
// object's end, and at a fault.
func (s *scanner) next(name, value *token) bool {
	s.space()
	switch c := s.peek(); {
	case c == '}':
		s.pos++
		return false
	case !s.begun:
		s.begun = true
	case c == ',':
		s.pos++
		s.space()
	default:
		return s.fail(faultSyntax)
	}
	return s.name(name) && s.value(value, 1)
}

// end demands that only white space follows the object.
func (s *scanner) end() bool {
	s.space()
	if s.pos != len(s.data) {
		return s.fail(faultTrailing)
	}
	return true
}

// name reads a member's name, the colon, and the space after it.
func (s *scanner) name(t *token) bool {
	if s.peek() != '"' {
		return s.fail(faultSyntax)
	}
	if !s.text(t) {
		return false
	}
	s.space()
	if s.peek() != ':' {
		return s.fail(faultSyntax)
	}
	s.pos++
	s.space()
	return true
}

// value reads one value inside depth containers.
func (s *scanner) value(t *token, depth int) bool {
	kind := tokenObject
	switch s.peek() {
	case '{':
	case '[':
		kind = tokenArray
	default:
		return s.scalar(t)
	}
	*t = token{kind: kind, start: int32(s.pos)}
	if !s.container(depth) {
		return false
	}
	t.end = int32(s.pos)
	return true
}

func (s *scanner) scalar(t *token) bool {
	switch c := s.peek(); c {
	case '"':
		return s.text(t)
	case 't':
		return s.literal(t, "true", tokenTrue)
	case 'f':
		return s.literal(t, "false", tokenFalse)
	case 'n':
		return s.literal(t, "null", tokenNull)
	default:
		return s.number(t)
	}
}

func (s *scanner) literal(t *token, text string, kind tokenKind) bool {
	if len(s.data)-s.pos < len(text) || string(s.data[s.pos:s.pos+len(text)]) != text {
		return s.fail(faultSyntax)
	}
	*t = token{kind: kind, start: int32(s.pos), end: int32(s.pos + len(text))}
	s.pos += len(text)
	return true
}

// container skips an object or array that stands inside depth others. What is
// open is kept in a word with one bit per level, set for an object.
func (s *scanner) container(depth int) bool {
	var open uint64
	var t token
	for outer := depth; ; {
		if c := s.peek(); c == '{' || c == '[' {
			if depth == s.maxDepth {
				return s.fail(faultDepth)
			}
			depth++
			open <<= 1
			if c == '{' {
				open |= 1
			}
			s.pos++
			s.space()
			if s.peek() != closing(open) {
				if open&1 == 1 && !s.name(&t) {
					return false
				}
				continue // with the first value inside
			}
		} else if !s.scalar(&t) {
			return false
		} else {
			s.space()
		}
		for s.peek() == closing(open) {
			s.pos++
			open >>= 1
			depth--
			if depth == outer {
				return true
			}
			s.space()
		}
		if s.peek() != ',' {
			return s.fail(faultSyntax)
		}
		s.pos++
		s.space()
		if open&1 == 1 && !s.name(&t) {
			return false
		}
	}
}

// closing is the byte that ends the innermost open container.
func closing(open uint64) byte {
	if open&1 == 1 {
		return '}'
	}
	return ']'
}

func (s *scanner) number(t *token) bool {
	*t = token{kind: tokenInteger, start: int32(s.pos)}
	if s.peek() == '-' {
		t.kind = tokenNumber
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++ // nothing may follow a leading zero but a fraction or exponent
	} else if !s.digits() {
		return s.fail(faultSyntax)
	}
	if s.peek() == '.' {
		t.kind = tokenNumber
		s.pos++
		if !s.digits() {
			return s.fail(faultSyntax)
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		t.kind = tokenNumber
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.fail(faultSyntax)
		}
	}
	t.end = int32(s.pos)
	return true
}

// digits reads one digit or more.
func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.data) && s.data[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > from
}

// text reads a string; the scanner stands at its opening quote.
func (s *scanner) text(t *token) bool {
	s.pos++
	*t = token{kind: tokenString, start: int32(s.pos)}
	for {
		s.plain()
		c := s.peek()
		switch {
		case c == '"':
			t.end = int32(s.pos)
			s.pos++
			return true
		case c == '\\':
			t.escaped = true
			if !s.escape(t) {
				return false
			}
		case c < ' ': // also the end of the data
			return s.fail(faultSyntax)
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.fail(faultUTF8)
			}
			s.pos += size
		}
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plain skips eight bytes at a time while none of them is a quote, a backslash, a
// control character or part of a longer rune, and then up to the first that is.
// Near the end of the data it may stop earlier.
func (s *scanner) plain() {
	data, pos := s.data, s.pos
	for len(data)-pos >= 8 {
		w := binary.LittleEndian.Uint64(data[pos:])
		quote := w ^ lowBits*'"'
		slash := w ^ lowBits*'\\'
		// Each term marks the bytes it looks for in their high bit. A borrow can mark
		// a byte wrongly, but only above one marked rightly, and the lowest counts.
		found := ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (w-lowBits*' ')&^w | w) & highBits
		if found != 0 {
			s.pos = pos + bits.TrailingZeros64(found)/8
			return
		}
		pos += 8
	}
	s.pos = pos
}

// escape reads one escape, and both halves of a surrogate pair.
func (s *scanner) escape(t *token) bool {
	s.pos++
	c := s.peek()
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return true
	case 'u':
	default:
		return s.fail(faultSyntax)
	}
	unit, ok := hexUnit(s.data[s.pos+1:])
	if !ok {
		return s.fail(faultSyntax)
	}
	s.pos += 5
	switch {
	case unit == 0:
		t.nul = true
	case unit >= 0xD800 && unit < 0xDC00:
		rest := s.data[s.pos:]
		if len(rest) < 2 || rest[0] != '\\' || rest[1] != 'u' {
			return s.fail(faultSurrogate)
		}
		low, ok := hexUnit(rest[2:])
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return s.fail(faultSurrogate)
		}
		s.pos += 6
	case unit >= 0xDC00 && unit <= 0xDFFF:
		return s.fail(faultSurrogate)
	}
	return true
}

// hexUnit reads the four digits of a \u escape, in either case.
func hexUnit(text []byte) (rune, bool) {
	if len(text) < 4 {
		return 0, false
	}
	var unit rune
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}
