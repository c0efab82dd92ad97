package ratchet

import "encoding/binary"

// reader reads fixed and counted parts of bytes that others may have made. After the first
// part that is not there everything is zero, and failed is true.
type reader struct {
	left   []byte
	failed bool
}

func (r *reader) next(n int) []byte {
	if n > len(r.left) {
		r.left, r.failed = nil, true
		return nil
	}
	part := r.left[:n]
	r.left = r.left[n:]
	return part
}

func (r *reader) take(into []byte) { copy(into, r.next(len(into))) }

func (r *reader) byte() byte {
	var b [1]byte
	r.take(b[:])
	return b[0]
}

func (r *reader) uint16() uint16 {
	var b [2]byte
	r.take(b[:])
	return binary.BigEndian.Uint16(b[:])
}

func (r *reader) uint32() uint32 {
	var b [4]byte
	r.take(b[:])
	return binary.BigEndian.Uint32(b[:])
}

func (r *reader) uint64() uint64 {
	var b [8]byte
	r.take(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// done reports whether everything was there, and nothing else.
func (r *reader) done() bool { return !r.failed && len(r.left) == 0 }
