package relay

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/inbox"
)

// entitlement says who may have one live row. Board hints are written for whoever is in the
// room at that moment, and the roster is looked at again before each push (RELAY,
// "Durable Board hints"). Envelopes need none of it: a connection whose participant was
// removed is closed. Nor do room events: who they are for was read from the database after
// the change they tell of, and a roster that is cached here may be older. It would keep a
// new member from hearing that it has joined.
type entitlement struct {
	known  bool
	roster *roster // nil: everybody
}

// entitlement of a live row, by the roster that is in force, where it is known here.
func (rm *room) entitlement(kind inbox.RowKind) entitlement {
	if kind != inbox.RowBoardUpdate {
		return entitlement{known: true}
	}
	found := rm.roster.Load()
	return entitlement{known: found != nil, roster: found}
}

func (e entitlement) to(participant uuid.UUID) bool {
	if e.roster == nil {
		return true
	}
	_, current := e.roster.role(participant)
	return current
}

// entitled reports whether this connection may have a row of its inbox that is about
// to be replayed: all of the server's own need a current member. It may ask the store.
func (s *session) entitled(kind inbox.RowKind) (bool, error) {
	if kind == inbox.RowEnvelope {
		return true, nil
	}
	found, err := s.room.currentRoster(s.relay.ctx, s.relay.cfg.Store)
	if err != nil {
		return false, fmt.Errorf("look at the roster: %w", err)
	}
	_, current := found.role(s.identity.Participant)
	return current, nil
}
