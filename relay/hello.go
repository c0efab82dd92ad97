package relay

import (
	"errors"
	"log/slog"
	"time"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// hello authenticates the connection and gives it its place. Whatever is wrong
// with the frame or the credential, the answer is the same close (DESIGN section
// 6, "Connecting"). Only when the answer cannot be looked up at all is it another
// one, 1013, so that clients wait and try again instead of giving up.
func (s *session) hello(frame *wire.ClientFrame) {
	if frame.Type != wire.FrameHello {
		s.refuseHello()
		return
	}
	token, ok := store.HashToken(frame.Token)
	if !ok {
		s.refuseHello()
		return
	}
	changes := s.relay.changes.Load()
	if !s.authenticate(token, frame.Direct) {
		return
	}
	switch s.relay.hub.attach(s, s.relay.cfg) {
	case attached:
	case overTenantQuota, overParticipantQuota:
		s.refuse(wire.CloseQuota, wire.ReasonQuota, "quota")
		return
	case alreadyClosed:
		return
	}
	// A change that was applied while the store was asked did not find this
	// session. From here on every change does, so asking once more is enough.
	if s.relay.changes.Load() != changes && !s.authenticate(token, frame.Direct) {
		return
	}
	s.greeted = true
	s.conn.Authenticated()
	now := time.Now()
	s.since = now
	s.relay.metrics.hellos.WithLabelValues("welcome").Inc()
	s.relay.cfg.Presence.Seen(s.identity.Participant, now, 0)
	s.reply(wire.AppendWelcome(nil, wire.UUID(s.identity.Participant), wire.UUID(s.identity.Room)))
	s.beat.start(now, s.relay.cfg.PingInterval)
}

// authenticate asks the store who this is. It closes the connection and reports
// false unless the credential is valid now and fits the kind of connection.
func (s *session) authenticate(token store.TokenHash, direct bool) bool {
	r := s.relay
	select {
	case r.hellos <- struct{}{}:
	case <-r.ctx.Done():
		return false
	}
	identity, err := r.cfg.Store.Authenticate(r.ctx, token)
	<-r.hellos
	switch {
	case errors.Is(err, store.ErrUnauthenticated):
		s.refuseHello()
		return false
	case err != nil:
		r.log.warn("hello could not be looked up", slog.Any("error", err))
		s.refuse(wire.CloseQuota, string(wire.Unavailable), "unavailable")
		return false
	case !r.cfg.Lease.Held():
		s.refuse(wire.CloseQuota, string(wire.Unavailable), "unavailable")
		return false
	case direct && (!r.cfg.AllowDevelopment || identity.Kind != store.CredentialDevelopment),
		!direct && identity.Kind == store.CredentialDevelopment:
		s.refuseHello()
		return false
	case identity.Frozen:
		s.refuse(wire.CloseFrozen, wire.ReasonFrozen, "frozen")
		return false
	}
	if s.room == nil {
		s.identity = identity
	}
	return true
}

// refuseHello is the one answer to every failed hello.
func (s *session) refuseHello() { s.refuse(wire.CloseAuth, wire.ReasonAuth, "refused") }

func (s *session) refuse(code wire.CloseCode, reason, result string) {
	s.relay.metrics.hellos.WithLabelValues(result).Inc()
	s.close(code, reason)
}
