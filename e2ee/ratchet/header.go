package ratchet

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Sizes of headers in bytes.
const (
	HeaderSize      = 58                     // without the X3DH part
	FirstHeaderSize = HeaderSize + startSize // with it

	startSize     = 80
	headerVersion = 1
	flagStart     = 1

	maxPrekeyID = 1<<31 - 1
	maxStarted  = 1<<53 - 1
	maxNumber   = math.MaxUint32 - 1 // of a message, so that the next one's exists, too
)

// SessionID names a session. It follows from what X3DH was done with, and tells nothing else.
type SessionID [16]byte

// Header is a message's header. It is not authenticated before the message is opened.
type Header struct {
	Session SessionID
	Key     [32]byte // the sender's ratchet key (X25519)
	PN      uint32   // messages in the sender's chain before this one
	N       uint32   // the message's number, from 0
	Start   *Start   // the X3DH part; nil: the owner opened an answer already
}

// Start is the X3DH part of a header.
type Start struct {
	Identity  [32]byte // the initiator's (Ed25519)
	Ephemeral [32]byte // X25519
	Signed    uint32   // id of the responder's signed prekey
	OneTime   uint32   // id of its one-time prekey; 0: there was none
	Started   uint64   // Unix milliseconds
}

// ParseHeader reads a header, which has one form. What is none is ErrHeader. Whether its keys
// are accepted, opening the message shows.
func ParseHeader(text []byte) (Header, error) {
	if len(text) != HeaderSize && len(text) != FirstHeaderSize {
		return Header{}, fmt.Errorf("length %d: %w", len(text), ErrHeader)
	}
	if text[0] != headerVersion {
		return Header{}, fmt.Errorf("version %d: %w", text[0], ErrHeader)
	}
	r := reader{left: text[2:]}
	var h Header
	r.take(h.Session[:])
	r.take(h.Key[:])
	h.PN, h.N = r.uint32(), r.uint32()
	if h.PN > maxNumber || h.N > maxNumber {
		return Header{}, fmt.Errorf("message number: %w", ErrHeader)
	}
	first := len(text) == FirstHeaderSize
	if first {
		h.Start = &Start{}
		r.take(h.Start.Identity[:])
		h.Start.read(&r)
		if !h.Start.valid() {
			return Header{}, fmt.Errorf("prekey ids or time: %w", ErrHeader)
		}
	}
	if (text[1] == flagStart) != first || text[1]&^flagStart != 0 {
		return Header{}, fmt.Errorf("flags: %w", ErrHeader)
	}
	return h, nil
}

// Bytes is the one form of a header.
func (h *Header) Bytes() []byte {
	text := make([]byte, 0, FirstHeaderSize)
	text = append(text, headerVersion, 0)
	text = append(text, h.Session[:]...)
	text = h.appendRatchet(text)
	if h.Start != nil {
		text[1] = flagStart
		text = append(text, h.Start.Identity[:]...)
		text = h.Start.append(text)
	}
	return text
}

// appendRatchet is the part that belongs to the additional data.
func (h *Header) appendRatchet(to []byte) []byte {
	to = append(to, h.Key[:]...)
	to = binary.BigEndian.AppendUint32(to, h.PN)
	return binary.BigEndian.AppendUint32(to, h.N)
}

func (s *Start) valid() bool {
	return s.Signed >= 1 && s.Signed <= maxPrekeyID && s.OneTime <= maxPrekeyID && s.Started <= maxStarted
}

// append is all but the identity.
func (s *Start) append(to []byte) []byte {
	to = append(to, s.Ephemeral[:]...)
	to = binary.BigEndian.AppendUint32(to, s.Signed)
	to = binary.BigEndian.AppendUint32(to, s.OneTime)
	return binary.BigEndian.AppendUint64(to, s.Started)
}

func (s *Start) read(r *reader) {
	r.take(s.Ephemeral[:])
	s.Signed, s.OneTime, s.Started = r.uint32(), r.uint32(), r.uint64()
}
