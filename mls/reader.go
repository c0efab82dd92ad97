package mls

import (
	"encoding/binary"
	"errors"
)

// Errors of Parse.
var (
	ErrTruncated = errors.New("the message ends early")
	ErrTrailing  = errors.New("something follows the message")
	ErrLength    = errors.New("the length of a vector is not in its shortest form")
	ErrUnknown   = errors.New("an unknown version, wire format, content type or sender type")
)

// reader takes values off the front of bytes. After the first error it has none left, and
// keeps that error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.rest, r.err = nil, err
	}
}

// take returns the next n bytes, or n zeros where there are fewer; n is at most 8 then.
func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.fail(ErrTruncated)
	}
	if r.err != nil {
		return zeros[:n]
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

var zeros [8]byte

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) version() {
	if r.uint16() != mls10 {
		r.fail(ErrUnknown)
	}
}

func (r *reader) content() ContentType {
	content := ContentType(r.uint8())
	if content < Application || content > Commit {
		r.fail(ErrUnknown)
	}
	return content
}

// length reads the length of a vector (RFC 9420 section 2.1.2): the two highest bits say
// how many bytes it has, 1, 2 or 4, and it must have as few as it can.
func (r *reader) length() int {
	first := r.uint8()
	n := uint32(first & 0x3f)
	switch first >> 6 {
	case 0:
	case 1:
		if n = n<<8 | uint32(r.uint8()); n < 1<<6 {
			r.fail(ErrLength)
		}
	case 2:
		if n = n<<24 | uint32(r.uint8())<<16 | uint32(r.uint16()); n < 1<<14 {
			r.fail(ErrLength)
		}
	default:
		r.fail(ErrLength)
	}
	return int(n)
}

// vector returns the bytes of a vector, nil after an error.
func (r *reader) vector() []byte {
	n := r.length()
	if n > len(r.rest) {
		r.fail(ErrTruncated)
	}
	if r.err != nil {
		return nil
	}
	return r.take(n)
}

// skip goes past so many vectors.
func (r *reader) skip(vectors int) {
	for range vectors {
		r.vector()
	}
}

func (r *reader) end() {
	if r.err == nil && len(r.rest) > 0 {
		r.fail(ErrTrailing)
	}
}
