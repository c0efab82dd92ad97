package senderkey

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// Saved states begin with a byte for what they are and one for the version. Numbers are
// big-endian, lists have their length in front and one order, so that a state has one form.
const (
	stateVersion = 1

	stateMembership byte = iota
	stateSender
	stateOutgoing
	stateReceivers
	stateRepair
)

// receiversVersion is that of Receivers; in 1 chains had no newest and no again.
const receiversVersion byte = 2

func header(what byte) []byte { return []byte{what, stateVersion} }

func appendName(b []byte, name string) []byte {
	b = append(b, byte(len(name))) // at most 128, see validParticipant
	return append(b, name...)
}

func appendFlag(b []byte, flag bool) []byte {
	if flag {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendTime has milliseconds; the zero time is 0.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.BigEndian.AppendUint64(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

// validTime reports whether a clock's time can be saved.
func validTime(t time.Time) bool {
	ms := t.UnixMilli()
	return ms > 0 && ms <= wire.MaxInteger
}

// reader takes a saved state apart. After a failure everything it returns is zero.
type reader struct {
	data   []byte
	failed bool
}

func (r *reader) fail() { r.failed, r.data = true, nil }

func (r *reader) must(ok bool) {
	if !ok {
		r.fail()
	}
}

func (r *reader) take(n int) []byte {
	if r.failed || len(r.data) < n {
		r.fail()
		return make([]byte, n)
	}
	part := r.data[:n]
	r.data = r.data[n:]
	return part
}

func (r *reader) header(what byte) {
	h := r.take(2)
	r.must(h[0] == what && h[1] == stateVersion)
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) flag() bool {
	b := r.byte()
	r.must(b <= 1)
	return b == 1
}

// count is a length of at most limit; the caller reads that many parts.
func (r *reader) count(limit int) int {
	n := int(binary.BigEndian.Uint16(r.take(2)))
	if n > limit {
		r.fail()
	}
	if r.failed {
		return 0
	}
	return n
}

func (r *reader) uint32(limit uint32) uint32 {
	n := binary.BigEndian.Uint32(r.take(4))
	r.must(n <= limit)
	return n
}

func (r *reader) integer() uint64 {
	n := binary.BigEndian.Uint64(r.take(8))
	r.must(n <= wire.MaxInteger)
	return n
}

func (r *reader) time() time.Time {
	ms := r.integer()
	if ms == 0 || ms > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

func (r *reader) key() chainKey { return chainKey(r.take(32)) }

func (r *reader) kid() KID { return KID(r.take(16)) }

// name must be above the one before, so that there is one order.
func (r *reader) name(before string) string {
	name := string(r.take(int(r.byte())))
	r.must(validParticipant(name) && name > before)
	return name
}

// end is nil when everything was read and nothing was wrong.
func (r *reader) end() error {
	if r.failed || len(r.data) != 0 {
		return ErrState
	}
	return nil
}
