package front

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/peerrelay/peerrelay/wire"
)

// maxEmptyFrames bounds the empty data frames of one message: they cost time and
// bring it no nearer to its end.
const maxEmptyFrames = 256

// noStatus stands for a close frame without a code (RFC 6455 section 7.1.5).
const noStatus = wire.CloseCode(ws.StatusNoStatusRcvd)

type eventKind uint8

const (
	eventNone    eventKind = iota // all bytes used, nothing complete
	eventMessage                  // a complete text message
	eventPing
	eventPong
	eventClose // code is noStatus for an empty body
	eventError // code and reason for our close frame; the decoder is of no more use
)

// event is what the decoder found. data is valid until the next call of next.
type event struct {
	data   []byte
	reason string
	code   wire.CloseCode
	kind   eventKind
}

// decoder turns a client's bytes into events, however they are cut. It does no
// input or output, and holds memory only for an unfinished message: never more
// than has arrived, rounded up to a buffer class, whatever length was declared.
type decoder struct {
	pool *buffers

	early   *buffer // bytes that came with the upgrade request; the conn feeds them first
	message *buffer // the unfinished message as far as it has come
	checked int     // bytes of message known to be whole, valid characters

	remaining int // payload bytes of the current frame still to come
	maskAt    int // position in the mask of the next of them
	units     int // times the decoder has come to rest between messages
	empties   int // empty frames of the current message

	header     [ws.MaxHeaderSize]byte
	mask       [4]byte
	control    [ws.MaxControlFramePayloadSize]byte
	headerLen  uint8
	controlLen uint8

	op        ws.OpCode
	final     bool
	inFrame   bool // the header is complete, the payload is not
	inMessage bool // a fragmented message has begun
	handed    bool // message was returned in the last event
}

// decoders is a pool of decoders: a connection has one only during a turn and
// while a message is unfinished.
type decoders struct {
	pool    sync.Pool
	buffers *buffers
}

func (p *decoders) get() *decoder {
	if d, ok := p.pool.Get().(*decoder); ok {
		return d
	}
	return &decoder{pool: p.buffers}
}

func (p *decoders) put(d *decoder) {
	p.buffers.put(d.early)
	p.buffers.put(d.message)
	*d = decoder{pool: p.buffers}
	p.pool.Put(d)
}

// idle reports whether the decoder is between messages and holds nothing.
func (d *decoder) idle() bool {
	return d.headerLen == 0 && !d.inFrame && !d.inMessage && d.early == nil
}

// next decodes up to the first complete event and returns the bytes after it. It
// unmasks in place: in must not be used again.
func (d *decoder) next(in []byte) (event, []byte) {
	if d.handed {
		d.pool.put(d.message)
		d.message, d.handed, d.checked = nil, false, 0
	}
	for {
		if !d.inFrame {
			var ev event
			if ev, in = d.readHeader(in); ev.kind == eventError || !d.inFrame {
				return ev, in
			}
		}
		var ev event
		if d.op.IsControl() {
			ev, in = d.readControl(in)
		} else {
			ev, in = d.readData(in)
		}
		if ev.kind != eventNone || d.inFrame || len(in) == 0 {
			return ev, in
		}
	}
}

// readHeader gathers a header and checks it. On return without an error the
// header is complete if d.inFrame is set.
func (d *decoder) readHeader(in []byte) (event, []byte) {
	for {
		need := d.headerSize()
		n := copy(d.header[d.headerLen:need], in)
		d.headerLen += uint8(n)
		in = in[n:]
		if int(d.headerLen) < need {
			return event{}, in
		}
		if need == ws.MinHeaderSize {
			if ev := d.checkStart(); ev.kind == eventError {
				return ev, in
			}
			continue // now the whole size is known; it is larger, since a mask follows
		}
		return d.finishHeader(), in
	}
}

func (d *decoder) headerSize() int {
	if d.headerLen < ws.MinHeaderSize {
		return ws.MinHeaderSize
	}
	switch d.header[1] &^ maskBit {
	case 126:
		return 2 + 2 + 4
	case 127:
		return 2 + 8 + 4
	}
	return 2 + 4
}

// checkStart checks what the first two bytes of a frame say.
func (d *decoder) checkStart() event {
	d.final = d.header[0]&finBit != 0
	d.op = ws.OpCode(d.header[0] & 0x0f)
	length := d.header[1] &^ maskBit
	switch {
	case d.header[0]&0x70 != 0:
		return protocolError("reserved bits set")
	case d.op.IsReserved():
		return protocolError("reserved opcode")
	case d.header[1]&maskBit == 0:
		return protocolError("frame not masked")
	case d.op.IsControl() && !d.final:
		return protocolError("fragmented control frame")
	case d.op.IsControl() && length > ws.MaxControlFramePayloadSize:
		return protocolError("control frame too long")
	case d.op == ws.OpContinuation && !d.inMessage:
		return protocolError("continuation without a start")
	case d.op.IsData() && d.op != ws.OpContinuation && d.inMessage:
		return protocolError("message inside a fragmented message")
	case d.op == ws.OpBinary:
		return event{kind: eventError, code: wire.CloseUnsupportedData, reason: "text messages only"}
	}
	return event{}
}

// finishHeader reads the length and the mask, and refuses a message that would
// become too large before any of its payload is looked at.
func (d *decoder) finishHeader() event {
	length, maskFrom := uint64(d.header[1]&^maskBit), 2
	switch length {
	case 126:
		length, maskFrom = uint64(binary.BigEndian.Uint16(d.header[2:])), 4
		if length < 126 {
			return protocolError("length not minimal")
		}
	case 127:
		length, maskFrom = binary.BigEndian.Uint64(d.header[2:]), 10
		if length>>63 != 0 || length <= 0xffff {
			return protocolError("malformed length")
		}
	}
	if d.op.IsData() {
		if uint64(d.messageLen())+length > wire.MaxMessage {
			return event{kind: eventError, code: wire.CloseTooLarge, reason: wire.ReasonTooLarge}
		}
		if length == 0 && !d.final {
			if d.empties++; d.empties > maxEmptyFrames {
				return event{kind: eventError, code: wire.ClosePolicy, reason: wire.ReasonFlood}
			}
		}
	}
	copy(d.mask[:], d.header[maskFrom:])
	d.remaining, d.maskAt, d.controlLen = int(length), 0, 0
	d.headerLen, d.inFrame = 0, true
	return event{}
}

func (d *decoder) messageLen() int {
	if d.message == nil {
		return 0
	}
	return len(d.message.b)
}

func (d *decoder) readControl(in []byte) (event, []byte) {
	n := copy(d.control[d.controlLen:int(d.controlLen)+d.remaining], in)
	d.controlLen += uint8(n)
	d.remaining -= n
	in = in[n:]
	if d.remaining > 0 {
		return event{}, in
	}
	payload := d.control[:d.controlLen]
	ws.Cipher(payload, d.mask, 0)
	d.endFrame()
	switch d.op {
	case ws.OpPing:
		return event{kind: eventPing, data: payload}, in
	case ws.OpPong:
		return event{kind: eventPong, data: payload}, in
	default: // checkStart has let nothing else through
		return closeEvent(payload), in
	}
}

func (d *decoder) readData(in []byte) (event, []byte) {
	n := min(d.remaining, len(in))
	chunk := in[:n:n]
	in = in[n:]
	ws.Cipher(chunk, d.mask, d.maskAt)
	d.remaining -= n
	d.maskAt = (d.maskAt + n) & 3

	if d.final && d.remaining == 0 && d.message == nil && !d.inMessage {
		d.endFrame() // the common case: a message of one frame, all here, not copied
		if !utf8.Valid(chunk) {
			return invalidUTF8(), in
		}
		return event{kind: eventMessage, data: chunk}, in
	}
	if n > 0 {
		d.message = d.pool.grow(d.message, n)
		d.message.b = append(d.message.b, chunk...)
		if !d.checkUTF8() {
			return invalidUTF8(), in
		}
	}
	if d.remaining > 0 {
		return event{}, in
	}
	return d.endDataFrame(), in
}

// endDataFrame ends a frame of a message that is in d.message.
func (d *decoder) endDataFrame() event {
	if !d.final {
		d.inMessage = true
		d.endFrame()
		return event{}
	}
	d.inMessage = false
	d.endFrame()
	if d.checked != d.messageLen() {
		return invalidUTF8()
	}
	d.empties = 0
	if d.message == nil {
		return event{kind: eventMessage} // all its frames were empty
	}
	d.handed = true
	return event{kind: eventMessage, data: d.message.b}
}

func (d *decoder) endFrame() {
	d.inFrame = false
	if !d.inMessage {
		d.units++
	}
}

// checkUTF8 validates what came since the last call, but for a last character
// that may still be completed.
func (d *decoder) checkUTF8() bool {
	fresh := d.message.b[d.checked:]
	whole := len(fresh) - incompleteTail(fresh)
	if !utf8.Valid(fresh[:whole]) {
		return false
	}
	d.checked += whole
	return true
}

// incompleteTail is how many bytes at the end of b begin a character that more
// bytes could complete.
func incompleteTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// closeEvent reads the body of a close frame (RFC 6455 section 5.5.1).
func closeEvent(body []byte) event {
	if len(body) == 0 {
		return event{kind: eventClose, code: noStatus}
	}
	if len(body) == 1 {
		return protocolError("close frame with half a code")
	}
	code := ws.StatusCode(binary.BigEndian.Uint16(body))
	if !closeCodeAllowed(code) {
		return protocolError("close code not allowed")
	}
	if !utf8.Valid(body[2:]) {
		return protocolError("close reason is not UTF-8")
	}
	return event{kind: eventClose, code: wire.CloseCode(code)}
}

func protocolError(reason string) event {
	return event{kind: eventError, code: wire.CloseProtocolError, reason: reason}
}

func invalidUTF8() event {
	return event{kind: eventError, code: wire.CloseInvalidUTF8, reason: "invalid UTF-8"}
}
