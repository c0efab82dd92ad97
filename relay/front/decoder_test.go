package front

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/wire"
)

// found is an event that outlives its decoder.
type found struct {
	kind eventKind
	code wire.CloseCode
	data string
}

// decode feeds the pieces and returns all events up to a close or an error.
func decode(t testing.TB, d *decoder, pieces ...[]byte) []found {
	var events []found
	for _, piece := range pieces {
		in := bytes.Clone(piece)
		for {
			var ev event
			ev, in = d.next(in)
			if ev.kind == eventNone {
				require.Empty(t, in)
				break
			}
			events = append(events, found{ev.kind, ev.code, string(ev.data)})
			if ev.kind == eventClose || ev.kind == eventError {
				return events
			}
		}
		if d.message != nil {
			require.LessOrEqual(t, cap(d.message.b), wire.MaxMessage)
		}
	}
	return events
}

func newDecoder() *decoder { return &decoder{pool: &buffers{}} }

func masked(op ws.OpCode, fin bool, payload string) []byte {
	return ws.MustCompileFrame(ws.MaskFrameWith(ws.NewFrame(op, fin, []byte(payload)), [4]byte{1, 2, 3, 4}))
}

// FuzzDecoder: bytes cut anywhere mean what they mean in one piece, and no bytes
// make it panic or hold more than a message.
func FuzzDecoder(f *testing.F) {
	for _, seed := range [][]byte{
		masked(ws.OpText, true, "hello"),
		bytes.Join([][]byte{masked(ws.OpText, false, "caf\xc3"), masked(ws.OpPing, true, "p"), masked(ws.OpContinuation, true, "\xa9")}, nil),
		bytes.Join([][]byte{masked(ws.OpText, true, ""), masked(ws.OpClose, true, "\x03\xe8bye")}, nil),
		masked(ws.OpText, true, string(make([]byte, 300))),
		masked(ws.OpText, true, "\xed\xa0\x80"),
		{0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0},
		bytes.Repeat(masked(ws.OpContinuation, false, ""), 3),
	} {
		f.Add(seed, uint64(len(seed)))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		whole := decode(t, newDecoder(), data)
		random := rand.New(rand.NewPCG(seed, 1))
		var pieces [][]byte
		for rest := data; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 1+random.IntN(40)))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, whole, decode(t, newDecoder(), pieces...))
	})
}

// A decoder holds what has arrived, not what was declared (FAULTS A04).
func TestDecoderMemoryFollowsBytes(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	var header bytes.Buffer
	require.NoError(t, ws.WriteHeader(&header, ws.Header{Fin: true, OpCode: ws.OpText, Masked: true, Length: wire.MaxMessage}))
	require.Empty(t, decode(t, d, header.Bytes()))
	require.Nil(t, d.message)
	for arrived := 1; arrived <= wire.MaxMessage-1; arrived++ {
		require.Empty(t, decode(t, d, []byte("x")))
		if arrived&(arrived-1) == 0 {
			require.LessOrEqual(t, cap(d.message.b), max(1<<10, 4*arrived))
		}
	}
	require.Len(t, decode(t, d, []byte("x")), 1)
}

func TestDecoderComesToRest(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	require.True(t, d.idle())
	for _, step := range []struct {
		bytes []byte
		idle  bool
		units int
	}{
		{masked(ws.OpText, true, "whole"), true, 1},
		{masked(ws.OpText, false, "part"), false, 1},
		{masked(ws.OpPing, true, "ping"), false, 1},
		{masked(ws.OpContinuation, true, ""), true, 2},
		{[]byte{0x81}, false, 2},
		{[]byte{0x80, 0, 0, 0, 0}, true, 3},
		{masked(ws.OpPong, true, ""), true, 4},
	} {
		decode(t, d, step.bytes)
		require.Equal(t, step.idle, d.idle())
		require.Equal(t, step.units, d.units)
	}
	require.Nil(t, d.message)
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	d := newDecoder()
	sent := masked(ws.OpText, true, string(make([]byte, 1000)))
	in := make([]byte, len(sent))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		copy(in, sent)
		ev, rest := d.next(in)
		if ev.kind != eventMessage || len(rest) != 0 {
			t.Fatal("not decoded")
		}
	}))
}

// An idle connection is this and nothing else.
func TestConnIsSmall(t *testing.T) {
	t.Parallel()
	t.Logf("conn: %d bytes, decoder: %d bytes", unsafe.Sizeof(conn{}), unsafe.Sizeof(decoder{}))
	require.LessOrEqual(t, int(unsafe.Sizeof(conn{})), 208)
}
