package ratchet_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

const room = "0190f5a4-7e1c-7c3a-9d2e-000000000001"

var noon = time.UnixMilli(1_790_000_000_000)

// person is a device with its prekeys.
type person struct {
	ratchet.Device

	signer  ed25519.PrivateKey
	signed  map[uint32][32]byte
	oneTime map[uint32][32]byte
}

func (p *person) SignedPrekey(id uint32) ([32]byte, bool) {
	key, ok := p.signed[id]
	return key, ok
}

func (p *person) OneTimePrekey(id uint32) ([32]byte, bool) {
	key, ok := p.oneTime[id]
	return key, ok
}

func newPerson(t testing.TB, name string) *person {
	t.Helper()
	seed := sha256.Sum256([]byte("identity of " + name))
	p := &person{signer: ed25519.NewKeyFromSeed(seed[:]), signed: map[uint32][32]byte{}, oneTime: map[uint32][32]byte{}}
	p.Agreement = sha256.Sum256([]byte("agreement of " + name))
	p.Keys.Identity = [32]byte(p.signer[32:])
	p.Keys.Agreement = publicOf(t, p.Agreement)
	p.Keys.AgreementSignature = identity.SignAgreement(p.signer, p.Keys.Agreement)
	return p
}

func publicOf(t testing.TB, private [32]byte) [32]byte {
	t.Helper()
	public, err := ratchet.DH(private, [32]byte{9})
	require.NoError(t, err)
	return public
}

// bundle publishes a signed prekey and, unless oneTime is 0, a one-time prekey.
func (p *person) bundle(t testing.TB, signed, oneTime uint32) *ratchet.Bundle {
	t.Helper()
	if _, ok := p.signed[signed]; !ok {
		p.signed[signed] = randomKey()
	}
	key := publicOf(t, p.signed[signed])
	b := &ratchet.Bundle{Keys: p.Keys, Signed: ratchet.SignedPrekey{ID: signed, Key: key, Signature: identity.SignPrekey(p.signer, signed, key)}}
	if oneTime != 0 {
		p.oneTime[oneTime] = randomKey()
		b.OneTime = &ratchet.OneTimePrekey{ID: oneTime, Key: publicOf(t, p.oneTime[oneTime])}
	}
	return b
}

func randomKey() (key [32]byte) {
	_, _ = rand.Read(key[:])
	return key
}

// pairOf is a session of both, after the first message of the owner.
func pairOf(t testing.TB) (owner, agent *ratchet.Session) {
	t.Helper()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, 1), room, noon)
	require.NoError(t, err)
	agent, plaintext, used, err := ratchet.Accept(&bot.Device, &alice.Keys, room, bot, sealed(t, owner, "first"))
	require.NoError(t, err)
	require.Equal(t, "first", string(plaintext))
	require.EqualValues(t, 1, used)
	return owner, agent
}

type sealer interface {
	Seal(plaintext []byte) (*ratchet.Message, error)
}

func sealed(t testing.TB, s sealer, text string) *ratchet.Message {
	t.Helper()
	m, err := s.Seal([]byte(text))
	require.NoError(t, err)
	return m
}

func opens(t testing.TB, s *ratchet.Session, m *ratchet.Message, text string) {
	t.Helper()
	plaintext, err := s.Open(m)
	require.NoError(t, err)
	require.Equal(t, text, string(plaintext))
}

// refuses is opening what is refused: the stored state stays byte for byte what it was.
func refuses(t testing.TB, s *ratchet.Session, m *ratchet.Message, want error, why ...any) {
	t.Helper()
	before := state(t, s)
	plaintext, err := s.Open(m)
	require.ErrorIs(t, err, want, why...)
	require.Nil(t, plaintext, why...)
	require.True(t, bytes.Equal(before, state(t, s)), "the state is byte-equal %v", why)
}

type marshaler interface {
	MarshalBinary() ([]byte, error)
}

func state(t testing.TB, s marshaler) []byte {
	t.Helper()
	b, err := s.MarshalBinary()
	require.NoError(t, err)
	return b
}

// restarted is the session as it comes back from the disk.
func restarted(t testing.TB, s *ratchet.Session) *ratchet.Session {
	t.Helper()
	var again ratchet.Session
	stored := state(t, s)
	require.NoError(t, again.UnmarshalBinary(stored))
	require.Equal(t, stored, state(t, &again))
	return &again
}

// forged is a copy of a message with another header.
func forged(t testing.TB, m *ratchet.Message, change func(h *ratchet.Header)) *ratchet.Message {
	t.Helper()
	h, err := ratchet.ParseHeader(m.Header)
	require.NoError(t, err)
	change(&h)
	return &ratchet.Message{Header: h.Bytes(), Nonce: m.Nonce, Ciphertext: m.Ciphertext}
}

// damaged is a copy of a message with one bit of the ciphertext changed.
func damaged(m *ratchet.Message) *ratchet.Message {
	ct := bytes.Clone(m.Ciphertext)
	ct[len(ct)-1] ^= 1
	return &ratchet.Message{Header: m.Header, Nonce: m.Nonce, Ciphertext: ct}
}

func header(t testing.TB, m *ratchet.Message) *ratchet.Header {
	t.Helper()
	h, err := ratchet.ParseHeader(m.Header)
	require.NoError(t, err)
	return &h
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func text(i int) string { return fmt.Sprintf("message %d", i) }

func signedBy(t testing.TB, p *person, id uint32) ratchet.SignedPrekey {
	t.Helper()
	key := publicOf(t, randomKey())
	return ratchet.SignedPrekey{ID: id, Key: key, Signature: identity.SignPrekey(p.signer, id, key)}
}

// badKeys are the X25519 keys that the vectors of package identity refuse.
func badKeys(t testing.TB) [][32]byte {
	t.Helper()
	text, err := os.ReadFile("../../identity/testdata/vectors.json")
	require.NoError(t, err)
	var vectors struct {
		Refused []struct {
			Key string `json:"key"`
		} `json:"refused_agreement_keys"`
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	keys := make([][32]byte, 0, len(vectors.Refused))
	for _, r := range vectors.Refused {
		keys = append(keys, [32]byte(unhex(t, r.Key)))
	}
	require.Greater(t, len(keys), 10)
	return keys
}

// sessionOf is the id that a session would have, as ratchet/doc.go says.
func sessionOf(owner, agent *person, s *ratchet.Start) ratchet.SessionID {
	ad := []byte("peerrelay/x3dh-ad/v1\x00")
	for _, p := range []*person{owner, agent} {
		ad = append(append(ad, p.Keys.Identity[:]...), p.Keys.Agreement[:]...)
	}
	ad = append(ad, s.Ephemeral[:]...)
	ad = binary.BigEndian.AppendUint32(ad, s.Signed)
	ad = binary.BigEndian.AppendUint32(ad, s.OneTime)
	ad = binary.BigEndian.AppendUint64(ad, s.Started)
	ad = binary.BigEndian.AppendUint16(ad, uint16(len(room)))
	sum := sha256.Sum256(append([]byte("peerrelay/x3dh-session/v1\x00"), append(ad, room...)...))
	return ratchet.SessionID(sum[:16])
}
