package encryption_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
)

// schedule is a conversation in which anything comes in any order, twice, or not at all, and
// whose devices are stopped at any moment.
type schedule struct {
	*direct

	random    *rand.Rand
	sides     [2]*party // the owner, and the agent
	inboxes   [2][]post
	heard     [2]int // events
	activated bool   // the relay takes messages of the agent
	shown     map[string]int
	delivered map[string]bool
	used      map[string]bool // keys of messages
	restored  bool            // a key store was replaced by an old copy
	counts    map[string]int
}

type post struct {
	text string
	raw  []byte
}

func newSchedule(t *testing.T, seed uint64, counts map[string]int) *schedule {
	t.Helper()
	d, owner, agent := newDirect(t)
	owner.looked, agent.looked = d.version, d.version
	return &schedule{
		direct: d, random: rand.New(rand.NewPCG(seed, 3)), sides: [2]*party{owner, agent},
		shown: map[string]int{}, delivered: map[string]bool{}, used: map[string]bool{}, counts: counts,
	}
}

// Any order, loss and duplication ends with each message shown once that arrived at all.
func TestRandomDirectConversations(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for seed := range uint64(5) {
		s := newSchedule(t, seed, counts)
		for range 70 {
			who := s.random.IntN(2)
			if s.random.IntN(5) < 2 {
				s.send(t, who, 15)
			} else {
				s.receive(t, who)
			}
		}
		for s.pending() > 0 {
			s.receive(t, s.random.IntN(2))
		}
		for text := range s.delivered {
			require.Equal(t, 1, s.shown[text], "%s of seed %d", text, seed)
		}
		require.Equal(t, 1, s.bundles)
		require.Zero(t, s.asked)
	}
	t.Log(counts)
	for _, what := range []string{"sent", "lost", "killed", "restarted", "not activated", "duplicate"} {
		require.Positive(t, counts[what], what)
	}
}

// With resets, lost prekeys and old copies of key stores, nothing is shown twice, and the
// conversation works again after it.
func TestRandomDirectConversationsWithResets(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for seed := range uint64(8) {
		s := newSchedule(t, 100+seed, counts)
		for range 60 {
			s.step(t)
		}
		s.settle(t)
		for text, times := range s.shown {
			require.Equal(t, 1, times, "%s of seed %d", text, seed)
		}
	}
	t.Log(counts)
	for _, what := range []string{"reset", "asked for", "answer lost", "restored", "prekeys lost", "again", "killed", "lost by the other side"} {
		require.Positive(t, counts[what], what)
	}
}

func (s *schedule) pending() int { return len(s.inboxes[0]) + len(s.inboxes[1]) }

func (s *schedule) step(t *testing.T) {
	who := s.random.IntN(2)
	p := s.sides[who]
	switch n := s.random.IntN(100); {
	case n < 35:
		s.send(t, who, 15)
	case n < 70:
		s.receive(t, who)
	case n < 85:
		s.hear(t, who)
	case n < 92:
		s.now = s.now.Add(time.Duration(s.random.IntN(120)) * time.Second)
		if p.due(t).Prepare {
			s.prepare(t, p)
		}
	case n < 95:
		s.counts["prekeys lost"]++
		agent := s.sides[1]
		require.NoError(t, agent.store.Update(func(tx *keystore.Tx) error {
			for key := range tx.All(keystore.Prekeys, "one-time/") {
				if err := tx.Delete(keystore.Prekeys, key); err != nil {
					return err
				}
			}
			return nil
		}))
	case n < 97:
		s.reset(t, p)
	default:
		s.counts["restored"]++
		s.restored = true
		text := p.backUp(t)
		s.send(t, who, 0)
		s.receive(t, who)
		p.restore(t, text)
		found, err := p.store.NoticeRestored(s.id, uint64(s.counts["restored"]))
		require.NoError(t, err)
		require.True(t, found)
	}
}

func (s *schedule) reset(t *testing.T, p *party) {
	t.Helper()
	s.counts["reset"]++
	_, err := asks{p}.ResetRoom(t.Context())
	require.NoError(t, err)
	s.activated = false
}

func (s *schedule) prepare(t *testing.T, p *party) {
	t.Helper()
	resets := s.resets
	s.answerLost = s.random.IntN(3) == 0
	err := p.prepare(t)
	s.answerLost = false
	if s.resets == resets {
		require.NoError(t, err)
		return
	}
	s.counts["asked for"]++
	s.activated = false
	if err != nil {
		s.counts["answer lost"]++
	}
}

// hear delivers the next event, and now and then one of before again.
func (s *schedule) hear(t *testing.T, who int) {
	t.Helper()
	if s.heard[who] > 0 && s.random.IntN(3) == 0 {
		s.counts["again"]++
		s.sides[who].hears(t, &s.events[s.random.IntN(s.heard[who])])
	}
	if s.heard[who] < len(s.events) {
		event := &s.events[s.heard[who]]
		s.sides[who].hears(t, event)
		s.sides[who].looked = max(s.sides[who].looked, uint64(event.Version))
		s.heard[who]++
	}
}

// send seals a message, which the relay may lose, or deliver twice.
func (s *schedule) send(t *testing.T, who, loss int) {
	t.Helper()
	p := s.sides[who]
	if s.random.IntN(3) == 0 {
		p.looked = s.version
	}
	text := fmt.Sprintf("%s %d", p.role, p.sealed)
	sealed, err := p.seal(t, text)
	if errors.Is(err, encryption.ErrPrepare) {
		s.prepare(t, p)
		sealed, err = p.seal(t, text)
	}
	switch {
	case errors.Is(err, encryption.ErrNotActivated), errors.Is(err, encryption.ErrPrepare):
		s.counts["not activated"]++
		return
	case err == nil && who == 1 && !s.activated:
		s.counts["refused"]++
		return
	}
	require.NoError(t, err)
	h := p.header(t, sealed.Raw)
	key := fmt.Sprintf("%x %x %d", h.Session, h.Key, h.N)
	require.False(t, s.used[key], "a message's key is used once")
	s.used[key] = true
	s.activated = true
	s.counts["sent"]++
	if s.random.IntN(100) < loss {
		s.counts["lost"]++
		return
	}
	s.delivered[text] = true
	for range 1 + s.random.IntN(4)/3 {
		s.inboxes[1-who] = append(s.inboxes[1-who], post{text, sealed.Raw})
	}
}

// receive opens any message that waits. Some devices are stopped before that is saved.
func (s *schedule) receive(t *testing.T, who int) {
	t.Helper()
	inbox := &s.inboxes[who]
	if len(*inbox) == 0 {
		return
	}
	at := s.random.IntN(len(*inbox))
	next := (*inbox)[at]
	p, from := s.sides[who], s.sides[1-who]
	killed := errors.New("killed")
	if s.random.IntN(6) == 0 {
		s.counts["killed"]++
		before := p.everything(t)
		require.ErrorIs(t, p.store.Update(func(tx *keystore.Tx) error {
			_, _ = cipher(t).Open(tx, p.room(t), from.member(t), next.raw, s.now)
			return killed
		}), killed)
		require.Equal(t, before, p.everything(t))
		return // it comes again
	}
	if s.random.IntN(8) == 0 {
		s.counts["restarted"]++
		p.reopen(t)
	}
	*inbox = append((*inbox)[:at], (*inbox)[at+1:]...)
	kept := p.conversation(t)
	text, err := p.open(t, from, next.raw)
	if err != nil {
		require.ErrorIs(t, err, encryption.ErrLost)
		if s.shown[next.text] > 0 {
			s.counts["duplicate"]++
		} else {
			s.counts["lost by the other side"]++
		}
		if len(kept) > 0 && p.role == "owner" { // whose conversation there is
			require.Equal(t, kept, p.conversation(t))
		}
		return
	}
	require.Equal(t, next.text, text)
	// A store that is an old copy may open again what the newer one has: ids are the caller's.
	if s.restored && s.shown[text] > 0 {
		return
	}
	s.shown[text]++
}

// settle delivers everything, and demands that the conversation works.
func (s *schedule) settle(t *testing.T) {
	t.Helper()
	owner, agent := s.sides[0], s.sides[1]
	works := func() bool {
		for who := range s.sides {
			for len(s.inboxes[who]) > 0 {
				s.receive(t, who)
			}
		}
		for _, p := range s.sides {
			s.now = s.now.Add(2 * time.Hour)
			if p.due(t).Prepare {
				s.prepare(t, p)
			}
			for s.heard[0] < len(s.events) || s.heard[1] < len(s.events) {
				s.hear(t, 0)
				s.hear(t, 1)
			}
		}
		raw := owner.says(t, "does it work?")
		if _, err := agent.open(t, owner, raw); err != nil {
			return false
		}
		owner.reads(t, agent, agent.says(t, "it does"), "it does")
		return true
	}
	for range 4 {
		if works() {
			return
		}
		agent.published.OneTime = nil // the private keys of those are lost
		agent.publish(t)
	}
	t.Fatal("the conversation does not work any more")
}
