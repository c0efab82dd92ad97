package boardseal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
)

// Bounds.
const (
	MaxSealed     = 65_536 // bytes of content
	MaxRecipients = 500    // with the author
)

const (
	labelWrap   = "peerrelay/board/v1\x00"
	labelKey    = "peerrelay/board-key/v1\x00"
	labelSigned = "peerrelay/board-event/v1\x00"

	wrappedSize   = seal.KeySize + seal.Overhead // 48
	recipientSize = idSize + wrappedSize         // 64
	fixedSize     = headerSize + sha256.Size + seal.NonceSize + 2
)

// MaxText is how many bytes a text may have for so many recipients, the author among them:
// 65,371 - 64 recipients.
func MaxText(recipients int) int {
	return MaxSealed - fixedSize - recipients*recipientSize - seal.Overhead
}

// Sealed is what the relay keeps of an event.
type Sealed struct {
	Content   []byte // at most MaxSealed bytes
	Signature []byte // 64 bytes
}

// Opened is an event that its author signed, and that was opened.
type Opened struct {
	Header

	Recipients []string // participants it was sealed for, in rising order
	Text       []byte
}

// recipient is one for whom a key is wrapped.
type recipient struct {
	id        [idSize]byte
	agreement [32]byte
}

// Seal seals a text of 1 to MaxText bytes for its author, who own is, and for others. The
// error is ErrFormat for a header that breaks its rules or is of another author, and for
// somebody who is in others twice; ErrTooLarge; or identity.ErrKeys.
func Seal(own *pairwise.Own, header *Header, others []signed.Member, text []byte) (*Sealed, error) {
	form, err := header.append(nil)
	switch {
	case err != nil:
		return nil, err
	case header.Author != own.ID || len(own.Identity) != ed25519.PrivateKeySize:
		return nil, fmt.Errorf("%w: its author is somebody else", ErrFormat)
	case len(text) == 0:
		return nil, fmt.Errorf("%w: there is no text", ErrFormat)
	case len(others) >= MaxRecipients || len(text) > MaxText(len(others)+1):
		return nil, ErrTooLarge
	}
	recipients, err := recipientsOf(own, others)
	if err != nil {
		return nil, err
	}
	var key [seal.KeySize]byte
	_, _ = rand.Read(key[:]) // never fails: the program ends instead (package crypto/rand)
	content, err := sealWith(own, form, recipients, key, seal.NewNonce(), text)
	if err != nil {
		return nil, err
	}
	return &Sealed{Content: content, Signature: ed25519.Sign(own.Identity, signedBytes(content))}, nil
}

func signedBytes(content []byte) []byte { return append([]byte(labelSigned), content...) }

// recipientsOf is everybody a text is for, in the order of the format.
func recipientsOf(own *pairwise.Own, others []signed.Member) ([]recipient, error) {
	if own.Agreement == nil || own.Agreement.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("own agreement key: %w", identity.ErrKeys)
	}
	id, ok := parseID(own.ID)
	recipients := append(make([]recipient, 0, 1+len(others)), recipient{id, [32]byte(own.Agreement.PublicKey().Bytes())})
	for _, m := range others {
		id, valid := parseID(m.ID())
		ok = ok && valid
		recipients = append(recipients, recipient{id, m.Agreement()})
	}
	slices.SortFunc(recipients, func(a, b recipient) int { return bytes.Compare(a.id[:], b.id[:]) })
	for i := range recipients[1:] {
		ok = ok && recipients[i].id != recipients[i+1].id
	}
	if !ok {
		return nil, fmt.Errorf("%w: a recipient is there twice, or nobody", ErrFormat)
	}
	return recipients, nil
}

// sealWith appends everything behind the header. key and nonce are used for nothing else.
func sealWith(own *pairwise.Own, header []byte, recipients []recipient, key [seal.KeySize]byte, nonce [seal.NonceSize]byte, text []byte) ([]byte, error) {
	commitment := commit(key)
	content := append(slices.Clone(header), commitment[:]...)
	content = append(content, nonce[:]...)
	content = binary.BigEndian.AppendUint16(content, uint16(len(recipients)))
	for _, r := range recipients {
		wrap, err := wrapKey(own.Agreement, r.agreement, header, r.id)
		if err != nil {
			return nil, err
		}
		content = append(content, r.id[:]...)
		content = append(content, seal.WithNonce(wrap, nonce, key[:], header)...)
	}
	return append(content, seal.WithNonce(key, nonce, text, header)...), nil
}

func commit(key [seal.KeySize]byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(labelKey), key[:]...))
}

// wrapKey is the key under which the author of header wraps for a recipient; own is the
// agreement key of one of the two, and peer that of the other.
func wrapKey(own *ecdh.PrivateKey, peer [32]byte, header []byte, to [idSize]byte) (key [seal.KeySize]byte, err error) {
	if own == nil || own.Curve() != ecdh.X25519() {
		return key, fmt.Errorf("own agreement key: %w", identity.ErrKeys)
	}
	if err := identity.CheckAgreement(peer); err != nil {
		return key, err
	}
	public, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return key, fmt.Errorf("agreement key: %w", identity.ErrKeys)
	}
	secret, err := own.ECDH(public)
	if err != nil {
		return key, fmt.Errorf("agreement key: %w", identity.ErrKeys)
	}
	room, author := header[3:3+idSize], header[3+3*idSize:3+4*idSize]
	derived, err := hkdf.Key(sha256.New, secret, room, labelWrap+string(author)+string(to[:]), seal.KeySize)
	if err != nil {
		return key, fmt.Errorf("derive the key of a recipient: %w", err)
	}
	copy(key[:], derived)
	return key, nil
}

// Expected is what an event has to be of.
type Expected struct {
	Room, Card string
	Author     signed.Member // with the keys that were checked and pinned
}

// Open verifies an event and opens it as own. Nothing of it is used before its signature was
// verified. The error is ErrFormat, ErrSignature, ErrContext or ErrNotForUs; seal.ErrOpen where
// the author sealed something else for own than for others; or identity.ErrKeys. With
// ErrNotForUs the header is returned all the same.
func Open(own *pairwise.Own, expected *Expected, s *Sealed) (*Opened, error) {
	header, err := ReadHeader(s.Content)
	if err != nil {
		return nil, err
	}
	key := expected.Author.Identity()
	if len(s.Signature) != ed25519.SignatureSize || !ed25519.Verify(key[:], signedBytes(s.Content), s.Signature) {
		return nil, ErrSignature
	}
	if header.Room != expected.Room || header.Card != expected.Card || header.Author != expected.Author.ID() {
		return nil, ErrContext
	}
	return open(own, expected.Author.Agreement(), header, s.Content)
}

// open opens what its author signed.
func open(own *pairwise.Own, author [32]byte, header *Header, content []byte) (*Opened, error) {
	opened := &Opened{Header: *header}
	self, ok := parseID(own.ID)
	table, text, format := split(content)
	if !format || !ok {
		return nil, ErrFormat
	}
	var wrapped []byte
	for row := range slices.Chunk(table, recipientSize) {
		if [idSize]byte(row) == self {
			wrapped = row[idSize:]
		}
		opened.Recipients = append(opened.Recipients, uuid.UUID(row[:idSize]).String())
	}
	if wrapped == nil {
		return opened, ErrNotForUs
	}
	wrap, err := wrapKey(own.Agreement, author, content, self)
	if err != nil {
		return nil, err
	}
	form := content[:headerSize]
	nonce := [seal.NonceSize]byte(content[headerSize+sha256.Size:])
	key, err := seal.Open(wrap, nonce, wrapped, form)
	if err != nil {
		return nil, err
	}
	commitment := commit([seal.KeySize]byte(key))
	if subtle.ConstantTimeCompare(commitment[:], content[headerSize:headerSize+sha256.Size]) != 1 {
		return nil, seal.ErrOpen
	}
	opened.Text, err = seal.Open([seal.KeySize]byte(key), nonce, text, form)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// split returns the recipients and the sealed text of content that is of no wrong form.
func split(content []byte) (table, text []byte, ok bool) {
	if len(content) < fixedSize {
		return nil, nil, false
	}
	count := int(binary.BigEndian.Uint16(content[fixedSize-2:]))
	end := fixedSize + count*recipientSize
	if count < 1 || count > MaxRecipients || len(content) <= end+seal.Overhead { // a text has a byte
		return nil, nil, false
	}
	table = content[fixedSize:end]
	for at := recipientSize; at < len(table); at += recipientSize {
		if bytes.Compare(table[at-recipientSize:at-recipientSize+idSize], table[at:at+idSize]) >= 0 {
			return nil, nil, false
		}
	}
	return table, content[end:], true
}
