package signed_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

var secret = [seal.KeySize]byte{1, 2, 3}

func private(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// member is a participant with this identity key.
func member(t testing.TB, id string, key ed25519.PrivateKey) signed.Member {
	t.Helper()
	agreement, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{9}, 32))
	require.NoError(t, err)
	keys := &identity.Keys{Identity: [32]byte(key[32:]), Agreement: [32]byte(agreement.PublicKey().Bytes())}
	keys.AgreementSignature = identity.SignAgreement(key, keys.Agreement)
	m, err := signed.NewMember(id, keys)
	require.NoError(t, err)
	return m
}

func fromAlice(t testing.TB) *signed.Expected {
	t.Helper()
	return &signed.Expected{SessionID: room, From: member(t, alice, private(1)), Self: bob}
}

func message() *signed.Envelope {
	return &signed.Envelope{
		ID: "m-1", SessionID: room, From: alice, To: room, Kind: wire.KindMessage, Gen: 7, Seq: 12, TS: 1790000000000,
		KID: "AAECAwQFBgcICQoLDA0ODw",
	}
}

func sealed(t testing.TB, e *signed.Envelope) []byte {
	t.Helper()
	raw, err := e.Seal(private(1), secret, []byte("hello"))
	require.NoError(t, err)
	return raw
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func unhexSignature(t testing.TB, envelope string) []byte {
	t.Helper()
	var e struct{ Sig []byte }
	require.NoError(t, json.Unmarshal([]byte(envelope), &e))
	return e.Sig
}

// whatever is an envelope that keeps all rules, with everything at random.
func whatever(r *rand.Rand) *signed.Envelope {
	text := func(n int) string {
		letters := []rune("a\"\\/<>&'é€😀\u200b\ufeff\u202e\u2027 ~\ufffd\U0010ffff\u00a0")
		var b strings.Builder
		for range 1 + r.IntN(n) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	some := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	number := func() uint64 { return r.Uint64() & wire.MaxInteger >> r.IntN(54) }
	id := make([]byte, 1+r.IntN(wire.MaxIDLength))
	for i := range id {
		id[i] = byte('!' + r.IntN('~'-'!'+1))
	}
	e := &signed.Envelope{
		ID: string(id), SessionID: room, From: alice, To: []string{room, bob}[r.IntN(2)],
		Kind: wire.KindMessage + wire.Kind(r.IntN(5)), Gen: number(), Seq: number(), TS: number(),
	}
	if r.IntN(2) == 0 {
		e.KID = base64.RawURLEncoding.EncodeToString(some(16))
	}
	switch e.Kind {
	case wire.KindNotice:
		e.To, e.ExpiresAt = room, 1+number()>>1
	case wire.KindMessage:
		if r.IntN(2) == 0 {
			e.Enc = "pairwise"
		}
		if r.IntN(2) == 0 {
			e.Hdr = some(1 + r.IntN(signed.MaxHdr))
		}
		if r.IntN(2) == 0 {
			e.File = &signed.File{Name: text(wire.MaxFileName), MIMEType: text(wire.MaxMIMEType), SizeBytes: r.Uint64N(wire.MaxFileSize + 1)}
		}
	default:
	}
	return e
}

// What is built passes the relay's own check, is canonical, and is read as it was.
func TestWhatIsBuiltIsRead(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	expected := fromAlice(t)
	for range 2000 {
		e := whatever(r)
		plaintext := bytes.Repeat([]byte("x"), r.IntN(200))
		raw, err := e.Seal(private(1), secret, plaintext)
		require.NoError(t, err)

		var frame wire.ClientFrame
		require.NoError(t, wire.ParseClient(raw, &frame))
		require.Equal(t, wire.FrameEnvelope, frame.Type)
		require.Nil(t, frame.Envelope.Check())
		require.Zero(t, frame.Envelope.Members&wire.MemberUnknown)
		require.Equal(t, e.ID, string(frame.Envelope.ID))

		form, err := signed.Canonical(raw)
		require.NoError(t, err)
		require.Equal(t, string(form), string(raw))

		m, err := signed.Read(raw, expected)
		require.NoError(t, err)
		require.Equal(t, e, &m.Envelope)
		opened, err := m.Open(secret)
		require.NoError(t, err)
		require.Equal(t, plaintext, opened)

		claims, err := signed.Claimed(raw)
		require.NoError(t, err)
		require.Equal(t, signed.Claims{ID: e.ID, SessionID: room, From: alice, To: e.To, Kind: e.Kind}, claims)
	}
}

// The longest of everything fits one message of the relay.
func TestTheLongestEnvelopeFits(t *testing.T) {
	t.Parallel()
	e := &signed.Envelope{
		ID: strings.Repeat(`\`, wire.MaxIDLength), SessionID: room, From: alice, To: bob, Kind: wire.KindMessage,
		Gen: wire.MaxInteger, Seq: wire.MaxInteger, TS: wire.MaxInteger, KID: strings.Repeat("A", 22),
		Enc: strings.Repeat("e", signed.MaxEnc), Hdr: make([]byte, signed.MaxHdr),
		File: &signed.File{Name: strings.Repeat("😀", wire.MaxFileName), MIMEType: strings.Repeat("😀", wire.MaxMIMEType), SizeBytes: wire.MaxFileSize},
	}
	raw, err := e.Seal(private(1), secret, make([]byte, signed.MaxPlaintext))
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), wire.MaxMessage)
	_, err = signed.Read(raw, fromAlice(t))
	require.NoError(t, err)

	_, err = e.Seal(private(1), secret, make([]byte, signed.MaxPlaintext+1))
	require.ErrorIs(t, err, signed.ErrTooLarge)
	_, err = e.Sign(private(1), nil, make([]byte, 49_000))
	require.ErrorIs(t, err, signed.ErrTooLarge)
	_, err = e.Sign(private(1), nil, make([]byte, 1<<20))
	require.ErrorIs(t, err, signed.ErrTooLarge)
	_, err = signed.Read(append(bytes.Repeat([]byte(" "), wire.MaxMessage), raw...), fromAlice(t))
	require.ErrorIs(t, err, signed.ErrTooLarge)
	_, err = signed.Claimed(append(bytes.Repeat([]byte(" "), wire.MaxMessage), raw...))
	require.ErrorIs(t, err, signed.ErrTooLarge)
}

func TestWhatIsNotBuilt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(e *signed.Envelope){
		"no id":                   func(e *signed.Envelope) { e.ID = "" },
		"long id":                 func(e *signed.Envelope) { e.ID = strings.Repeat("a", 129) },
		"space in id":             func(e *signed.Envelope) { e.ID = "a b" },
		"session in capitals":     func(e *signed.Envelope) { e.SessionID = strings.ToUpper(room); e.To = bob },
		"no session":              func(e *signed.Envelope) { e.SessionID = "" },
		"from is no UUID":         func(e *signed.Envelope) { e.From = "alice" },
		"to is no UUID":           func(e *signed.Envelope) { e.To = "*" },
		"to oneself":              func(e *signed.Envelope) { e.To = alice },
		"from the session":        func(e *signed.Envelope) { e.From = room; e.To = bob },
		"no kind":                 func(e *signed.Envelope) { e.Kind = 0 },
		"unknown kind":            func(e *signed.Envelope) { e.Kind = 6 },
		"gen":                     func(e *signed.Envelope) { e.Gen = wire.MaxInteger + 1 },
		"seq":                     func(e *signed.Envelope) { e.Seq = wire.MaxInteger + 1 },
		"ts":                      func(e *signed.Envelope) { e.TS = wire.MaxInteger + 1 },
		"kid too short":           func(e *signed.Envelope) { e.KID = "AAECAwQFBgcICQoLDA0OD" },
		"kid with padding":        func(e *signed.Envelope) { e.KID = "AAECAwQFBgcICQoLDA0ODw==" },
		"kid of base64":           func(e *signed.Envelope) { e.KID = "++ECAwQFBgcICQoLDA0ODw" },
		"kid in another spelling": func(e *signed.Envelope) { e.KID = "AAECAwQFBgcICQoLDA0ODx" },
		"kid with a line break":   func(e *signed.Envelope) { e.KID = "AAECAwQFBgcICQoLDA0OD\n" },
		"enc with a capital":      func(e *signed.Envelope) { e.Enc = "Pairwise" },
		"enc too long":            func(e *signed.Envelope) { e.Enc = strings.Repeat("a", 33) },
		"empty hdr":               func(e *signed.Envelope) { e.Hdr = []byte{} },
		"long hdr":                func(e *signed.Envelope) { e.Hdr = make([]byte, signed.MaxHdr+1) },
		"message with an expiry":  func(e *signed.Envelope) { e.ExpiresAt = 1 },
		"notice without expiry":   func(e *signed.Envelope) { e.Kind = wire.KindNotice },
		"late expiry":             func(e *signed.Envelope) { e.Kind = wire.KindNotice; e.ExpiresAt = wire.MaxInteger + 1 },
		"notice to one":           func(e *signed.Envelope) { e.Kind = wire.KindNotice; e.ExpiresAt = 1; e.To = bob },
		"notice with enc":         func(e *signed.Envelope) { e.Kind = wire.KindNotice; e.ExpiresAt = 1; e.Enc = "a" },
		"control with hdr":        func(e *signed.Envelope) { e.Kind = wire.KindControl; e.Hdr = []byte{1} },
		"sender key with enc":     func(e *signed.Envelope) { e.Kind = wire.KindSenderKey; e.Enc = "pairwise" },
		"key request with a file": func(e *signed.Envelope) {
			e.Kind = wire.KindKeyRequest
			e.File = &signed.File{Name: "a", MIMEType: "b"}
		},
		"file without a name":    func(e *signed.Envelope) { e.File = &signed.File{MIMEType: "b"} },
		"file without a type":    func(e *signed.Envelope) { e.File = &signed.File{Name: "a"} },
		"file name too long":     func(e *signed.Envelope) { e.File = &signed.File{Name: strings.Repeat("é", 256), MIMEType: "b"} },
		"file type too long":     func(e *signed.Envelope) { e.File = &signed.File{Name: "a", MIMEType: strings.Repeat("é", 128)} },
		"file name of two lines": func(e *signed.Envelope) { e.File = &signed.File{Name: "a\nb", MIMEType: "b"} },
		"U+0085 in the name":     func(e *signed.Envelope) { e.File = &signed.File{Name: "a\u0085b", MIMEType: "b"} },
		"U+2028 in the type":     func(e *signed.Envelope) { e.File = &signed.File{Name: "a", MIMEType: "b\u2028"} },
		"bad UTF-8 in the name":  func(e *signed.Envelope) { e.File = &signed.File{Name: "\xff", MIMEType: "b"} },
		"file too large":         func(e *signed.Envelope) { e.File = &signed.File{Name: "a", MIMEType: "b", SizeBytes: 700_001} },
	} {
		e := message()
		change(e)
		_, err := e.Seal(private(1), secret, nil)
		require.ErrorIs(t, err, signed.ErrEnvelope, name)
		_, err = e.Sign(private(1), nil, nil)
		require.ErrorIs(t, err, signed.ErrEnvelope, name)
		_, err = e.AAD(nil)
		require.ErrorIs(t, err, signed.ErrEnvelope, name)
	}
	_, err := message().Sign(private(1)[:32], nil, nil)
	require.ErrorIs(t, err, signed.ErrEnvelope)
	_, err = message().Sign(private(1), make([]byte, 12), nil)
	require.ErrorIs(t, err, signed.ErrEnvelope)
}

// Every bit of an envelope is signed.
func TestTamperedEnvelopesAreRefused(t *testing.T) {
	t.Parallel()
	expected := fromAlice(t)
	e := message()
	e.File = &signed.File{Name: "a.txt", MIMEType: "text/plain", SizeBytes: 5}
	raw := sealed(t, e)
	_, err := signed.Read(raw, expected)
	require.NoError(t, err)
	for i := range 8 * len(raw) {
		other := bytes.Clone(raw)
		other[i/8] ^= 1 << (i % 8)
		m, err := signed.Read(other, expected)
		require.Error(t, err, string(other))
		require.Nil(t, m)
	}
	for n := range raw {
		_, err := signed.Read(raw[:n], expected)
		require.Error(t, err)
	}
}

// members are an envelope's, to be changed and signed again.
type members map[string]any

func (m members) raw(t testing.TB) []byte {
	t.Helper()
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	return raw
}

// signedAgain is m with a signature that is right for it, whatever it holds.
func (m members) signedAgain(t testing.TB) []byte {
	t.Helper()
	delete(m, "sig")
	form, err := signed.Canonical(m.raw(t))
	require.NoError(t, err)
	m["sig"] = ed25519.Sign(private(1), append([]byte("peerrelay/envelope/v1\x00"), form...))
	return m.raw(t)
}

func membersOf(t testing.TB, raw []byte) members {
	t.Helper()
	var m members
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	require.NoError(t, d.Decode(&m))
	return m
}

// A signature makes no envelope of what is none.
func TestSignedNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	expected := fromAlice(t)
	full := message()
	full.File = &signed.File{Name: "a.txt", MIMEType: "text/plain", SizeBytes: 5}
	full.Enc, full.Hdr = "pairwise", []byte{1, 2, 3}
	whole := sealed(t, full)
	_, err := signed.Read(membersOf(t, whole).signedAgain(t), expected)
	require.NoError(t, err)

	for _, name := range []string{"v", "id", "session_id", "from", "to", "kind", "gen", "seq", "ts", "nonce", "ct"} {
		m := membersOf(t, whole)
		delete(m, name)
		_, err := signed.Read(m.signedAgain(t), expected)
		require.ErrorIs(t, err, signed.ErrEnvelope, "without "+name)
		m = membersOf(t, whole)
		m[strings.ToUpper(name)] = m[name]
		delete(m, name)
		_, err = signed.Read(m.signedAgain(t), expected)
		require.ErrorIs(t, err, signed.ErrEnvelope, "with a capital "+name)
	}
	for name := range membersOf(t, whole) {
		for _, value := range []any{nil, true, []any{}, members{}, members{"a": 1}} {
			m := membersOf(t, whole)
			m[name] = value
			raw := m.raw(t)
			if name != "sig" {
				raw = m.signedAgain(t)
			}
			_, err := signed.Read(raw, expected)
			require.Error(t, err, "%s %v", name, value)
		}
	}
	for _, change := range []struct {
		name  string
		value any
	}{
		{"v", 2},
		{"v", "1"},
		{"v", 0},
		{"gen", "7"},
		{"kind", "deliver"},
		{"kind", "unknown"},
		{"kind", ""},
		{"kind", "Message"},
		{"type", "message"},
		{"later", 1},
		{"expires_at", 0},
		{"expires_at", 5},
		{"enc", ""},
		{"enc", "ä"},
		{"kid", ""},
		{"kid", "AAECAwQFBgcICQoLDA0ODx"},
		{"hdr", ""},
		{"hdr", base64.StdEncoding.EncodeToString(make([]byte, signed.MaxHdr+1))},
		{"ct", "AA"},
		{"ct", "AB=="},
		{"ct", "AA==\n"},
		{"ct", "A A="},
		{"ct", "__8="},
		{"ct", 5},
		{"nonce", "AA=="},
		{"nonce", base64.StdEncoding.EncodeToString(make([]byte, 25))},
		{"nonce", base64.RawStdEncoding.EncodeToString(make([]byte, 25))},
		{"id", ""},
		{"id", "a b"},
		{"id", "é"},
		{"id", "a\u0000"},
		{"session_id", strings.ToUpper(room)},
		{"from", "alice"},
		{"to", "*"},
		{"to", alice},
		{"file", members{"name": "a", "mimeType": "b"}},
		{"file", members{"name": "a", "sizeBytes": 1}},
		{"file", members{"name": "a", "mimeType": "b", "sizeBytes": 1, "later": 1}},
		{"file", members{"name": "a", "mimeType": "b", "sizeBytes": 700_001}},
		{"file", members{"name": "", "mimeType": "b", "sizeBytes": 1}},
		{"file", members{"Name": "a", "mimeType": "b", "sizeBytes": 1}},
		{"file", members{"name": "a\u0000", "mimeType": "b", "sizeBytes": 1}},
		{"file", []any{}},
	} {
		m := membersOf(t, whole)
		m[change.name] = change.value
		read, err := signed.Read(m.signedAgain(t), expected)
		require.ErrorIs(t, err, signed.ErrEnvelope, "%v", change)
		require.Nil(t, read)
	}
}

// The signature is what is looked at first.
func TestUnsignedNonsenseIsRefusedForItsSignature(t *testing.T) {
	t.Parallel()
	expected := fromAlice(t)
	for name, change := range map[string]func(m members){
		"no signature":      func(m members) { delete(m, "sig") },
		"null":              func(m members) { m["sig"] = nil },
		"number":            func(m members) { m["sig"] = 5 },
		"empty":             func(m members) { m["sig"] = "" },
		"short":             func(m members) { m["sig"] = base64.StdEncoding.EncodeToString(make([]byte, 63)) },
		"long":              func(m members) { m["sig"] = base64.StdEncoding.EncodeToString(make([]byte, 65)) },
		"zeros":             func(m members) { m["sig"] = make([]byte, 64) },
		"no padding":        func(m members) { m["sig"] = strings.TrimRight(fmt.Sprint(m["sig"]), "=") },
		"of no base64":      func(m members) { m["sig"] = strings.Repeat("!", 88) },
		"unknown member":    func(m members) { m["later"] = 1 },
		"from is no string": func(m members) { m["from"] = members{} },
		"a name that would be others": func(m members) {
			m[`id":"m-1","kid`] = m["kid"]
			delete(m, "id")
			delete(m, "kid")
		},
	} {
		m := membersOf(t, sealed(t, message()))
		change(m)
		_, err := signed.Read(m.raw(t), expected)
		require.Equal(t, signed.ErrSignature, err, name)
	}
}

// FAULTS BL-J05: who speaks is who signed, and what was said in one place is not repeated in
// another.
func TestBLJ05AuthorAndPlaceAreBound(t *testing.T) {
	t.Parallel()
	expected := fromAlice(t)
	toBob := message()
	toBob.To, toBob.KID, toBob.Enc = bob, "", "pairwise"
	raw := sealed(t, toBob)
	_, err := signed.Read(raw, expected)
	require.NoError(t, err)

	other := *expected
	other.SessionID = room2
	_, err = signed.Read(raw, &other)
	require.ErrorIs(t, err, signed.ErrContext, "in another room")

	other = *expected
	other.Self = mallory
	_, err = signed.Read(raw, &other)
	require.ErrorIs(t, err, signed.ErrContext, "forwarded to somebody else")

	other = *expected
	other.From = member(t, mallory, private(3))
	_, err = signed.Read(raw, &other)
	require.ErrorIs(t, err, signed.ErrSignature, "as another participant's")

	other.From = member(t, mallory, private(1))
	_, err = signed.Read(raw, &other)
	require.ErrorIs(t, err, signed.ErrContext, "as that of another participant with the same device")

	other.From = signed.Member{}
	_, err = signed.Read(raw, &other)
	require.ErrorIs(t, err, signed.ErrSignature, "as nobody's")

	asAlice, err := toBob.Seal(private(3), secret, []byte("hello"))
	require.NoError(t, err)
	_, err = signed.Read(asAlice, expected)
	require.ErrorIs(t, err, signed.ErrSignature, "signed by another one")

	unlabelled := membersOf(t, raw)
	delete(unlabelled, "sig")
	form, err := signed.Canonical(unlabelled.raw(t))
	require.NoError(t, err)
	unlabelled["sig"] = ed25519.Sign(private(1), form)
	_, err = signed.Read(unlabelled.raw(t), expected)
	require.ErrorIs(t, err, signed.ErrSignature, "signed without the label")
}

// FAULTS BL-H10: there is no member whose keys everybody can sign for.
func TestBLH10MembersHaveGoodKeys(t *testing.T) {
	t.Parallel()
	good := member(t, alice, private(1))
	keys := identity.Keys{Identity: good.Identity(), Agreement: good.Agreement(), AgreementSignature: identity.SignAgreement(private(1), good.Agreement())}
	_, err := signed.NewMember(alice, &keys)
	require.NoError(t, err)

	for name, change := range map[string]func(k *identity.Keys){
		"identity of order 1":       func(k *identity.Keys) { k.Identity = [32]byte{1} },
		"identity of order 4":       func(k *identity.Keys) { k.Identity = [32]byte{} },
		"agreement of order 1":      func(k *identity.Keys) { k.Agreement = [32]byte{1} },
		"agreement of order 2":      func(k *identity.Keys) { k.Agreement = [32]byte{} },
		"agreement of another form": func(k *identity.Keys) { k.Agreement[31] |= 0x80 },
		"agreement of another one":  func(k *identity.Keys) { k.Agreement = [32]byte{9} },
	} {
		bad := keys
		change(&bad)
		if !strings.HasSuffix(name, "another one") {
			bad.AgreementSignature = identity.SignAgreement(private(1), bad.Agreement)
		}
		_, err := signed.NewMember(alice, &bad)
		require.ErrorIs(t, err, identity.ErrKeys, name)
	}
	_, err = signed.NewMember("alice", &keys)
	require.ErrorIs(t, err, signed.ErrEnvelope)
}

func TestOpenNeedsTheKeyAndANonce(t *testing.T) {
	t.Parallel()
	m, err := signed.Read(sealed(t, message()), fromAlice(t))
	require.NoError(t, err)
	_, err = m.Open([seal.KeySize]byte{})
	require.ErrorIs(t, err, seal.ErrOpen)
	opened, err := m.Open(secret)
	require.NoError(t, err)
	require.Equal(t, "hello", string(opened))

	raw, err := message().Sign(private(1), nil, []byte("opaque"))
	require.NoError(t, err)
	m, err = signed.Read(raw, fromAlice(t))
	require.NoError(t, err)
	require.Equal(t, "opaque", string(m.CT))
	_, err = m.Open(secret)
	require.ErrorIs(t, err, seal.ErrOpen)
}

func TestWhatIsNoEnvelopeClaimsNothing(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "[]", `{"type":"ping"}`, `{"v":1}`, `{"v":1,"v":1}`, strings.Replace(string(sealed(t, message())), `"v":1`, `"v":2`, 1)} {
		claims, err := signed.Claimed([]byte(raw))
		require.ErrorIs(t, err, signed.ErrEnvelope, raw)
		require.Zero(t, claims)
	}
}

// Whatever is read is what Sign would write, and passes the relay's check.
func FuzzRead(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add([]byte(v.Envelope))
		f.Add([]byte(v.Spelled))
	}
	f.Add([]byte(`{"sig":"` + strings.Repeat("A", 86) + `=="}`))
	expected := fromAlice(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		// The signature is made anew, so that what is behind it is reached.
		form, err := signed.Canonical(raw)
		if err != nil || len(raw) > 4096 {
			return
		}
		m, err := signed.Read(membersOf(t, form).signedAgain(t), expected)
		if err != nil {
			require.Nil(t, m)
			return
		}
		again, err := m.Sign(private(1), m.Nonce, m.CT)
		require.NoError(t, err)
		second, err := signed.Read(again, expected)
		require.NoError(t, err)
		require.Equal(t, m, second)
		claims, err := signed.Claimed(again)
		require.NoError(t, err)
		require.Equal(t, m.ID, claims.ID)
	})
}

func BenchmarkSeal1KiB(b *testing.B) {
	key, text := private(1), make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := message().Seal(key, secret, text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	raw, err := message().Seal(private(1), secret, make([]byte, 1024))
	require.NoError(b, err)
	expected := fromAlice(b)
	b.ReportAllocs()
	for b.Loop() {
		m, err := signed.Read(raw, expected)
		if err == nil {
			_, err = m.Open(secret)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// No ciphertext is an empty one, which is there.
func TestNoCiphertextIsAnEmptyOne(t *testing.T) {
	t.Parallel()
	raw, err := message().Sign(private(1), nil, nil)
	require.NoError(t, err)
	m, err := signed.Read(raw, fromAlice(t))
	require.NoError(t, err)
	require.Empty(t, m.CT)
}
