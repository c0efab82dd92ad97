package relay

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// session is the protocol side of one connection.
type session struct {
	relay *Relay
	conn  Conn

	// Set by hello, before any other goroutine knows the session.
	identity store.Identity
	room     *room
	slot     int // in hub.all; guarded by the hub
	since    time.Time
	greeted  bool // welcome was sent; used by Message only

	closed atomic.Bool // no frame goes out any more but what Close sends

	// Used by Message only, one call at a time.
	seqs  []generation
	noise bucket

	beat heartbeat
	feed feed
}

// generation is the last seq of one gen on this connection.
type generation struct {
	gen, seq uint64
}

var frames = sync.Pool{New: func() any { return new(wire.ClientFrame) }}

// Message handles one frame.
func (s *session) Message(msg []byte) {
	if s.isClosed() {
		return
	}
	frame, ok := frames.Get().(*wire.ClientFrame)
	if !ok {
		frame = new(wire.ClientFrame)
	}
	defer frames.Put(frame)
	if err := wire.ParseClient(msg, frame); err != nil {
		s.refuseFrame(err)
		return
	}
	if !s.greeted {
		s.hello(frame)
		return
	}
	switch frame.Type {
	case wire.FrameEnvelope:
		s.envelope(&frame.Envelope)
	case wire.FrameResume:
		if s.quiet() {
			s.resume(frame.LastID, frame.Limit)
		}
	case wire.FramePong:
		if !s.beat.pong(s, frame.PongID, time.Now()) {
			s.quiet()
		}
	case wire.FrameHello:
		if s.quiet() {
			s.sendError(wire.AlreadyAuthenticated, "", "this connection has said hello before")
		}
	case wire.FrameUnknown:
		s.unknown(frame.UnknownType)
	}
}

// refuseFrame answers what could not be parsed.
func (s *session) refuseFrame(err error) {
	var fault *wire.FrameError
	if !errors.As(err, &fault) {
		fault = &wire.FrameError{Code: wire.InvalidEnvelope}
	}
	switch {
	case !s.greeted:
		s.refuseHello()
	case !s.quiet():
	case fault.Code == wire.InvalidEnvelope:
		s.nack("", fault.EnvelopeID, wire.InvalidEnvelope)
	default:
		s.sendError(fault.Code, "", fault.Detail)
	}
}

// unknown answers a frame whose type this relay does not know, without closing,
// so that an extension does not disconnect an older client (RELAY).
func (s *session) unknown(frameType string) {
	if !s.quiet() {
		return
	}
	s.relay.log.info("unknown frame", slog.Any("participant_id", s.identity.Participant), slog.String("frame_type", frameType))
	s.sendError(wire.UnknownFrame, frameType, "the relay does not know this type; an envelope is sent as a frame of its own, without a type")
}

// quiet counts a frame that is no envelope against the connection's allowance, and
// closes the connection when that is used up.
func (s *session) quiet() bool {
	perSecond := float64(s.relay.cfg.FramesPerSecond)
	if s.noise.take(time.Now(), perSecond, 10*perSecond) {
		return true
	}
	s.close(wire.ClosePolicy, string(wire.RateLimited))
	return false
}

// Closed takes the session out of everything that knows it.
func (s *session) Closed(wire.CloseCode) {
	s.closed.Store(true)
	if s.room == nil {
		return
	}
	s.feed.stop(s)
	if s.relay.hub.detach(s) {
		s.relay.cfg.Presence.Gone(s.identity.Participant)
	}
}

func (s *session) isClosed() bool { return s.closed.Load() }

// close ends the connection: nothing but what is queued and the close frame goes out.
func (s *session) close(code wire.CloseCode, reason string) {
	s.closed.Store(true)
	s.conn.Close(code, reason)
}

// send queues a frame unless the session is closed.
func (s *session) send(frame []byte) bool {
	if s.isClosed() {
		return false
	}
	return s.conn.Send(frame)
}

// reply queues a frame from within Message, at the end of which it is written.
func (s *session) reply(frame []byte) bool {
	if s.isClosed() {
		return false
	}
	return s.conn.Queue(frame)
}

func (s *session) sendError(code wire.Code, frameType, detail string) {
	s.relay.metrics.errors.WithLabelValues(string(code)).Inc()
	s.reply(wire.AppendError(nil, code, frameType, detail))
}

// nack sends the one verdict of an envelope that was refused.
func (s *session) nack(kind string, envelopeID []byte, code wire.Code) {
	if kind == "" {
		kind = "unknown"
	}
	s.relay.metrics.nacks.WithLabelValues(string(code)).Inc()
	s.relay.metrics.envelopes.WithLabelValues(kind, "nack").Inc()
	s.reply(wire.AppendNack(nil, envelopeID, code))
}
