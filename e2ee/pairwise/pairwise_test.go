package pairwise_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	alice   = "018f6b1e-7f2a-7c3d-9a10-0123456789ab"
	bob     = "018f6b1e-7f2a-7c3d-9a10-0123456789ac"
	mallory = "018f6b1e-7f2a-7c3d-9a10-0123456789ae"
	room    = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
	room2   = "018f6b1e-7f2a-7c3d-9a10-0123456789af"
)

// device is a participant with all of its keys.
type device struct {
	pairwise.Own

	member signed.Member
}

func deviceOf(t testing.TB, id string, seed byte) *device {
	t.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	agreement, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{seed + 100}, 32))
	require.NoError(t, err)
	return newDevice(t, id, private, agreement)
}

func newDevice(t testing.TB, id string, private ed25519.PrivateKey, agreement *ecdh.PrivateKey) *device {
	t.Helper()
	keys := &identity.Keys{Identity: [32]byte(private[32:]), Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(private, keys.Agreement)
	m, err := signed.NewMember(id, keys)
	require.NoError(t, err)
	return &device{pairwise.Own{ID: id, Identity: private, Agreement: agreement}, m}
}

func (d *device) channel(t testing.TB, session string, peer *device) *pairwise.Channel {
	t.Helper()
	c, err := pairwise.New(session, &d.Own, peer.member)
	require.NoError(t, err)
	return c
}

func header() *pairwise.Header {
	return &pairwise.Header{ID: "m-1", Kind: wire.KindMessage, Gen: 3, Seq: 4, TS: 1790000000000}
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
		Agreement          string
		AgreementSignature string `json:"agreement_signature"`
	}
	Session   string
	Keys      map[string]string
	Envelopes []struct{ From, To, Nonce, Payload, Envelope string }
}

func readVectors(t testing.TB) *vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	require.Len(t, v.Envelopes, 5)
	require.Len(t, v.Keys, 2)
	return &v
}

func (v *vectors) device(t testing.TB, name string) *device {
	t.Helper()
	d := v.Devices[name]
	agreement, err := ecdh.X25519().NewPrivateKey(unhex(t, d.AgreementPrivate))
	require.NoError(t, err)
	keys := &identity.Keys{
		Identity: [32]byte(unhex(t, d.Identity)), Agreement: [32]byte(unhex(t, d.Agreement)),
		AgreementSignature: [64]byte(unhex(t, d.AgreementSignature)),
	}
	m, err := signed.NewMember(d.Participant, keys)
	require.NoError(t, err)
	return &device{pairwise.Own{ID: d.Participant, Identity: ed25519.NewKeyFromSeed(unhex(t, d.IdentitySeed)), Agreement: agreement}, m}
}

// What another implementation made is opened here, and made here byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	for _, e := range v.Envelopes {
		from, to := v.device(t, e.From), v.device(t, e.To)
		key, err := pairwise.DirectionKey(from.Agreement, to.member.Agreement(), v.Session, from.ID, to.ID)
		require.NoError(t, err)
		require.Equal(t, v.Keys[e.From+" to "+e.To], hex.EncodeToString(key[:]))

		m, err := to.channel(t, v.Session, from).Open([]byte(e.Envelope))
		require.NoError(t, err)
		require.Equal(t, e.Payload, string(m.Payload))
		if m.Kind == wire.KindMessage {
			_, err := content.Decode(m.Payload)
			require.NoError(t, err)
		}

		made := &signed.Envelope{
			ID: m.ID, SessionID: v.Session, From: from.ID, To: to.ID, Kind: m.Kind, Gen: m.Gen, Seq: m.Seq, TS: m.TS, File: m.File,
		}
		if m.Kind == wire.KindMessage {
			made.Enc = pairwise.Enc
		}
		nonce := [seal.NonceSize]byte(unhex(t, e.Nonce))
		aad, err := made.AAD(nonce[:])
		require.NoError(t, err)
		raw, err := made.Sign(from.Identity, nonce[:], seal.WithNonce(key, nonce, m.Payload, aad))
		require.NoError(t, err)
		require.Equal(t, e.Envelope, string(raw))
	}
}

func TestBothDirections(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	there, back := a.channel(t, room, b), b.channel(t, room, a)
	for _, kind := range []wire.Kind{wire.KindMessage, wire.KindSenderKey, wire.KindControl, wire.KindKeyRequest} {
		for _, way := range [][2]*pairwise.Channel{{there, back}, {back, there}} {
			h := header()
			h.Kind = kind
			if kind == wire.KindMessage {
				h.File = &signed.File{Name: "a.txt", MIMEType: "text/plain", SizeBytes: 3}
			}
			raw, err := way[0].Seal(h, []byte("payload"))
			require.NoError(t, err)
			var frame wire.ClientFrame
			require.NoError(t, wire.ParseClient(raw, &frame))
			require.Nil(t, frame.Envelope.Check())
			require.Equal(t, kind == wire.KindMessage, string(frame.Envelope.Enc) == "pairwise")

			m, err := way[1].Open(raw)
			require.NoError(t, err)
			require.Equal(t, &pairwise.Message{Header: *h, Payload: []byte("payload")}, m)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	there, back := a.channel(t, room, b), b.channel(t, room, a)
	for _, size := range []int{0, 1, signed.MaxPlaintext} {
		payload := bytes.Repeat([]byte{7}, size)
		raw, err := there.Seal(header(), payload)
		require.NoError(t, err)
		m, err := back.Open(raw)
		require.NoError(t, err)
		require.True(t, bytes.Equal(payload, m.Payload))
	}
	_, err := there.Seal(header(), make([]byte, signed.MaxPlaintext+1))
	require.ErrorIs(t, err, signed.ErrTooLarge)
}

// FAULTS BL-J05: what was made for one direction, one room and one recipient opens nowhere
// else, even for somebody who signs it again.
func TestBLJ05DirectionsAndRoomsAreApart(t *testing.T) {
	t.Parallel()
	a, b, c := deviceOf(t, alice, 1), deviceOf(t, bob, 2), deviceOf(t, mallory, 3)
	raw, err := a.channel(t, room, b).Seal(header(), []byte("for Bob"))
	require.NoError(t, err)

	_, err = a.channel(t, room, b).Open(raw)
	require.ErrorIs(t, err, signed.ErrSignature, "sent back as it is")
	_, err = c.channel(t, room, a).Open(raw)
	require.ErrorIs(t, err, signed.ErrContext, "forwarded to somebody else")
	_, err = b.channel(t, room2, a).Open(raw)
	require.ErrorIs(t, err, signed.ErrContext, "in another room")
	_, err = b.channel(t, room, c).Open(raw)
	require.ErrorIs(t, err, signed.ErrSignature, "as another one's")

	// The same ciphertext in an envelope that its thief signs.
	stolen := func(thief *device, session, to string) []byte {
		m, err := signed.Read(raw, &signed.Expected{SessionID: room, From: a.member, Self: bob})
		require.NoError(t, err)
		e := m.Envelope
		e.SessionID, e.From, e.To = session, thief.ID, to
		raw, err := e.Sign(thief.Identity, m.Nonce, m.CT)
		require.NoError(t, err)
		return raw
	}
	_, err = a.channel(t, room, b).Open(stolen(b, room, alice))
	require.ErrorIs(t, err, seal.ErrOpen, "sent back by Bob")
	_, err = b.channel(t, room, c).Open(stolen(c, room, bob))
	require.ErrorIs(t, err, seal.ErrOpen, "sent on by Mallory")
	_, err = b.channel(t, room2, a).Open(stolen(a, room2, bob))
	require.ErrorIs(t, err, seal.ErrOpen, "moved by Alice to another room")

	// Somebody who enrolled with Alice's agreement key as well.
	twin := newDevice(t, mallory, c.Identity, a.Agreement)
	_, err = b.channel(t, room, twin).Open(stolen(twin, room, bob))
	require.ErrorIs(t, err, seal.ErrOpen)
}

func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	key := func(own *device, peer *device, session, from, to string) [32]byte {
		k, err := pairwise.DirectionKey(own.Agreement, peer.member.Agreement(), session, from, to)
		require.NoError(t, err)
		return k
	}
	require.Equal(t, key(a, b, room, alice, bob), key(b, a, room, alice, bob))
	keys := [][32]byte{
		key(a, b, room, alice, bob), key(a, b, room, bob, alice), key(a, b, room2, alice, bob),
		key(a, b, room, alice, mallory), key(a, b, room, mallory, bob), key(a, a, room, alice, bob),
	}
	for i, k := range keys {
		require.Equal(t, i, slices.Index(keys, k))
	}
}

// An envelope that the other one signed is still not private if it says so.
func TestWhatIsNotPrivate(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	key, err := pairwise.DirectionKey(a.Agreement, b.member.Agreement(), room, alice, bob)
	require.NoError(t, err)
	for name, change := range map[string]func(e *signed.Envelope){
		"to the room":         func(e *signed.Envelope) { e.To = room },
		"without enc":         func(e *signed.Envelope) { e.Enc = "" },
		"another enc":         func(e *signed.Envelope) { e.Enc = "none" },
		"kid":                 func(e *signed.Envelope) { e.KID = "AAECAwQFBgcICQoLDA0ODw" },
		"hdr":                 func(e *signed.Envelope) { e.Hdr = []byte{1} },
		"notice":              func(e *signed.Envelope) { e.To, e.Kind, e.Enc, e.ExpiresAt = room, wire.KindNotice, "", 5 },
		"control to the room": func(e *signed.Envelope) { e.To, e.Kind, e.Enc = room, wire.KindControl, "" },
	} {
		e := &signed.Envelope{ID: "m-1", SessionID: room, From: alice, To: bob, Kind: wire.KindMessage, Enc: pairwise.Enc}
		change(e)
		raw, err := e.Seal(a.Identity, key, []byte("x"))
		require.NoError(t, err)
		m, err := b.channel(t, room, a).Open(raw)
		require.ErrorIs(t, err, pairwise.ErrPairwise, name)
		require.Nil(t, m)
	}
	h := header()
	h.Kind = wire.KindNotice
	_, err = a.channel(t, room, b).Seal(h, nil)
	require.ErrorIs(t, err, pairwise.ErrPairwise)
	h.Kind = 0
	_, err = a.channel(t, room, b).Seal(h, nil)
	require.ErrorIs(t, err, signed.ErrEnvelope)
	h.Kind, h.File = wire.KindControl, &signed.File{Name: "a", MIMEType: "b"}
	_, err = a.channel(t, room, b).Seal(h, nil)
	require.ErrorIs(t, err, signed.ErrEnvelope)
}

// An envelope signed over a damaged text, which only its tag shows.
func TestDamagedTextIsRefused(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	raw, err := a.channel(t, room, b).Seal(header(), []byte("x"))
	require.NoError(t, err)
	m, err := signed.Read(raw, &signed.Expected{SessionID: room, From: a.member, Self: bob})
	require.NoError(t, err)
	for name, change := range map[string]func(m *signed.Message){
		"text":     func(m *signed.Message) { m.CT[0] ^= 1 },
		"no text":  func(m *signed.Message) { m.CT = nil },
		"nonce":    func(m *signed.Message) { m.Nonce[0] ^= 1 },
		"no nonce": func(m *signed.Message) { m.Nonce = nil },
		"id":       func(m *signed.Message) { m.ID = "m-2" },
		"gen":      func(m *signed.Message) { m.Gen++ },
		"seq":      func(m *signed.Message) { m.Seq++ },
		"ts":       func(m *signed.Message) { m.TS++ },
		"kind":     func(m *signed.Message) { m.Kind, m.Enc = wire.KindControl, "" },
		"file":     func(m *signed.Message) { m.File = &signed.File{Name: "a", MIMEType: "b"} },
	} {
		other := *m
		other.CT, other.Nonce = bytes.Clone(m.CT), bytes.Clone(m.Nonce)
		change(&other)
		raw, err := other.Sign(a.Identity, other.Nonce, other.CT)
		require.NoError(t, err)
		_, err = b.channel(t, room, a).Open(raw)
		require.ErrorIs(t, err, seal.ErrOpen, name)
	}
}

// FAULTS BL-H10: keys that give everybody the same secret are refused, as are those that are
// not canonical; the others give the secret that they should. testdata/x25519_test.json
// is from github.com/c2sp/wycheproof v0.0.0-20260902155932-3fa63dd0344a (Apache License 2.0).
func TestBLH10Wycheproof(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/x25519_test.json")
	require.NoError(t, err)
	var file struct {
		NumberOfTests int
		TestGroups    []struct {
			Tests []struct {
				TcID            int
				Flags           []string
				Public, Private string
				Shared          string
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &file))
	refused, accepted := 0, 0
	for _, group := range file.TestGroups {
		for _, v := range group.Tests {
			own, err := ecdh.X25519().NewPrivateKey(unhex(t, v.Private))
			require.NoError(t, err)
			key, err := pairwise.DirectionKey(own, [32]byte(unhex(t, v.Public)), room, alice, bob)
			if slices.Contains(v.Flags, "ZeroSharedSecret") || slices.Contains(v.Flags, "NonCanonicalPublic") {
				require.ErrorIs(t, err, identity.ErrKeys, v.TcID)
				require.Zero(t, key)
				refused++
				continue
			}
			require.NoError(t, err, v.TcID)
			require.Equal(t, derive(t, unhex(t, v.Shared)), key[:], v.TcID)
			accepted++
		}
	}
	require.Equal(t, []int{44, 474}, []int{refused, accepted})
	require.Equal(t, file.NumberOfTests, refused+accepted)
}

// derive is HKDF of the package comment.
func derive(t testing.TB, secret []byte) []byte {
	t.Helper()
	id := func(text string) []byte {
		id, ok := wire.ParseUUID([]byte(text))
		require.True(t, ok)
		return id[:]
	}
	info := slices.Concat([]byte("peerrelay/pairwise/v1\x00"), id(alice), id(bob))
	key, err := hkdf.Key(sha256.New, secret, id(room), string(info), 32)
	require.NoError(t, err)
	return key
}

func TestBLH10NoChannelWithoutGoodKeys(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	_, err := pairwise.New(room, &a.Own, signed.Member{})
	require.Error(t, err)
	_, err = pairwise.DirectionKey(a.Agreement, [32]byte{}, room, alice, bob)
	require.ErrorIs(t, err, identity.ErrKeys)
	_, err = pairwise.DirectionKey(nil, b.member.Agreement(), room, alice, bob)
	require.ErrorIs(t, err, identity.ErrKeys)
	p256, err := ecdh.P256().NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	_, err = pairwise.DirectionKey(p256, b.member.Agreement(), room, alice, bob)
	require.ErrorIs(t, err, identity.ErrKeys)

	for _, ids := range [][3]string{
		{"", alice, bob},
		{room, "", bob},
		{room, alice, ""},
		{strings.ToUpper(room), alice, bob},
		{room, alice, alice},
		{room, room, bob},
		{room, alice, room},
	} {
		_, err := pairwise.DirectionKey(a.Agreement, b.member.Agreement(), ids[0], ids[1], ids[2])
		require.ErrorIs(t, err, pairwise.ErrPairwise, ids)
	}
	_, err = pairwise.New(room, &a.Own, a.member)
	require.ErrorIs(t, err, pairwise.ErrPairwise, "with oneself")
	own := a.Own
	own.Identity = own.Identity[:32]
	_, err = pairwise.New(room, &own, b.member)
	require.ErrorIs(t, err, pairwise.ErrPairwise)
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	a, b := deviceOf(t, alice, 1), deviceOf(t, bob, 2)
	c := a.channel(t, room, b)
	key, err := pairwise.DirectionKey(a.Agreement, b.member.Agreement(), room, alice, bob)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		require.Equal(t, "pairwise.Channel("+alice+" "+bob+")", fmt.Sprintf(verb, c))
		for _, secret := range [][]byte{key[:], a.Identity[:32]} {
			printed := fmt.Sprintf(verb, *c)
			require.NotContains(t, printed, strings.Trim(fmt.Sprintf(verb, secret), "[]"))
			require.NotContains(t, printed, strings.Trim(fmt.Sprintf(verb, [32]byte(secret)), "[]"))
		}
	}
}

// Nothing opens but what the other one sealed.
func FuzzOpen(f *testing.F) {
	v := readVectors(f)
	own, peer := v.device(f, "bob"), v.device(f, "alice")
	c := own.channel(f, v.Session, peer)
	sealed := map[string]bool{}
	for _, e := range v.Envelopes {
		f.Add([]byte(e.Envelope))
		sealed[e.Payload] = true
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := c.Open(raw)
		if err != nil {
			require.Nil(t, m)
			return
		}
		require.True(t, sealed[string(m.Payload)])
	})
}

func BenchmarkSeal1KiB(b *testing.B) {
	c := deviceOf(b, alice, 1).channel(b, room, deviceOf(b, bob, 2))
	payload := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Seal(header(), payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	alice, bob := deviceOf(b, alice, 1), deviceOf(b, bob, 2)
	raw, err := alice.channel(b, room, bob).Seal(header(), make([]byte, 1024))
	require.NoError(b, err)
	c := bob.channel(b, room, alice)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Open(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	alice, bob := deviceOf(b, alice, 1), deviceOf(b, bob, 2)
	for b.Loop() {
		if _, err := pairwise.New(room, &alice.Own, bob.member); err != nil {
			b.Fatal(err)
		}
	}
}
