package relay

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/wire"
)

// bucket is a token bucket of one second's worth.
type bucket struct {
	tokens float64
	filled time.Time
}

// take uses one token if there is one.
func (b *bucket) take(now time.Time, perSecond, burst float64) bool {
	if b.filled.IsZero() {
		b.tokens = burst
	} else if since := now.Sub(b.filled).Seconds(); since > 0 {
		b.tokens = min(burst, b.tokens+since*perSecond)
	}
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// rate is the budget of one participant on this node, over all its connections.
type rate struct {
	bucket
	refused time.Time // when it was last over
}

// verdict of a rate check.
type rateVerdict uint8

const (
	rateOK rateVerdict = iota
	rateNack
	rateClose
)

// rates keeps the budgets of the participants that sent in the last seconds, so
// that reconnecting buys nothing. It is bounded by dropping budgets that are full
// again.
type rates struct {
	perSecond float64

	mu   sync.Mutex
	byID map[uuid.UUID]*rate
}

func newRates(perSecond int) *rates {
	return &rates{perSecond: float64(perSecond), byID: make(map[uuid.UUID]*rate)}
}

// admit takes one envelope from the participant's budget. The first one over is
// refused; another one over within wire.RateForgiveness closes. Refused ones use
// no budget.
func (r *rates) admit(participant uuid.UUID, now time.Time) rateVerdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.byID[participant]
	if p == nil {
		p = new(rate)
		r.byID[participant] = p
	}
	if p.take(now, r.perSecond, r.perSecond) {
		return rateOK
	}
	again := !p.refused.IsZero() && now.Sub(p.refused) < wire.RateForgiveness
	p.refused = now
	if again {
		return rateClose
	}
	return rateNack
}

// sweep forgets participants whose budget is full again and whose last refusal is
// forgiven. The map therefore holds only who sent within the last seconds.
func (r *rates) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.byID {
		if now.Sub(p.filled) > time.Second && now.Sub(p.refused) >= wire.RateForgiveness {
			delete(r.byID, id)
		}
	}
}
