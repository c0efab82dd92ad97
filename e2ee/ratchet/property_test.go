package ratchet_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/e2ee/ratchet"
	"github.com/peerrelay/peerrelay/internal/testkit/long"
)

// side is a party of a schedule, which lives on the disk only: it is read for each step and
// written after it.
type side struct {
	person *person
	stored []byte // empty: there is no session yet
	inbox  []int  // what is under way to it, in any order, some of it twice
	opened map[int]bool
}

type envelope struct {
	m    *ratchet.Message
	text string
}

// schedule is a conversation with reordering, loss and duplication, and a restart at every step.
type schedule struct {
	random    *rand.Rand
	sides     [2]*side // the owner, and the agent
	envelopes []envelope
	typed     map[string]int // refusals, by what they were
}

func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	typed := map[string]int{}
	for seed := range long.Times(150, 2000) {
		s := &schedule{random: rand.New(rand.NewPCG(uint64(seed), 1)), typed: typed}
		s.run(t)
	}
	t.Log(typed)
	require.Positive(t, typed["duplicate"])
	require.Positive(t, typed["tampered"])
	require.Positive(t, typed["not activated"])
	require.Positive(t, typed["first again"])
}

func (s *schedule) run(t *testing.T) {
	alice, bot := newPerson(t, "owner"), newPerson(t, "agent")
	owner, err := ratchet.Begin(&alice.Device, bot.bundle(t, 1, uint32(s.random.IntN(2))), room, noon)
	require.NoError(t, err)
	s.sides = [2]*side{{person: alice, stored: state(t, owner), opened: map[int]bool{}}, {person: bot, opened: map[int]bool{}}}
	loss := s.random.IntN(30) // of a hundred
	for range 16 + s.random.IntN(24) {
		who := s.random.IntN(2)
		if s.random.IntN(2) == 0 {
			s.send(t, who, loss)
		} else {
			s.receive(t, who)
		}
	}
	for _, who := range []int{1, 0, 1, 0} {
		for len(s.sides[who].inbox) > 0 {
			s.receive(t, who)
		}
	}
}

func (s *schedule) send(t *testing.T, who, loss int) {
	from, to := s.sides[who], s.sides[1-who]
	if len(from.stored) == 0 {
		s.typed["not activated"]++
		return
	}
	var session ratchet.Session
	require.NoError(t, session.UnmarshalBinary(from.stored))
	for range 1 + s.random.IntN(4) {
		n := len(s.envelopes)
		s.envelopes = append(s.envelopes, envelope{sealed(t, &session, text(n)), text(n)})
		if s.random.IntN(100) < loss {
			continue
		}
		to.inbox = append(to.inbox, n)
		if s.random.IntN(4) == 0 {
			to.inbox = append(to.inbox, n)
		}
	}
	from.stored = state(t, &session)
}

func (s *schedule) receive(t *testing.T, who int) {
	to := s.sides[who]
	if len(to.inbox) == 0 {
		return
	}
	at := s.random.IntN(len(to.inbox))
	n := to.inbox[at]
	to.inbox = append(to.inbox[:at], to.inbox[at+1:]...)
	e := s.envelopes[n]
	if s.random.IntN(4) == 0 {
		s.tamper(t, to, e.m)
	}
	plaintext, err := s.open(t, to, e.m)
	if to.opened[n] {
		require.ErrorIs(t, err, ratchet.ErrDuplicate)
		s.typed["duplicate"]++
		return
	}
	// Nothing is lost here that arrives: gaps are far below the bounds.
	require.NoError(t, err)
	require.Equal(t, e.text, string(plaintext))
	to.opened[n] = true
}

// open opens with what is stored, and stores what comes of it.
func (s *schedule) open(t *testing.T, to *side, m *ratchet.Message) ([]byte, error) {
	if len(to.stored) == 0 {
		session, plaintext, used, err := ratchet.Accept(&to.person.Device, &s.sides[0].person.Keys, room, to.person, m)
		if err != nil {
			return nil, err
		}
		delete(to.person.oneTime, used)
		to.stored = state(t, session)
		return plaintext, nil
	}
	if len(m.Header) == ratchet.FirstHeaderSize {
		s.typed["first again"]++
	}
	var session ratchet.Session
	require.NoError(t, session.UnmarshalBinary(to.stored))
	plaintext, err := session.Open(m)
	after := state(t, &session)
	if err != nil {
		require.True(t, bytes.Equal(to.stored, after))
	}
	to.stored = after
	return plaintext, err
}

// tamper gives a side a changed copy of a message.
func (s *schedule) tamper(t *testing.T, to *side, m *ratchet.Message) {
	c := &ratchet.Message{Header: bytes.Clone(m.Header), Nonce: m.Nonce, Ciphertext: bytes.Clone(m.Ciphertext)}
	bit := byte(1) << s.random.IntN(8)
	switch s.random.IntN(3) {
	case 0:
		c.Header[s.random.IntN(len(c.Header))] ^= bit
	case 1:
		c.Nonce[s.random.IntN(len(c.Nonce))] ^= bit
	default:
		c.Ciphertext[s.random.IntN(len(c.Ciphertext))] ^= bit
	}
	before, oneTime := bytes.Clone(to.stored), fmt.Sprint(to.person.oneTime)
	_, err := s.open(t, to, c)
	require.Error(t, err)
	require.True(t, bytes.Equal(before, to.stored))
	require.Equal(t, oneTime, fmt.Sprint(to.person.oneTime))
	require.True(t, isTyped(err), err)
	s.typed["tampered"]++
}

func isTyped(err error) bool {
	for _, want := range []error{
		ratchet.ErrHeader, ratchet.ErrNotAuthentic, ratchet.ErrDuplicate, ratchet.ErrKeyDropped,
		ratchet.ErrTooFarAhead, ratchet.ErrUnknownSession, ratchet.ErrUnknownPrekey, ratchet.ErrWrongPeer,
	} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

// With loss beyond every bound each message still opens once or is a typed loss, and the
// stored keys stay within their bounds.
func TestSchedulesWithHeavyLoss(t *testing.T) {
	t.Parallel()
	for seed := range 6 {
		random := rand.New(rand.NewPCG(uint64(seed), 2))
		owner, agent := pairOf(t)
		sides := [2]*ratchet.Session{owner, agent}
		var late [2][]envelope // to each
		lost := 0
		for range 12 {
			who := random.IntN(2)
			for i := range random.IntN(1500) {
				late[1-who] = append(late[1-who], envelope{sealed(t, sides[who], text(i)), text(i)})
			}
			random.Shuffle(len(late[who]), func(i, j int) { late[who][i], late[who][j] = late[who][j], late[who][i] })
			count := random.IntN(len(late[who])/2 + 1)
			for _, e := range late[who][:count] {
				plaintext, err := sides[who].Open(e.m)
				if err != nil {
					require.True(t, errors.Is(err, ratchet.ErrKeyDropped) || errors.Is(err, ratchet.ErrTooFarAhead), err)
					lost++
					continue
				}
				require.Equal(t, e.text, string(plaintext))
				_, err = sides[who].Open(e.m)
				require.True(t, errors.Is(err, ratchet.ErrDuplicate) || errors.Is(err, ratchet.ErrKeyDropped), err)
			}
			late[who] = late[who][count:]
			require.LessOrEqual(t, sides[who].Skipped(), ratchet.MaxSkipped)
			sides[who] = restarted(t, sides[who])
		}
		t.Log("lost", lost)
	}
}
