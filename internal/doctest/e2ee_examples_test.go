package doctest_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/wire"
)

// The worked examples of docs/e2ee.md: everything is made from fixed keys, by the packages of
// the client where they take keys and nonces from a caller, and else from the formulas of the
// page. TestE2EEExamplesAreRead has the packages read all of it.

const (
	exampleRoom   = "018f6b1e-7f2a-7c3d-9a10-0123456789ad"
	exampleDirect = "018f6b1e-7f2a-7c3d-9a10-0123456789b0"
	exampleAlice  = "018f6b1e-7f2a-7c3d-9a10-0123456789ab"
	exampleRobot  = "018f6b1e-7f2a-7c3d-9a10-0123456789ac"
	exampleTime   = 1_790_000_000_000
)

type e2eeExamples struct {
	About      string         `json:"about"`
	Room       string         `json:"room"`
	DirectRoom string         `json:"direct_room"`
	Devices    deviceExamples `json:"devices"`
	Canonical  canonicalForms `json:"canonical"`
	Content    contentExample `json:"content"`
	Pairwise   pairExample    `json:"pairwise"`
	SenderKey  chainExample   `json:"sender_key"`
	Direct     directExample  `json:"direct"`
	Board      boardExample   `json:"board"`
}

type deviceExamples struct {
	Alice deviceExample `json:"alice"`
	Robot deviceExample `json:"robot"`
}

type deviceExample struct {
	Participant        string `json:"participant"`
	Role               string `json:"role"`
	IdentitySeed       string `json:"identity_seed"`
	Identity           string `json:"identity"`
	AgreementPrivate   string `json:"agreement_private"`
	Agreement          string `json:"agreement"`
	AgreementSigned    string `json:"agreement_signed"`
	AgreementSignature string `json:"agreement_signature"`
	Fingerprint        string `json:"fingerprint"`
}

type canonicalForms struct {
	Accepted []canonicalForm `json:"accepted"`
	Refused  []string        `json:"refused"`
}

type canonicalForm struct {
	Raw  string `json:"raw"`
	Form string `json:"form"`
}

type contentExample struct {
	Text  string `json:"text"`
	File  string `json:"file"`
	Chunk string `json:"chunk"`
}

// sealedExample is an envelope, with all that it is made of.
type sealedExample struct {
	Key       string `json:"key"`
	Nonce     string `json:"nonce"`
	Plaintext string `json:"plaintext"`
	AAD       string `json:"aad"`
	CT        string `json:"ct"`
	Signed    string `json:"signed"`
	Signature string `json:"signature"`
	Envelope  string `json:"envelope"`
}

type pairExample struct {
	Secret       string        `json:"secret"`
	Salt         string        `json:"salt"`
	Info         string        `json:"info"`
	AliceToRobot string        `json:"alice_to_robot"`
	RobotToAlice string        `json:"robot_to_alice"`
	Message      sealedExample `json:"message"`
}

type chainExample struct {
	KID            string        `json:"kid"`
	Gen            uint64        `json:"gen"`
	ChainKey       string        `json:"chain_key"`
	Published      string        `json:"published"`
	Distribution   sealedExample `json:"distribution"`
	Steps          []chainStep   `json:"steps"`
	Message        sealedExample `json:"message"`
	Notice         sealedExample `json:"notice"`
	KeyRequest     string        `json:"key_request"`
	KeyUnavailable string        `json:"key_unavailable"`
}

type chainStep struct {
	Iteration  uint32 `json:"iteration"`
	ChainKey   string `json:"chain_key"`
	MessageKey string `json:"message_key"`
}

type directExample struct {
	SignedPrekey  prekeyExample  `json:"signed_prekey"`
	OneTimePrekey prekeyExample  `json:"one_time_prekey"`
	Started       uint64         `json:"started"`
	Ephemeral     pairOfKeys     `json:"ephemeral"`
	DH            []string       `json:"dh"`
	Secret        string         `json:"secret"`
	AD            string         `json:"ad"`
	Session       string         `json:"session"`
	First         ratchetExample `json:"first"`
	Answer        ratchetExample `json:"answer"`
}

type prekeyExample struct {
	ID        uint32 `json:"id"`
	Private   string `json:"private"`
	Public    string `json:"public"`
	Signature string `json:"signature,omitempty"`
}

type pairOfKeys struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

type ratchetExample struct {
	Ratchet  pairOfKeys    `json:"ratchet"`
	DH       string        `json:"dh"`
	Root     string        `json:"root"`
	ChainKey string        `json:"chain_key"`
	Header   string        `json:"header"`
	Message  sealedExample `json:"message"`
}

type boardExample struct {
	Card       string        `json:"card"`
	Event      string        `json:"event"`
	Type       string        `json:"type"`
	Kind       string        `json:"kind"`
	Header     string        `json:"header"`
	Key        string        `json:"key"`
	Commitment string        `json:"commitment"`
	Nonce      string        `json:"nonce"`
	Recipients []wrapExample `json:"recipients"`
	Text       string        `json:"text"`
	Content    string        `json:"content"`
	Signature  string        `json:"signature"`
}

type wrapExample struct {
	Participant string `json:"participant"`
	Wrap        string `json:"wrap"`
	Wrapped     string `json:"wrapped"`
}

// exampleDevice is a device of the examples, with its private keys.
type exampleDevice struct {
	participant string
	role        string
	identity    ed25519.PrivateKey
	agreement   *ecdh.PrivateKey
	keys        identity.Keys
}

func newExampleDevice(t *testing.T, participant, role string, identitySeed, agreementSeed byte) exampleDevice {
	t.Helper()
	d := exampleDevice{
		participant: participant, role: role,
		identity: ed25519.NewKeyFromSeed(repeated(identitySeed, 32)), agreement: exampleKey(t, agreementSeed),
	}
	d.keys.Identity = [32]byte(d.identity[32:])
	d.keys.Agreement = [32]byte(d.agreement.PublicKey().Bytes())
	d.keys.AgreementSignature = identity.SignAgreement(d.identity, d.keys.Agreement)
	require.NoError(t, d.keys.Check())
	return d
}

func exampleAliceDevice(t *testing.T) exampleDevice {
	return newExampleDevice(t, exampleAlice, "owner", 0x11, 0x12)
}

func exampleRobotDevice(t *testing.T) exampleDevice {
	return newExampleDevice(t, exampleRobot, "agent", 0x21, 0x22)
}

func (d *exampleDevice) example() deviceExample {
	return deviceExample{
		Participant: d.participant, Role: d.role,
		IdentitySeed: hex.EncodeToString(d.identity.Seed()), Identity: hex.EncodeToString(d.keys.Identity[:]),
		AgreementPrivate: hex.EncodeToString(d.agreement.Bytes()), Agreement: hex.EncodeToString(d.keys.Agreement[:]),
		AgreementSigned:    hex.EncodeToString(append([]byte("peerrelay/agreement-key/v1\x00"), d.keys.Agreement[:]...)),
		AgreementSignature: hex.EncodeToString(d.keys.AgreementSignature[:]), Fingerprint: d.keys.Fingerprint(),
	}
}

func (d *exampleDevice) member(t *testing.T) signed.Member {
	t.Helper()
	m, err := signed.NewMember(d.participant, &d.keys)
	require.NoError(t, err)
	return m
}

func repeated(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func exampleKey(t *testing.T, seed byte) *ecdh.PrivateKey {
	t.Helper()
	key, err := ecdh.X25519().NewPrivateKey(repeated(seed, 32))
	require.NoError(t, err)
	return key
}

func shared(t *testing.T, own *ecdh.PrivateKey, other *ecdh.PublicKey) []byte {
	t.Helper()
	secret, err := own.ECDH(other)
	require.NoError(t, err)
	return secret
}

func hmacOf(key []byte, message ...byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	return mac.Sum(nil)
}

func hkdfOf(t *testing.T, ikm, salt []byte, info string, length int) []byte {
	t.Helper()
	key, err := hkdf.Key(sha256.New, ikm, salt, info, length)
	require.NoError(t, err)
	return key
}

// sealExample signs the envelope, of which ct is made from the additional data.
func sealExample(t *testing.T, from *exampleDevice, e *signed.Envelope, nonceSeed byte, key []byte, plaintext string, ciphertext func(nonce [24]byte, aad []byte) []byte) sealedExample {
	t.Helper()
	nonce := [24]byte(repeated(nonceSeed, 24))
	aad, err := e.AAD(nonce[:])
	require.NoError(t, err)
	ct := ciphertext(nonce, aad)
	raw, err := e.Sign(from.identity, nonce[:], ct)
	require.NoError(t, err)
	var sig []byte
	sig, err = base64.StdEncoding.DecodeString(memberOf(t, raw, "sig"))
	require.NoError(t, err)
	return sealedExample{
		Key: hex.EncodeToString(key), Nonce: hex.EncodeToString(nonce[:]), Plaintext: plaintext, AAD: string(aad),
		CT: hex.EncodeToString(ct), Signed: "peerrelay/envelope/v1\x00" + withoutMember(t, raw, "sig"),
		Signature: hex.EncodeToString(sig), Envelope: string(raw),
	}
}

// memberOf returns a string member of a canonical object.
func memberOf(t *testing.T, raw []byte, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(string(raw), `"`+name+`":"`)
	require.True(t, found)
	value, _, found := strings.Cut(rest, `"`)
	require.True(t, found)
	return value
}

// withoutMember drops a string member, which is not the last one, of a canonical object.
func withoutMember(t *testing.T, raw []byte, name string) string {
	t.Helper()
	member := `"` + name + `":"` + memberOf(t, raw, name) + `",`
	require.Equal(t, 1, strings.Count(string(raw), member))
	return strings.Replace(string(raw), member, "", 1)
}

func makeExamples(t *testing.T) *e2eeExamples {
	t.Helper()
	alice, robot := exampleAliceDevice(t), exampleRobotDevice(t)
	return &e2eeExamples{
		About: "The worked examples of docs/e2ee.md. Keys, nonces, ct, signatures and what begins with a label and is no text are hexadecimal; " +
			"the rest is text. Made by internal/doctest (go test ./internal/doctest -run E2EE -update), read by read.py.",
		Room: exampleRoom, DirectRoom: exampleDirect,
		Devices:   deviceExamples{alice.example(), robot.example()},
		Canonical: canonicalExamples(),
		Content:   contentExamples(t),
		Pairwise:  pairwiseExample(t, &alice, &robot),
		SenderKey: senderKeyExample(t, &alice, &robot),
		Direct:    makeDirectExample(t, &alice, &robot),
		Board:     makeBoardExample(t, &alice, &robot),
	}
}

func canonicalExamples() canonicalForms {
	forms := canonicalForms{
		Refused: []string{
			`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"a":1.0}`, `{"a":1e2}`, `{"a":-1}`, `{"a":-0}`, `{"a":9007199254740992}`,
			`{"a":"\ud83d"}`, `[1]`, `{} {}`, "\ufeff{}", `{"a":01}`,
		},
	}
	for _, pair := range [][2]string{
		{`{ "b": 1, "a": [true, null] }`, `{"a":[true,null],"b":1}`},
		{`{"\u0061":"\u00e9\/\u20ac"}`, `{"a":"é/€"}`},
		{`{"a":"\u000A\u001f\u007f\"\\"}`, `{"a":"\n\u001f` + "\x7f" + `\"\\"}`},
		{`{"€":1,"z":2,"é":3,"Z":4}`, `{"Z":4,"z":2,"é":3,"€":1}`},
		{`{"\ufb33":1,"\ud83d\ude00":2}`, "{\"\U0001f600\":2,\"\ufb33\":1}"},
	} {
		forms.Accepted = append(forms.Accepted, canonicalForm{pair[0], pair[1]})
	}
	return forms
}

func contentExamples(t *testing.T) contentExample {
	t.Helper()
	text := encoded(t, content.Text("The build is green."))
	file := encoded(t, content.Text("see"), &content.File{Name: "plan b.txt", MIMEType: "text/plain", Data: []byte("1, 2, 3\n")})
	zeros := make([]byte, content.ChunkSize+1)
	chunk := encoded(t, &content.Chunk{
		FileID: [16]byte(repeated(0x31, 16)), Index: 1, Count: 2, Name: "zeros", MIMEType: "application/octet-stream",
		Size: len(zeros), SHA256: sha256.Sum256(zeros), Data: zeros[content.ChunkSize:],
	})
	return contentExample{text, file, chunk}
}

func encoded(t *testing.T, parts ...content.Part) string {
	t.Helper()
	payload, err := content.Encode(parts...)
	require.NoError(t, err)
	return string(payload)
}

func uuidBytes(t *testing.T, text string) []byte {
	t.Helper()
	id, ok := wire.ParseUUID([]byte(text))
	require.True(t, ok)
	return id[:]
}

// withKey seals as package seal does.
func withKey(key []byte, plaintext string) func([24]byte, []byte) []byte {
	return func(nonce [24]byte, aad []byte) []byte {
		return seal.WithNonce([32]byte(key), nonce, []byte(plaintext), aad)
	}
}

func directionKey(t *testing.T, from, to *exampleDevice) []byte {
	t.Helper()
	key, err := pairwise.DirectionKey(from.agreement, to.keys.Agreement, exampleRoom, from.participant, to.participant)
	require.NoError(t, err)
	return key[:]
}

func pairwiseExample(t *testing.T, alice, robot *exampleDevice) pairExample {
	t.Helper()
	key, plaintext := directionKey(t, alice, robot), encoded(t, content.Text("for you alone"))
	e := &signed.Envelope{
		ID: "p-1", SessionID: exampleRoom, From: alice.participant, To: robot.participant, Kind: wire.KindMessage,
		Seq: 1, TS: exampleTime, Enc: pairwise.Enc,
	}
	info := append([]byte("peerrelay/pairwise/v1\x00"), append(uuidBytes(t, alice.participant), uuidBytes(t, robot.participant)...)...)
	return pairExample{
		Secret: hex.EncodeToString(shared(t, alice.agreement, robot.agreement.PublicKey())),
		Salt:   hex.EncodeToString(uuidBytes(t, exampleRoom)), Info: hex.EncodeToString(info),
		AliceToRobot: hex.EncodeToString(key), RobotToAlice: hex.EncodeToString(directionKey(t, robot, alice)),
		Message: sealExample(t, alice, e, 0x41, key, plaintext, withKey(key, plaintext)),
	}
}

func exampleKID() senderkey.KID {
	return senderkey.KID([]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf})
}

func senderKeyExample(t *testing.T, alice, robot *exampleDevice) chainExample {
	t.Helper()
	const gen = 1
	kid, chainKey := exampleKID(), repeated(0x51, 32)
	sender, err := senderkey.NewSender(bytes.NewReader(chainKey), gen, kid, senderkey.Roster{Version: 2, Members: []string{robot.participant}})
	require.NoError(t, err)
	given, err := sender.Distribute(robot.participant)
	require.NoError(t, err)
	example := chainExample{
		KID: kid.String(), Gen: gen, ChainKey: hex.EncodeToString(chainKey),
		Published: hex.EncodeToString(hmacOf(chainKey, append([]byte("peerrelay/sender-key-published/v1\x00"), kid[:]...)...)),
		KeyRequest: string(senderkey.KeyRequest{
			ID: senderkey.RequestID(repeated(0x52, 16)), KID: kid, Gen: gen,
		}.Encode()),
		KeyUnavailable: string(senderkey.KeyUnavailable{KID: kid, Gen: gen}.Encode()),
	}
	key, payload := directionKey(t, alice, robot), string(given.Encode())
	example.Distribution = sealExample(t, alice, &signed.Envelope{
		ID: "k-1", SessionID: exampleRoom, From: alice.participant, To: robot.participant, Kind: wire.KindSenderKey,
		Seq: 2, TS: exampleTime,
	}, 0x53, key, payload, withKey(key, payload))
	for iteration, ck := uint32(0), chainKey; iteration < 2; iteration, ck = iteration+1, hmacOf(ck, 2) {
		example.Steps = append(example.Steps, chainStep{iteration, hex.EncodeToString(ck), hex.EncodeToString(hmacOf(ck, 1))})
	}
	toRoom := func(e *signed.Envelope, nonceSeed byte, plaintext string) sealedExample {
		step := example.Steps[sender.Iteration()]
		e.SessionID, e.From, e.To, e.TS, e.Gen, e.KID = exampleRoom, alice.participant, exampleRoom, exampleTime, gen, kid.String()
		return sealExample(t, alice, e, nonceSeed, unhexed(t, step.MessageKey), plaintext, func(nonce [24]byte, aad []byte) []byte {
			_, ct, err := sender.Seal(nonce, []byte(plaintext), aad)
			require.NoError(t, err)
			return ct
		})
	}
	example.Notice = toRoom(&signed.Envelope{ID: "n-1", Kind: wire.KindNotice, Seq: 3, ExpiresAt: exampleTime + 600_000}, 0x54, encoded(t, content.Text("disk full")))
	example.Message = toRoom(&signed.Envelope{ID: "m-1", Kind: wire.KindMessage, Seq: 4}, 0x55, encoded(t, content.Text("The build is green.")))
	return example
}

func unhexed(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

func exampleKeyPair(key *ecdh.PrivateKey) pairOfKeys {
	return pairOfKeys{hex.EncodeToString(key.Bytes()), hex.EncodeToString(key.PublicKey().Bytes())}
}

// makeDirectExample is the page's X3DH and Double Ratchet, with fixed keys in the place of drawn ones.
func makeDirectExample(t *testing.T, owner, agent *exampleDevice) directExample {
	t.Helper()
	signedPrekey, oneTime, ephemeral := exampleKey(t, 0x61), exampleKey(t, 0x62), exampleKey(t, 0x63)
	const signedID, oneTimeID = 7, 7 // of two kinds, so of two keys
	signature := identity.SignPrekey(agent.identity, signedID, [32]byte(signedPrekey.PublicKey().Bytes()))
	example := directExample{
		SignedPrekey: prekeyExample{
			signedID, hex.EncodeToString(signedPrekey.Bytes()), hex.EncodeToString(signedPrekey.PublicKey().Bytes()), hex.EncodeToString(signature[:]),
		},
		OneTimePrekey: prekeyExample{oneTimeID, hex.EncodeToString(oneTime.Bytes()), hex.EncodeToString(oneTime.PublicKey().Bytes()), ""},
		Started:       exampleTime, Ephemeral: exampleKeyPair(ephemeral),
	}
	input := repeated(0xff, 32)
	for _, dh := range [][]byte{
		shared(t, owner.agreement, signedPrekey.PublicKey()), shared(t, ephemeral, agent.agreement.PublicKey()),
		shared(t, ephemeral, signedPrekey.PublicKey()), shared(t, ephemeral, oneTime.PublicKey()),
	} {
		example.DH = append(example.DH, hex.EncodeToString(dh))
		input = append(input, dh...)
	}
	secret := hkdfOf(t, input, make([]byte, 32), "peerrelay/x3dh/v1\x00", 32)
	start := binary.BigEndian.AppendUint32(ephemeral.PublicKey().Bytes(), signedID)
	start = binary.BigEndian.AppendUint32(start, oneTimeID)
	start = binary.BigEndian.AppendUint64(start, exampleTime)
	ad := []byte("peerrelay/x3dh-ad/v1\x00")
	for _, d := range []*exampleDevice{owner, agent} {
		ad = append(append(ad, d.keys.Identity[:]...), d.keys.Agreement[:]...)
	}
	ad = append(ad, start...)
	ad = append(binary.BigEndian.AppendUint16(ad, uint16(len(exampleDirect))), exampleDirect...)
	sum := sha256.Sum256(append([]byte("peerrelay/x3dh-session/v1\x00"), ad...))
	example.Secret, example.AD, example.Session = hex.EncodeToString(secret), hex.EncodeToString(ad), hex.EncodeToString(sum[:16])

	r := exampleRatchet{ad: ad, session: sum[:16], root: secret}
	ownerKey, agentKey := exampleKey(t, 0x64), exampleKey(t, 0x65)
	example.First = r.message(t, owner, ownerKey, signedPrekey.PublicKey(), append(bytes.Clone(owner.keys.Identity[:]), start...), 0x66, "hello, robot")
	example.Answer = r.message(t, agent, agentKey, ownerKey.PublicKey(), nil, 0x67, "hello, Alice")
	return example
}

// exampleRatchet is the part of the state that both sides have.
type exampleRatchet struct{ ad, session, root []byte }

// message is the first one of a chain, with a new ratchet key; part is the X3DH part.
func (r *exampleRatchet) message(t *testing.T, from *exampleDevice, own *ecdh.PrivateKey, other *ecdh.PublicKey, part []byte, nonceSeed byte, text string) ratchetExample {
	t.Helper()
	dh := shared(t, own, other)
	both := hkdfOf(t, dh, r.root, "peerrelay/ratchet-root/v1\x00", 64)
	r.root = both[:32]
	key := hmacOf(both[32:], 1)
	counted := append(own.PublicKey().Bytes(), make([]byte, 8)...) // PN and N are 0
	flags := byte(0)
	if part != nil {
		flags = 1
	}
	header := append([]byte{1, flags}, r.session...)
	header = append(append(header, counted...), part...)
	plaintext := encoded(t, content.Text(text))
	e := &signed.Envelope{
		ID: "d-1", SessionID: exampleDirect, From: from.participant, To: exampleDirect, Kind: wire.KindMessage, Gen: 2, Seq: 1,
		TS: exampleTime, Hdr: header,
	}
	example := ratchetExample{
		Ratchet: exampleKeyPair(own), DH: hex.EncodeToString(dh), Root: hex.EncodeToString(r.root), ChainKey: hex.EncodeToString(both[32:]), Header: hex.EncodeToString(header),
		Message: sealExample(t, from, e, nonceSeed, key, plaintext, func(nonce [24]byte, _ []byte) []byte {
			return seal.WithNonce([32]byte(key), nonce, []byte(plaintext), append(bytes.Clone(r.ad), counted...))
		}),
	}
	example.Message.AAD = hex.EncodeToString(append(bytes.Clone(r.ad), counted...)) // what is authenticated here
	return example
}

// makeBoardExample is the first event of a card, with a fixed key and nonce.
func makeBoardExample(t *testing.T, author, other *exampleDevice) boardExample {
	t.Helper()
	key, nonce := repeated(0x71, 32), [24]byte(repeated(0x72, 24))
	commitment := sha256.Sum256(append([]byte("peerrelay/board-key/v1\x00"), key...))
	example := boardExample{
		Card: "018f6b1e-7f2a-7c3d-9a10-0123456789c1", Event: "018f6b1e-7f2a-7c3d-9a10-0123456789e1", Type: "created", Kind: "task",
		Key: hex.EncodeToString(key), Commitment: hex.EncodeToString(commitment[:]), Nonce: hex.EncodeToString(nonce[:]),
		Text: `{"subject":"Paint the fence.","v":1}`,
	}
	header := []byte{1, 1, 2}
	for _, id := range []string{exampleRoom, example.Card, example.Event, author.participant} {
		header = append(header, uuidBytes(t, id)...)
	}
	header = append(header, make([]byte, 8+16)...) // base and basis
	example.Header = hex.EncodeToString(header)
	made := append(bytes.Clone(header), commitment[:]...)
	made = append(made, nonce[:]...)
	made = binary.BigEndian.AppendUint16(made, 2)
	for _, to := range []*exampleDevice{author, other} { // in the order of their ids
		info := "peerrelay/board/v1\x00" + string(uuidBytes(t, author.participant)) + string(uuidBytes(t, to.participant))
		wrap := hkdfOf(t, shared(t, author.agreement, to.agreement.PublicKey()), uuidBytes(t, exampleRoom), info, 32)
		wrapped := seal.WithNonce([32]byte(wrap), nonce, key, header)
		made = append(append(made, uuidBytes(t, to.participant)...), wrapped...)
		example.Recipients = append(example.Recipients, wrapExample{to.participant, hex.EncodeToString(wrap), hex.EncodeToString(wrapped)})
	}
	made = append(made, seal.WithNonce([32]byte(key), nonce, []byte(example.Text), header)...)
	example.Content = hex.EncodeToString(made)
	example.Signature = hex.EncodeToString(ed25519.Sign(author.identity, append([]byte("peerrelay/board-event/v1\x00"), made...)))
	return example
}
