package front

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

const finBit, maskBit = 0x80, 0x80

// appendHeader appends the header of an unmasked, final frame (RFC 6455 section 5.2).
func appendHeader(dst []byte, op ws.OpCode, length int) []byte {
	dst = append(dst, finBit|byte(op))
	switch {
	case length <= ws.MaxControlFramePayloadSize:
		return append(dst, byte(length))
	case length <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(length))
	}
	return binary.BigEndian.AppendUint64(append(dst, 127), uint64(length))
}

// frameSize is the size of a frame with a payload of length bytes.
func frameSize(length int) int {
	switch {
	case length <= ws.MaxControlFramePayloadSize:
		return 2 + length
	case length <= 0xffff:
		return 4 + length
	}
	return 10 + length
}

// writtenFrameSize is the size of the frame that begins at b[0], one that
// appendHeader wrote.
func writtenFrameSize(b []byte) int {
	switch b[1] {
	case 126:
		return 4 + int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		return 10 + int(binary.BigEndian.Uint64(b[2:]))
	}
	return 2 + int(b[1])
}

// appendCloseBody appends the payload of a close frame. The reason is cut to what
// a control frame holds, at a character's border.
func appendCloseBody(dst []byte, code ws.StatusCode, reason string) []byte {
	if limit := ws.MaxControlFramePayloadSize - 2; len(reason) > limit {
		for limit > 0 && !utf8.RuneStart(reason[limit]) {
			limit--
		}
		reason = reason[:limit]
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	return append(dst, reason...)
}

// closeCodeAllowed reports whether a peer may send the code (RFC 6455 section 7.4,
// and the IANA registry for 1012 to 1014).
func closeCodeAllowed(code ws.StatusCode) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014:
		return true
	}
	return code >= 3000 && code <= 4999
}
