package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peerrelay/peerrelay/wire"
)

// receiptTimeout is how long verdicts may take, from the last envelope that was sent or the last
// verdict that came, by the connection's clock.
const receiptTimeout = 30 * time.Second

// ErrResend reports an envelope that this connection has sent before: the relay would take it
// for a regression of seq and close (RELAY, "they must go out on a NEW connection").
var ErrResend = errors.New("the envelope was sent on this connection before; only another one may send it again")

// Outgoing is an envelope of a batch.
type Outgoing struct {
	Envelope   []byte // sent exactly as it is
	Recipients int    // receipts that complete it; 0: the first one does
}

// SendAll sends a batch in its order and waits for all verdicts (RELAY, "A send completes only
// after queued names every envelope in its batch"). It succeeds only when queued names every
// envelope for all of its recipients. A nack for one of them, or one without id, rejects the
// batch: what is not sent yet is not sent, and the error is the *NackError of the first one
// refused. Receipts of others complete nothing, and verdicts that do not come within 30 s of the
// last one, or before ctx or the connection ends, are ErrNoVerdict, which wraps why.
//
// verdicts are those that came, by id, also with an error: what is queued stays queued.
//
// Nothing is sent where an envelope has no id (ErrNoID), one that is already waited for
// (ErrDuplicateID), or was sent by an earlier SendAll of this connection (ErrResend); but one
// that was refused as rate_limited, whose seq is unused (docs/protocol.md, "Rate"), may be sent
// again after a pause, as long as none behind it was queued. sentBefore tells which
// were sent. The caller keeps to the relay's rate. Nobody needs to Receive.
func (c *Conn) SendAll(ctx context.Context, batch []Outgoing) (verdicts map[string]Verdict, err error) {
	b := &sending{conn: c, done: make(chan Verdict, len(batch)), verdicts: make(map[string]Verdict, len(batch))}
	defer b.forget()
	for _, out := range batch {
		if err := b.expect(out); err != nil {
			return nil, err
		}
	}
	err = b.send(ctx, batch)
	if waited := b.wait(ctx); err == nil {
		err = waited
	}
	for _, id := range b.ids {
		if refused := b.verdicts[id].Err(); refused != nil {
			return b.verdicts, refused
		}
	}
	return b.verdicts, err
}

// sentBefore reports whether SendAll would return ErrResend for an envelope: it has written it
// on this connection, and the relay did not answer that it was too busy to look at it.
func (c *Conn) sentBefore(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batched.has(id)
}

// sending is a batch on its way.
type sending struct {
	conn     *Conn
	ids      []string     // of the batch, in its order
	sent     int          // how many were written
	done     chan Verdict // has room for all
	verdicts map[string]Verdict
	refused  bool
}

func (b *sending) expect(out Outgoing) error {
	id, ok := EnvelopeID(out.Envelope)
	if !ok {
		return ErrNoID
	}
	c := b.conn
	if c.sentBefore(id) {
		return fmt.Errorf("envelope %q: %w", id, ErrResend)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.expectLocked(id, out.Recipients, b.done); err != nil {
		return err
	}
	b.ids = append(b.ids, id)
	return nil
}

// send writes the batch until one of it is refused.
func (b *sending) send(ctx context.Context, batch []Outgoing) error {
	for i, id := range b.ids {
		b.take()
		if b.refused {
			return nil
		}
		b.conn.mu.Lock()
		b.conn.batched.add(id)
		b.conn.mu.Unlock()
		b.sent++
		if err := b.conn.SendRaw(ctx, batch[i].Envelope); err != nil {
			return fmt.Errorf("%w: %w", ErrNoVerdict, err)
		}
	}
	return nil
}

// take takes the verdicts that are there.
func (b *sending) take() {
	for {
		select {
		case verdict := <-b.done:
			b.note(verdict)
		default:
			return
		}
	}
}

func (b *sending) note(verdict Verdict) {
	b.verdicts[verdict.ID] = verdict
	b.refused = b.refused || verdict.Reason != ""
	if verdict.Reason == wire.RateLimited {
		b.conn.mu.Lock()
		b.conn.batched.remove(verdict.ID)
		b.conn.mu.Unlock()
	}
}

// wait waits for the verdicts of what was sent.
func (b *sending) wait(ctx context.Context) error {
	for b.waiting() {
		if err := b.next(ctx); err != nil {
			b.take() // what came before the end
			if b.waiting() {
				return fmt.Errorf("%w: %w", ErrNoVerdict, err)
			}
		}
	}
	return nil
}

func (b *sending) waiting() bool {
	for _, id := range b.ids[:b.sent] {
		if _, came := b.verdicts[id]; !came {
			return true
		}
	}
	return false
}

var errNoReceipt = errors.New("it did not come in time")

func (b *sending) next(ctx context.Context) error {
	timer := b.conn.clock.NewTimer(receiptTimeout)
	defer timer.Stop()
	select {
	case verdict := <-b.done:
		b.note(verdict)
		return nil
	case <-timer.Chan():
		return errNoReceipt
	case <-ctx.Done():
		return ctx.Err()
	case <-b.conn.ended:
		return b.conn.err
	}
}

func (b *sending) forget() {
	for _, id := range b.ids {
		b.conn.forget(id, b.done)
	}
}
