package inbox

import (
	"sync/atomic"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// pending is one message between Write and its verdict.
type pending struct {
	message  Message
	ids      []wire.StreamID // in the order of message.To; a zero one is still to be written
	missing  int             // copies to be written
	fresh    []bool          // Complete: which copies are written now; nil means all
	scanned  uint64          // Complete: every inbox was searched up to this sequence
	failures uint64          // Complete: failures of the shard before the search
	complete bool
	accepted time.Time
	state    atomic.Int32
	done     chan error // receives the one verdict
}

// The payload belongs to the caller again as soon as Write returns, so a caller
// that gives up must either take the message back or wait for its verdict.
const (
	stateWaiting int32 = iota
	stateTaken
	stateAbandoned
)

func newPending(m Message, now time.Time) *pending {
	return &pending{
		message: m, ids: make([]wire.StreamID, len(m.To)), missing: len(m.To),
		accepted: now, done: make(chan error, 1),
	}
}

// take claims the message for a committer; false when its caller gave up.
func (p *pending) take() bool { return p.state.CompareAndSwap(stateWaiting, stateTaken) }

// abandon claims it back for the caller.
func (p *pending) abandon() bool { return p.state.CompareAndSwap(stateWaiting, stateAbandoned) }

func (p *pending) bytes() int { return p.missing * (len(p.message.Payload) + 128) }

// writes reports whether copy i is to be written.
func (p *pending) writes(i int) bool { return p.fresh == nil || p.fresh[i] }

// found notes a copy that was stored before.
func (p *pending) found(i int, id wire.StreamID) {
	if p.fresh == nil {
		p.fresh = make([]bool, len(p.message.To))
		for n := range p.fresh {
			p.fresh[n] = true
		}
	}
	p.fresh[i] = false
	p.ids[i] = id
	p.missing--
}

// forget undoes all found.
func (p *pending) forget() {
	clear(p.ids)
	p.fresh, p.missing, p.scanned = nil, len(p.message.To), 0
}

// group is what one acknowledgement decides.
type group struct {
	number  uint64
	pending []*pending
	rows    int
	sent    time.Time // taken before the first row was published
}
