package front

import "github.com/gobwas/ws"

// outQueue holds the encoded frames that wait to be written to one connection, one
// after the other in one pooled buffer, or no buffer at all when none waits. Its
// counts are exact: a frame counts until its last byte, a byte until it is written.
//
//	buf.b: | whole frames written | frame | frame | frame |
//	                      head ^     ^ off   ^ begun
//
// head <= off <= begun <= len(buf.b); bytes from off to begun are being written by
// a blocking writer, and equal off for a non-blocking one.
type outQueue struct {
	buf    *buffer
	head   int32 // start of the first frame not wholly written
	off    int32 // bytes written
	begun  int32 // bytes given to a writer
	frames int32 // frames not wholly written
}

// waiting is the number of bytes not written yet.
func (q *outQueue) waiting() int {
	if q.buf == nil {
		return 0
	}
	return len(q.buf.b) - int(q.off)
}

// pending is the bytes not given to a writer yet.
func (q *outQueue) pending() []byte {
	if q.buf == nil {
		return nil
	}
	return q.buf.b[q.begun:]
}

// push appends one frame.
func (q *outQueue) push(pool *buffers, op ws.OpCode, payload []byte) {
	q.reserve(pool, frameSize(len(payload)))
	q.buf.b = appendHeader(q.buf.b, op, len(payload))
	q.buf.b = append(q.buf.b, payload...)
	q.frames++
}

// reserve makes room for size more bytes, over the frames already written where
// that pays, else in a larger buffer.
func (q *outQueue) reserve(pool *buffers, size int) {
	if q.buf == nil {
		q.buf = pool.get(size)
		return
	}
	room := cap(q.buf.b)
	if room-len(q.buf.b) >= size {
		return
	}
	kept := q.buf.b[q.head:]
	last := q.buf.class == len(bufferClasses)-1
	if len(kept)+size <= room && (last || int(q.head) >= room/4) {
		q.buf.b = q.buf.b[:copy(q.buf.b, kept)]
	} else {
		// Past room, so that what does not pay to move gets a larger class.
		larger := pool.get(max(len(kept)+size, min(room+1, bufferClasses[len(bufferClasses)-1])))
		larger.b = append(larger.b, kept...)
		pool.put(q.buf)
		q.buf = larger
	}
	q.off -= q.head
	q.begun -= q.head
	q.head = 0
}

// begin notes that n more bytes are with a writer.
func (q *outQueue) begin(n int) { q.begun += int32(n) }

// advance notes that n bytes, begun before, were written.
func (q *outQueue) advance(pool *buffers, n int) {
	q.off += int32(n)
	if int(q.off) == len(q.buf.b) {
		q.release(pool)
		return
	}
	for {
		end := q.head + int32(writtenFrameSize(q.buf.b[q.head:]))
		if end > q.off {
			return
		}
		q.head = end
		q.frames--
	}
}

// dropUnbegun forgets the frames of which no byte was given to a writer.
func (q *outQueue) dropUnbegun(pool *buffers) {
	if q.buf == nil {
		return
	}
	end, frames := q.head, int32(0)
	for end < q.begun {
		end += int32(writtenFrameSize(q.buf.b[end:]))
		frames++
	}
	if end == q.off {
		q.release(pool)
		return
	}
	q.buf.b = q.buf.b[:end]
	q.frames = frames
}

// release forgets everything and gives the buffer back.
func (q *outQueue) release(pool *buffers) {
	pool.put(q.buf)
	*q = outQueue{}
}
