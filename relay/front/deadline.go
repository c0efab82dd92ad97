package front

import (
	"math"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// tick counts tickLength since the front was made; 0 stands for no deadline.
type tick int32

const (
	tickLength     = 100 * time.Millisecond
	ticksPerSecond = tick(time.Second / tickLength)
	wheelSlots     = 256
	maxTick        = tick(math.MaxInt32)
)

// wheel holds the deadlines of all connections without a timer for each: a
// connection is in the slot of its next deadline, and may be in later ones by an
// older deadline, which are then passed over.
type wheel struct {
	start time.Time

	mu    sync.Mutex
	slots [wheelSlots][]*conn
	swept tick // the last slot that was taken out
	spare []*conn
}

func newWheel() *wheel { return &wheel{start: time.Now()} }

// now is the current tick. It is never 0.
func (w *wheel) now() tick { return tick(time.Since(w.start)/tickLength) + 1 }

// add enters c for at, or for the furthest slot if that is earlier, and returns
// what it was entered for.
func (w *wheel) add(c *conn, at tick) tick {
	w.mu.Lock()
	defer w.mu.Unlock()
	at = max(at, w.swept+1)
	at = min(at, w.swept+wheelSlots)
	slot := &w.slots[at%wheelSlots]
	*slot = append(*slot, c)
	return at
}

// take removes the slot of the next tick up to now. It reports false when there
// is none. The slice is valid until the next call.
func (w *wheel) take(now tick) ([]*conn, tick, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.swept >= now {
		return nil, 0, false
	}
	w.swept++
	slot := &w.slots[w.swept%wheelSlots]
	due := *slot
	clear(w.spare)
	*slot, w.spare = w.spare[:0], due
	if cap(*slot) > 1024 {
		*slot = nil
	}
	return due, w.swept, true
}

// sweep runs every connection whose deadline has come.
func (w *wheel) sweep() {
	for now := w.now(); ; {
		due, at, ok := w.take(now)
		if !ok {
			return
		}
		for _, c := range due {
			c.checkDeadlines(at, now)
		}
	}
}

// setDeadlineLocked sets one of the connection's deadlines to after from now; it comes up to
// a tick late and never early, as the present tick has begun before.
func (c *conn) setDeadlineLocked(deadline *tick, after time.Duration) {
	at := c.front.wheel.now() + 1 + tick((after+tickLength-1)/tickLength)
	*deadline = at
	if c.wheelAt == 0 || at < c.wheelAt {
		c.wheelAt = c.front.wheel.add(c, at)
	}
}

// checkDeadlines obeys the deadlines that are over, and enters the connection for
// the next one. at is the wheel's entry that led here.
func (c *conn) checkDeadlines(at, now tick) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.wheelAt != at {
		return
	}
	c.wheelAt = 0
	switch {
	case c.closing:
		if c.closeUntil <= now {
			c.io.expire(c)
			return
		}
	case c.helloUntil != 0 && c.helloUntil <= now:
		c.closeLocked(wire.CloseAuth, wire.ReasonAuth)
		return
	case c.messageUntil != 0 && c.messageUntil <= now && c.turn == turnIdle: // else its rest may be waiting for us
		c.closeLocked(wire.ClosePolicy, wire.ReasonSlow)
		return
	}
	if next := c.nextDeadlineLocked(); next != 0 {
		c.wheelAt = c.front.wheel.add(c, next)
	}
}

func (c *conn) nextDeadlineLocked() tick {
	if c.closing {
		return c.closeUntil
	}
	if c.helloUntil == 0 || (c.messageUntil != 0 && c.messageUntil < c.helloUntil) {
		return c.messageUntil
	}
	return c.helloUntil
}
