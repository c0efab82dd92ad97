package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/crypto/blake2b"

	"github.com/peerrelay/peerrelay/inbox"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// maxPlainBody bounds the body of a plaintext message.
const maxPlainBody = 1 << 20

// sendPlain takes a plaintext message, in a room without encryption, and writes one
// envelope that the server makes into the inboxes of its recipients: the same delivery
// as for envelopes that clients send. The content goes nowhere else.
//
// Admission has the order of the socket: viewer, rate, shape, then, while changes of the
// room wait, credential, roster, policy, trace, inboxes.
func (a *API) sendPlain(r *http.Request) (int, any, error) {
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	self, err := s.participant()
	if err != nil {
		return 0, nil, err
	}
	if self.Role == store.RoleViewer {
		return 0, nil, &wire.Error{Code: wire.ReadOnly, Detail: "a viewer may not send"}
	}
	done, err := a.senders.begin(self.Participant)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	var body NewPlainMessage
	if err := decodeNoNull(r, &body); err != nil {
		return 0, nil, err
	}
	s.renew() // the body was read
	stop, err := a.senders.start(s.ctx)
	if err != nil {
		return 0, nil, err
	}
	defer stop()
	message, err := s.readPlain(&body)
	if err != nil {
		return 0, nil, err
	}
	leave, err := s.enter()
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	if err := s.address(message); err != nil {
		return 0, nil, err
	}
	return s.deliverPlain(message)
}

// plainMessage is a plaintext message on its way.
type plainMessage struct {
	envelope   *plainEnvelope
	bytes      []byte // the envelope
	files      []store.FileHeader
	repeatable bool      // the caller named id and ts: the same request makes the same bytes
	to         uuid.UUID // participant; uuid.Nil: everybody else
	recipients []uuid.UUID
	traced     bool // from agent to agent
}

// address finds the recipients in the room as it is now, and applies its policy.
func (s *sessionRequest) address(m *plainMessage) error {
	roster, err := s.api.cfg.Store.Roster(s.ctx, s.tenant, s.room)
	if err != nil {
		return err
	}
	sender, current := participantIn(roster, s.who.identity.Participant)
	switch {
	case !current:
		return &wire.Error{Code: wire.NotAMember, Detail: "the sender is not in the room"}
	case sender.Role == store.RoleViewer:
		return &wire.Error{Code: wire.ReadOnly, Detail: "a viewer may not send"}
	case roster.Room.Scheme != store.SchemeNone:
		return &wire.Error{Code: wire.SchemeMismatch, Detail: "the room is encrypted: send envelopes over the WebSocket"}
	case roster.Room.State == store.RoomArchived:
		return &wire.Error{Code: wire.RoomIsArchived}
	case m.to == uuid.Nil:
		return m.addressAll(roster, sender)
	}
	return m.addressOne(roster, sender)
}

func participantIn(roster store.Roster, id uuid.UUID) (store.Participant, bool) {
	i := slices.IndexFunc(roster.Participants, func(p store.Participant) bool { return p.ID == id })
	if i < 0 {
		return store.Participant{}, false
	}
	return roster.Participants[i], true
}

func (m *plainMessage) addressAll(roster store.Roster, sender store.Participant) error {
	for _, p := range roster.Participants {
		if p.ID != sender.ID {
			m.recipients = append(m.recipients, p.ID)
		}
	}
	if len(m.recipients) == 0 {
		return &wire.Error{Code: wire.NoRecipients, Detail: "nobody else is in the room"}
	}
	return nil
}

// addressOne applies the policy of private messages, which is about those from agent to
// agent. A policy that is missing never means allowed (RELAY).
func (m *plainMessage) addressOne(roster store.Roster, sender store.Participant) error {
	recipient, current := participantIn(roster, m.to)
	if !current || recipient.ID == sender.ID {
		return &wire.Error{Code: wire.NotAMember, Detail: "to is nobody else in the room"}
	}
	m.recipients = []uuid.UUID{recipient.ID}
	m.traced = sender.Role == store.RoleAgent && recipient.Role == store.RoleAgent
	if !m.traced {
		return nil
	}
	switch roster.Room.PrivateMessages {
	case store.PrivateAllowed:
		return nil
	case store.PrivateRefused:
		return &wire.Error{Code: wire.PrivateRefused, Detail: "the room refuses private messages between agents"}
	}
	return unavailable("the room's policy of private messages is not known")
}

// deliverPlain commits the trace, where there must be one, before any inbox has the
// message; without it there is no delivery.
func (s *sessionRequest) deliverPlain(m *plainMessage) (int, any, error) {
	received := s.api.cfg.Now()
	if m.traced {
		if err := s.trace(m); err != nil {
			return 0, nil, err
		}
	}
	write := s.api.cfg.Inboxes.Write
	if m.repeatable {
		write = s.api.cfg.Inboxes.Complete
	}
	ids, err := write(s.ctx, inbox.Message{Room: s.room, To: m.recipients, Kind: inbox.RowEnvelope, Payload: m.bytes, Received: received})
	if err != nil {
		return 0, nil, s.notQueued(err)
	}
	answer := Sent{MessageID: m.envelope.ID, Queued: make([]Queued, 0, len(ids))}
	for i, id := range ids {
		answer.Queued = append(answer.Queued, Queued{ParticipantID: m.recipients[i].String(), StreamID: id.String()})
	}
	return http.StatusCreated, answer, nil
}

func (s *sessionRequest) notQueued(err error) error {
	if errors.Is(err, inbox.ErrTooLarge) {
		return &wire.Error{Code: wire.TooLarge, Detail: "the message is too large for so many recipients"}
	}
	s.api.log.WarnContext(s.ctx, "inboxes could not be written", "room", s.room, "error", err)
	return unavailable("it may be in some inboxes, and was delivered to nobody; the same request with id and ts completes it")
}

// trace commits the trace of a private message between agents.
func (s *sessionRequest) trace(m *plainMessage) error {
	_, err := s.api.cfg.Store.AppendTrace(s.ctx, store.Trace{
		Tenant: s.tenant, Room: s.room, MessageID: m.envelope.ID,
		From: s.who.identity.Participant, To: m.to, TS: m.envelope.TS,
		Files: m.files, Digest: blake2b.Sum256(m.bytes),
	})
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*wire.Error](err); ok && traceRefusals[refusal.Code] {
		return refusal
	}
	if !errors.Is(err, context.Canceled) {
		s.api.log.WarnContext(s.ctx, "trace could not be committed", "room", s.room, "error", err)
	}
	return unavailable("the private message could not be audited, so it was delivered to nobody")
}

// traceRefusals are what the trace store refuses for good.
var traceRefusals = map[wire.Code]bool{
	wire.PrivateRefused:   true,
	wire.HistoryConflict:  true,
	wire.RoomIsArchived:   true,
	wire.MalformedRequest: true,
}
