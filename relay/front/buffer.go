package front

import "sync"

// bufferClasses are the capacities of pooled buffers. 64 KiB holds the largest
// message; the last class holds a full default write queue and what may follow it.
var bufferClasses = [...]int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1<<20 + 128<<10}

// buffer is a byte slice from a pool. It belongs to whoever got it, who gives it
// back once and keeps no slice of it.
type buffer struct {
	b     []byte
	class int // index into bufferClasses, or -1 when too large to be pooled
}

// buffers hands out buffers by size class.
type buffers struct {
	pools [len(bufferClasses)]sync.Pool
}

// get returns an empty buffer with room for at least n bytes.
func (p *buffers) get(n int) *buffer {
	for class, size := range bufferClasses {
		if n > size {
			continue
		}
		if buf, ok := p.pools[class].Get().(*buffer); ok {
			return buf
		}
		return &buffer{b: make([]byte, 0, size), class: class}
	}
	return &buffer{b: make([]byte, 0, n+n/4), class: -1}
}

func (p *buffers) put(buf *buffer) {
	if buf == nil || buf.class < 0 {
		return
	}
	buf.b = buf.b[:0]
	p.pools[buf.class].Put(buf)
}

// grow returns a buffer with the content of buf (which may be nil) and room for
// extra more bytes. It takes over buf.
func (p *buffers) grow(buf *buffer, extra int) *buffer {
	if buf == nil {
		return p.get(extra)
	}
	if cap(buf.b)-len(buf.b) >= extra {
		return buf
	}
	larger := p.get(len(buf.b) + extra)
	larger.b = append(larger.b, buf.b...)
	p.put(buf)
	return larger
}
