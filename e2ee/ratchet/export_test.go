package ratchet

import (
	"io"
	"time"

	"github.com/peerrelay/peerrelay/identity"
)

// BeginWith is Begin with a source of randomness.
func BeginWith(own *Device, bundle *Bundle, room string, now time.Time, source io.Reader) (*Session, error) {
	return begin(own, bundle, room, uint64(now.UnixMilli()), source)
}

// AcceptWith is Accept with a source of randomness.
func AcceptWith(own *Device, peer *identity.Keys, room string, prekeys Prekeys, m *Message, source io.Reader) (*Session, []byte, uint32, error) {
	h, err := ParseHeader(m.Header)
	if err != nil {
		return nil, nil, 0, err
	}
	return accept(own, peer, room, prekeys, &h, m, source)
}

// AD is the additional data of X3DH.
func (s *Session) AD() []byte { return s.ad }

// Unopened is a responder's session before its first message.
func Unopened(common *Session, signedPrekey [32]byte) (*Session, error) {
	return newResponder(common.agreed, [32]byte{1}, signedPrekey, nil)
}

// DH, Derive and Secret are what X3DH is made of.
var (
	DH     = dh
	Derive = derive
	Secret = x3dhSecret
)

// Chains is how many past chains are remembered.
func (s *Session) Chains() int { return len(s.past) }

// Exhaust lets the sending chain have no number left.
func (s *Session) Exhaust() { s.sent = maxNumber }

// Clone is a copy for asking what would be.
func (r *Repair) Clone() *Repair {
	c := *r
	return &c
}

// Shorten lets the next chain say that this one had no messages.
func (s *Session) Shorten() { s.sentPrev = 0 }
