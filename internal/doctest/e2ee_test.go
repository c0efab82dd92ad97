package doctest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/boardseal"
	"github.com/peerrelay/peerrelay/e2ee/content"
	"github.com/peerrelay/peerrelay/e2ee/pairwise"
	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
	"github.com/peerrelay/peerrelay/e2ee/signed"
	"github.com/peerrelay/peerrelay/identity"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

//go:generate go test -count=1 -run ^TestE2EEPage$ . -update

const (
	e2eePage     = "docs/e2ee.md"
	e2eeExample  = "docs/e2ee/examples.json"
	e2eeReadBack = "docs/e2ee/read.json" // what docs/e2ee/read.py printed
)

// The page's examples, tables of labels and limits are those that the code has. -update writes
// them, and docs/e2ee/examples.json; docs/e2ee/read.json is read.py's to write.
func TestE2EEPage(t *testing.T) {
	t.Parallel()
	examples := indented(t, makeExamples(t))
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "docs", "e2ee"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, e2eeExample), examples, 0o644))
	}
	committed, err := os.ReadFile(filepath.Join(root, e2eeExample))
	require.NoError(t, err)
	require.Equal(t, string(examples), string(committed), e2eeExample)

	raw, err := os.ReadFile(filepath.Join(root, e2eePage))
	require.NoError(t, err)
	page := string(raw)
	written := replaceTable(t, page, "labels", labelTable(t, page))
	written = replaceTable(t, written, "limits", e2eeLimitTable(t))
	written = replaceExamples(t, written, examples)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, e2eePage), []byte(written), 0o644))
		return
	}
	require.Equal(t, written, page, "%s is not what the code says; write it with -update", e2eePage)
}

// indented is JSON with one member in a line, as the page and the file have it.
func indented(t *testing.T, value any) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(value))
	return text.Bytes()
}

var exampleBlock = regexp.MustCompile("(?s)(<!-- example: ([a-z_.]+) -->\n```json\n)(.*?)(```\n)")

// wantedExamples are those that the page has to show, whatever else it does.
var wantedExamples = []string{
	"board", "content", "devices.alice", "direct", "pairwise", "sender_key", "sender_key.message", "sender_key.distribution",
}

// replaceExamples fills the marked blocks with the parts of the file that they name.
func replaceExamples(t *testing.T, page string, examples []byte) string {
	t.Helper()
	shown := map[string]bool{}
	written := exampleBlock.ReplaceAllStringFunc(page, func(block string) string {
		parts := exampleBlock.FindStringSubmatch(block)
		value := json.RawMessage(examples)
		for name := range strings.SplitSeq(parts[2], ".") {
			var object map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(value, &object), parts[2])
			require.Contains(t, object, name, parts[2])
			value = object[name]
		}
		shown[parts[2]] = true
		var text bytes.Buffer
		require.NoError(t, json.Indent(&text, value, "", "  "))
		return parts[1] + text.String() + "\n" + parts[4]
	})
	require.Len(t, shown, strings.Count(page, "<!-- example: "), "a block is shown twice, or its mark is not read")
	for _, name := range wantedExamples {
		found := slices.ContainsFunc(slices.Collect(keysOf(shown)), func(part string) bool {
			return part == name || strings.HasPrefix(part, name+".") || strings.HasPrefix(name, part+".")
		})
		require.True(t, found, "%s has no example %s", e2eePage, name)
	}
	return written
}

func keysOf(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// replaceTable fills what stands between the marks of a table.
func replaceTable(t *testing.T, page, name, table string) string {
	t.Helper()
	before, rest, found := strings.Cut(page, "<!-- table: "+name+" -->\n")
	require.True(t, found, "%s has no table %s", e2eePage, name)
	_, after, found := strings.Cut(rest, "<!-- end -->")
	require.True(t, found)
	return before + "<!-- table: " + name + " -->\n" + table + "<!-- end -->" + after
}

// labelled are the folders whose labels others have to know. The key store's labels are of a file
// that nobody else reads.
var labelled = []string{"identity", "e2ee", "client"}

// labelTable has every label of the code. What each is for stays as the page says it.
func labelTable(t *testing.T, page string) string {
	t.Helper()
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(peerrelay/[^`]+)` \\| (.+) \\|$").FindAllStringSubmatch(page, -1) {
		said[row[1]] = row[2]
	}
	found := map[string]bool{}
	for _, folder := range labelled {
		for _, file := range goFiles(t, folder, true) {
			ast.Inspect(file, func(node ast.Node) bool {
				literal, ok := node.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				if label, isLabel := strings.CutSuffix(text, "\x00"); isLabel && strings.HasPrefix(label, "peerrelay/") {
					found[label] = true
				}
				return true
			})
		}
	}
	require.NotEmpty(t, found)
	var rows strings.Builder
	rows.WriteString("| label | what it is for |\n|---|---|\n")
	for _, label := range slices.Sorted(keysOf(found)) {
		require.NotEmpty(t, said[label], "%s says nothing of the label %s: add a row for it", e2eePage, label)
		fmt.Fprintf(&rows, "| `%s` | %s |\n", label, said[label])
	}
	return rows.String()
}

// goFiles reads the files of a folder and, where deep, of those below it, but for tests and the
// key store.
func goFiles(t *testing.T, folder string, deep bool) []*ast.File {
	t.Helper()
	top := filepath.Join(root, folder)
	var files []*ast.File
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != top && (!deep || entry.Name() == "keystore"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			files = append(files, file)
		}
		return err
	})
	require.NoError(t, err)
	return files
}

// constants are those of one package's files, as they are written.
type constants map[string]ast.Expr

func constantsOf(t *testing.T, folder string) constants {
	t.Helper()
	c := constants{}
	for _, file := range goFiles(t, folder, false) {
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				values, ok := spec.(*ast.ValueSpec)
				for i := range values.Names {
					if ok && i < len(values.Values) {
						c[values.Names[i].Name] = values.Values[i]
					}
				}
			}
		}
	}
	return c
}

var durations = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// value computes a constant of whole numbers and durations.
func (c constants) value(t *testing.T, name string) int {
	t.Helper()
	require.NotNil(t, c[name], "there is no constant %s any more", name)
	n, exact := constant.Int64Val(c.eval(t, c[name]))
	require.True(t, exact, name)
	return int(n)
}

func (c constants) eval(t *testing.T, e ast.Expr) constant.Value {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return c.eval(t, e.X)
	case *ast.Ident:
		return c.eval(t, c[e.Name])
	case *ast.SelectorExpr:
		unit, ok := durations[e.Sel.Name]
		require.True(t, ok, e.Sel.Name)
		return constant.MakeInt64(int64(unit))
	case *ast.BinaryExpr:
		x, y := c.eval(t, e.X), c.eval(t, e.Y)
		if e.Op == token.SHL {
			bits, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(bits))
		}
		op := e.Op
		if op == token.QUO {
			op = token.QUO_ASSIGN // of whole numbers
		}
		return constant.BinaryOp(x, op, y)
	}
	require.Fail(t, "a constant that is not computed here", "%T", e)
	return nil
}

// e2eeLimitTable has the limits of the code.
func e2eeLimitTable(t *testing.T) string {
	t.Helper()
	schemes, client := constantsOf(t, "client/encryption"), constantsOf(t, "client")
	span := func(d int) string { return durationText(time.Duration(d)) }
	count := grouped
	var rows strings.Builder
	rows.WriteString("| what | limit |\n|---|---|\n")
	for _, row := range [][2]string{
		{"plaintext of one envelope", count(signed.MaxPlaintext) + " bytes"},
		{"`hdr`, decoded", count(signed.MaxHdr) + " bytes"},
		{"`enc`", count(signed.MaxEnc) + " characters"},
		{"parts of a payload", count(content.MaxParts)},
		{"a file in one part, and each chunk but the last", count(content.ChunkSize) + " bytes"},
		{"chunks of a file", count(content.MaxChunks)},
		{"a file in chunks", count(content.MaxFile) + " bytes"},
		{"unfinished files of one sender that are kept", count(content.MaxOpenFiles)},
		{"messages of one generation", count(senderkey.MaxIterations)},
		{"sender key: missing messages before one that is opened", count(senderkey.MaxSkip)},
		{"sender key: message keys kept for one generation", count(senderkey.MaxSkipped)},
		{"generations of one sender that are kept", count(senderkey.MaxGenerations)},
		{"own former generations that are kept for requests", count(senderkey.FormerGenerations)},
		{"own messages back from the newest that a key is given for", count(senderkey.RepairWindow)},
		{"keys sent before one message", count(schemes.value(t, "maxKeysPerSeal"))},
		{"requests for one key", count(senderkey.RepairAttempts)},
		{"between two requests for one key", durationText(senderkey.RepairCooldown)},
		{"keys asked for that are remembered, of all senders", count(senderkey.MaxRepairs)},
		{"the same, of one sender", count(senderkey.MaxRepairsPerSender)},
		{"answers to one member for one key", "one in " + durationText(senderkey.AnswerGap)},
		{"answers to one member", count(senderkey.AnswersPerHour) + " in an hour"},
		{"keys of somebody who left are kept", span(schemes.value(t, "leftKept"))},
		{"ratchet: missing messages of one chain before one that is opened", count(ratchet.MaxSkip)},
		{"ratchet: message keys kept for one session", count(ratchet.MaxSkipped)},
		{"sessions of one direct room that are kept", count(ratchet.MaxSessions)},
		{"ids of former sessions that are kept", count(ratchet.MaxRetired)},
		{"messages in a row that fail before a session is given up", count(ratchet.ResetAfter)},
		{"between two requests for a reset", durationText(ratchet.ResetInterval) + ", doubling to " + durationText(ratchet.MaxResetInterval)},
		{"a signed prekey is used for", span(schemes.value(t, "signedPrekeyLife"))},
		{"and its private key kept after that for", span(schemes.value(t, "signedPrekeyGrace"))},
		{"one-time prekeys at the relay, and in one upload", count(schemes.value(t, "MaxPrekeyUpload"))},
		{"text of a Board event, for two recipients", count(boardseal.MaxText(2)) + " bytes"},
		{"recipients of a Board event, with its author", count(boardseal.MaxRecipients)},
		{"subject of a card, and label of an option", count(client.value(t, "MaxSubject")) + " code points"},
		{"options of a card", count(client.value(t, "MaxOptions"))},
		{"envelopes of a room that wait for a key", count(client.value(t, "maxPending"))},
		{"envelopes sent at once, and in a second", count(client.value(t, "paceBurst")) + ", and " + count(client.value(t, "pacePerSecond"))},
		{"until a missing verdict counts as none", span(client.value(t, "receiptTimeout"))},
		{"pause after `mls_removal_pending`", count(client.value(t, "removalPause")/int(time.Millisecond)) + " ms"},
	} {
		fmt.Fprintf(&rows, "| %s | %s |\n", row[0], row[1])
	}
	return rows.String()
}

// Large numbers in the text are limits of the table, or follow from the code.
func TestE2EENumbersInTheText(t *testing.T) {
	t.Parallel()
	known := e2eeLimitTable(t)
	for _, n := range []int{
		wire.MaxMessage, wire.MaxFileSize, senderkey.MaxIterations - 1, content.ChunkSize + 1, // of the last message, and an example
		constantsOf(t, "client/keystore").value(t, "MaxSeen"), store.MaxSessionKey,
	} {
		known += " " + grouped(n) + " "
	}
	number := regexp.MustCompile(`\b[0-9]{1,3}(?:,[0-9]{3})+\b`)
	named := 0
	for i, line := range readPage(t, filepath.Join(root, e2eePage)).lines {
		if strings.HasPrefix(line, "  ") && strings.Contains(line, `": `) {
			continue // of an example
		}
		for _, n := range number.FindAllString(line, -1) {
			named++
			require.Regexp(t, `[^0-9,]`+n+`[^0-9,]`, known, "%s:%d: %s is no limit", e2eePage, i+1, n)
		}
	}
	require.Greater(t, named, 20)
}

// grouped writes a number with a comma before every three digits.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// durationText is for people: 60 s, 1 h, 7 days.
func durationText(d time.Duration) string {
	switch {
	case d >= 72*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	default:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
}

// The packages of the client read every example, and make of what they draw nothing themselves
// the same bytes.
func TestE2EEExamplesAreRead(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, e2eeExample))
	require.NoError(t, err)
	var e e2eeExamples
	require.NoError(t, json.Unmarshal(raw, &e))
	alice, robot := exampleAliceDevice(t), exampleRobotDevice(t)

	t.Run("canonical", func(t *testing.T) {
		for _, form := range e.Canonical.Accepted {
			got, err := signed.Canonical([]byte(form.Raw))
			require.NoError(t, err, form.Raw)
			require.Equal(t, form.Form, string(got))
		}
		require.NotEmpty(t, e.Canonical.Refused)
		for _, refused := range e.Canonical.Refused {
			_, err := signed.Canonical([]byte(refused))
			require.ErrorIs(t, err, signed.ErrCanonical, refused)
		}
	})
	t.Run("content", func(t *testing.T) {
		for _, payload := range []string{e.Content.Text, e.Content.File, e.Content.Chunk} {
			parts, err := content.Decode([]byte(payload))
			require.NoError(t, err, payload)
			require.NotEmpty(t, parts)
		}
		requireWholeFile(t, e.Content.Chunk)
	})
	t.Run("pairwise", func(t *testing.T) {
		require.Equal(t, e.Pairwise.Message.Plaintext, openPairwise(t, &robot, &alice, e.Pairwise.Message.Envelope))
	})
	t.Run("sender key", func(t *testing.T) { requireSenderKeyOpens(t, &e.SenderKey, &alice, &robot) })
	t.Run("direct", func(t *testing.T) { requireDirectOpens(t, &e.Direct, &alice, &robot) })
	t.Run("board", func(t *testing.T) {
		opened, err := boardseal.Open(robot.own(), &boardseal.Expected{Room: e.Room, Card: e.Board.Card, Author: alice.member(t)},
			&boardseal.Sealed{Content: unhexed(t, e.Board.Content), Signature: unhexed(t, e.Board.Signature)})
		require.NoError(t, err)
		require.Equal(t, e.Board.Text, string(opened.Text))
		require.Equal(t, e.Board.Event, opened.Event)
		require.Equal(t, e.Board.Kind, string(opened.Kind))
	})
}

func (d *exampleDevice) own() *pairwise.Own {
	return &pairwise.Own{ID: d.participant, Identity: d.identity, Agreement: d.agreement}
}

func openPairwise(t *testing.T, own, from *exampleDevice, envelope string) string {
	t.Helper()
	channel, err := pairwise.New(exampleRoom, own.own(), from.member(t))
	require.NoError(t, err)
	m, err := channel.Open([]byte(envelope))
	require.NoError(t, err)
	return string(m.Payload)
}

// requireWholeFile puts the example's chunk together with the one before it.
func requireWholeFile(t *testing.T, payload string) {
	t.Helper()
	parts, err := content.Decode([]byte(payload))
	require.NoError(t, err)
	last, ok := parts[0].(*content.Chunk)
	require.True(t, ok)
	first := *last
	first.Index, first.Data = 0, make([]byte, content.ChunkSize)
	var assembler content.Assembler
	whole, err := assembler.Add(last)
	require.NoError(t, err)
	require.Nil(t, whole)
	whole, err = assembler.Add(&first)
	require.NoError(t, err)
	require.Len(t, whole.Data, content.ChunkSize+1)
}

func requireSenderKeyOpens(t *testing.T, e *chainExample, alice, robot *exampleDevice) {
	t.Helper()
	payload := openPairwise(t, robot, alice, e.Distribution.Envelope)
	require.Equal(t, e.Distribution.Plaintext, payload)
	given, err := senderkey.ParseDistribution([]byte(payload))
	require.NoError(t, err)
	var received senderkey.Receivers
	_, err = received.Accept(alice.participant, given)
	require.NoError(t, err)
	for _, sealed := range []sealedExample{e.Message, e.Notice} { // the later one first
		m := readToRoom(t, exampleRoom, alice, robot, sealed.Envelope)
		kid, err := senderkey.ParseKID(m.KID)
		require.NoError(t, err)
		require.Equal(t, sealed.AAD, string(m.AAD()))
		plaintext, err := received.Open(&senderkey.Message{
			From: m.From, KID: kid, Gen: m.Gen, Nonce: [24]byte(m.Nonce), CT: m.CT, AAD: m.AAD(), Verified: true,
		})
		require.NoError(t, err)
		require.Equal(t, sealed.Plaintext, string(plaintext))
	}
	request, err := senderkey.ParseKeyRequest([]byte(e.KeyRequest))
	require.NoError(t, err)
	require.Equal(t, given.KID, request.KID)
	gone, err := senderkey.ParseKeyUnavailable([]byte(e.KeyUnavailable))
	require.NoError(t, err)
	require.Equal(t, given.Gen, gone.Gen)
}

func readToRoom(t *testing.T, room string, from, self *exampleDevice, envelope string) *signed.Message {
	t.Helper()
	m, err := signed.Read([]byte(envelope), &signed.Expected{SessionID: room, From: from.member(t), Self: self.participant})
	require.NoError(t, err)
	return m
}

// examplePrekeys are the agent's private ones.
type examplePrekeys struct{ signed, oneTime prekeyExample }

func (p examplePrekeys) SignedPrekey(id uint32) ([32]byte, bool)  { return p.signed.private(id) }
func (p examplePrekeys) OneTimePrekey(id uint32) ([32]byte, bool) { return p.oneTime.private(id) }

func (p prekeyExample) private(id uint32) (key [32]byte, ok bool) {
	b, err := hex.DecodeString(p.Private)
	copy(key[:], b)
	return key, err == nil && id == p.ID
}

func requireDirectOpens(t *testing.T, e *directExample, owner, agent *exampleDevice) {
	t.Helper()
	bundle := ratchet.Bundle{
		Keys: agent.keys,
		Signed: ratchet.SignedPrekey{
			ID: e.SignedPrekey.ID, Key: [32]byte(unhexed(t, e.SignedPrekey.Public)), Signature: [64]byte(unhexed(t, e.SignedPrekey.Signature)),
		},
		OneTime: &ratchet.OneTimePrekey{ID: e.OneTimePrekey.ID, Key: [32]byte(unhexed(t, e.OneTimePrekey.Public))},
	}
	require.NoError(t, bundle.Check())
	m := ratchetMessage(t, owner, agent, &e.First)
	device := &ratchet.Device{Keys: agent.keys, Agreement: [32]byte(agent.agreement.Bytes())}
	session, plaintext, used, err := ratchet.Accept(device, &owner.keys, exampleDirect, examplePrekeys{e.SignedPrekey, e.OneTimePrekey}, m)
	require.NoError(t, err)
	require.Equal(t, e.First.Message.Plaintext, string(plaintext))
	require.Equal(t, e.OneTimePrekey.ID, used)
	id := session.ID()
	require.Equal(t, e.Session, hex.EncodeToString(id[:]))

	// The owner's session, which began with the example's keys, makes that header and opens the answer.
	begun := ownersSession(t, e, owner, agent)
	again, err := begun.Seal([]byte("again"))
	require.NoError(t, err)
	require.Equal(t, e.First.Header, hex.EncodeToString(again.Header))
	_, err = session.Open(again)
	require.ErrorIs(t, err, ratchet.ErrDuplicate) // both are its message 0
	plaintext, err = begun.Open(ratchetMessage(t, agent, owner, &e.Answer))
	require.NoError(t, err)
	require.Equal(t, e.Answer.Message.Plaintext, string(plaintext))
}

// ratchetMessage reads the envelope of a direct room.
func ratchetMessage(t *testing.T, from, self *exampleDevice, e *ratchetExample) *ratchet.Message {
	t.Helper()
	m := readToRoom(t, exampleDirect, from, self, e.Message.Envelope)
	require.Equal(t, e.Header, hex.EncodeToString(m.Hdr))
	return &ratchet.Message{Header: m.Hdr, Nonce: [24]byte(m.Nonce), Ciphertext: m.CT}
}

// ownersSession is what the owner has before it sends, in the form that package ratchet stores.
func ownersSession(t *testing.T, e *directExample, owner, agent *exampleDevice) *ratchet.Session {
	t.Helper()
	b := []byte{1, 1} // version, an initiator's
	for _, keys := range []identity.Keys{owner.keys, agent.keys} {
		b = append(append(b, keys.Identity[:]...), keys.Agreement[:]...)
	}
	b = append(b, unhexed(t, e.Ephemeral.Public)...)
	b = binary.BigEndian.AppendUint32(b, e.SignedPrekey.ID)
	b = binary.BigEndian.AppendUint32(b, e.OneTimePrekey.ID)
	b = binary.BigEndian.AppendUint64(b, e.Started)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(exampleDirect))), exampleDirect...)
	for _, key := range []string{e.First.Root, e.First.Ratchet.Private, e.First.ChainKey} {
		b = append(b, unhexed(t, key)...)
	}
	b = append(b, make([]byte, 8+32)...)                // nothing was sent or received
	b = append(b, unhexed(t, e.SignedPrekey.Public)...) // the other side's ratchet key
	b = append(b, make([]byte, 4+4+2+2)...)             // and nothing of its chains
	session := new(ratchet.Session)
	require.NoError(t, session.UnmarshalBinary(b))
	return session
}

// What an independent reader, which was written from the page alone, read of these very examples
// is what this project put into them.
func TestE2EEExamplesWereReadByAnotherProgram(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, e2eeExample))
	require.NoError(t, err)
	var e e2eeExamples
	require.NoError(t, json.Unmarshal(raw, &e))
	text, err := os.ReadFile(filepath.Join(root, e2eeReadBack))
	require.NoError(t, err)
	var read struct {
		Examples string            `json:"examples"` // SHA-256 of the file it read
		Opened   map[string]string `json:"opened"`
		Made     map[string]string `json:"made"` // what it made anew, byte for byte
	}
	require.NoError(t, json.Unmarshal(text, &read))
	sum := sha256.Sum256(raw)
	require.Equal(t, hex.EncodeToString(sum[:]), read.Examples, "the examples changed: run docs/e2ee/read.py > %s", e2eeReadBack)
	require.Equal(t, map[string]string{
		"pairwise": e.Pairwise.Message.Plaintext, "distribution": e.SenderKey.Distribution.Plaintext,
		"sender_key message": e.SenderKey.Message.Plaintext, "sender_key notice": e.SenderKey.Notice.Plaintext,
		"direct first": e.Direct.First.Message.Plaintext, "direct answer": e.Direct.Answer.Message.Plaintext,
		"board": e.Board.Text,
	}, read.Opened)
	require.Equal(t, map[string]string{
		"pairwise": e.Pairwise.Message.Envelope, "distribution": e.SenderKey.Distribution.Envelope,
		"sender_key message": e.SenderKey.Message.Envelope, "sender_key notice": e.SenderKey.Notice.Envelope,
		"direct first": e.Direct.First.Message.Envelope, "direct answer": e.Direct.Answer.Message.Envelope,
		"board": base64.StdEncoding.EncodeToString(unhexed(t, e.Board.Content)),
	}, read.Made)
}

// Every file of vectors that the page names is there, and holds something.
func TestE2EEVectorsAreThere(t *testing.T) {
	t.Parallel()
	page := readPage(t, filepath.Join(root, e2eePage))
	named := all(regexp.MustCompile(`\]\(([^)\s]+\.(?:json|py))\)`), strings.Join(page.lines, "\n"))
	var files []string
	for _, pattern := range []string{"e2ee/*/testdata/*.json", "e2ee/*/testdata/*.py", "identity/testdata/*.json", "docs/e2ee/*.json", "docs/e2ee/*.py"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		for _, path := range found {
			relative, err := filepath.Rel(filepath.Join(root, "docs"), path)
			require.NoError(t, err)
			files = append(files, filepath.ToSlash(relative))
		}
	}
	slices.Sort(files)
	require.Equal(t, files, named, "the page names each file of vectors and each script that made one, and no other")
	for _, file := range named {
		info, err := os.Stat(filepath.Join(root, "docs", file))
		require.NoError(t, err)
		require.Greater(t, info.Size(), int64(500), file)
	}
}
