package relay

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

const (
	tick        = 100 * time.Millisecond
	beatParts   = 5 // all sessions are visited every beatParts ticks
	maxUnheard  = 2 // unanswered pings after which a connection is closed
	sweepEvery  = 10 * time.Second
	minimumPing = 10 * time.Millisecond
)

// heartbeat is the ping state of one connection. It has no timer: one goroutine
// visits all connections a few times a second.
type heartbeat struct {
	mu      sync.Mutex
	next    time.Time // zero before welcome
	sent    time.Time // when ping id was sent
	id      uint64    // of the last ping
	unheard uint8     // pings since the last answer
}

// start spreads the first pings of many connections over one interval.
func (b *heartbeat) start(now time.Time, interval time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = now.Add(rand.N(max(interval, minimumPing)))
}

// due returns the id of a ping to send now, or says that the peer has left two
// unanswered.
func (b *heartbeat) due(now time.Time, interval time.Duration) (id uint64, ping, dead bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.next.IsZero() || now.Before(b.next):
		return 0, false, false
	case b.unheard >= maxUnheard:
		return 0, false, true
	}
	b.id++
	b.unheard++
	b.sent = now
	b.next = now.Add(interval)
	return b.id, true, false
}

// pong takes an answer. It reports false for one that answers no ping of the last two.
func (b *heartbeat) pong(s *session, text []byte, now time.Time) bool {
	id, err := strconv.ParseUint(string(text), 10, 64)
	b.mu.Lock()
	if err != nil || id > b.id || b.id-id >= uint64(b.unheard) {
		b.mu.Unlock()
		return false
	}
	b.unheard = uint8(b.id - id)                  // at most maxUnheard
	rtt := max(now.Sub(b.sent), time.Millisecond) // 0 says that it is not known yet
	latest := id == b.id
	b.mu.Unlock()
	if latest {
		s.relay.cfg.Presence.Seen(s.identity.Participant, s.since, rtt)
	}
	return true
}

// beat visits every connection twice a second: pings, credentials that run out,
// peers that no longer answer.
func (r *Relay) beat() {
	defer r.stopped.Done()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	swept := time.Now()
	for part := 0; ; part = (part + 1) % beatParts {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		var scratch []byte
		r.hub.slice(part, beatParts, func(s *session) { scratch = r.visit(s, now, scratch) })
		if now.Sub(swept) >= sweepEvery {
			swept = now
			r.rates.sweep(now)
		}
	}
}

func (r *Relay) visit(s *session, now time.Time, scratch []byte) []byte {
	if s.isClosed() {
		return scratch
	}
	if !now.Before(s.identity.ExpiresAt) {
		s.close(wire.CloseAuth, wire.ReasonAuth)
		return scratch
	}
	id, ping, dead := s.beat.due(now, r.cfg.PingInterval)
	switch {
	case dead:
		s.close(wire.CloseGoingAway, wire.ReasonNoPong)
	case ping:
		scratch = wire.AppendPing(scratch[:0], id)
		s.send(scratch)
	}
	return scratch
}
