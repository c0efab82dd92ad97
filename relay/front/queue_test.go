package front

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"
)

// The queue keeps exact counts and bytes through any order of pushes, partial
// writes and drops.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		var pool buffers
		var q outQueue
		var frames [][]byte // not wholly written
		written, begun := 0, 0
		check := func() {
			model := bytes.Join(frames, nil)
			require.Equal(t, len(model)-written, q.waiting())
			require.Equal(t, len(frames), int(q.frames))
			require.True(t, bytes.Equal(model[begun:], q.pending()))
			if len(frames) == 0 {
				require.Nil(t, q.buf)
			}
		}
		for range 200 {
			switch random.IntN(8) {
			default:
				payload := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN([]int{10, 200, 5000, 70_000}[random.IntN(4)]))
				if q.waiting()+len(payload) > 1<<20 {
					continue
				}
				q.push(&pool, ws.OpText, payload)
				frames = append(frames, append(appendHeader(nil, ws.OpText, len(payload)), payload...))
			case 5:
				if n := len(q.pending()); n > 0 {
					n = 1 + random.IntN(n)
					q.begin(n)
					begun += n
				}
			case 6:
				if begun == written {
					continue
				}
				n := 1 + random.IntN(begun-written)
				q.advance(&pool, n)
				written += n
				for len(frames) > 0 && written >= len(frames[0]) {
					written -= len(frames[0])
					begun -= len(frames[0])
					frames = frames[1:]
				}
			case 7:
				if random.IntN(20) > 0 {
					continue
				}
				q.dropUnbegun(&pool)
				kept := 0
				for end := 0; kept < len(frames) && end < begun; kept++ {
					end += len(frames[kept])
				}
				frames = frames[:kept]
			}
			check()
		}
	}
}

func TestWrittenFrameSize(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 127, 65_535, 65_536, 100_000} {
		b := append(appendHeader(nil, ws.OpText, n), make([]byte, n)...)
		require.Equal(t, len(b), writtenFrameSize(b))
		require.Equal(t, len(b), frameSize(n))
		h, err := ws.ReadHeader(bytes.NewReader(b))
		require.NoError(t, err)
		require.Equal(t, ws.Header{Fin: true, OpCode: ws.OpText, Length: int64(n)}, h)
	}
}

func TestCloseReasonIsCutAtACharacter(t *testing.T) {
	t.Parallel()
	body := appendCloseBody(nil, 1008, "a"+string(bytes.Repeat([]byte("é"), 100)))
	require.Len(t, body, 2+123)
	body = appendCloseBody(nil, 1008, string(bytes.Repeat([]byte("é"), 100)))
	require.Len(t, body, 2+122)
}
