package relay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

// room is a room with connections on this node. Its roster is looked up when an
// envelope needs it and kept until a change drops it.
type room struct {
	tenant uuid.UUID
	id     uuid.UUID

	// flight is held for reading while an envelope is admitted, stored and
	// answered. A change takes it for writing, once, after it has dropped the
	// roster: then nothing that was admitted under the old one is in flight.
	flight sync.RWMutex

	roster atomic.Pointer[roster]
	lookup sync.Mutex // one look-up at a time

	joining sync.Mutex // orders Join and Leave of the live feed
	joined  int        // sessions that follow the feed; guarded by joining

	mu         sync.Mutex               // guards the following fields
	generation uint64                   // rises with every change
	members    []member                 // sorted by id
	sending    map[string]chan struct{} // message ids under way; a channel only where a twin waits
}

func newRoom(tenant, id uuid.UUID) *room { return &room{tenant: tenant, id: id} }

// add is called with the hub's lock held.
func (rm *room) add(s *session, quota int) attachResult {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if s.isClosed() {
		return alreadyClosed
	}
	i, found := findMember(rm.members, s.identity.Participant)
	if !found {
		rm.members = slices.Insert(rm.members, i, member{id: s.identity.Participant})
	}
	if len(rm.members[i].sessions) >= quota {
		return overParticipantQuota
	}
	rm.members[i].sessions = append(rm.members[i].sessions, s)
	return attached
}

// remove is called with the hub's lock held.
func (rm *room) remove(s *session) (lastOfMember, empty bool) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	i, found := findMember(rm.members, s.identity.Participant)
	if !found {
		return false, len(rm.members) == 0
	}
	m := &rm.members[i]
	m.sessions = slices.DeleteFunc(m.sessions, func(other *session) bool { return other == s })
	if len(m.sessions) == 0 {
		rm.members = slices.Delete(rm.members, i, i+1)
		lastOfMember = true
	}
	return lastOfMember, len(rm.members) == 0
}

// sessions returns the connections of the room that match.
func (rm *room) sessions(match func(*session) bool) []*session {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	var found []*session
	for _, m := range rm.members {
		for _, s := range m.sessions {
			if match(s) {
				found = append(found, s)
			}
		}
	}
	return found
}

// changed drops the roster. A look-up that began before is not kept.
func (rm *room) changed() {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.generation++
	rm.roster.Store(nil)
}

// land returns when every envelope that was admitted before the call has had its
// verdict.
func (rm *room) land() {
	rm.flight.Lock()
	rm.flight.Unlock() //nolint:staticcheck // waiting is all it is for
}

// currentRoster returns the roster that is in force.
func (rm *room) currentRoster(ctx context.Context, rosters store.Rosters) (*roster, error) {
	if cached := rm.roster.Load(); cached != nil {
		return cached, nil
	}
	rm.lookup.Lock()
	defer rm.lookup.Unlock()
	const attempts = 5
	for range attempts {
		if cached := rm.roster.Load(); cached != nil {
			return cached, nil
		}
		rm.mu.Lock()
		began := rm.generation
		rm.mu.Unlock()
		found, err := rosters.Roster(ctx, rm.tenant, rm.id)
		if err != nil {
			return nil, err
		}
		fresh := newRoster(found)
		rm.mu.Lock()
		if rm.generation == began {
			rm.roster.Store(fresh)
			rm.mu.Unlock()
			return fresh, nil
		}
		rm.mu.Unlock()
	}
	return nil, errors.New("the room changes faster than its roster can be read")
}

// begin waits until no other connection of this node sends the same message id in
// this room, so that the second of two twins finds the first one stored.
func (rm *room) begin(ctx context.Context, id string) error {
	for {
		rm.mu.Lock()
		other, busy := rm.sending[id]
		if !busy {
			if rm.sending == nil {
				rm.sending = make(map[string]chan struct{})
			}
			rm.sending[id] = nil
			rm.mu.Unlock()
			return nil
		}
		if other == nil {
			other = make(chan struct{})
			rm.sending[id] = other
		}
		rm.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end lets the next twin begin.
func (rm *room) end(id string) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if waiting := rm.sending[id]; waiting != nil {
		close(waiting)
	}
	delete(rm.sending, id)
}

// roster is a room's roster, laid out for look-ups.
type roster struct {
	room         store.Room
	participants []rosterEntry // sorted by id
}

type rosterEntry struct {
	id   uuid.UUID
	role store.Role
}

func newRoster(found store.Roster) *roster {
	r := &roster{room: found.Room, participants: make([]rosterEntry, 0, len(found.Participants))}
	for _, p := range found.Participants {
		r.participants = append(r.participants, rosterEntry{id: p.ID, role: p.Role})
	}
	slices.SortFunc(r.participants, func(a, b rosterEntry) int { return bytes.Compare(a.id[:], b.id[:]) })
	return r
}

// role returns the role of a current participant.
func (r *roster) role(id uuid.UUID) (store.Role, bool) {
	i, found := slices.BinarySearchFunc(r.participants, id, func(e rosterEntry, id uuid.UUID) int {
		return bytes.Compare(e.id[:], id[:])
	})
	if !found {
		return "", false
	}
	return r.participants[i].role, true
}

// others appends everyone but the sender.
func (r *roster) others(dst []uuid.UUID, sender uuid.UUID) []uuid.UUID {
	for _, e := range r.participants {
		if e.id != sender {
			dst = append(dst, e.id)
		}
	}
	return dst
}
