package senderkey_test

import (
	"crypto/rand"
	"encoding"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

func roster(version uint64, members ...string) senderkey.Roster {
	return senderkey.Roster{Version: version, Members: members}
}

func kidOf(n byte) senderkey.KID { return senderkey.KID{15: n} }

func newSender(t testing.TB, gen uint64, kid byte, members ...string) *senderkey.Sender {
	t.Helper()
	s, err := senderkey.NewSender(rand.Reader, gen, kidOf(kid), roster(1, members...))
	require.NoError(t, err)
	return s
}

func distribute(t testing.TB, s *senderkey.Sender, to string) senderkey.Distribution {
	t.Helper()
	d, err := s.Distribute(to)
	require.NoError(t, err)
	return d
}

func accept(t testing.TB, r *senderkey.Receivers, from string, d senderkey.Distribution) {
	t.Helper()
	key, err := r.Accept(from, d)
	require.NoError(t, err)
	require.Equal(t, senderkey.Key{Sender: from, KID: d.KID, Gen: d.Gen}, key)
}

// sent is a message on its way.
type sent struct {
	senderkey.Message
	iteration uint32
	plaintext []byte
}

func send(t testing.TB, s *senderkey.Sender, from string) sent {
	t.Helper()
	nonce := seal.NewNonce()
	plaintext := fmt.Appendf(nil, "%s %d %d", from, s.Gen(), s.Iteration())
	aad := fmt.Appendf(nil, `{"from":%q,"gen":%d,"kid":%q,"nonce":"%x"}`, from, s.Gen(), s.KID(), nonce)
	iteration, ct, err := s.Seal(nonce, plaintext, aad)
	require.NoError(t, err)
	return sent{
		Message:   senderkey.Message{From: from, KID: s.KID(), Gen: s.Gen(), Nonce: nonce, CT: ct, AAD: aad, Verified: true},
		iteration: iteration, plaintext: plaintext,
	}
}

func sendMany(t testing.TB, s *senderkey.Sender, from string, n int) []sent {
	t.Helper()
	all := make([]sent, n)
	for i := range all {
		all[i] = send(t, s, from)
	}
	return all
}

func opens(t testing.TB, r *senderkey.Receivers, m sent) {
	t.Helper()
	plaintext, err := r.Open(&m.Message)
	require.NoError(t, err, "iteration %d", m.iteration)
	require.Equal(t, m.plaintext, plaintext)
}

// refuses checks, too, that nothing has changed.
func refuses(t testing.TB, r *senderkey.Receivers, m senderkey.Message, want error) {
	t.Helper()
	before := save(t, r)
	plaintext, err := r.Open(&m)
	require.ErrorIs(t, err, want)
	require.Nil(t, plaintext)
	require.Equal(t, before, save(t, r))
}

func save(t testing.TB, state encoding.BinaryMarshaler) []byte {
	t.Helper()
	data, err := state.MarshalBinary()
	require.NoError(t, err)
	return data
}

// reload is a restart.
func reload(t testing.TB, state interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
},
) {
	t.Helper()
	data := save(t, state)
	require.NoError(t, state.UnmarshalBinary(data))
	require.Equal(t, data, save(t, state))
}

// FAULTS BL-J01: whatever is forged, the state is byte-equal before and after it, and what was
// on its way opens.
func TestForgedMessagesChangeNothing(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", distribute(t, s, "bob"))
	messages := sendMany(t, s, "alice", 1200)
	for _, i := range []int{0, 1, 2, 3, 5} {
		opens(t, &r, messages[i])
	}

	forge := func(want error, change func(m *senderkey.Message)) {
		t.Helper()
		for _, of := range []int{4, 6} {
			m := messages[of].Message
			m.CT = append([]byte(nil), m.CT...)
			change(&m)
			refuses(t, &r, m, want)
		}
	}
	iteration := func(n uint32) func(*senderkey.Message) {
		return func(m *senderkey.Message) { binary.BigEndian.PutUint32(m.CT, n) }
	}
	forge(senderkey.ErrStaleSenderKey, iteration(6+900))
	forge(senderkey.ErrStaleSenderKey, iteration(6+1000))
	forge(senderkey.ErrTooFar, iteration(6+1001))
	forge(senderkey.ErrTooFar, iteration(senderkey.MaxIterations-1))
	forge(senderkey.ErrMessage, iteration(senderkey.MaxIterations))
	forge(senderkey.ErrMessage, iteration(1<<31))
	forge(senderkey.ErrMessage, iteration(1<<32-1))
	forge(senderkey.ErrDuplicate, iteration(3))
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.CT[len(m.CT)-1] ^= 1 })
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.CT[4] ^= 1 })
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.Nonce[0] ^= 1 })
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.AAD = append([]byte(" "), m.AAD...) })
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.AAD = nil })
	forge(seal.ErrOpen, func(m *senderkey.Message) { m.CT = append(m.CT, 0) })
	forge(senderkey.ErrMessage, func(m *senderkey.Message) { m.CT = m.CT[:senderkey.Overhead-1] })
	forge(senderkey.ErrMessage, func(m *senderkey.Message) { m.CT = nil })
	forge(senderkey.ErrMessage, func(m *senderkey.Message) { m.From = "" })
	forge(senderkey.ErrMessage, func(m *senderkey.Message) { m.Gen = 1 << 53 })
	forge(senderkey.ErrGeneration, func(m *senderkey.Message) { m.Gen = 2 })
	forge(senderkey.ErrUnknownKey, func(m *senderkey.Message) { m.KID = kidOf(9) })
	forge(senderkey.ErrUnknownKey, func(m *senderkey.Message) { m.From = "mallory" })
	forge(senderkey.ErrUnverified, func(m *senderkey.Message) { m.Verified = false })

	opens(t, &r, messages[6])
	opens(t, &r, messages[4])
	refuses(t, &r, messages[3].Message, senderkey.ErrDuplicate)
}

// FAULTS BL-J03 (a): every second message is lost, for longer than keys are kept.
func TestEverySecondMessageIsLost(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", distribute(t, s, "bob"))
	messages := sendMany(t, s, "alice", 6000)
	for i := 1; i < len(messages); i += 2 {
		opens(t, &r, messages[i])
	}
	size := len(save(t, &r))
	require.Less(t, size, senderkey.MaxSkipped*36+200)
	// Of the lost ones the newest 2,000 still open, and the state shrinks.
	for i := 0; i < 2000; i += 2 {
		refuses(t, &r, messages[i].Message, senderkey.ErrDuplicate)
	}
	for i := 2000; i < len(messages); i += 2 {
		opens(t, &r, messages[i])
	}
	require.Less(t, len(save(t, &r)), 200)
}

// FAULTS BL-J03 (b), (c): jumps up to the limit, and many of them.
func TestJumps(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	messages := sendMany(t, s, "alice", 2500)
	var far, near senderkey.Receivers
	accept(t, &far, "alice", d)
	accept(t, &near, "alice", d)
	refuses(t, &far, messages[1001].Message, senderkey.ErrTooFar)
	opens(t, &far, messages[0])
	opens(t, &far, messages[1001])
	refuses(t, &near, messages[1001].Message, senderkey.ErrTooFar)
	opens(t, &near, messages[1000])
	for i := range 1000 {
		opens(t, &near, messages[i])
	}

	s = newSender(t, 2, 2, "bob")
	accept(t, &near, "alice", distribute(t, s, "bob"))
	largest := 0
	for range 500 {
		lost := sendMany(t, s, "alice", 6)
		opens(t, &near, lost[5])
		largest = max(largest, len(save(t, &near)))
	}
	require.Less(t, largest, senderkey.MaxSkipped*36+400)
}

// FAULTS BL-J05: a key is its giver's alone.
func TestKeysAreBoundToTheirGivers(t *testing.T) {
	t.Parallel()
	bob, mallory := newSender(t, 3, 1, "carol"), newSender(t, 3, 1, "carol")
	true1, false1 := distribute(t, bob, "carol"), distribute(t, mallory, "carol")
	var r senderkey.Receivers
	accept(t, &r, "bob", true1)
	before := save(t, &r)

	// (a) Mallory gives a key with Bob's kid and gen, and repeats Bob's own.
	for _, d := range []senderkey.Distribution{false1, true1} {
		_, err := r.Accept("mallory", d)
		require.ErrorIs(t, err, senderkey.ErrForeignKID)
	}
	// (b) The same kid with another key, later or earlier, or with another gen.
	later := false1
	later.Iteration = 40
	moved := true1
	moved.Gen = 4
	for _, d := range []senderkey.Distribution{false1, later, moved} {
		_, err := r.Accept("bob", d)
		require.ErrorIs(t, err, senderkey.ErrKeyConflict)
	}
	require.Equal(t, before, save(t, &r))

	m := send(t, bob, "bob")
	asMallory := m.Message
	asMallory.From = "mallory"
	refuses(t, &r, asMallory, senderkey.ErrUnknownKey)
	asBob := send(t, mallory, "mallory").Message
	asBob.From = "bob"
	refuses(t, &r, asBob, senderkey.ErrStaleSenderKey)
	opens(t, &r, m)
	accept(t, &r, "bob", true1) // again, after the chain went on
	refuses(t, &r, m.Message, senderkey.ErrDuplicate)
	_, err := r.Accept("bob", false1)
	require.ErrorIs(t, err, senderkey.ErrKeyConflict)
	opens(t, &r, send(t, bob, "bob"))
}

// FAULTS BL-J05, the other way round: who was first with another's kid keeps nobody out.
func TestSquattedKID(t *testing.T) {
	t.Parallel()
	bob, mallory := newSender(t, 3, 1, "carol"), newSender(t, 3, 1, "carol")
	var r senderkey.Receivers
	accept(t, &r, "mallory", distribute(t, mallory, "carol"))
	opens(t, &r, send(t, mallory, "mallory"))
	d := distribute(t, bob, "carol")
	_, err := r.Accept("bob", d)
	require.ErrorIs(t, err, senderkey.ErrForeignKID)
	_, err = r.AcceptPublished("bob", d)
	require.NoError(t, err)
	opens(t, &r, send(t, bob, "bob"))
	opens(t, &r, send(t, mallory, "mallory"))
	cross := send(t, mallory, "mallory").Message
	cross.From = "bob"
	refuses(t, &r, cross, senderkey.ErrStaleSenderKey)
}

// FAULTS BL-J07: neither a restart nor a repeated distribution makes a used message new.
func TestUsedMessagesStayUsed(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	d := distribute(t, s, "bob")
	var r senderkey.Receivers
	accept(t, &r, "alice", d)
	messages := sendMany(t, s, "alice", 10)
	for _, i := range []int{0, 2, 9} {
		opens(t, &r, messages[i])
		reload(t, &r)
		refuses(t, &r, messages[i].Message, senderkey.ErrDuplicate)
		accept(t, &r, "alice", d)
		refuses(t, &r, messages[i].Message, senderkey.ErrDuplicate)
	}
	// Nor does a generation that is gone come back with its old distribution.
	for gen := uint64(2); gen <= 1+senderkey.MaxGenerations; gen++ {
		accept(t, &r, "alice", distribute(t, newSender(t, gen, byte(gen), "bob"), "bob"))
	}
	refuses(t, &r, messages[9].Message, senderkey.ErrRetired)
	reload(t, &r)
	_, err := r.Accept("alice", d)
	require.ErrorIs(t, err, senderkey.ErrRetired)
	refuses(t, &r, messages[9].Message, senderkey.ErrRetired)
	_, err = r.Open(&messages[9].Message)
	require.NotErrorIs(t, err, senderkey.ErrStaleSenderKey, "nothing to repair")
}

// FAULTS BL-J10: former keys are kept, for messages on their way; of too many the lowest gen goes.
func TestFormerKeysAreKept(t *testing.T) {
	t.Parallel()
	var r senderkey.Receivers
	var messages []sent
	for gen := uint64(1); gen <= senderkey.MaxGenerations; gen++ {
		s := newSender(t, gen, byte(gen), "bob")
		accept(t, &r, "alice", distribute(t, s, "bob"))
		messages = append(messages, sendMany(t, s, "alice", 2)...)
	}
	for _, m := range messages {
		if m.iteration == 0 {
			opens(t, &r, m)
		}
	}
	next := newSender(t, 100, 100, "bob")
	accept(t, &r, "alice", distribute(t, next, "bob"))
	for _, m := range messages {
		switch {
		case m.iteration == 0:
		case m.Gen == 1:
			refuses(t, &r, m.Message, senderkey.ErrRetired)
		default:
			opens(t, &r, m)
		}
	}
	_, err := r.Accept("alice", distribute(t, newSender(t, 2, 99, "bob"), "bob"))
	require.ErrorIs(t, err, senderkey.ErrRetired, "not in exchange for a newer one")
}

// Peers without a kid are found by gen; one with a kid is found by both.
func TestOldPeers(t *testing.T) {
	t.Parallel()
	var r senderkey.Receivers
	s, other := newSender(t, 0x10, 1, "bob"), newSender(t, 0x10, 2, "bob")
	old := distribute(t, s, "bob")
	old.KID = senderkey.KID{}
	parsed, err := senderkey.ParseDistribution(old.Encode())
	require.NoError(t, err)
	require.Equal(t, old, parsed)
	accept(t, &r, "alice", old)
	conflict := distribute(t, other, "bob")
	conflict.KID = senderkey.KID{}
	_, err = r.Accept("alice", conflict)
	require.ErrorIs(t, err, senderkey.ErrKeyConflict)
	accept(t, &r, "alice", distribute(t, other, "bob")) // a client that was updated, or a gen used twice
	reload(t, &r)

	m := send(t, s, "alice")
	m.KID = senderkey.KID{}
	opens(t, &r, m)
	opens(t, &r, send(t, other, "alice"))
	opens(t, &r, send(t, s, "alice")) // its kid is unknown, its gen is not
	m = send(t, s, "alice")
	m.KID, m.Gen = senderkey.KID{}, 0x11
	refuses(t, &r, m.Message, senderkey.ErrUnknownKey)

	var fresh senderkey.Receivers
	accept(t, &fresh, "alice", distribute(t, other, "bob"))
	m = send(t, other, "alice")
	m.KID = senderkey.KID{}
	opens(t, &fresh, m)
	m = send(t, other, "alice")
	m.KID = kidOf(77)
	refuses(t, &fresh, m.Message, senderkey.ErrUnknownKey)
}

// A key that comes late opens what is before it, as far as it is kept.
func TestLaterAndEarlierDistributions(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob")
	first := distribute(t, s, "bob")
	messages := sendMany(t, s, "alice", 5000)
	late := distribute(t, s, "bob")
	require.Equal(t, uint32(5000-senderkey.RepairWindow), late.Iteration)

	var r senderkey.Receivers
	accept(t, &r, "alice", late)
	refuses(t, &r, messages[late.Iteration-1].Message, senderkey.ErrBeforeKey)
	opens(t, &r, messages[4990])
	accept(t, &r, "alice", first)
	reload(t, &r)
	opens(t, &r, messages[late.Iteration-1])
	refuses(t, &r, messages[4990].Message, senderkey.ErrDuplicate)
	refuses(t, &r, messages[0].Message, senderkey.ErrDuplicate)

	var behind senderkey.Receivers
	accept(t, &behind, "alice", first)
	opens(t, &behind, messages[7])
	refuses(t, &behind, messages[4999].Message, senderkey.ErrTooFar)
	accept(t, &behind, "alice", late)
	reload(t, &behind)
	opens(t, &behind, messages[4999])
	opens(t, &behind, messages[late.Iteration-senderkey.MaxSkip])
	opens(t, &behind, messages[3])
	refuses(t, &behind, messages[7].Message, senderkey.ErrDuplicate)
	refuses(t, &behind, messages[late.Iteration-senderkey.MaxSkip-1].Message, senderkey.ErrDuplicate)

	wrong := late
	wrong.CK[0] ^= 1
	before := save(t, &behind)
	_, err := behind.Accept("alice", wrong)
	require.ErrorIs(t, err, senderkey.ErrKeyConflict)
	require.Equal(t, before, save(t, &behind))
}

func TestAcceptValidates(t *testing.T) {
	t.Parallel()
	good := distribute(t, newSender(t, 1, 1, "bob"), "bob")
	var r senderkey.Receivers
	for name, change := range map[string]func(d *senderkey.Distribution) string{
		"sender":    func(*senderkey.Distribution) string { return "a b" },
		"gen":       func(d *senderkey.Distribution) string { d.Gen = 1 << 53; return "alice" },
		"iteration": func(d *senderkey.Distribution) string { d.Iteration = senderkey.MaxIterations; return "alice" },
	} {
		d := good
		from := change(&d)
		_, err := r.Accept(from, d)
		require.ErrorIs(t, err, senderkey.ErrArgument, name)
	}
	for i := range senderkey.MaxSenders {
		d := good
		d.KID = senderkey.KID{byte(i >> 8), byte(i), 1}
		accept(t, &r, fmt.Sprint("p", i), d)
	}
	reload(t, &r)
	_, err := r.Accept("more", good)
	require.ErrorIs(t, err, senderkey.ErrFull)
	r.Forget("p0")
	accept(t, &r, "more", good)
}

// Generations of one gen go together, and do not come back into the room that this leaves
// (FAULTS BL-J07).
func TestGenerationsOfOneGenGoTogether(t *testing.T) {
	t.Parallel()
	var r senderkey.Receivers
	first := distribute(t, newSender(t, 1, 1, "bob"), "bob")
	accept(t, &r, "alice", first)
	accept(t, &r, "alice", distribute(t, newSender(t, 1, 2, "bob"), "bob"))
	for gen := uint64(3); gen <= 1+senderkey.MaxGenerations; gen++ {
		accept(t, &r, "alice", distribute(t, newSender(t, gen, byte(gen), "bob"), "bob"))
	}
	_, err := r.Accept("alice", first)
	require.ErrorIs(t, err, senderkey.ErrRetired)
	accept(t, &r, "alice", distribute(t, newSender(t, 2, 100, "bob"), "bob"))
	reload(t, &r)
}

func TestHolder(t *testing.T) {
	t.Parallel()
	var r senderkey.Receivers
	require.Empty(t, r.Holder(kidOf(1)))
	accept(t, &r, "bob", distribute(t, newSender(t, 3, 1, "carol"), "carol"))
	accept(t, &r, "alice", senderkey.Distribution{Gen: 1})
	require.Equal(t, "bob", r.Holder(kidOf(1)))
	require.Empty(t, r.Holder(kidOf(2)))
	require.Empty(t, r.Holder(senderkey.KID{}), "a peer that has none holds none")
}
