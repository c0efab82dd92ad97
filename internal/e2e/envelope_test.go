package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/internal/testkit"
	"github.com/peerrelay/peerrelay/wire"
)

// room makes a room with these roles and returns its participants in order.
func room(t *testing.T, s *testkit.Relay, roles ...string) []testkit.Participant {
	t.Helper()
	id := s.Room(t, testkit.RoomOptions{})
	var all []testkit.Participant
	for _, role := range roles {
		all = append(all, s.Join(t, id, role))
	}
	s.Told(t, id)
	return all
}

// RELAY: one queued per recipient, the same stream id in deliver, the sender's bytes
// unchanged, the sender itself not a recipient. FAULTS C11.
func TestRoomMessageReachesEveryone(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner", "viewer")
	sender, others := online(t, s, who[0]), []*peer{}
	for _, p := range who[1:] {
		others = append(others, online(t, s, p))
	}
	for n := range 20 {
		sent := sender.envelopeWith("message", sender.who.Room, fmt.Sprintf("m%d", n), ` "ct" : "\u0041\u00e9/é" , "extra":[1, 2 ]`)
		ids := sender.queued(sent, 3)
		for _, p := range others {
			got := p.delivered()
			require.Equal(t, string(sent), string(got.Envelope))
			require.Equal(t, ids[p.who.ID], got.StreamID)
		}
	}
	require.Len(t, online(t, s, who[1]).resume("0", 0).rows, 20, "one row per envelope")
}

// Pairwise envelopes of every kind go to one inbox.
func TestPairwiseReachesOne(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	sender, target, bystander := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	for _, kind := range []string{"senderkey", "control", "key_request"} {
		sent := sender.envelope(kind, target.who.ID, kind)
		require.Contains(t, sender.queued(sent, 1), target.who.ID)
		require.Equal(t, string(sent), string(target.delivered().Envelope))
	}
	sent := sender.envelope("message", bystander.who.ID, "to-a-human")
	require.Len(t, sender.queued(sent, 1), 1, "a human target is outside the private message policy")
	require.Equal(t, string(sent), string(bystander.delivered().Envelope), "and nothing of the others' came here")
}

func TestPrivateMessagesRefused(t *testing.T) {
	t.Parallel()
	s := shared(t)
	id := s.Room(t, testkit.RoomOptions{PrivateMessages: "refused"})
	a, b := online(t, s, s.Join(t, id, "agent")), online(t, s, s.Join(t, id, "agent"))
	a.nacked(a.envelope("message", b.who.ID, "private"), wire.PrivateRefused)
	alive(t, a, b)
}

// DESIGN section 6, "Kinds": who may send what.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "owner", "controller", "viewer")
	for _, human := range who[1:3] {
		p := online(t, s, human)
		for _, kind := range []string{"message", "senderkey", "control", "key_request"} {
			p.queued(p.envelope(kind, who[0].ID, kind+human.ID), 1)
		}
		p.nacked(p.envelopeWith("notice", p.who.Room, "n", `"ct":"QQ==","expires_at":1`), wire.NoticeNotPermitted)
	}
	agent := online(t, s, who[0])
	agent.nacked(agent.envelopeWith("notice", agent.who.Room, "n", `"ct":"QQ==","expires_at":1`), wire.NoticeInvalidGen)
	agent.nacked(agent.envelopeWith("notice", who[1].ID, "n2", `"ct":"QQ==","expires_at":1`), wire.InvalidEnvelope)
}

// RELAY: a viewer's connection is read-only and closes.
func TestViewerMayNotSend(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "viewer")
	agent := online(t, s, who[0])
	for kind, reason := range map[string]wire.Code{"message": wire.ReadOnly, "control": wire.ReadOnly, "notice": wire.NoticeNotPermitted} {
		viewer := online(t, s, who[1])
		viewer.nacked(viewer.envelopeWith(kind, viewer.who.Room, "v", `"ct":"QQ==","expires_at":1`), reason)
		viewer.closed(wire.ClosePolicy)
	}
	viewer := online(t, s, who[1])
	sent := agent.envelope("message", agent.who.Room, "seen")
	agent.queued(sent, 1)
	require.Equal(t, string(sent), string(viewer.delivered().Envelope))
}

// DESIGN section 6, "Admission": checks that close, send their nack first.
func TestRefusalsThatClose(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	elsewhere := room(t, s, "agent", "agent")
	for name, c := range map[string]struct {
		reason wire.Code
		frame  func(p *peer) []byte
	}{
		"another sender": {wire.WrongSender, func(p *peer) []byte {
			return bytes.Replace(p.envelope("control", who[1].ID, "x"), []byte(p.who.ID), []byte(who[1].ID), 1)
		}},
		"a sender that is no id": {wire.WrongSender, func(p *peer) []byte {
			return bytes.Replace(p.envelope("control", who[1].ID, "x"), []byte(p.who.ID), []byte("*"), 1)
		}},
		"upper-case sender": {wire.WrongSender, func(p *peer) []byte {
			return bytes.Replace(p.envelope("control", who[1].ID, "x"), []byte(p.who.ID), []byte(strings.ToUpper(p.who.ID)), 1)
		}},
		"a recipient of another room": {wire.NotAMember, func(p *peer) []byte {
			return p.envelope("control", elsewhere[1].ID, "x")
		}},
		"another room": {wire.NotAMember, func(p *peer) []byte {
			return bytes.ReplaceAll(p.envelope("control", who[1].ID, "x"), []byte(p.who.Room), []byte(elsewhere[0].Room))
		}},
		"the session of another room as recipient": {wire.NotAMember, func(p *peer) []byte {
			return p.envelope("control", elsewhere[0].Room, "x")
		}},
		// FAULTS C10: identifiers that are also subject syntax.
		"dots":    {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", "a.b", "x") }},
		"star":    {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", "*", "x") }},
		"greater": {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", ">", "x") }},
		"empty":   {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", "", "x") }},
		"injection": {wire.NotAMember, func(p *peer) []byte {
			return p.envelope("control", `a\r\nPUB x 1`, "x")
		}},
		"api subject": {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", "$JS.API.x", "x") }},
		"long":        {wire.NotAMember, func(p *peer) []byte { return p.envelope("control", strings.Repeat("é", 300), "x") }},
		"seq repeated": {wire.SeqRegression, func(p *peer) []byte {
			p.queued(p.envelope("control", who[1].ID, "first"), 1)
			return bytes.Replace(p.envelope("control", who[1].ID, "x"), []byte(`"seq":2`), []byte(`"seq":1`), 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := online(t, s, who[0])
			p.nacked(c.frame(p), c.reason)
			require.Empty(t, p.closed(wire.ClosePolicy))
		})
	}
	require.Len(t, online(t, s, who[1]).resume("0", 0).rows, 1, "no inbox got a row but for the one good envelope")
	require.Empty(t, online(t, s, elsewhere[1]).resume("0", 0).rows)
}

// Bad shapes are refused by name and change nothing; the connection goes on.
// FAULTS B07, E10, F01, F03, F04, F06-F09.
func TestInvalidEnvelopes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	valid := func() string { return string(p.envelope("control", who[1].ID, "x")) }
	file := func(header string) string {
		return string(p.envelopeWith("message", p.who.Room, "x", `"ct":"QQ==","file":`+header))
	}
	for name, frame := range map[string]string{
		"not JSON":                  "hello",
		"an array":                  "[]",
		"two values":                valid() + valid(),
		"junk after":                valid() + " x",
		"a byte order mark":         "\ufeff" + valid(),
		"nested arrays":             strings.Repeat("[", 60000),
		"nested objects":            strings.Repeat(`{"a":`, 10000),
		"another kind":              strings.Replace(valid(), `"control"`, `"board.update"`, 1),
		"kind in upper case":        strings.Replace(valid(), `"kind"`, `"Kind"`, 1),
		"to twice":                  strings.Replace(valid(), `"gen"`, `"to":"`+who[1].ID+`","gen"`, 1),
		"to twice, by escape":       strings.Replace(valid(), `"gen"`, `"\u0074o":"`+who[1].ID+`","gen"`, 1),
		"lone surrogate":            strings.Replace(valid(), `"gen"`, `"x":"\ud800","gen"`, 1),
		"seq as a fraction":         strings.Replace(valid(), `"gen":1`, `"gen":1.0`, 1),
		"seq over 2^53":             strings.Replace(valid(), `"gen":1`, `"gen":9007199254740993`, 1),
		"version 2":                 strings.Replace(valid(), `"v":1`, `"v":2`, 1),
		"no nonce":                  strings.Replace(valid(), `"nonce"`, `"once"`, 1),
		"an id with a space":        strings.Replace(valid(), `"id":"x"`, `"id":"x y"`, 1),
		"an id of 129 characters":   strings.Replace(valid(), `"id":"x"`, `"id":"`+strings.Repeat("x", 129)+`"`, 1),
		"NUL in an id":              strings.Replace(valid(), `"id":"x"`, `"id":"\u0000"`, 1),
		"file null":                 file(`null`),
		"file with an extra member": file(`{"name":"a","mimeType":"b","sizeBytes":1,"x":1}`),
		"file in upper case":        file(`{"Name":"a","mimeType":"b","sizeBytes":1}`),
		"file size twice":           file(`{"name":"a","mimeType":"b","sizeBytes":1,"sizeBytes":1}`),
		"file size 700001":          file(`{"name":"a","mimeType":"b","sizeBytes":700001}`),
		"file size 7e5":             file(`{"name":"a","mimeType":"b","sizeBytes":7e5}`),
		"file size -0":              file(`{"name":"a","mimeType":"b","sizeBytes":-0}`),
		"file name of 256":          file(`{"name":"` + strings.Repeat("😀", 256) + `","mimeType":"b","sizeBytes":1}`),
		"file name with a newline":  file(`{"name":"a\n","mimeType":"b","sizeBytes":1}`),
		"file name with U+2028":     file(`{"name":"a\u2028","mimeType":"b","sizeBytes":1}`),
		"empty file name":           file(`{"name":"","mimeType":"b","sizeBytes":1}`),
	} {
		t.Run(name, func(*testing.T) {
			p.nacked([]byte(frame), wire.InvalidEnvelope)
		})
	}
	sent := p.envelopeWith("message", p.who.Room, "good",
		`"ct":"QQ==","file":{"name":"`+strings.Repeat("😀", 255)+`","mimeType":"b","sizeBytes":700000}`)
	p.queued(sent, 1)
	require.Equal(t, string(sent), string(other.delivered().Envelope))
}

// RELAY: 64 KiB, counted over the whole message.
func TestMessageSize(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent")
	p, other := online(t, s, who[0]), online(t, s, who[1])
	fixed := len(p.envelopeWith("control", who[1].ID, "x", padding(0)))
	largest := p.envelopeWith("control", who[1].ID, "x", padding(wire.MaxMessage-fixed))
	require.Len(t, largest, wire.MaxMessage)
	p.queued(largest, 1)
	require.Equal(t, string(largest), string(other.delivered().Envelope))
	p.send(append(largest, ' '))
	p.closed(wire.CloseTooLarge)
}

// FAULTS E05: the same id with other content, another sender, another room.
func TestHistoryConflict(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	sender, other, owner := online(t, s, who[0]), online(t, s, who[1]), online(t, s, who[2])
	sent := sender.envelope("message", sender.who.Room, "X")
	first := sender.queued(sent, 2)
	other.delivered()
	owner.delivered()

	again := connect(t, s, who[0])
	require.Equal(t, first, again.queued(sent, 2), "the same bytes are the same message, at the same place")
	changed := bytes.Replace(sent, []byte(`"ct":"`), []byte(`"ct":"B`), 1)
	connect(t, s, who[0]).nacked(changed, wire.HistoryConflict)
	spaced := bytes.Replace(sent, []byte(`{"v"`), []byte(`{ "v"`), 1)
	connect(t, s, who[0]).nacked(spaced, wire.HistoryConflict)
	other.nacked(other.envelope("message", other.who.Room, "X"), wire.HistoryConflict)

	apart := room(t, s, "agent", "agent")
	stranger := online(t, s, apart[0])
	stranger.queued(stranger.envelope("message", stranger.who.Room, "X"), 1)
	require.Len(t, connect(t, s, who[1]).resume("0", 0).rows, 1)
	require.Len(t, connect(t, s, who[2]).resume("0", 0).rows, 1)
}

// FAULTS E05(f): two connections, one id, other bytes, the same moment.
func TestHistoryConflictRace(t *testing.T) {
	t.Parallel()
	s := shared(t)
	who := room(t, s, "agent", "agent", "owner")
	a, b := online(t, s, who[0]), online(t, s, who[1])
	for n := range 15 {
		id := fmt.Sprintf("race-%d", n)
		frames := [][]byte{a.envelope("message", a.who.Room, id), b.envelope("message", b.who.Room, id)}
		var wg sync.WaitGroup
		for i, p := range []*peer{a, b} {
			wg.Go(func() { p.send(frames[i]) })
		}
		wg.Wait()
		queued, nacked, delivered := 0, 0, 0
		for _, p := range []*peer{a, b} {
			q, n, d := 0, 0, 0
			for q < 2 && (n == 0 || d == 0) {
				switch got := p.next(); got.Type {
				case wire.ServerQueued:
					q++
				case wire.ServerNack:
					require.Equal(t, wire.HistoryConflict, got.Reason)
					n++
				case wire.ServerDeliver:
					d++
				default:
					require.Fail(t, "unexpected frame", "%s", got.Raw)
				}
			}
			queued, nacked, delivered = queued+q, nacked+n, delivered+d
		}
		require.Equal(t, 2, queued, "one wins, with its two recipients")
		require.Equal(t, 1, nacked, "the other is told")
		require.Equal(t, 1, delivered)
	}
}

// A room message with nobody else in the room.
func TestNoRecipients(t *testing.T) {
	t.Parallel()
	s := shared(t)
	alone := online(t, s, room(t, s, "agent")[0])
	frame := alone.envelope("message", alone.who.Room, "x")
	alone.nacked(frame, wire.NoRecipients)
	other := online(t, s, s.Join(t, alone.who.Room, "agent"))
	again := connect(t, s, alone.who)
	again.queued(frame, 1)
	require.Equal(t, string(frame), string(other.delivered().Envelope), "nothing was stored before")
}

// FAULTS A14, A09: pooled buffers never mix messages; every delivered envelope is
// what was sent, also to readers that are slow or cut off.
func TestManyMessagesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.EnvelopesPerSecond(100_000))
	who := room(t, s, "agent", "agent", "agent", "agent", "owner", "owner", "viewer", "viewer")
	const each = 150
	var wg sync.WaitGroup
	var mu sync.Mutex
	sums := make(map[string][32]byte)
	random := rand.New(rand.NewPCG(1, 2))
	sizes := make([]int, each)
	for i := range sizes {
		sizes[i] = random.IntN(4000)
		if i%25 == 0 {
			sizes[i] = 60_000
		}
	}
	readers := make([]*peer, len(who))
	for i, p := range who {
		readers[i] = online(t, s, p)
	}
	for i, p := range who[:4] {
		sender := connect(t, s, p)
		wg.Go(func() {
			for n, size := range sizes {
				id := fmt.Sprintf("%d-%d", i, n)
				frame := sender.envelopeWith("control", sender.who.Room, id, `"ct":"`+strings.Repeat(id+"A", size/(len(id)+1)+1)+`"`)
				mu.Lock()
				sums[id] = sha256.Sum256(frame)
				mu.Unlock()
				sender.queued(frame, len(who)-1)
			}
		})
	}
	for i, r := range readers {
		expected := 4 * each
		if i < 4 {
			expected -= each
		}
		wg.Go(func() {
			for range expected {
				got := r.delivered()
				var frame wire.ClientFrame
				if err := wire.ParseClient(got.Envelope, &frame); err != nil {
					t.Errorf("delivered: %v", err)
					return
				}
				mu.Lock()
				want := sums[string(frame.Envelope.ID)]
				mu.Unlock()
				if want != sha256.Sum256(got.Envelope) {
					t.Errorf("%s is not what was sent", frame.Envelope.ID)
					return
				}
			}
		})
	}
	wg.Wait()
}
