package senderkey_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/seal"
	"github.com/peerrelay/peerrelay/e2ee/senderkey"
)

var start = time.UnixMilli(1_790_000_000_123)

func begin(t testing.TB, o *senderkey.Outgoing, gen uint64, r senderkey.Roster) {
	t.Helper()
	require.NoError(t, o.Begin(rand.Reader, gen, kidOf(byte(gen)), r))
}

func giveAll(t testing.TB, o *senderkey.Outgoing) {
	t.Helper()
	for _, to := range o.Missing() {
		_, err := o.Distribute(to)
		require.NoError(t, err)
	}
	require.Empty(t, o.Missing())
}

func seals(o *senderkey.Outgoing) error {
	_, _, err := o.Seal(seal.NewNonce(), []byte("text"), nil)
	return err
}

// FAULTS BL-I06: whoever was given the key and is not in the room any more, by whatever way the
// client hears of it, ends the generation, and a later return does not bring it back.
func TestLeavingEndsTheGeneration(t *testing.T) {
	t.Parallel()
	request := senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: kidOf(1), Gen: 1}
	ways := map[string]func(t *testing.T, o *senderkey.Outgoing){
		"removal": func(_ *testing.T, o *senderkey.Outgoing) { o.Left(11, "dave") },
		"roster":  func(t *testing.T, o *senderkey.Outgoing) { require.NoError(t, o.Update(roster(11, "bob", "carol"))) },
		"roster and return": func(t *testing.T, o *senderkey.Outgoing) {
			require.NoError(t, o.Update(roster(11, "bob", "carol")))
			require.NoError(t, o.Update(roster(12, "bob", "carol", "dave")))
		},
		"late news of a removal": func(t *testing.T, o *senderkey.Outgoing) {
			require.NoError(t, o.Update(roster(12, "bob", "carol", "dave"))) // back already
			o.Left(11, "dave")
		},
		"everybody": func(t *testing.T, o *senderkey.Outgoing) { require.NoError(t, o.Update(roster(11))) },
		"rekey":     func(_ *testing.T, o *senderkey.Outgoing) { o.Retire(11) },
		"refusal":   func(_ *testing.T, o *senderkey.Outgoing) { o.Refused(1) },
	}
	gives := map[string]func(t *testing.T, o *senderkey.Outgoing){
		"distribution": func(t *testing.T, o *senderkey.Outgoing) { giveAll(t, o) },
		"repair": func(t *testing.T, o *senderkey.Outgoing) {
			answer, err := o.Answer("dave", request, start)
			require.NoError(t, err)
			require.NotNil(t, answer.Key)
		},
	}
	for by, give := range gives {
		for how, leave := range ways {
			t.Run(by+", "+how, func(t *testing.T) {
				t.Parallel()
				var o senderkey.Outgoing
				begin(t, &o, 1, roster(10, "bob", "carol", "dave"))
				give(t, &o)
				require.NoError(t, seals(&o))
				leave(t, &o)
				for range 2 {
					require.True(t, o.NeedsRotation())
					require.ErrorIs(t, seals(&o), senderkey.ErrRotationNeeded)
					_, err := o.Distribute("bob")
					require.ErrorIs(t, err, senderkey.ErrRotationNeeded)
					reload(t, &o)
					o.Confirm(1)
				}
				begin(t, &o, 2, roster(13, "bob", "carol"))
				require.Equal(t, []string{"bob", "carol"}, o.Missing())
				_, err := o.Distribute("dave")
				require.ErrorIs(t, err, senderkey.ErrNotMember)
				require.NoError(t, seals(&o))
			})
		}
	}
}

// FAULTS BL-I06: what the one who left has saved opens nothing of the next generation.
func TestWhoLeftReadsNothingMore(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob", "dave"))
	var dave senderkey.Receivers
	d, err := o.Distribute("dave")
	require.NoError(t, err)
	accept(t, &dave, "alice", d)
	opens(t, &dave, send(t, o.Present(), "alice"))
	o.Left(2, "dave")
	begin(t, &o, 2, roster(2, "bob"))
	m := send(t, o.Present(), "alice")
	refuses(t, &dave, m.Message, senderkey.ErrUnknownKey)
	asOld := m.Message
	asOld.KID, asOld.Gen = kidOf(1), 1
	refuses(t, &dave, asOld, senderkey.ErrDuplicate)
	_, err = o.Answer("dave", senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: kidOf(2), Gen: 2}, start)
	require.ErrorIs(t, err, senderkey.ErrNotMember)
}

// Who never had the key leaves without any consequence; nor do repeated or older news have one.
func TestWhatEndsNoGeneration(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	require.True(t, o.NeedsRotation())
	require.ErrorIs(t, seals(&o), senderkey.ErrRotationNeeded)
	require.Nil(t, o.Missing())
	begin(t, &o, 5, roster(10, "bob", "carol"))
	_, err := o.Distribute("bob")
	require.NoError(t, err)
	for range 2 { // FAULTS BL-I08: the same event twice
		o.Left(11, "carol")
		o.Left(9, "bob")  // before the generation began
		o.Left(10, "bob") // when it began
		o.Left(12, "nobody")
		o.Retire(10)
		o.Refused(4)
		require.NoError(t, o.Update(roster(10, "bob", "carol"))) // looked up before Carol left
		require.Empty(t, o.Missing())
		require.NoError(t, seals(&o))
		reload(t, &o)
		require.ErrorIs(t, seals(&o), senderkey.ErrUnconfirmed)
		o.Confirm(5)
	}
	_, err = o.Distribute("carol")
	require.ErrorIs(t, err, senderkey.ErrNotMember)
	for _, bad := range []senderkey.Roster{roster(12, "bob", "bob"), roster(12, ""), roster(1<<53, "bob"), roster(12, "a b")} {
		require.ErrorIs(t, o.Update(bad), senderkey.ErrArgument)
	}
	require.NoError(t, seals(&o))
}

// FAULTS BL-J10: ten reasons at once are one rotation, and a repeated call is the same one.
func TestOneRotationForManyReasons(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob", "dave"))
	giveAll(t, &o)
	reasons := func() {
		for range 10 {
			o.Retire(2)
			o.Left(2, "dave")
			o.Refused(1)
		}
	}
	reasons()
	require.True(t, o.NeedsRotation())
	begin(t, &o, 2, roster(2, "bob"))
	giveAll(t, &o)
	reasons()
	begin(t, &o, 2, roster(2, "bob")) // the answer of the first call was lost
	require.False(t, o.NeedsRotation())
	require.Empty(t, o.Missing(), "still the same key")
	require.NoError(t, seals(&o))
	for _, gen := range []uint64{0, 1, 2} {
		require.ErrorIs(t, o.Begin(rand.Reader, gen, kidOf(99), roster(2, "bob")), senderkey.ErrGeneration)
	}
	require.NoError(t, seals(&o))
}

// A restored old copy leads to a fresh generation, never to a key that is used twice.
func TestRestoredCopies(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob"))
	giveAll(t, &o)
	require.NoError(t, seals(&o))
	old := save(t, &o)
	own := send(t, o.Present(), "alice")
	newest := save(t, &o)

	for name, check := range map[string]struct {
		data  []byte
		tell  func(o *senderkey.Outgoing)
		wants error
	}{
		"nobody looked":       {newest, func(*senderkey.Outgoing) {}, senderkey.ErrUnconfirmed},
		"newest":              {newest, func(o *senderkey.Outgoing) { o.Present().Seen(1, own.CT); o.Confirm(1) }, nil},
		"relay is ahead":      {old, func(o *senderkey.Outgoing) { o.Confirm(2) }, senderkey.ErrRotationNeeded},
		"relay is behind":     {old, func(o *senderkey.Outgoing) { o.Confirm(0) }, senderkey.ErrRotationNeeded},
		"own message in room": {old, func(o *senderkey.Outgoing) { o.Present().Seen(1, own.CT); o.Confirm(1) }, senderkey.ErrRotationNeeded},
		"store was restored":  {old, func(o *senderkey.Outgoing) { o.Present().Abandon(); o.Confirm(1) }, senderkey.ErrRotationNeeded},
		"twice":               {old, func(o *senderkey.Outgoing) { o.Confirm(2); o.Confirm(1) }, senderkey.ErrRotationNeeded},
	} {
		var loaded senderkey.Outgoing
		require.NoError(t, loaded.UnmarshalBinary(check.data))
		require.ErrorIs(t, seals(&loaded), senderkey.ErrUnconfirmed, name)
		check.tell(&loaded)
		if check.wants == nil {
			require.NoError(t, seals(&loaded), name)
			continue
		}
		require.ErrorIs(t, seals(&loaded), check.wants, name)
		begin(t, &loaded, 3, roster(1, "bob"))
		require.NoError(t, seals(&loaded), name)
	}
}

// A generation ends with its last message.
func TestGenerationIsUsedUp(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob", "carol"))
	first, err := o.Distribute("bob")
	require.NoError(t, err)
	for range senderkey.MaxIterations - 1 {
		require.NoError(t, seals(&o))
	}
	last := send(t, o.Present(), "alice")
	require.Equal(t, uint32(senderkey.MaxIterations-1), last.iteration)
	require.ErrorIs(t, seals(&o), senderkey.ErrRotationNeeded)
	reload(t, &o)
	o.Confirm(1)
	require.ErrorIs(t, seals(&o), senderkey.ErrRotationNeeded)
	answer, err := o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{1}, KID: kidOf(1)}, start)
	require.NoError(t, err)
	var r senderkey.Receivers
	accept(t, &r, "alice", first)
	accept(t, &r, "alice", *answer.Key)
	opens(t, &r, last)
	refuses(t, &r, last.Message, senderkey.ErrDuplicate)
	reload(t, &r)
	o.Present().Settle()
	answer, err = o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{2}, KID: kidOf(1)}, start.Add(time.Minute))
	require.NoError(t, err)
	require.NotNil(t, answer.Unavailable, "no message is left to read")
}

// Members read from when they came, and of what is before that as much as can be given again.
func TestFromWhichIterationKeysAreGiven(t *testing.T) {
	t.Parallel()
	s := newSender(t, 1, 1, "bob", "carol")
	require.Zero(t, distribute(t, s, "bob").Iteration)
	sendMany(t, s, "alice", 10)
	require.NoError(t, s.Membership().Update(roster(2, "bob", "carol", "dave"), s.Iteration()))
	sendMany(t, s, "alice", 10)
	require.Zero(t, distribute(t, s, "carol").Iteration)
	require.Equal(t, uint32(10), distribute(t, s, "dave").Iteration)
	sendMany(t, s, "alice", senderkey.RepairWindow)
	require.Equal(t, uint32(20), distribute(t, s, "dave").Iteration)
	s.Settle()
	require.Equal(t, s.Iteration(), distribute(t, s, "bob").Iteration)
	_, err := s.Distribute("mallory")
	require.ErrorIs(t, err, senderkey.ErrNotMember)
	require.Empty(t, s.Membership().Missing())
}

// A request is answered once, seldom, to members, with keys of their time.
func TestAnswers(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob"))
	giveAll(t, &o)
	begin(t, &o, 2, roster(2, "bob", "carol"))
	require.NoError(t, seals(&o))
	ids := byte(0)
	ask := func(gen uint64) senderkey.KeyRequest {
		ids++
		return senderkey.KeyRequest{ID: senderkey.RequestID{ids}, KID: kidOf(byte(gen)), Gen: gen}
	}
	now := start
	first := ask(2)
	answer, err := o.Answer("bob", first, now)
	require.NoError(t, err)
	require.Equal(t, uint64(2), answer.Key.Gen)
	require.Zero(t, answer.Key.Iteration)
	require.Equal(t, []string{"carol"}, o.Missing(), "Bob counts as one who has it")
	for _, later := range []time.Duration{0, time.Minute, 59 * time.Minute} {
		reload(t, &o)
		_, err = o.Answer("bob", first, now.Add(later))
		require.ErrorIs(t, err, senderkey.ErrAnswered)
	}
	_, err = o.Answer("bob", ask(2), now.Add(senderkey.AnswerGap-time.Millisecond))
	require.ErrorIs(t, err, senderkey.ErrTooOften)
	answer, err = o.Answer("bob", ask(2), now.Add(senderkey.AnswerGap))
	require.NoError(t, err)
	require.NotNil(t, answer.Key)

	// Former keys: to those who were there. Unknown ones: to nobody.
	answer, err = o.Answer("bob", ask(1), now)
	require.NoError(t, err)
	require.Equal(t, uint64(1), answer.Key.Gen)
	for _, r := range []senderkey.KeyRequest{ask(1), ask(7), {ID: senderkey.RequestID{200}, Gen: 7}} {
		answer, err = o.Answer("carol", r, now)
		require.NoError(t, err)
		require.Nil(t, answer.Key)
		require.Equal(t, &senderkey.KeyUnavailable{KID: r.KID, Gen: r.Gen}, answer.Unavailable)
	}
	// By gen, of a peer that knows no kid; a kid counts before a gen.
	answer, err = o.Answer("carol", senderkey.KeyRequest{ID: senderkey.RequestID{201}, Gen: 2}, now)
	require.NoError(t, err)
	require.Equal(t, kidOf(2), answer.Key.KID)
	answer, err = o.Answer("carol", senderkey.KeyRequest{ID: senderkey.RequestID{202}, KID: kidOf(50), Gen: 2}, now)
	require.NoError(t, err)
	require.NotNil(t, answer.Unavailable)

	for _, stranger := range []string{"mallory", "", "a b"} {
		before := save(t, &o)
		_, err = o.Answer(stranger, ask(2), now)
		require.ErrorIs(t, err, senderkey.ErrNotMember)
		require.Equal(t, before, save(t, &o))
	}
	_, err = o.Answer("bob", ask(2), time.Time{})
	require.ErrorIs(t, err, senderkey.ErrArgument)
	var none senderkey.Outgoing
	_, err = none.Answer("bob", ask(2), now)
	require.ErrorIs(t, err, senderkey.ErrNotMember)
}

// However much a member asks, it gets few answers, and nobody else fewer (FAULTS BL-J06).
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	begin(t, &o, 1, roster(1, "bob", "carol"))
	answered := 0
	for i := range 3600 {
		r := senderkey.KeyRequest{ID: senderkey.RequestID{1, byte(i >> 8), byte(i)}, KID: senderkey.KID{byte(i >> 8), byte(i), 1}, Gen: 1}
		if _, err := o.Answer("bob", r, start.Add(time.Duration(i)*time.Second)); err == nil {
			answered++
		} else {
			require.ErrorIs(t, err, senderkey.ErrTooOften)
		}
	}
	require.Equal(t, senderkey.AnswersPerHour, answered)
	require.Less(t, len(save(t, &o)), 2000)
	end := start.Add(time.Hour)
	_, err := o.Answer("carol", senderkey.KeyRequest{ID: senderkey.RequestID{2}, KID: kidOf(1)}, end)
	require.NoError(t, err)
	_, err = o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{2}, KID: kidOf(1)}, end.Add(time.Minute))
	require.NoError(t, err)
	// The clock is set back: not at once, and not never again.
	_, err = o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{3}, KID: kidOf(1)}, start)
	require.ErrorIs(t, err, senderkey.ErrTooOften)
	_, err = o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{4}, KID: kidOf(1)}, start.Add(senderkey.AnswerGap))
	require.NoError(t, err)
}

// FAULTS BL-J10: former generations are kept, and no more than said.
func TestFormerGenerationsOfOnesOwn(t *testing.T) {
	t.Parallel()
	var o senderkey.Outgoing
	for gen := uint64(1); gen <= 6; gen++ {
		begin(t, &o, gen, roster(gen, "bob"))
		reload(t, &o)
		o.Confirm(gen)
	}
	for gen := uint64(1); gen <= 6; gen++ {
		answer, err := o.Answer("bob", senderkey.KeyRequest{ID: senderkey.RequestID{byte(gen)}, KID: kidOf(byte(gen))}, start)
		require.NoError(t, err)
		require.Equal(t, gen >= 6-senderkey.FormerGenerations, answer.Key != nil, gen)
	}
}

func TestNewSenderValidates(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"gen 0":    second(senderkey.NewSender(rand.Reader, 0, kidOf(1), roster(1))),
		"gen 2^53": second(senderkey.NewSender(rand.Reader, 1<<53, kidOf(1), roster(1))),
		"kid":      second(senderkey.NewSender(rand.Reader, 1, senderkey.KID{}, roster(1))),
		"roster":   second(senderkey.NewSender(rand.Reader, 1, kidOf(1), roster(1, "x", "x"))),
	} {
		require.ErrorIs(t, err, senderkey.ErrArgument, name)
	}
	_, err := senderkey.NewSender(bytes.NewReader(make([]byte, 31)), 1, kidOf(1), roster(1))
	require.Error(t, err)
	_, err = senderkey.NewKID(bytes.NewReader(make([]byte, 15)))
	require.Error(t, err)
}

func second[T any](_ T, err error) error { return err }

// Keys are not printed, in whatever form.
func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{0xA7}, 32)
	s, err := senderkey.NewSender(bytes.NewReader(key), 1, kidOf(1), roster(1, "bob"))
	require.NoError(t, err)
	d := distribute(t, s, "bob")
	var o senderkey.Outgoing
	require.NoError(t, o.Begin(bytes.NewReader(key), 1, kidOf(1), roster(1, "bob")))
	var r senderkey.Receivers
	accept(t, &r, "alice", d)
	_, conflict := r.Accept("alice", senderkey.Distribution{KID: d.KID, Gen: 1})
	require.Error(t, conflict)
	_, malformed := senderkey.ParseDistribution(append(d.Encode(), ' '))
	require.Error(t, malformed)
	for _, v := range []any{s, d, &d, &o, &r, conflict, malformed} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			text := fmt.Sprintf(verb, v)
			require.NotContains(t, text, "167")
			require.NotContains(t, text, hex.EncodeToString(key[:4]))
			require.NotContains(t, text, "0xa7")
			require.NotContains(t, text, "p6en")
		}
	}
}
