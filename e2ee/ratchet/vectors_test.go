package ratchet_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/identity"
)

type deviceJSON struct {
	IdentitySeed       string `json:"identity_seed"`
	AgreementPrivate   string `json:"agreement_private"`
	Identity           string `json:"identity"`
	Agreement          string `json:"agreement"`
	AgreementSignature string `json:"agreement_signature"`
}

type prekeyJSON struct {
	ID        uint32 `json:"id"`
	Private   string `json:"private"`
	Public    string `json:"public"`
	Signature string `json:"signature"`
}

type conversationJSON struct {
	Name          string              `json:"name"`
	Room          string              `json:"room"`
	Started       int64               `json:"started"`
	Owner         deviceJSON          `json:"owner"`
	Agent         deviceJSON          `json:"agent"`
	SignedPrekey  prekeyJSON          `json:"signed_prekey"`
	OneTimePrekey *prekeyJSON         `json:"one_time_prekey"`
	AD            string              `json:"ad"`
	Session       string              `json:"session"`
	Secret        string              `json:"secret"`
	Drawn         map[string][]string `json:"drawn"`
	Messages      []struct {
		Plaintext string `json:"plaintext"`
		Hdr       string `json:"hdr"`
		Nonce     string `json:"nonce"`
		CT        string `json:"ct"`
	} `json:"messages"`
	Events []struct {
		Op      string `json:"op"`
		Party   string `json:"party"`
		Message int    `json:"message"`
	} `json:"events"`
}

func (d deviceJSON) person(t *testing.T) *person {
	t.Helper()
	p := &person{signer: ed25519.NewKeyFromSeed(unhex(t, d.IdentitySeed)), signed: map[uint32][32]byte{}, oneTime: map[uint32][32]byte{}}
	p.Agreement = [32]byte(unhex(t, d.AgreementPrivate))
	p.Keys = identity.Keys{
		Identity: [32]byte(unhex(t, d.Identity)), Agreement: [32]byte(unhex(t, d.Agreement)),
		AgreementSignature: [64]byte(unhex(t, d.AgreementSignature)),
	}
	require.NoError(t, p.Keys.Check())
	return p
}

// replay is one side of a transcript, with what it drew there as its randomness.
type replay struct {
	*person

	session *ratchet.Session
	random  *bytes.Reader
}

// The transcripts' both sides are played here. Every byte that is sealed is the one that the
// independent implementation sealed, and everything that it sealed opens, once, in the order
// of the transcript; tampered copies of each do not.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/transcripts.json")
	require.NoError(t, err)
	var file struct {
		Conversations []conversationJSON `json:"conversations"`
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.Len(t, file.Conversations, 3)
	for _, c := range file.Conversations {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			require.Greater(t, len(c.Messages), 20)
			c.play(t)
		})
	}
}

func (c *conversationJSON) play(t *testing.T) {
	sides := map[string]*replay{}
	for name, device := range map[string]deviceJSON{"owner": c.Owner, "agent": c.Agent} {
		var random []byte
		for _, part := range c.Drawn[name] {
			random = append(random, unhex(t, part)...)
		}
		sides[name] = &replay{person: device.person(t), random: bytes.NewReader(random)}
	}
	owner, agent := sides["owner"], sides["agent"]
	bundle := c.bundle(t, agent.person)
	var err error
	owner.session, err = ratchet.BeginWith(&owner.Device, bundle, c.Room, time.UnixMilli(c.Started), owner.random)
	require.NoError(t, err)
	require.Equal(t, unhex(t, c.AD), owner.session.AD())
	require.Equal(t, unhex(t, c.Session), sliceOf(owner.session.ID()))

	for i, e := range c.Events {
		side, v := sides[e.Party], c.Messages[e.Message]
		m := &ratchet.Message{Header: unhex(t, v.Hdr), Nonce: [24]byte(unhex(t, v.Nonce)), Ciphertext: unhex(t, v.CT)}
		if e.Op == "seal" {
			made, err := side.session.Seal(unhex(t, v.Plaintext))
			require.NoError(t, err, i)
			require.Equal(t, m, made, i)
			continue
		}
		require.Equal(t, "open", e.Op)
		side.open(t, c, owner.person, m, unhex(t, v.Plaintext))
	}
	for name, side := range sides {
		require.Zero(t, side.random.Len(), name)
		require.Zero(t, side.session.Skipped(), name)
	}
}

func (r *replay) open(t *testing.T, c *conversationJSON, owner *person, m *ratchet.Message, want []byte) {
	if r.session == nil {
		_, _, _, err := ratchet.AcceptWith(&r.Device, &owner.Keys, c.Room, r.person, damaged(m), r.random)
		require.ErrorIs(t, err, ratchet.ErrNotAuthentic)
		session, plaintext, used, err := ratchet.AcceptWith(&r.Device, &owner.Keys, c.Room, r.person, m, r.random)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, plaintext))
		require.Equal(t, c.OneTimePrekey != nil, used != 0)
		require.Equal(t, unhex(t, c.AD), session.AD())
		r.session = session
		return
	}
	for at := range len(m.Header) + 24 + len(m.Ciphertext) {
		if at%7 != len(want)%7 {
			continue // each byte in some message
		}
		tampered := &ratchet.Message{Header: bytes.Clone(m.Header), Nonce: m.Nonce, Ciphertext: bytes.Clone(m.Ciphertext)}
		switch rest := at - len(m.Header); {
		case rest < 0:
			tampered.Header[at] ^= 0x10
		case rest < 24:
			tampered.Nonce[rest] ^= 0x10
		default:
			tampered.Ciphertext[rest-24] ^= 0x10
		}
		before := state(t, r.session)
		_, err := r.session.Open(tampered)
		require.Error(t, err, "byte %d", at)
		require.True(t, bytes.Equal(before, state(t, r.session)), "byte %d", at)
	}
	plaintext, err := r.session.Open(m)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, plaintext))
	refuses(t, r.session, m, ratchet.ErrDuplicate)
}

func (c *conversationJSON) bundle(t *testing.T, agent *person) *ratchet.Bundle {
	signed := c.SignedPrekey
	agent.signed[signed.ID] = [32]byte(unhex(t, signed.Private))
	b := &ratchet.Bundle{Keys: agent.Keys, Signed: ratchet.SignedPrekey{
		ID: signed.ID, Key: [32]byte(unhex(t, signed.Public)), Signature: [64]byte(unhex(t, signed.Signature)),
	}}
	if c.OneTimePrekey != nil {
		agent.oneTime[c.OneTimePrekey.ID] = [32]byte(unhex(t, c.OneTimePrekey.Private))
		b.OneTime = &ratchet.OneTimePrekey{ID: c.OneTimePrekey.ID, Key: [32]byte(unhex(t, c.OneTimePrekey.Public))}
	}
	return b
}

func sliceOf(id ratchet.SessionID) []byte { return id[:] }

// The secrets of X3DH in the transcripts, from the private keys alone.
func TestX3DHSecrets(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/transcripts.json")
	require.NoError(t, err)
	var file struct {
		Conversations []conversationJSON `json:"conversations"`
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Conversations)
	for _, c := range file.Conversations {
		key := func(text string) [32]byte { return [32]byte(unhex(t, text)) }
		ephemeral := key(c.Drawn["owner"][0])
		first, err := ratchet.DH(key(c.Owner.AgreementPrivate), key(c.SignedPrekey.Public))
		require.NoError(t, err)
		shared := [][32]byte{first}
		publics := []string{c.Agent.Agreement, c.SignedPrekey.Public}
		if c.OneTimePrekey != nil {
			publics = append(publics, c.OneTimePrekey.Public)
		}
		for _, p := range publics {
			s, err := ratchet.DH(ephemeral, key(p))
			require.NoError(t, err)
			shared = append(shared, s)
		}
		require.Equal(t, key(c.Secret), ratchet.Secret(shared...), c.Name)
	}
}

// RFC 7748 section 5.2: the first vector, and one and a thousand iterations.
func TestRFC7748(t *testing.T) {
	t.Parallel()
	key := func(text string) [32]byte { return [32]byte(unhex(t, text)) }
	secret, err := ratchet.DH(
		key("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
		key("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"))
	require.NoError(t, err)
	require.Equal(t, key("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"), secret)

	k, u := [32]byte{9}, [32]byte{9}
	for i := range 1000 {
		next, err := ratchet.DH(k, u)
		require.NoError(t, err)
		k, u = next, k
		if i == 0 {
			require.Equal(t, key("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"), k)
		}
	}
	require.Equal(t, key("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"), k)
}

// RFC 5869, test cases 1 and 3.
func TestRFC5869(t *testing.T) {
	t.Parallel()
	ikm := bytes.Repeat([]byte{0x0b}, 22)
	okm := ratchet.Derive(ikm, unhex(t, "000102030405060708090a0b0c"), string(unhex(t, "f0f1f2f3f4f5f6f7f8f9")), 42)
	require.Equal(t, unhex(t, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"), okm)
	okm = ratchet.Derive(ikm, nil, "", 42)
	require.Equal(t, unhex(t, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"), okm)
}

// A source of randomness that fails leaves everything as it was.
func TestRandomnessFails(t *testing.T) {
	t.Parallel()
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	_, err := ratchet.BeginWith(&alice.Device, bot.bundle(t, 1, 1), room, noon, bytes.NewReader(make([]byte, 33)))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	owner, err := ratchet.BeginWith(&alice.Device, bot.bundle(t, 1, 1), room, noon, bytes.NewReader(bytes.Repeat([]byte{7}, 64)))
	require.NoError(t, err)
	before := state(t, owner)
	_, err = owner.Seal([]byte("text"))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, before, state(t, owner))
}
