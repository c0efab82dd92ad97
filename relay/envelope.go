package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

var attempts = sync.Pool{New: func() any { return new(attempt) }}

// envelope gives one envelope its one verdict.
func (s *session) envelope(envelope *wire.Envelope) {
	a, ok := attempts.Get().(*attempt)
	if !ok {
		a = new(attempt)
	}
	*a = attempt{session: s, envelope: envelope, now: time.Now(), to: a.to[:0]}
	defer func() {
		a.session, a.envelope, a.roster = nil, nil, nil
		attempts.Put(a)
	}()

	s.room.flight.RLock()
	defer s.room.flight.RUnlock()
	ctx := s.relay.ctx
	refused := a.admit(ctx)
	if refused == nil {
		refused = a.store(ctx)
	}
	if refused == nil {
		return
	}
	s.nack(envelope.Kind.String(), envelope.ID, refused.code)
	if refused.close {
		s.close(wire.ClosePolicy, string(refused.code))
	}
}

// store writes history, then the inboxes, then answers. Nothing is delivered and no
// queued is sent before the last write is acknowledged.
func (a *attempt) store(ctx context.Context) *refusal {
	r := a.session.relay
	id := string(a.envelope.ID)
	if err := a.session.room.begin(ctx, id); err != nil {
		return &refusal{code: wire.Unavailable}
	}
	defer a.session.room.end(id)

	write, failed := r.cfg.Inboxes.Write, wire.Unavailable
	if !a.private {
		appended, err := a.append(ctx, id)
		if err != nil {
			return err
		}
		failed = wire.Partial
		if appended.Duplicate {
			write = r.cfg.Inboxes.Complete
		}
	}
	ids, err := write(ctx, inbox.Message{
		Room: a.session.room.id, To: a.to, Payload: a.envelope.Raw, Received: a.now,
	})
	if err != nil {
		r.log.warn("inboxes could not be written", slog.Any("room_id", a.session.room.id), slog.Any("error", err))
		return &refusal{code: failed}
	}
	a.queued(ids)
	return nil
}

// append stores the envelope in history. A typed refusal passes through; anything
// else may or may not be stored, and is unavailable.
func (a *attempt) append(ctx context.Context, id string) (store.Appended, *refusal) {
	r := a.session.relay
	appended, err := r.cfg.Store.AppendMessage(ctx, store.Message{
		Tenant: a.session.identity.Tenant,
		Room:   a.session.room.id,
		Sender: a.session.identity.Participant,
		ID:     id,
		Kind:   a.envelope.Kind,
		Gen:    a.envelope.Gen,
		KID:    string(a.envelope.KID),
		Bytes:  a.envelope.Raw,
	})
	if err == nil {
		r.history.stored()
		return appended, nil
	}
	var typed *wire.Error
	if errors.As(err, &typed) && historyRefusals[typed.Code] {
		return appended, &refusal{code: typed.Code}
	}
	r.history.refused(time.Now())
	r.log.warn("history could not be written", slog.Any("room_id", a.session.room.id), slog.Any("error", err))
	return appended, &refusal{code: wire.Unavailable}
}

// historyRefusals are the typed refusals of the history store that reach a sender
// (RELAY, "When the API refuses the store").
var historyRefusals = map[wire.Code]bool{
	wire.MLSSchemeDisabled: true,
	wire.SchemeMismatch:    true,
	wire.MLSRetired:        true,
	wire.MLSRemovalPending: true,
	wire.MLSUnknown:        true,
	wire.HistoryConflict:   true,
	wire.MalformedRequest:  true,
	wire.InvalidFilePart:   true,
}

// queued answers one queued frame per recipient.
func (a *attempt) queued(ids []wire.StreamID) {
	m := a.session.relay.metrics
	m.queued[a.envelope.Kind].Inc()
	m.sendToQueued.Observe(time.Since(a.now).Seconds())
	frame := frameBuffers.get()
	for i, id := range ids {
		*frame = wire.AppendQueued((*frame)[:0], a.envelope.ID, id, wire.UUID(a.to[i]))
		if !a.session.reply(*frame) {
			break
		}
	}
	frameBuffers.put(frame)
}

// frameBuffers lends buffers in which frames are built before a connection copies
// them.
var frameBuffers = buffers{pool: sync.Pool{New: func() any { return new([]byte) }}}

type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return buffer
	}
	return new([]byte)
}

func (b *buffers) put(buffer *[]byte) {
	*buffer = (*buffer)[:0]
	b.pool.Put(buffer)
}
