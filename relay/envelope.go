package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/crypto/blake2b"

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
	switch refused.close {
	case 0:
	case wire.CloseAuth:
		s.close(refused.close, wire.ReasonAuth)
	default:
		s.close(refused.close, string(refused.code))
	}
}

// store records the envelope, then writes the inboxes, then answers. Nothing is delivered and no
// queued is sent before the last write is acknowledged.
func (a *attempt) store(ctx context.Context) *refusal {
	r := a.session.relay
	id := string(a.envelope.ID)
	if err := a.session.room.begin(ctx, id); err != nil {
		return &refusal{code: wire.Unavailable}
	}
	defer a.session.room.end(id)

	appended, refused := a.record(ctx, id)
	if refused != nil {
		return refused
	}
	write, failed := r.cfg.Inboxes.Write, wire.Unavailable
	if appended.Duplicate {
		write = r.cfg.Inboxes.Complete
	}
	if a.inHistory() {
		failed = wire.Partial
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

func (a *attempt) inHistory() bool { return !a.private && a.envelope.Kind != wire.KindNotice }

// record commits what must be durable before any inbox is written: a notice, the
// history of a session-addressed envelope, the trace of a private message. Other
// pairwise envelopes leave nothing. A typed refusal passes through; after anything
// else it may or may not be stored, which is unavailable.
func (a *attempt) record(ctx context.Context, id string) (store.Appended, *refusal) {
	var appended store.Appended
	var err error
	var typed map[wire.Code]bool
	r := a.session.relay
	switch {
	case a.envelope.Kind == wire.KindNotice:
		typed, err = noticeRefusals, r.cfg.Store.AppendNotice(ctx, a.notice(id))
	case !a.private:
		typed = historyRefusals
		appended, err = r.cfg.Store.AppendMessage(ctx, a.message(id))
	case a.traced:
		typed = traceRefusals
		appended, err = r.cfg.Store.AppendTrace(ctx, a.trace(id))
	default:
		return appended, nil
	}
	if err == nil {
		r.history.stored()
		return appended, nil
	}
	var refused *wire.Error
	if errors.As(err, &refused) && typed[refused.Code] {
		return appended, &refusal{code: refused.Code}
	}
	r.history.refused(time.Now())
	r.log.warn("envelope could not be recorded", slog.String("kind", a.envelope.Kind.String()),
		slog.Any("room_id", a.session.room.id), slog.Any("error", err))
	return appended, &refusal{code: wire.Unavailable}
}

func (a *attempt) message(id string) store.Message {
	return store.Message{
		Tenant: a.session.identity.Tenant,
		Room:   a.session.room.id,
		Sender: a.session.identity.Participant,
		ID:     id,
		Kind:   a.envelope.Kind,
		Gen:    a.envelope.Gen,
		KID:    string(a.envelope.KID),
		Enc:    string(a.envelope.Enc),
		Hdr:    a.envelope.Members.Has(wire.MemberHdr),
		Bytes:  a.envelope.Raw,
	}
}

func (a *attempt) notice(id string) store.Notice {
	return store.Notice{
		Tenant:    a.session.identity.Tenant,
		Room:      a.session.room.id,
		Sender:    a.session.identity.Participant,
		ID:        id,
		Gen:       a.envelope.Gen,
		KID:       string(a.envelope.KID),
		TS:        a.envelope.TS,
		ExpiresAt: a.envelope.ExpiresAt,
		Bytes:     a.envelope.Raw,
	}
}

func (a *attempt) trace(id string) store.Trace {
	t := store.Trace{
		Tenant:    a.session.identity.Tenant,
		Room:      a.session.room.id,
		MessageID: id,
		From:      a.session.identity.Participant,
		To:        a.to[0],
		TS:        a.envelope.TS,
		Declared:  true,
		Digest:    blake2b.Sum256(a.envelope.Raw),
	}
	if a.envelope.Members.Has(wire.MemberFile) {
		file := &a.envelope.File
		t.Files = []store.FileHeader{{Name: string(file.Name), MIMEType: string(file.MIMEType), SizeBytes: file.SizeBytes}}
	}
	return t
}

// The typed refusals that reach a sender. Each proves that nothing was stored by this
// attempt.
var (
	// RELAY, "When the API refuses the store".
	historyRefusals = map[wire.Code]bool{
		wire.MLSSchemeDisabled: true,
		wire.SchemeMismatch:    true,
		wire.MLSRetired:        true,
		wire.MLSRemovalPending: true,
		wire.MLSUnknown:        true,
		wire.HistoryConflict:   true,
		wire.MalformedRequest:  true,
		wire.InvalidFilePart:   true,
		wire.NotActivated:      true, // STATE, "Session Establishment"
		wire.RoomIsArchived:    true,
	}
	// RELAY, "A private-aside API refusal overrides an allowing roster response"; and
	// message ids are unique in a room (DESIGN section 7).
	traceRefusals = map[wire.Code]bool{
		wire.PrivateRefused:  true,
		wire.HistoryConflict: true,
		wire.RoomIsArchived:  true,
	}
	// RELAY, "The writer's refusals".
	noticeRefusals = map[wire.Code]bool{
		wire.NoticeNotPermitted: true,
		wire.NoticeStale:        true,
		wire.NoticeCap:          true,
		wire.NoticeIDConflict:   true,
		wire.NoticeInvalidGen:   true,
		wire.NoticeDuplicate:    true,
		wire.InvalidEnvelope:    true,
		wire.RoomIsArchived:     true,
	}
)

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
