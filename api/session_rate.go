package api

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	trackedSenders   = 1 << 14 // participants whose budget is remembered
	plainBodies      = 256     // plaintext messages that are read or under way, of everybody
	plainAtOnce      = 64      // of them under way; each may take some MiB
	plainAtOnceOfOne = 4       // of one participant
)

// senders bounds what participants send over HTTP, and what devices put into MLS groups:
// wire.EnvelopesPerSec each, as on the socket, and how much is under way.
type senders struct {
	rates *budgets[uuid.UUID]
	work  chan struct{} // one place for each message under way

	mu   sync.Mutex        // guards the following fields
	busy map[uuid.UUID]int // messages that are read or under way, where there are any
	all  int               // of everybody
}

func newSenders(now func() time.Time) *senders {
	return &senders{
		rates: newBudgets[uuid.UUID](wire.EnvelopesPerSec, wire.EnvelopesPerSec, trackedSenders, now),
		work:  make(chan struct{}, plainAtOnce),
		busy:  make(map[uuid.UUID]int),
	}
}

// begin takes one message from the participant's budget; done must be called when it has
// its verdict. Refused ones use no budget.
func (s *senders) begin(participant uuid.UUID) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= plainBodies:
		return nil, unavailable("too many such requests are under way")
	case s.busy[participant] >= plainAtOnceOfOne:
		return nil, &wire.Error{Code: wire.RateLimited, Detail: "4 such requests are under way already"}
	}
	if wait := s.rates.take(participant); wait > 0 {
		return nil, &laterError{&wire.Error{Code: wire.RateLimited, Detail: "more than 20 such requests in a second"}, wait}
	}
	s.busy[participant]++
	s.all++
	return func() { s.end(participant) }, nil
}

func (s *senders) end(participant uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.busy[participant]--; s.busy[participant] == 0 {
		delete(s.busy, participant)
	}
}

// start waits for a place among the messages under way; a body that comes slowly has
// none. done gives it back.
func (s *senders) start(ctx context.Context) (done func(), err error) {
	select {
	case s.work <- struct{}{}:
		return func() { <-s.work }, nil
	case <-ctx.Done():
		return nil, unavailable("too many such requests are under way")
	}
}
