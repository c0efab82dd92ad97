package boardseal_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
)

const (
	room  = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
	card  = "018f6b1e-7f2a-7c3d-9a10-0123456789c1"
	event = "018f6b1e-7f2a-7c3d-9a10-0123456789e1"
)

// device is a participant with its private keys, and as others know it.
type device struct {
	pairwise.Own

	member signed.Member
}

func newDevice(t testing.TB) *device {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	return known(t, uuid.NewString(), private, agreement, [32]byte(public))
}

func known(t testing.TB, id string, private ed25519.PrivateKey, agreement *ecdh.PrivateKey, public [32]byte) *device {
	t.Helper()
	keys := identity.Keys{Identity: public, Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	member, err := signed.NewMember(id, &keys)
	require.NoError(t, err)
	return &device{pairwise.Own{ID: id, Identity: private, Agreement: agreement}, member}
}

func (d *device) header() *boardseal.Header {
	return &boardseal.Header{Type: boardseal.Updated, Room: room, Card: card, Event: event, Author: d.ID, Base: 7, Basis: card}
}

func (d *device) seal(t testing.TB, text string, others ...*device) *boardseal.Sealed {
	t.Helper()
	s, err := boardseal.Seal(&d.Own, d.header(), members(others...), []byte(text))
	require.NoError(t, err)
	return s
}

func members(devices ...*device) (all []signed.Member) {
	for _, d := range devices {
		all = append(all, d.member)
	}
	return all
}

func (d *device) expected() *boardseal.Expected {
	return &boardseal.Expected{Room: room, Card: card, Author: d.member}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

type vectors struct {
	Devices map[string]struct {
		Participant        string
		IdentitySeed       string `json:"identity_seed"`
		AgreementPrivate   string `json:"agreement_private"`
		Identity           string
		AgreementSignature string `json:"agreement_signature"`
	}
	Room, Card string
	Events     []struct {
		Author, Type, Kind, Event, Basis, Text, Key, Nonce, Content, Signature string

		Recipients []string
		Base       uint64
	}
}

func readVectors(t testing.TB) (*vectors, map[string]*device) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	require.Len(t, v.Events, 6)
	require.Len(t, v.Devices, 3)
	devices := make(map[string]*device)
	for name, d := range v.Devices {
		agreement, err := ecdh.X25519().NewPrivateKey(unhex(t, d.AgreementPrivate))
		require.NoError(t, err)
		devices[name] = known(t, d.Participant, ed25519.NewKeyFromSeed(unhex(t, d.IdentitySeed)), agreement, [32]byte(unhex(t, d.Identity)))
	}
	return &v, devices
}

// What another implementation made is opened here, and made here byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	v, devices := readVectors(t)
	for _, e := range v.Events {
		author := devices[e.Author]
		header := boardseal.Header{
			Type: boardseal.Type(e.Type), Kind: boardseal.Kind(e.Kind), Room: v.Room, Card: v.Card, Event: e.Event, Author: author.ID,
			Base: e.Base, Basis: e.Basis,
		}
		sealed := &boardseal.Sealed{Content: unhex(t, e.Content), Signature: unhex(t, e.Signature)}
		var others []*device
		var ids []string
		for _, name := range e.Recipients {
			ids = append(ids, devices[name].ID)
			if name != e.Author {
				others = append(others, devices[name])
			}
		}
		for name, d := range devices {
			opened, err := boardseal.Open(&d.Own, &boardseal.Expected{Room: v.Room, Card: v.Card, Author: author.member}, sealed)
			if !slices.Contains(e.Recipients, name) {
				require.ErrorIs(t, err, boardseal.ErrNotForUs)
				require.Equal(t, header, opened.Header)
				require.Nil(t, opened.Text)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, &boardseal.Opened{Header: header, Recipients: ids, Text: []byte(e.Text)}, opened)
		}
		slices.Reverse(others) // whatever their order
		made, err := boardseal.SealWith(&author.Own, &header, members(others...), [32]byte(unhex(t, e.Key)), [24]byte(unhex(t, e.Nonce)), []byte(e.Text))
		require.NoError(t, err)
		require.Equal(t, sealed, made)
	}
}

func TestOnlyThoseItWasSealedForOpenIt(t *testing.T) {
	t.Parallel()
	author, reader, late := newDevice(t), newDevice(t), newDevice(t)
	sealed := author.seal(t, "the plan", reader)
	for _, d := range []*device{author, reader} {
		opened, err := boardseal.Open(&d.Own, author.expected(), sealed)
		require.NoError(t, err)
		require.Equal(t, "the plan", string(opened.Text))
		require.Equal(t, *author.header(), opened.Header)
	}
	_, err := boardseal.Open(&late.Own, author.expected(), sealed)
	require.ErrorIs(t, err, boardseal.ErrNotForUs)
	impostor := late.Own
	impostor.ID = reader.ID // with other keys
	_, err = boardseal.Open(&impostor, author.expected(), sealed)
	require.ErrorIs(t, err, seal.ErrOpen)
	require.NotEqual(t, sealed.Content, author.seal(t, "the plan", reader).Content, "a key and a nonce of its own")
}

// Everything is what its author signed, or refused before anything is done with it.
func TestEveryChangedByteIsRefused(t *testing.T) {
	t.Parallel()
	author, reader := newDevice(t), newDevice(t)
	sealed := author.seal(t, "x", reader)
	for i := range sealed.Content {
		changed := &boardseal.Sealed{Content: bytes.Clone(sealed.Content), Signature: sealed.Signature}
		changed.Content[i] ^= 1
		_, err := boardseal.Open(&reader.Own, author.expected(), changed)
		require.Error(t, err, i)
		if i >= boardseal.HeaderSize {
			require.ErrorIs(t, err, boardseal.ErrSignature, i)
		}
	}
	for n := range sealed.Content {
		_, err := boardseal.Open(&reader.Own, author.expected(), &boardseal.Sealed{Content: sealed.Content[:n], Signature: sealed.Signature})
		require.Error(t, err)
		_, err = boardseal.Open(&reader.Own, author.expected(), boardseal.Sign(&author.Own, sealed.Content[:n]))
		require.Error(t, err, "the author's signature on less")
	}
	for _, signature := range [][]byte{nil, sealed.Signature[:63], append(bytes.Clone(sealed.Signature), 0), make([]byte, 64)} {
		_, err := boardseal.Open(&reader.Own, author.expected(), &boardseal.Sealed{Content: sealed.Content, Signature: signature})
		require.ErrorIs(t, err, boardseal.ErrSignature)
	}
	_, err := boardseal.Open(&reader.Own, author.expected(), &boardseal.Sealed{Content: append(bytes.Clone(sealed.Content), 0), Signature: sealed.Signature})
	require.ErrorIs(t, err, boardseal.ErrSignature)
}

func TestWhatIsOfAnotherPlaceIsRefused(t *testing.T) {
	t.Parallel()
	author, reader, other := newDevice(t), newDevice(t), newDevice(t)
	sealed := author.seal(t, "x", reader)
	for name, c := range map[string]struct {
		change func(*boardseal.Expected)
		want   error
	}{
		"another room":          {func(e *boardseal.Expected) { e.Room = card }, boardseal.ErrContext},
		"another card":          {func(e *boardseal.Expected) { e.Card = room }, boardseal.ErrContext},
		"another author":        {func(e *boardseal.Expected) { e.Author = other.member }, boardseal.ErrSignature},
		"nobody":                {func(e *boardseal.Expected) { e.Author = signed.Member{} }, boardseal.ErrSignature},
		"the same key, renamed": {func(e *boardseal.Expected) { e.Author = author.as(t, other.ID).member }, boardseal.ErrContext},
	} {
		expected := author.expected()
		c.change(expected)
		_, err := boardseal.Open(&reader.Own, expected, sealed)
		require.ErrorIs(t, err, c.want, name)
	}
	// Signed under another purpose.
	foreign := &boardseal.Sealed{Content: sealed.Content, Signature: ed25519.Sign(author.Identity, append([]byte("peerrelay/envelope/v1\x00"), sealed.Content...))}
	_, err := boardseal.Open(&reader.Own, author.expected(), foreign)
	require.ErrorIs(t, err, boardseal.ErrSignature)
}

// as is the device as another participant.
func (d *device) as(t testing.TB, id string) *device {
	t.Helper()
	return known(t, id, d.Identity, d.Agreement, d.member.Identity())
}

// An author cannot show one text to some and another one to others: it would have to find a
// key of the same commitment.
func TestAnAuthorCannotSealTwoTexts(t *testing.T) {
	t.Parallel()
	author, a, b := newDevice(t), newDevice(t), newDevice(t)
	key, nonce := [32]byte{1}, [24]byte{2}
	one, err := boardseal.SealWith(&author.Own, author.header(), members(a, b), key, nonce, []byte("yes"))
	require.NoError(t, err)
	two, err := boardseal.SealWith(&author.Own, author.header(), members(a, b), [32]byte{3}, nonce, []byte("not"))
	require.NoError(t, err)
	// The wrapped keys of the second in the place of the first, under the author's signature.
	mixed := bytes.Clone(one.Content)
	tables := len(mixed) - len("yes") - seal.Overhead
	copy(mixed[boardseal.FixedSize:tables], two.Content[boardseal.FixedSize:tables])
	copy(mixed[tables:], two.Content[tables:])
	for _, d := range []*device{a, b, author} {
		_, err := boardseal.Open(&d.Own, author.expected(), boardseal.Sign(&author.Own, mixed))
		require.ErrorIs(t, err, seal.ErrOpen)
	}
}

func TestRecipientsAreInOneOrder(t *testing.T) {
	t.Parallel()
	author, a, b := newDevice(t), newDevice(t), newDevice(t)
	sealed := author.seal(t, "x", a, b)
	const row = 16 + 32 + 16
	refused := func(change func(content []byte) []byte, why string) {
		t.Helper()
		_, err := boardseal.Open(&a.Own, author.expected(), boardseal.Sign(&author.Own, change(bytes.Clone(sealed.Content))))
		require.ErrorIs(t, err, boardseal.ErrFormat, why)
	}
	refused(func(c []byte) []byte { // two rows that changed places
		table := c[boardseal.FixedSize:]
		first := bytes.Clone(table[:row])
		copy(table[:row], table[row:2*row])
		copy(table[row:2*row], first)
		return c
	}, "order")
	refused(func(c []byte) []byte {
		copy(c[boardseal.FixedSize+row:][:row], c[boardseal.FixedSize:][:row])
		return c
	}, "twice")
	for _, count := range []byte{0, 4, 255} {
		refused(func(c []byte) []byte { c[boardseal.FixedSize-1] = count; return c }, "count")
	}
	refused(func(c []byte) []byte { c[boardseal.FixedSize-2] = 2; return c }, "512 and more")
	refused(func(c []byte) []byte { return c[:len(c)-1] }, "no text")
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	author, reader := newDevice(t), newDevice(t)
	for name, change := range map[string]func(*boardseal.Header){
		"type":              func(h *boardseal.Header) { h.Type = "deleted" },
		"no type":           func(h *boardseal.Header) { h.Type = "" },
		"kind":              func(h *boardseal.Header) { h.Type, h.Kind, h.Base, h.Basis = boardseal.Created, "bug", 0, "" },
		"no kind":           func(h *boardseal.Header) { h.Type, h.Base, h.Basis = boardseal.Created, 0, "" },
		"kind of an update": func(h *boardseal.Header) { h.Kind = boardseal.Task },
		"basis of created":  func(h *boardseal.Header) { h.Type, h.Kind, h.Base = boardseal.Created, boardseal.Task, 0 },
		"base of a comment": func(h *boardseal.Header) { h.Type = boardseal.Comment },
		"no base":           func(h *boardseal.Header) { h.Base = 0 },
		"large base":        func(h *boardseal.Header) { h.Base = 1 << 53 },
		"room":              func(h *boardseal.Header) { h.Room = "r" },
		"no card":           func(h *boardseal.Header) { h.Card = "" },
		"event of zeros":    func(h *boardseal.Header) { h.Event = uuid.Nil.String() },
		"large letters":     func(h *boardseal.Header) { h.Event = strings.ToUpper(h.Event) },
		"basis":             func(h *boardseal.Header) { h.Basis = "x" },
		"basis of zeros":    func(h *boardseal.Header) { h.Basis = uuid.Nil.String() },
		"author":            func(h *boardseal.Header) { h.Author = reader.ID },
	} {
		h := author.header()
		change(h)
		_, err := boardseal.Seal(&author.Own, h, members(reader), []byte("x"))
		require.ErrorIs(t, err, boardseal.ErrFormat, name)
	}
	for name, others := range map[string][]signed.Member{
		"twice": members(reader, reader), "the author again": members(author), "nobody": {signed.Member{}},
	} {
		_, err := boardseal.Seal(&author.Own, author.header(), others, []byte("x"))
		require.ErrorIs(t, err, boardseal.ErrFormat, name)
	}
	_, err := boardseal.Seal(&author.Own, author.header(), members(reader), nil)
	require.ErrorIs(t, err, boardseal.ErrFormat, "no text")
	keyless := author.Own
	keyless.Agreement = nil
	_, err = boardseal.Seal(&keyless, author.header(), members(reader), []byte("x"))
	require.ErrorIs(t, err, identity.ErrKeys)
	keyless.Identity = nil
	_, err = boardseal.Seal(&keyless, author.header(), members(reader), []byte("x"))
	require.ErrorIs(t, err, boardseal.ErrFormat)
}

// Everybody in the largest room gets at least 16 KiB.
func TestSizes(t *testing.T) {
	t.Parallel()
	require.Equal(t, 65_243, boardseal.MaxText(2))
	require.Equal(t, 33_371, boardseal.MaxText(boardseal.MaxRecipients))
	author, reader := newDevice(t), newDevice(t)
	others := []*device{reader}
	for len(others) < boardseal.MaxRecipients-1 {
		others = append(others, reader.as(t, uuid.NewString())) // the wrapped keys differ by their ids
	}
	most := strings.Repeat("x", boardseal.MaxText(boardseal.MaxRecipients))
	sealed := author.seal(t, most, others...)
	require.Len(t, sealed.Content, boardseal.MaxSealed)
	for _, d := range []*device{author, others[0], others[498]} {
		opened, err := boardseal.Open(&d.Own, author.expected(), sealed)
		require.NoError(t, err)
		require.Equal(t, most, string(opened.Text))
		require.Len(t, opened.Recipients, boardseal.MaxRecipients)
	}
	_, err := boardseal.Seal(&author.Own, author.header(), members(others...), []byte(most+"x"))
	require.ErrorIs(t, err, boardseal.ErrTooLarge)
	_, err = boardseal.Seal(&author.Own, author.header(), members(append(others, newDevice(t))...), []byte("x"))
	require.ErrorIs(t, err, boardseal.ErrTooLarge)
	_, err = boardseal.ReadHeader(append(sealed.Content, 0))
	require.ErrorIs(t, err, boardseal.ErrFormat)
}

func FuzzOpen(f *testing.F) {
	v, devices := readVectors(f)
	for _, e := range v.Events {
		f.Add(unhex(f, e.Content))
	}
	author, reader := devices["alice"], devices["bob"]
	f.Fuzz(func(t *testing.T, content []byte) {
		header, err := boardseal.ReadHeader(content)
		opened, openErr := boardseal.Open(&reader.Own, &boardseal.Expected{Room: v.Room, Card: v.Card, Author: author.member}, boardseal.Sign(&author.Own, content))
		if err != nil {
			require.ErrorIs(t, openErr, boardseal.ErrFormat)
			return
		}
		if openErr == nil {
			require.Equal(t, *header, opened.Header)
			require.NotEmpty(t, opened.Text)
			require.Contains(t, opened.Recipients, reader.ID)
		}
	})
}
