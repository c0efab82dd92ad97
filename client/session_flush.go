package client

import (
	"context"
	"errors"
	"time"

	"github.com/peerrelay/peerrelay/client/encryption"
	"github.com/peerrelay/peerrelay/client/keystore"
	"github.com/peerrelay/peerrelay/wire"
)

// flush sends what waits in a room's outbox, in the order of seq. Whoever runs one holds
// Session.sending.
type flush struct {
	session *Session
	own     map[string]bool // ids that somebody waits for; the others are of before
	apart   bool            // over a connection of its own

	queued  map[string]bool // of own
	left    map[string]bool // of own: written to a connection, and looked at for all that is known
	refused error           // the first refusal of own that stands
	again   bool            // the drafts of own may be sealed anew
	limited int             // batches in a row that the relay was too busy for
}

// maxLimited is how often in a row, a second apart, what the relay is too busy for is sent before
// it is left to a later flush: whoever polls does not wait for such a relay for ever.
const maxLimited = 10

func (s *Session) newFlush(own []encryption.Sealed) *flush {
	f := &flush{session: s, own: make(map[string]bool), queued: make(map[string]bool), left: make(map[string]bool)}
	for i := range own {
		f.own[own[i].ID] = true
	}
	return f
}

func (f *flush) complete() bool { return len(f.queued) == len(f.own) }

// run sends everything once, over the connection that there is or one of its own.
func (f *flush) run(ctx context.Context) error {
	all, err := f.session.outbox()
	if err != nil || len(all) == 0 {
		return err
	}
	over := func(conn *Conn) error { return f.over(ctx, conn) }
	if f.apart {
		return f.session.link.apart(ctx, over)
	}
	return f.session.link.with(ctx, over)
}

// over sends what was not sent on this connection yet: the same bytes again would be a
// regression of their seq, which closes it.
func (f *flush) over(ctx context.Context, conn *Conn) error {
	for f.refused == nil {
		all, err := f.session.outbox()
		if err != nil {
			return err
		}
		batch := f.session.taken.next(conn, all)
		if len(batch) == 0 {
			return nil
		}
		if batch, err = f.sendable(batch); err != nil {
			return err
		}
		if err := f.session.paced(ctx, len(batch)); err != nil {
			return err
		}
		if err := f.send(ctx, conn, batch); err != nil {
			return err
		}
	}
	return nil
}

// sendable leaves out notices of before, and forgets them: whether they were sent is not known,
// and a notice is not sent again (RELAY: "the notice may have been stored, so a sender must not
// resend it").
func (f *flush) sendable(batch []waiting) (rest []waiting, err error) {
	err = f.session.store.Update(func(tx *keystore.Tx) error {
		rest = nil
		for i := range batch {
			if batch[i].Kind != wire.KindNotice || f.own[batch[i].ID] {
				rest = append(rest, batch[i])
			} else if err := dequeue(tx, f.session.id, &batch[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return rest, err
}

func (f *flush) send(ctx context.Context, conn *Conn, batch []waiting) error {
	if len(batch) == 0 {
		return nil
	}
	out := make([]Outgoing, 0, len(batch))
	for i := range batch {
		out = append(out, Outgoing{Envelope: batch[i].Envelope})
	}
	verdicts, err := conn.SendAll(ctx, out)
	for i := range batch {
		if conn.sentBefore(batch[i].ID) {
			f.left[batch[i].ID] = true
		}
	}
	limited, settleErr := f.settle(conn, batch, verdicts)
	if _, nacked := errors.AsType[*NackError](err); nacked {
		err = nil // settled
	}
	if err = errors.Join(err, settleErr); err != nil || !limited {
		f.limited = 0
		return err
	}
	if f.limited++; f.limited >= maxLimited {
		return noVerdict(&wire.Error{Code: wire.RateLimited})
	}
	return sleep(ctx, f.session.clock, resendPause)
}

// settle saves what became of envelopes.
func (f *flush) settle(conn *Conn, batch []waiting, verdicts map[string]Verdict) (limited bool, err error) {
	s := f.session
	room := s.snapshot()
	err = s.store.Update(func(tx *keystore.Tx) error {
		limited = false
		for i := range batch {
			w := &batch[i]
			verdict, known := verdicts[w.ID]
			switch {
			case !known && w.Kind == wire.KindNotice:
				if err := dequeue(tx, s.id, w); err != nil {
					return err
				}
			case !known:
			case verdict.Reason == wire.RateLimited: // before its seq was looked at
				limited = true
			case verdict.Reason == "", verdict.Reason == wire.NoticeDuplicate: // it was accepted before
				if f.own[w.ID] {
					f.queued[w.ID] = true
				}
				if err := s.noteSent(tx, w); err != nil {
					return err
				}
			default:
				sealed := w.sealed()
				again, err := s.cipher.Refused(tx, room, &sealed, verdict.Reason)
				if err != nil {
					return err
				}
				if err := f.refuse(tx, w, verdict, again); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for i := range batch {
		if verdict, known := verdicts[batch[i].ID]; known && verdict.Reason != wire.RateLimited {
			s.taken.note(conn, batch[i].Seq)
		}
	}
	return limited, err
}

// noteSent forgets an envelope that is queued, and remembers the id of what somebody wrote.
func (s *Session) noteSent(tx *keystore.Tx, w *waiting) error {
	if w.content() {
		if _, err := tx.MarkSeen(s.id, sentID(w.ID)); err != nil {
			return err
		}
	}
	return dequeue(tx, s.id, w)
}

// refuse takes the relay's refusal of one envelope. What it could not store now is kept; but a
// notice, which may not be sent again (RELAY: "a sender must not resend it").
func (f *flush) refuse(tx *keystore.Tx, w *waiting, verdict Verdict, again bool) error {
	s := f.session
	kept := (verdict.Reason == wire.Unavailable || verdict.Reason == wire.Partial) && w.Kind != wire.KindNotice
	if verdict.Reason == wire.MLSRemovalPending {
		s.mu.Lock()
		s.paused = s.clock.Now().Add(removalPause)
		s.mu.Unlock()
	}
	if verdict.Reason == wire.NotAMember {
		s.outdate()
	}
	if !kept {
		if err := dequeue(tx, s.id, w); err != nil {
			return err
		}
	}
	switch {
	case !f.own[w.ID]:
		if kept || !w.content() {
			return nil
		}
		return saveItem(tx, s.id, &savedItem{Failure: newFailure(w.ID, s.self, "", verdict.Err())})
	case !kept && !w.content():
		f.queued[w.ID] = true // who is in the room asks for a key that did not come; the draft stands
	case f.refused == nil:
		f.refused, f.again = verdict.Err(), again
	}
	return nil
}

// withdraw forgets what had not left yet of a draft that was refused: it would follow a refusal
// that its writer was told of. Keys for others are sent all the same, as the sealing state says
// that they have them.
func (f *flush) withdraw() error {
	if errors.Is(f.refused, &wire.Error{Code: wire.Unavailable}) || errors.Is(f.refused, &wire.Error{Code: wire.Partial}) {
		return nil // the whole draft is kept
	}
	s := f.session
	return s.store.Update(func(tx *keystore.Tx) error {
		all, err := enqueued(tx, s.id)
		for i := range all {
			w := &all[i]
			if err == nil && f.own[w.ID] && w.content() && !f.left[w.ID] {
				err = dequeue(tx, s.id, w)
			}
		}
		return err
	})
}

// paced waits until n envelopes may be sent.
func (s *Session) paced(ctx context.Context, n int) error {
	now := s.clock.Now()
	return sleep(ctx, s.clock, s.pace.ReserveN(now, n).DelayFrom(now))
}

// lastTaken is how far the relay has come with the envelopes of a connection.
type lastTaken struct {
	conn *Conn
	seq  uint64
}

// note remembers an envelope that the relay has looked at.
func (l *lastTaken) note(conn *Conn, seq uint64) {
	if l.conn != conn {
		*l = lastTaken{conn: conn}
	}
	l.seq = max(l.seq, seq)
}

// next returns the envelopes to send next: those that were not sent on this connection, and are
// not behind one that was taken, which would be a regression of their seq.
func (l *lastTaken) next(conn *Conn, all []waiting) (batch []waiting) {
	for i := range all {
		if conn.sentBefore(all[i].ID) || l.conn == conn && all[i].Seq <= l.seq {
			continue
		}
		if batch = append(batch, all[i]); len(batch) == paceBurst {
			break
		}
	}
	return batch
}

// maintain sends what waits, whenever there is something, and hands over what came of it, until
// ctx ends.
//
// What the relay could not store, or has not answered, cannot go out on the same connection
// again: it gets one of its own, after a pause that grows.
func (s *Session) maintain(ctx context.Context, take func(Item) error) error {
	apart, resend := false, firstResend
	for {
		next, late := s.due(ctx)
		left, err := s.flushAll(ctx, apart)
		if !refusedRequest(late) {
			err = errors.Join(err, late)
		}
		if err != nil && (!s.login.retryable(err) || ctx.Err() != nil) {
			return err
		}
		if err := s.handOver(take); err != nil { // such as what was refused for good
			return final(err)
		}
		pause := maxIdle
		if !next.IsZero() {
			pause = min(max(next.Sub(s.clock.Now()), 0), maxIdle)
		}
		switch {
		case err != nil || late != nil || left > 0:
			pause = min(pause, resend)
			resend = min(2*resend, maxResend)
		default:
			resend = firstResend
		}
		apart = left > 0
		timer := s.clock.NewTimer(max(pause, leastIdle))
		select {
		case <-s.wake:
			timer.Stop()
			apart = false
		case <-timer.Chan():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

const (
	maxIdle     = time.Hour        // that maintain sleeps when nothing is due
	leastIdle   = time.Millisecond // so that a clock that is set back spins nothing
	firstResend = 5 * time.Second  // before what waits goes out over another connection
	maxResend   = 5 * time.Minute
)

// flushAll sends what waits, for nobody in particular, and returns how much is left.
func (s *Session) flushAll(ctx context.Context, apart bool) (left int, err error) {
	if err := acquire(ctx, s.sending); err != nil {
		return 0, err
	}
	defer release(s.sending)
	f := s.newFlush(nil)
	f.apart = apart
	if err := f.run(ctx); err != nil {
		return 0, err
	}
	all, err := s.outbox()
	return len(all), err
}

// refusedRequest reports that the relay refused what is due over HTTP, such as a reset of a room
// that is archived. That is no reason to read nothing and send nothing: it is asked again later, and
// a Send that needs it says what is wrong.
func refusedRequest(err error) bool {
	_, refused := errors.AsType[*APIError](err)
	return refused
}

// due does what time or a repair asks for, and says when to come back.
func (s *Session) due(ctx context.Context) (next time.Time, err error) {
	room := s.snapshot()
	var refill error
	if s.takeRefill() {
		if refill = s.device.RefillPrekeys(ctx); refill != nil {
			s.setRefill()
		}
	}
	again, err := s.dueNow(room, &next)
	if err = errors.Join(refill, err); err != nil || !again {
		return next, err
	}
	if err := acquire(ctx, s.sending); err != nil {
		return next, err
	}
	defer release(s.sending)
	if room, err = s.current(ctx); err != nil {
		return next, err
	}
	if err := s.prepare(ctx, room, true); err != nil {
		return next, err
	}
	_, err = s.dueNow(room, &next)
	return next, err
}

func (s *Session) dueNow(room *encryption.Room, next *time.Time) (prepare bool, err error) {
	err = s.store.Update(func(tx *keystore.Tx) error {
		due, err := s.cipher.Due(tx, room, s.clock.Now())
		if err != nil {
			return err
		}
		*next, prepare = due.Next, due.Prepare
		if err := enqueue(tx, s.id, due.Send); err != nil || !due.Retry {
			return err
		}
		return s.beginRetry(tx)
	})
	if err == nil {
		err = s.retryPending() // also what a program that was killed had not finished
	}
	return prepare, err
}
