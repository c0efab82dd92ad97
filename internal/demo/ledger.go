package main

import (
	"bytes"
	"sync"
	"time"
)

// ledger accounts for every envelope: who sent it, who must get it, who got it how.
type ledger struct {
	mu       sync.Mutex // guards the following fields
	changed  chan struct{}
	sent     map[string]sentEnvelope // by envelope id
	arrived  map[arrival]struct{}
	live     int // arrived first as a live push
	replayed int // arrived first in a replay
	again    int // arrived once more, and were recognised by their id
	altered  int // arrived with other bytes than were sent
}

type sentEnvelope struct {
	bytes  []byte
	to     []string // names
	queued bool     // the relay promised that it is stored for everyone
	resent bool
}

type arrival struct{ id, name string }

func newLedger() *ledger {
	return &ledger{
		changed: make(chan struct{}),
		sent:    make(map[string]sentEnvelope),
		arrived: make(map[arrival]struct{}),
	}
}

// tell wakes everybody who waits in until.
func (l *ledger) tellLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) sending(id string, envelope []byte, to []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, again := l.sent[id]
	entry.bytes, entry.to, entry.resent = envelope, to, again
	l.sent[id] = entry
}

func (l *ledger) queued(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.sent[id]
	entry.queued = true
	l.sent[id] = entry
	l.tellLocked()
}

// received notes an arrival and reports whether it is the first of its envelope.
func (l *ledger) received(name, id string, envelope []byte, replay bool) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tellLocked()
	if !bytes.Equal(l.sent[id].bytes, envelope) {
		l.altered++
	}
	if _, known := l.arrived[arrival{id, name}]; known {
		l.again++
		return false
	}
	l.arrived[arrival{id, name}] = struct{}{}
	if replay {
		l.replayed++
	} else {
		l.live++
	}
	return true
}

// totals is the ledger at one moment.
type totals struct {
	sent, resent, queued int // envelopes
	due                  int // envelopes times recipients
	live, replayed       int // of those
	again, altered       int
}

func (t totals) delivered() int { return t.live + t.replayed }
func (t totals) lost() int      { return t.due - t.delivered() }

func (l *ledger) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totalsLocked()
}

func (l *ledger) totalsLocked() totals {
	t := totals{sent: len(l.sent), live: l.live, replayed: l.replayed, again: l.again, altered: l.altered}
	for _, entry := range l.sent {
		t.due += len(entry.to)
		if entry.queued {
			t.queued++
		}
		if entry.resent {
			t.resent++
		}
	}
	return t
}

// missing returns how many sent envelopes the participant has not got.
func (l *ledger) missing(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := 0
	for id, entry := range l.sent {
		for _, to := range entry.to {
			if _, arrived := l.arrived[arrival{id, to}]; to == name && !arrived {
				missing++
			}
		}
	}
	return missing
}

// until waits for a state of the ledger, and reports false when time was over first.
func (l *ledger) until(timeout time.Duration, reached func(totals) bool) bool {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		l.mu.Lock()
		now, changed := l.totalsLocked(), l.changed
		l.mu.Unlock()
		if reached(now) {
			return true
		}
		select {
		case <-changed:
		case <-deadline.C:
			return false
		}
	}
}
