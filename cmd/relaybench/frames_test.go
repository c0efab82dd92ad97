package main

import (
	"bytes"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"
)

func TestClientFramesAreMaskedAndComplete(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 125, 126, 1024, 65_535, 65_536, 70_000} {
		payload := text(3, size)
		frame := appendClientFrame([]byte("before"), ws.OpText, payload, [4]byte{1, 2, 3, 4})
		require.Equal(t, "before", string(frame[:6]))
		stream := bytes.NewReader(frame[6:])
		header, err := ws.ReadHeader(stream)
		require.NoError(t, err)
		require.True(t, header.Masked)
		require.True(t, header.Fin)
		require.Equal(t, ws.OpText, header.OpCode)
		require.Equal(t, int64(size), header.Length)
		got := make([]byte, stream.Len())
		_, _ = stream.Read(got)
		ws.Cipher(got, header.Mask, 0)
		require.Equal(t, payload, got)
		require.Equal(t, payload, text(3, size), "the payload itself is not masked")
	}
}

func TestServerFramesInAnyPieces(t *testing.T) {
	t.Parallel()
	var stream []byte
	sizes := []int{0, 5, 125, 126, 300, 65_535, 65_536}
	for _, size := range sizes {
		stream = append(stream, ws.MustCompileFrame(ws.NewTextFrame(text(4, size)))...)
	}
	at := 0
	for _, size := range sizes {
		for short := range min(len(stream)-at, 200) {
			if short < size+2 {
				_, _, used, err := nextFrame(stream[at : at+short])
				require.NoError(t, err)
				require.Zero(t, used, "%d of a frame of %d", short, size)
			}
		}
		op, payload, used, err := nextFrame(stream[at:])
		require.NoError(t, err)
		require.Equal(t, ws.OpText, op)
		require.Equal(t, text(4, size), payload)
		at += used
	}
	require.Equal(t, len(stream), at)
}

func TestServerFramesThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	for name, header := range map[string][]byte{
		"masked":   {0x81, 0x85},
		"fragment": {0x01, 0x05},
		"reserved": {0xC1, 0x05},
		"endless":  {0x81, 127, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"negative": {0x81, 127, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
	} {
		_, _, _, err := nextFrame(header)
		require.ErrorIs(t, err, errServerFrame, name)
	}
}
