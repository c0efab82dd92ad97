package ratchet

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/identity"
)

// Bounds.
const (
	MaxSkip      = 1_000  // messages of one chain that may be missing before another one
	MaxSkipped   = 2_000  // keys of missing messages that a session keeps
	MaxPlaintext = 65_536 // bytes of a text; an envelope is no longer

	maxPastChains = 64 // chains that are remembered although no key of them is kept
)

// Message is what goes into an envelope: hdr, nonce and ct.
type Message struct {
	Header     []byte
	Nonce      [seal.NonceSize]byte
	Ciphertext []byte // with the tag
}

// Session is one side of a Double Ratchet. It is not safe for concurrent use. A caller that
// has to fall back works on a Clone, and stores the new state before a sealed message leaves
// the device and together with an opened one.
type Session struct {
	agreed
	isInitiator bool

	root      [32]byte
	own       pair     // ratchet keys
	sendChain [32]byte // of own; not there before a responder's first message
	sending   bool
	sent      uint32 // messages in sendChain
	sentPrev  uint32 // messages in the one before

	recvChain [32]byte // not there before an initiator's first answer
	receiving bool
	recv      chain   // what came in recvChain; before that its key is the peer's signed prekey
	past      []chain // the oldest first

	random io.Reader // nil: the system's
}

// newInitiator has a sending chain towards the responder's signed prekey.
func newInitiator(common agreed, secret, signedPrekey [32]byte, source io.Reader) (*Session, error) {
	common.complete()
	own, err := newPair(source)
	if err != nil {
		return nil, err
	}
	shared, err := dh(own.private, signedPrekey)
	if err != nil {
		return nil, err
	}
	s := &Session{agreed: common, isInitiator: true, own: own, sending: true, recv: chain{key: signedPrekey}, random: source}
	s.root, s.sendChain = rootStep(secret, shared)
	return s, nil
}

// newResponder has no chain: its first ratchet key is its signed prekey.
func newResponder(common agreed, secret, signedPrekey [32]byte, source io.Reader) (*Session, error) {
	common.complete()
	public, err := publicKey(signedPrekey)
	if err != nil {
		return nil, err
	}
	return &Session{agreed: common, root: secret, own: pair{signedPrekey, public}, random: source}, nil
}

// ID is the session's id, the same on both sides.
func (s *Session) ID() SessionID { return s.id }

// Started is when the owner began it, as the owner's clock said.
func (s *Session) Started() time.Time { return time.UnixMilli(int64(s.start.Started)) }

// Answered reports whether a message of the other side was opened.
func (s *Session) Answered() bool { return s.receiving }

// Skipped is how many keys of missing messages are kept.
func (s *Session) Skipped() int {
	n := len(s.recv.keys)
	for i := range s.past {
		n += len(s.past[i].keys)
	}
	return n
}

// Format keeps keys out of texts.
func (*Session) Format(f fmt.State, _ rune) { hide(f, "session") }

// Clone is a session of its own with the same state.
func (s *Session) Clone() *Session {
	c := *s
	c.recv = s.recv.clone()
	c.past = make([]chain, len(s.past))
	for i := range s.past {
		c.past[i] = s.past[i].clone()
	}
	return &c
}

// Seal encrypts a text and moves the sending chain. Errors: ErrNotActivated, ErrTooLong,
// ErrExhausted.
func (s *Session) Seal(plaintext []byte) (*Message, error) {
	switch {
	case !s.sending:
		return nil, ErrNotActivated
	case len(plaintext) > MaxPlaintext:
		return nil, ErrTooLong
	case s.sent >= maxNumber:
		return nil, ErrExhausted
	}
	h := Header{Session: s.id, Key: s.own.public, PN: s.sentPrev, N: s.sent}
	if s.isInitiator && !s.receiving {
		h.Start = &s.start
	}
	var nonce [seal.NonceSize]byte
	if err := draw(s.random, nonce[:]); err != nil {
		return nil, err
	}
	next, key := chainStep(s.sendChain)
	s.sendChain = next
	s.sent++
	return &Message{Header: h.Bytes(), Nonce: nonce, Ciphertext: seal.WithNonce(key, nonce, plaintext, s.additional(&h))}, nil
}

// Open decrypts a message of this session. The state changes only if the error is nil: then
// the message's key is gone. Errors: ErrHeader, ErrUnknownSession for one of another session,
// ErrDuplicate, ErrKeyDropped, ErrTooFarAhead, ErrNotAuthentic.
func (s *Session) Open(m *Message) ([]byte, error) {
	h, err := ParseHeader(m.Header)
	if err != nil {
		return nil, err
	}
	return s.open(&h, m)
}

func (s *Session) open(h *Header, m *Message) ([]byte, error) {
	if h.Session != s.id {
		return nil, ErrUnknownSession
	}
	if h.Start != nil && (s.isInitiator || *h.Start != s.start) {
		return nil, fmt.Errorf("X3DH part: %w", ErrHeader)
	}
	if len(m.Ciphertext) > MaxPlaintext+seal.Overhead {
		return nil, ErrTooLong
	}
	if s.receiving && h.Key == s.recv.key {
		if h.N < s.recv.next {
			return s.openLate(&s.recv, h, m)
		}
		return s.openNext(h, m)
	}
	for i := range s.past {
		if s.past[i].key == h.Key {
			return s.openLate(&s.past[i], h, m)
		}
	}
	return s.openTurn(h, m)
}

// openLate opens a message whose key was kept.
func (s *Session) openLate(c *chain, h *Header, m *Message) ([]byte, error) {
	at, kept := c.find(h.N)
	switch {
	case kept:
	case h.N < c.lost:
		return nil, ErrKeyDropped
	case h.N < c.next:
		return nil, ErrDuplicate
	default:
		return nil, ErrNotAuthentic // the chain ended before it
	}
	plaintext, err := s.decrypt(c.keys[at].key, h, m)
	if err != nil {
		return nil, err
	}
	c.remove(at)
	s.forget()
	return plaintext, nil
}

// openNext opens a message of the present chain.
func (s *Session) openNext(h *Header, m *Message) ([]byte, error) {
	ahead, err := skip(s.recvChain, s.recv.next, h.N)
	if err != nil {
		return nil, err
	}
	chainKey, key := chainStep(ahead.chain)
	plaintext, err := s.decrypt(key, h, m)
	if err != nil {
		return nil, err
	}
	s.recvChain = chainKey
	s.recv.keys = append(s.recv.keys, ahead.keys...)
	s.recv.next = h.N + 1
	s.forget()
	return plaintext, nil
}

// openTurn opens a message with a new ratchet key: the other side answered, a new chain of
// it begins, and a new one of this side.
func (s *Session) openTurn(h *Header, m *Message) ([]byte, error) {
	if h.N > MaxSkip {
		return nil, ErrTooFarAhead // before anything is computed
	}
	if s.receiving && h.PN < s.recv.next {
		return nil, ErrNotAuthentic // more of the chain before were authentic
	}
	if err := identity.CheckAgreement(h.Key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	shared, err := dh(s.own.private, h.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	root, first := rootStep(s.root, shared)
	ahead, err := skip(first, 0, h.N)
	if err != nil {
		return nil, err
	}
	chainKey, key := chainStep(ahead.chain)
	plaintext, err := s.decrypt(key, h, m)
	if err != nil {
		return nil, err
	}

	own, err := newPair(s.random)
	if err != nil {
		return nil, err
	}
	shared, err = dh(own.private, h.Key)
	if err != nil {
		return nil, err
	}
	if s.receiving {
		s.closeChain(h.PN)
	}
	s.recv = chain{key: h.Key, next: h.N + 1, keys: ahead.keys}
	s.recvChain, s.receiving = chainKey, true
	s.root, s.sendChain = rootStep(root, shared)
	s.own, s.sending = own, true
	s.sentPrev, s.sent = s.sent, 0
	s.forget()
	return plaintext, nil
}

// closeChain ends the present chain, of length messages: the keys of those that did not come
// are kept, or, if there are more than MaxSkip, given up, so that the conversation goes on.
func (s *Session) closeChain(length uint32) {
	ended := s.recv
	if rest, err := skip(s.recvChain, ended.next, length); err == nil {
		ended.keys = append(ended.keys, rest.keys...)
	} else {
		ended.lost = length
	}
	ended.next = length
	s.past = append(s.past, ended)
}

// forget keeps the bounds: of keys, and of chains without any.
func (s *Session) forget() {
	surplus := s.Skipped() - MaxSkipped
	for i := 0; i < len(s.past) && surplus > 0; i++ {
		surplus -= s.past[i].drop(surplus)
	}
	if surplus > 0 {
		s.recv.drop(surplus)
	}
	empty := 0
	for i := range s.past {
		if len(s.past[i].keys) == 0 {
			empty++
		}
	}
	if empty <= maxPastChains {
		return
	}
	s.past = slices.DeleteFunc(s.past, func(c chain) bool {
		gone := len(c.keys) == 0 && empty > maxPastChains
		if gone {
			empty--
		}
		return gone
	})
}

// additional is the additional data of a message.
func (s *Session) additional(h *Header) []byte {
	return h.appendRatchet(append(make([]byte, 0, len(s.ad)+40), s.ad...))
}

func (s *Session) decrypt(key [32]byte, h *Header, m *Message) ([]byte, error) {
	plaintext, err := seal.Open(key, m.Nonce, m.Ciphertext, s.additional(h))
	if err != nil {
		return nil, ErrNotAuthentic
	}
	return plaintext, nil
}
