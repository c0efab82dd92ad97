package client

import (
	"context"
	"fmt"

	"github.com/peerrelay/peerrelay/wire"
)

// Send sends an envelope exactly as given and waits for its one verdict. For an
// envelope to the whole room, recipients says how many receipts to wait for; 0
// completes it with the first, which the relay sends only when the envelope is
// stored for everyone; the other receipts of such an envelope are dropped.
//
// A refusal is a Verdict whose Err is a *NackError, and no error of Send. When ctx
// ends, or the connection does, before the verdict came, what became of the
// envelope is not known.
func (c *Conn) Send(ctx context.Context, envelope []byte, recipients int) (Verdict, error) {
	id, ok := EnvelopeID(envelope)
	if !ok {
		return Verdict{}, ErrNoID
	}
	done, err := c.expect(id, recipients)
	if err != nil {
		return Verdict{}, err
	}
	defer c.forget(id, done)
	if err := c.SendRaw(ctx, envelope); err != nil {
		return Verdict{}, err
	}
	select {
	case verdict := <-done:
		return verdict, nil
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("wait for the verdict of %q: %w", id, ctx.Err())
	case <-c.ended:
	}
	select {
	case verdict := <-done: // it came before the end
		return verdict, nil
	default:
		return Verdict{}, fmt.Errorf("wait for the verdict of %q: %w", id, c.err)
	}
}

func (c *Conn) expect(id string, recipients int) (<-chan Verdict, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan Verdict, 1)
	return done, c.expectLocked(id, recipients, done)
}

// expectLocked notes that done, which has room for it, gets the verdict of an envelope.
func (c *Conn) expectLocked(id string, recipients int, done chan Verdict) error {
	if err := c.receipts.Expect(id, recipients); err != nil {
		return err
	}
	c.waiters[id] = done
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// forget gives up on an envelope unless its verdict has come; by then the id may
// belong to another Send.
func (c *Conn) forget(id string, done <-chan Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (<-chan Verdict)(c.waiters[id]) == done {
		c.receipts.Forget(id)
		delete(c.waiters, id)
	}
}

// queued reports whether a Send waits, or has lately waited, for this receipt.
func (c *Conn) queued(frame wire.ServerFrame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	verdict, known := c.receipts.Queued(frame.ID, Receipt{To: frame.To, StreamID: frame.StreamID})
	if verdict != nil {
		c.completeLocked(*verdict)
	}
	return known || c.settled.has(frame.ID)
}

// nacked reports whether the refusal concerned a Send.
func (c *Conn) nacked(frame wire.ServerFrame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	verdicts := c.receipts.Nacked(frame.ID, frame.Reason)
	for _, verdict := range verdicts {
		c.completeLocked(verdict)
	}
	return len(verdicts) > 0
}

func (c *Conn) completeLocked(verdict Verdict) {
	c.waiters[verdict.ID] <- verdict
	delete(c.waiters, verdict.ID)
	c.settled.add(verdict.ID)
}

// settledIDs remembers the newest ids whose Send is done, so that their further
// receipts do not pile up for a caller that only sends.
type settledIDs struct {
	ids  map[string]struct{}
	ring [256]string
	next int
}

func (s *settledIDs) add(id string) {
	if s.ids == nil {
		s.ids = make(map[string]struct{}, len(s.ring))
	}
	delete(s.ids, s.ring[s.next])
	s.ring[s.next] = id
	s.ids[id] = struct{}{}
	s.next = (s.next + 1) % len(s.ring)
}

func (s *settledIDs) remove(id string) { delete(s.ids, id) }

func (s *settledIDs) has(id string) bool {
	_, ok := s.ids[id]
	return ok
}
