package api

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	maxSenders       = 16384 // participants whose budget is remembered
	plainAtOnce      = 64    // plaintext messages under way, of everybody; each may take some MiB
	plainAtOnceOfOne = 4     // of one participant
	sweepEvery       = time.Second
)

// senders bounds what participants send over HTTP: wire.EnvelopesPerSec each, as on the
// socket, and how much is under way. The zero value is ready.
type senders struct {
	mu    sync.Mutex // guards the following fields
	byID  map[uuid.UUID]*senderBudget
	busy  int
	swept time.Time
}

// senderBudget is one participant's.
type senderBudget struct {
	limiter *rate.Limiter
	busy    int
}

// begin takes one message from the participant's budget; done must be called when it has
// its verdict. Refused ones use no budget.
func (s *senders) begin(participant uuid.UUID, now time.Time) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy >= plainAtOnce {
		return nil, unavailable("too much is under way")
	}
	budget := s.budget(participant, now)
	if budget == nil {
		return nil, unavailable("too many participants are sending")
	}
	if budget.busy >= plainAtOnceOfOne {
		return nil, &wire.Error{Code: wire.RateLimited, Detail: "4 messages of this participant are under way"}
	}
	if !budget.limiter.AllowN(now, 1) {
		return nil, &wire.Error{Code: wire.RateLimited, Detail: "more than 20 messages in a second"}
	}
	budget.busy++
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		budget.busy--
		s.busy--
	}, nil
}

func (s *senders) budget(participant uuid.UUID, now time.Time) *senderBudget {
	if budget := s.byID[participant]; budget != nil {
		return budget
	}
	if len(s.byID) >= maxSenders {
		if s.sweep(now); len(s.byID) >= maxSenders {
			return nil
		}
	}
	if s.byID == nil {
		s.byID = make(map[uuid.UUID]*senderBudget)
	}
	budget := &senderBudget{limiter: rate.NewLimiter(wire.EnvelopesPerSec, wire.EnvelopesPerSec)}
	s.byID[participant] = budget
	return budget
}

// sweep forgets those whose budget is full again: forgetting them gives nobody anything.
func (s *senders) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for id, budget := range s.byID {
		if budget.busy == 0 && budget.limiter.TokensAt(now) >= wire.EnvelopesPerSec {
			delete(s.byID, id)
		}
	}
}
