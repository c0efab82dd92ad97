package main

import "bytes"

// message is what the generator needs of one frame of the relay. Its slices point
// into the frame. Strings are as they stand there: the ids of this generator and
// of the relay have no escapes.
type message struct {
	kind     []byte // the type member
	id       []byte
	streamID []byte
	to       []byte
	reason   []byte
	envelope []byte // the whole value
	replayed int
	replay   bool
	more     bool
}

// scan reads the top-level members of a frame without decoding what it does not
// need; it trusts the relay to send valid JSON, and reports false when it can't
// find its way. One pass without allocation.
func (m *message) scan(frame []byte) bool {
	*m = message{}
	at := skipSpace(frame, 0)
	if at >= len(frame) || frame[at] != '{' {
		return false
	}
	for {
		at = skipSpace(frame, at+1)
		nameEnd := stringEnd(frame, at)
		if nameEnd < 0 {
			return false
		}
		name := frame[at+1 : nameEnd-1]
		colon := skipSpace(frame, nameEnd)
		if colon >= len(frame) || frame[colon] != ':' {
			return false
		}
		start := skipSpace(frame, colon+1)
		end := valueEnd(frame, start)
		if end <= start {
			return false
		}
		m.take(name, frame[start:end])
		at = skipSpace(frame, end)
		if at >= len(frame) || frame[at] != ',' {
			return at < len(frame) && frame[at] == '}'
		}
	}
}

func (m *message) take(name, value []byte) {
	switch string(name) {
	case "type":
		m.kind = unquote(value)
	case "id":
		m.id = unquote(value)
	case "stream_id":
		m.streamID = unquote(value)
	case "to":
		m.to = unquote(value)
	case "reason":
		m.reason = unquote(value)
	case "envelope":
		m.envelope = value
	case "replay":
		m.replay = value[0] == 't'
	case "more":
		m.more = value[0] == 't'
	case "replayed":
		for _, c := range value {
			m.replayed = m.replayed*10 + int(c-'0')
		}
	}
}

func unquote(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	return value[1 : len(value)-1]
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}

// stringEnd returns the index after the string that begins at at, -1 when there is
// none.
func stringEnd(b []byte, at int) int {
	if at >= len(b) || b[at] != '"' {
		return -1
	}
	for at++; ; at++ {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 {
			return -1
		}
		at += i
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at + 1
		}
	}
}

// valueEnd returns the index after the value that begins at at, -1 when it does
// not end.
func valueEnd(b []byte, at int) int {
	if at >= len(b) {
		return -1
	}
	switch b[at] {
	case '"':
		return stringEnd(b, at)
	case '{', '[':
		return nestedEnd(b, at)
	}
	for end := at; end < len(b); end++ {
		if c := b[end]; c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' {
			return end
		}
	}
	return -1
}

func nestedEnd(b []byte, at int) int {
	depth := 0
	for at < len(b) {
		switch b[at] {
		case '"':
			end := stringEnd(b, at)
			if end < 0 {
				return -1
			}
			at = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return at + 1
			}
		}
		at++
	}
	return -1
}
