package front_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/relay/front"
	"github.com/peerrelay/peerrelay/wire"
)

// refusal is bytes that make the server close with a code.
type refusal struct {
	name string
	send []byte
	code wire.CloseCode
}

// refusals are bytes the server must answer with a close, by what the cases of the
// Autobahn test suite are about (and FAULTS A04 to A07, A13).
var refusals = []refusal{
	// Framing: 3, 4 (reserved bits and opcodes).
	{"rsv1", withByte(text("x"), 0, 0xc1), 1002},
	{"rsv2", withByte(text("x"), 0, 0xa1), 1002},
	{"rsv3", withByte(text("x"), 0, 0x91), 1002},
	{"all rsv on a ping", withByte(frame(ws.OpPing, true, nil), 0, 0xf9), 1002},
	{"rsv on a close", withByte(frame(ws.OpClose, true, closeBody(1000, "")), 0, 0xa8), 1002},
	{"opcode 3", frame(3, true, []byte("x")), 1002},
	{"opcode 4", frame(4, true, nil), 1002},
	{"opcode 5", frame(5, true, nil), 1002},
	{"opcode 6", frame(6, true, nil), 1002},
	{"opcode 7", frame(7, true, nil), 1002},
	{"opcode 11", frame(11, true, []byte("x")), 1002},
	{"opcode 12", frame(12, true, nil), 1002},
	{"opcode 13", frame(13, true, nil), 1002},
	{"opcode 14", frame(14, true, nil), 1002},
	{"opcode 15", frame(15, true, nil), 1002},
	{"not masked", ws.MustCompileFrame(ws.NewTextFrame([]byte("x"))), 1002},
	{"not masked ping", ws.MustCompileFrame(ws.NewPingFrame(nil)), 1002},
	{"bytes that are no frame", []byte("GET / HTTP/1.1\r\n\r\n"), 1002},

	// Lengths.
	{"65537 declared", head(ws.OpText, 65_537), 1009},
	{"2^31 declared", head(ws.OpText, 1<<31), 1009},
	{"2^62 declared", head(ws.OpText, 1<<62), 1009},
	{"2^63-1 declared", head(ws.OpText, 1<<63-1), 1009},
	{"top bit of the length", withByte(head(ws.OpText, 1<<62), 2, 0x80), 1002},
	{"16-bit length not minimal", []byte{0x81, 0xfe, 0, 125, 0, 0, 0, 0}, 1002},
	{"16-bit length zero", []byte{0x81, 0xfe, 0, 0, 0, 0, 0, 0}, 1002},
	{"64-bit length not minimal", []byte{0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}, 1002},
	{"64-bit length of a small one", []byte{0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, 1002},

	// Control frames: 2, 5.
	{"ping of 126 bytes", frame(ws.OpPing, true, make([]byte, 126)), 1002},
	{"pong of 126 bytes", frame(ws.OpPong, true, make([]byte, 126)), 1002},
	{"close of 126 bytes", frame(ws.OpClose, true, closeBody(1000, strings.Repeat("*", 124))), 1002},
	{"ping in fragments", frame(ws.OpPing, false, nil), 1002},
	{"pong in fragments", frame(ws.OpPong, false, []byte("x")), 1002},
	{"close in fragments", frame(ws.OpClose, false, closeBody(1000, "")), 1002},

	// Fragments: 5.
	{"continuation without a start", frame(ws.OpContinuation, true, []byte("x")), 1002},
	{"continuation without a start or an end", frame(ws.OpContinuation, false, []byte("x")), 1002},
	{"continuation after a whole message", join(text("auth"), frame(ws.OpContinuation, true, nil)), 1002},
	{"text inside a message", join(frame(ws.OpText, false, []byte("a")), text("b")), 1002},
	{"text inside a message, after a ping", join(frame(ws.OpText, false, nil), frame(ws.OpPing, true, nil), text("b")), 1002},
	{"binary inside a message", join(frame(ws.OpText, false, nil), frame(ws.OpBinary, true, nil)), 1002},
	{"40 + 40 KiB", join(frame(ws.OpText, false, make([]byte, 40<<10)), head(ws.OpContinuation, 40<<10)), 1009},
	{"65536 + 1", join(frame(ws.OpText, false, make([]byte, 65_536)), head(ws.OpContinuation, 1)), 1009},
	{"65537 in three", join(frame(ws.OpText, false, make([]byte, 30_000)), frame(ws.OpContinuation, false, make([]byte, 30_000)),
		head(ws.OpContinuation, 5_537)), 1009},
	{"empty fragments without end", join(frame(ws.OpText, false, nil), bytes.Repeat(frame(ws.OpContinuation, false, nil), 1000)), 1008},

	// Binary is not for this protocol.
	{"binary", frame(ws.OpBinary, true, []byte(`{"v":1}`)), 1003},
	{"binary in fragments", frame(ws.OpBinary, false, nil), 1003},

	// UTF-8: 6.
	{"lone FF", text("\xff"), 1007},
	{"lone FE", text("ok\xfe"), 1007},
	{"overlong slash", text("\xc0\xaf"), 1007},
	{"overlong of three", text("\xe0\x80\xaf"), 1007},
	{"overlong of four", text("\xf0\x80\x80\xaf"), 1007},
	{"overlong NUL", text("\xc0\x80"), 1007},
	{"overlong maximum of two", text("\xe0\x9f\xbf"), 1007},
	{"overlong maximum of three", text("\xf0\x8f\xbf\xbf"), 1007},
	{"five bytes", text("\xf8\x88\x80\x80\x80"), 1007},
	{"six bytes", text("\xfc\x84\x80\x80\x80\x80"), 1007},
	{"above U+10FFFF", text("\xf4\x90\x80\x80"), 1007},
	{"surrogate D800", text("\xed\xa0\x80"), 1007},
	{"surrogate DFFF", text("\xed\xbf\xbf"), 1007},
	{"surrogate pair", text("\xed\xa0\x80\xed\xb0\x80"), 1007},
	{"lone continuation byte", text("\x80"), 1007},
	{"cut short at the end", text("caf\xc3"), 1007},
	{"three of four at the end", text("\xf0\x9f\x98"), 1007},
	{"cut short, then ASCII", text("\xe2\x82a"), 1007},
	{"cut short at the end of fragments", join(frame(ws.OpText, false, []byte("a\xe2")), frame(ws.OpContinuation, true, []byte("\x82"))), 1007},
	{"cut short, then an empty last fragment", join(frame(ws.OpText, false, []byte("\xe2\x82")), frame(ws.OpContinuation, true, nil)), 1007},
	{"bad second fragment, message unfinished", join(frame(ws.OpText, false, []byte("\xce\xba\xe1")),
		frame(ws.OpContinuation, false, []byte("\xbd\xb9\xf4\x90"))), 1007},
	{"bad bytes in an unfinished frame", join(head(ws.OpText, 1000), []byte("abc\xed\xa0")), 1007},

	// Close frames: 7.
	{"close of one byte", frame(ws.OpClose, true, []byte{3}), 1002},
	{"close reason not UTF-8", frame(ws.OpClose, true, closeBody(1000, "\xce\xba\xff")), 1002},
	{"close reason cut short", frame(ws.OpClose, true, closeBody(1000, "\xe2\x82")), 1002},
	{"close inside a message, bad code", join(frame(ws.OpText, false, []byte("x")), frame(ws.OpClose, true, closeBody(0, ""))), 1002},
}

func withByte(b []byte, at int, value byte) []byte {
	b = bytes.Clone(b)
	b[at] = value
	return b
}

// Each refusal comes at once, whether the bytes come in one piece or one by one,
// and nothing is handed over.
func TestRefusals(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		cases := slices.Clone(refusals)
		for _, code := range []uint16{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535} {
			cases = append(cases, refusal{"close code", frame(ws.OpClose, true, closeBody(code, "why")), 1002})
		}
		for i, tt := range cases {
			c := s.dial(t)
			c.write(tt.send)
			f := c.readUntilClose()
			got, reason := ws.ParseCloseFrameData(f.Payload)
			require.Equal(t, tt.code, wire.CloseCode(got), "%s: %s", tt.name, reason)
			require.NotEmpty(t, reason, tt.name)
			c.requireEnd()
			s.handler.peer(t, i).requireClosed(t, tt.code)
			if tt.name != "continuation after a whole message" {
				require.Zero(t, s.handler.peer(t, i).count(), tt.name)
			}
		}
	})
}

// readUntilClose passes over echoes and pongs.
func (c *client) readUntilClose() ws.Frame {
	c.t.Helper()
	for {
		if f := c.read(); f.Header.OpCode == ws.OpClose {
			return f
		}
	}
}

func TestRefusalsByteByByte(t *testing.T) {
	t.Parallel()
	s := startServer(t, pathDefault, nil)
	for _, tt := range refusals {
		if len(tt.send) > 200 {
			continue
		}
		c := s.dial(t)
		for i := range tt.send {
			c.tryWrite(tt.send[i : i+1])
		}
		f := c.readUntilClose()
		got, _ := ws.ParseCloseFrameData(f.Payload)
		require.Equal(t, tt.code, wire.CloseCode(got), tt.name)
	}
}

func fragments(payload string, size int, between []byte) []byte {
	var out [][]byte
	op := ws.OpText
	for i := 0; i < len(payload); i += size {
		end := min(i+size, len(payload))
		out = append(out, frame(op, end == len(payload), []byte(payload[i:end])))
		op = ws.OpContinuation
		if between != nil && (i/size)%10 == 9 && end < len(payload) {
			out = append(out, between)
		}
	}
	return join(out...)
}

func TestFragments(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"ascii":         strings.Repeat("abcdefgh", 100),
		"greek":         strings.Repeat("κόσμε", 60),
		"emoji":         `{"name":"` + strings.Repeat("😀🎉", 40) + `"}`, // FAULTS A08
		"boundaries":    "\x00\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff\ufffd\ufeff\ud7ff\ue000",
		"noncharacters": "\ufffe\uffff\U0001fffe\U0010ffff",
	}
	forEachPath(t, func(t *testing.T, p path) {
		c := startServer(t, p, nil).dial(t)
		ping := frame(ws.OpPing, true, []byte("in between"))
		for name, msg := range texts {
			for _, size := range []int{1, 2, 3, 5, 7, 100} {
				sent := fragments(msg, size, nil)
				c.write(sent)
				c.requireText(msg)

				c.write(fragments(msg, size, ping))
				pings := (len(msg)+size-1)/size/10 - 1
				for range pings {
					c.requirePong("in between")
				}
				f := c.read()
				for f.Header.OpCode == ws.OpPong {
					f = c.read()
				}
				require.Equal(t, msg, string(f.Payload), name)
			}
			// The whole of it cut anywhere by TCP, byte by byte.
			for _, b := range fragments(msg, 3, nil) {
				c.write([]byte{b})
			}
			c.requireText(msg)
		}
	})
}

// The limit is on the message, to the byte (FAULTS A05).
func TestLargestMessageInFragments(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		c := startServer(t, p, nil).dial(t)
		whole := strings.Repeat("é", wire.MaxMessage/2)
		c.write(fragments(whole, 30_001, nil))
		c.requireText(whole)
		c.write(join(frame(ws.OpText, false, nil), frame(ws.OpContinuation, false, []byte(whole)), frame(ws.OpContinuation, true, nil)))
		c.requireText(whole)
		c.write(fragments(whole, 1, nil))
		c.requireText(whole)
	})
}

func TestEmptyMessages(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		c := startServer(t, p, nil).dial(t)
		c.write(text(""))
		c.requireText("")
		c.write(join(frame(ws.OpText, false, nil), frame(ws.OpContinuation, false, nil), frame(ws.OpContinuation, true, nil)))
		c.requireText("")
		c.write(join(frame(ws.OpText, false, nil), frame(ws.OpContinuation, false, []byte("middle")), frame(ws.OpContinuation, true, nil)))
		c.requireText("middle")
	})
}

// A close in the middle of a message ends the connection (FAULTS A13); the
// unfinished message is not handed over.
func TestCloseInsideMessage(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, nil)
		c := s.dial(t)
		c.write(join(frame(ws.OpText, false, []byte("half")), frame(ws.OpClose, true, closeBody(1000, "")), frame(ws.OpContinuation, true, nil)))
		c.requireClose(1000, "")
		s.handler.peer(t, 0).requireClosed(t, 1000)
		require.Zero(t, s.handler.peer(t, 0).count())
	})
}

// Pings without end are bounded, even from a peer that reads the pongs.
func TestControlFlood(t *testing.T) {
	t.Parallel()
	forEachPath(t, func(t *testing.T, p path) {
		s := startServer(t, p, func(c *front.Config) { c.Limits.ControlFrames = 50 })
		c := s.dial(t)
		c.write(bytes.Repeat(frame(ws.OpPong, true, []byte("x")), 300))
		f := c.readUntilClose()
		code, reason := ws.ParseCloseFrameData(f.Payload)
		require.Equal(t, wire.ClosePolicy, wire.CloseCode(code))
		require.Equal(t, "frame_flood", reason)
	})
}
