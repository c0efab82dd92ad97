package relay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// attempt is one envelope on its way through admission. Checks leave what they
// looked up for those that follow.
type attempt struct {
	session  *session
	envelope *wire.Envelope
	now      time.Time
	rises    bool // seq did, within its gen
	roster   *roster
	private  bool        // addressed to one participant
	to       []uuid.UUID // recipients
	role     store.Role  // of the recipient, when private
	traced   bool        // delivery needs a committed trace
}

// refusal is why an envelope was not admitted.
type refusal struct {
	code  wire.Code
	close wire.CloseCode // after the nack; 0 to leave the connection open
}

type check struct {
	name string
	run  func(context.Context, *attempt) *refusal
}

// admission is what an envelope passes, in this order; the first refusal is its
// verdict (DESIGN section 6, "Admission"). Parsing came before.
var admission = []check{
	{"viewer", checkViewer},
	{"rate", checkRate},
	{"shape", checkShape},
	{"from", checkSender},
	{"lease", checkLease},
	{"roster", checkRoster},
	{"to", checkRecipient},
	{"seq", checkSeq},
	{"permission", checkPermission},
	{"policy", checkPolicy},
	{"recipients", checkRecipients},
}

// admit runs the checks.
func (a *attempt) admit(ctx context.Context) *refusal {
	for i := range admission {
		if refused := admission[i].run(ctx, a); refused != nil {
			a.session.relay.metrics.refusals.WithLabelValues(admission[i].name).Inc()
			return refused
		}
	}
	return nil
}

// A viewer's connection is read-only and closes on the first envelope (RELAY).
func checkViewer(_ context.Context, a *attempt) *refusal {
	switch {
	case a.session.identity.Role != store.RoleViewer:
		return nil
	case a.envelope.Kind == wire.KindNotice:
		return &refusal{wire.NoticeNotPermitted, wire.ClosePolicy}
	}
	return &refusal{wire.ReadOnly, wire.ClosePolicy}
}

func checkRate(_ context.Context, a *attempt) *refusal {
	switch a.session.relay.rates.admit(a.session.identity.Participant, a.now) {
	case rateNack:
		return &refusal{code: wire.RateLimited}
	case rateClose:
		return &refusal{wire.RateLimited, wire.ClosePolicy}
	case rateOK:
	}
	return nil
}

func checkShape(_ context.Context, a *attempt) *refusal {
	if fault := a.envelope.Check(); fault != nil {
		return &refusal{code: fault.Code}
	}
	return nil
}

func checkSender(_ context.Context, a *attempt) *refusal {
	from, ok := wire.ParseUUID(a.envelope.From)
	if !ok || uuid.UUID(from) != a.session.identity.Participant {
		return &refusal{wire.WrongSender, wire.ClosePolicy}
	}
	// From here on seq counts, whatever the verdict.
	a.rises = a.session.raise(a.envelope.Gen, a.envelope.Seq)
	return nil
}

// A node that may have missed a change accepts nothing.
func checkLease(_ context.Context, a *attempt) *refusal {
	if !a.session.relay.cfg.Lease.Held() {
		return &refusal{code: wire.Unavailable}
	}
	return nil
}

func checkRoster(ctx context.Context, a *attempt) *refusal {
	found, err := a.session.room.currentRoster(ctx, a.session.relay.cfg.Store)
	if err != nil {
		a.session.relay.log.warn("roster could not be looked up", slog.Any("room_id", a.session.room.id), slog.Any("error", err))
		return &refusal{code: wire.Unavailable}
	}
	if _, current := found.role(a.session.identity.Participant); !current {
		// Its removal is on the way to this node, and would close the same way.
		return &refusal{wire.NotAMember, wire.CloseAuth}
	}
	a.roster = found
	return nil
}

func checkRecipient(_ context.Context, a *attempt) *refusal {
	room := a.session.room.id
	session, ok := wire.ParseUUID(a.envelope.SessionID)
	if !ok || uuid.UUID(session) != room {
		return &refusal{wire.NotAMember, wire.ClosePolicy}
	}
	to, ok := wire.ParseUUID(a.envelope.To)
	if !ok {
		return &refusal{wire.NotAMember, wire.ClosePolicy}
	}
	if uuid.UUID(to) == room {
		a.to = a.roster.others(a.to[:0], a.session.identity.Participant)
		return nil
	}
	role, current := a.roster.role(uuid.UUID(to))
	if !current {
		return &refusal{wire.NotAMember, wire.ClosePolicy}
	}
	a.private, a.role = true, role
	a.to = append(a.to[:0], uuid.UUID(to))
	return nil
}

func checkSeq(_ context.Context, a *attempt) *refusal {
	if !a.rises {
		return &refusal{wire.SeqRegression, wire.ClosePolicy}
	}
	return nil
}

// raise notes the seq of a gen and reports whether it rose. The newest MaxGenerations
// are remembered. It is a signal of abuse, not replay protection (RELAY).
func (s *session) raise(gen, seq uint64) bool {
	at := slices.IndexFunc(s.seqs, func(known generation) bool { return known.gen == gen })
	switch {
	case at >= 0 && seq <= s.seqs[at].seq:
		return false
	case at >= 0:
		s.seqs = slices.Delete(s.seqs, at, at+1)
	case len(s.seqs) == wire.MaxGenerations:
		s.seqs = slices.Delete(s.seqs, 0, 1)
	}
	s.seqs = append(s.seqs, generation{gen, seq})
	return true
}

// Agents may send every kind, owner and controller all but notices, and nobody a
// notice over a development connection. That the agent holds the rights a notice needs
// is asked of the notice writer, in the transaction that stores it.
func checkPermission(_ context.Context, a *attempt) *refusal {
	if a.envelope.Kind != wire.KindNotice {
		return nil
	}
	if a.private {
		return &refusal{code: wire.InvalidEnvelope} // notices are session-addressed only
	}
	if a.session.identity.Role != store.RoleAgent || a.session.identity.Kind == store.CredentialDevelopment {
		return &refusal{code: wire.NoticeNotPermitted}
	}
	return nil
}

// A room's policy covers messages from agent to agent only; a missing policy never
// means allowed (RELAY).
//
// The conversation of an encrypted direct room is its session: a message to the other
// participant alone would be outside of it, of history and of who writes first. An
// archived room takes nothing; what its members wrote can be read on.
func checkPolicy(_ context.Context, a *attempt) *refusal {
	room := &a.roster.room
	if room.State == store.RoomArchived {
		return &refusal{code: wire.RoomIsArchived}
	}
	if a.private && a.envelope.Kind == wire.KindMessage &&
		room.Kind == store.RoomDirect && room.Scheme != store.SchemeNone {
		return &refusal{code: wire.SchemeMismatch}
	}
	if !a.private || a.envelope.Kind != wire.KindMessage ||
		a.session.identity.Role != store.RoleAgent || a.role != store.RoleAgent {
		return nil
	}
	switch room.PrivateMessages {
	case store.PrivateAllowed:
		a.traced = true
		return nil
	case store.PrivateRefused:
		return &refusal{code: wire.PrivateRefused}
	}
	return &refusal{code: wire.Unavailable}
}

func checkRecipients(_ context.Context, a *attempt) *refusal {
	if len(a.to) == 0 {
		return &refusal{code: wire.NoRecipients}
	}
	return nil
}
