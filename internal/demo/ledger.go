package main

import (
	"slices"
	"sync"
	"time"
)

// ledger accounts for every message: who wrote it, who has to read it, who has read it.
type ledger struct {
	mu      sync.Mutex // guards the following fields
	changed chan struct{}
	due     map[string][]string // names of the readers of each text
	read    map[reading]int     // how often
	foreign int                 // texts that nobody wrote, or that were not for their reader
	failed  int                 // envelopes that could not be shown
}

type reading struct{ text, name string }

func newLedger() *ledger {
	return &ledger{changed: make(chan struct{}), due: make(map[string][]string), read: make(map[reading]int)}
}

func (l *ledger) wrote(text string, readers ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due[text] = readers
}

func (l *ledger) tellLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) reads(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tellLocked()
	if slices.Contains(l.due[text], name) {
		l.read[reading{text, name}]++
	} else {
		l.foreign++
	}
}

func (l *ledger) fails() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tellLocked()
	l.failed++
}

// totals is the ledger at one moment.
type totals struct {
	messages, due, read, twice, foreign, failed int
}

func (t totals) lost() int { return t.due - t.read }

func (l *ledger) totals() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totalsLocked()
}

func (l *ledger) totalsLocked() totals {
	t := totals{messages: len(l.due), read: len(l.read), foreign: l.foreign, failed: l.failed}
	for _, readers := range l.due {
		t.due += len(readers)
	}
	for _, times := range l.read {
		t.twice += times - 1
	}
	return t
}

// missing is how many messages somebody has still to read.
func (l *ledger) missing(name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, readers := range l.due {
		for _, reader := range readers {
			if reader == name && l.read[reading{text, name}] == 0 {
				n++
			}
		}
	}
	return n
}

// until waits for a state of the ledger, and reports false when settleTimeout was over first.
func (l *ledger) until(reached func(totals) bool) bool {
	deadline := time.NewTimer(settleTimeout)
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
