package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gobwas/ws"
)

// maxServerFrame bounds what a server can make a connection keep.
const maxServerFrame = 1 << 20

// appendClientFrame appends one final, masked frame (RFC 6455 section 5.2).
func appendClientFrame(dst []byte, op ws.OpCode, payload []byte, mask [4]byte) []byte {
	dst = append(dst, 0x80|byte(op))
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = append(dst, 0x80|126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	default:
		dst = append(dst, 0x80|127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	dst = append(dst, mask[:]...)
	start := len(dst)
	dst = append(dst, payload...)
	ws.Cipher(dst[start:], mask, 0)
	return dst
}

var errServerFrame = errors.New("the server broke the WebSocket protocol")

// nextFrame reads one frame at the start of data. size 0 says that more bytes are
// needed. The relay sends neither fragments nor extensions, so both are errors.
func nextFrame(data []byte) (op ws.OpCode, payload []byte, size int, err error) {
	if len(data) < 2 {
		return 0, nil, 0, nil
	}
	if data[0]&0xF0 != 0x80 || data[1]&0x80 != 0 {
		return 0, nil, 0, fmt.Errorf("%w: header %x", errServerFrame, data[:2])
	}
	head, length := 2, uint64(data[1])
	switch length {
	case 126:
		head = 4
	case 127:
		head = 10
	}
	if len(data) < head {
		return 0, nil, 0, nil
	}
	switch head {
	case 4:
		length = uint64(binary.BigEndian.Uint16(data[2:]))
	case 10:
		length = binary.BigEndian.Uint64(data[2:])
	}
	if length > maxServerFrame {
		return 0, nil, 0, fmt.Errorf("%w: %d bytes", errServerFrame, length)
	}
	size = head + int(length)
	if len(data) < size {
		return 0, nil, 0, nil
	}
	return ws.OpCode(data[0] & 0x0F), data[head:size], size, nil
}
