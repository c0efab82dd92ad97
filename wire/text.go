package wire

import (
	"unicode/utf16"
	"unicode/utf8"
)

// decode returns the text of a scanned string: a view of data, or memory of its
// own when the string was written with escapes.
func (t *token) decode(data []byte) []byte {
	raw := data[t.start:t.end:t.end]
	if !t.escaped {
		return raw
	}
	return unescape(make([]byte, 0, len(raw)), raw)
}

// unescape appends the text of a string that a scanner has accepted.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hexUnit(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hexUnit(raw[i+3:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default: // a quote, a backslash or a slash
			dst = append(dst, raw[i])
		}
	}
	return dst
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD: what a frame says is always valid text.
func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			var size int
			dst, size = appendRune(dst, s[i:min(i+utf8.UTFMax, len(s))])
			i += size
		}
	}
	return append(dst, '"')
}

// appendRune appends the first rune of s and returns how many bytes it took.
func appendRune[S ~string | ~[]byte](dst []byte, s S) ([]byte, int) {
	var first [utf8.UTFMax]byte
	r, size := utf8.DecodeRune(first[:copy(first[:], s)])
	return utf8.AppendRune(dst, r), size
}

// cutString returns the longest start of s that has at most n bytes and ends
// between two runes.
func cutString(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
