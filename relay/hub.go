package relay

import (
	"bytes"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// hub knows the connections of this node: by room, for the live feed and for
// changes; in one list, for the heartbeat; counted, for the quotas.
type hub struct {
	mu      sync.Mutex
	rooms   map[uuid.UUID]*room
	tenants map[uuid.UUID]int // authenticated connections
	all     []*session        // session.slot is its index
}

func newHub() *hub {
	return &hub{rooms: make(map[uuid.UUID]*room), tenants: make(map[uuid.UUID]int)}
}

// room returns the room if a connection of it is on this node.
func (h *hub) room(id uuid.UUID) *room {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rooms[id]
}

// attachResult says whether a connection found its place.
type attachResult uint8

const (
	attached attachResult = iota
	overTenantQuota
	overParticipantQuota
	alreadyClosed
)

// attach puts an authenticated session into its room.
func (h *hub) attach(s *session, limits Config) attachResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := s.identity
	if h.tenants[id.Tenant] >= limits.TenantConns {
		return overTenantQuota
	}
	rm := h.rooms[id.Room]
	if rm == nil {
		rm = newRoom(id.Tenant, id.Room)
	}
	switch result := rm.add(s, limits.ParticipantConns); result {
	case attached:
	default:
		return result
	}
	h.rooms[id.Room] = rm
	h.tenants[id.Tenant]++
	s.room = rm
	s.slot = len(h.all)
	h.all = append(h.all, s)
	return attached
}

// detach takes a session out. It reports whether it was its participant's last on
// this node, and the room if it has no connection left and must leave the feed.
func (h *hub) detach(s *session) (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := h.all[len(h.all)-1]
	h.all[s.slot], tail.slot = tail, s.slot
	h.all[len(h.all)-1] = nil
	h.all = h.all[:len(h.all)-1]
	if h.tenants[s.identity.Tenant]--; h.tenants[s.identity.Tenant] == 0 {
		delete(h.tenants, s.identity.Tenant)
	}
	last, empty := s.room.remove(s)
	if empty {
		delete(h.rooms, s.room.id)
	}
	return last
}

// slice calls visit for the nth of parts equal parts of all sessions, outside the
// hub's lock.
func (h *hub) slice(nth, parts int, visit func(*session)) {
	h.mu.Lock()
	size := (len(h.all) + parts - 1) / parts
	from, to := min(nth*size, len(h.all)), min((nth+1)*size, len(h.all))
	some := slices.Clone(h.all[from:to])
	h.mu.Unlock()
	for _, s := range some {
		visit(s)
	}
}

// everySession matches all.
func everySession(*session) bool { return true }

// sessions returns those of all sessions that match.
func (h *hub) sessions(match func(*session) bool) []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*session
	for _, s := range h.all {
		if match(s) {
			found = append(found, s)
		}
	}
	return found
}

// allRooms returns the rooms of this node.
func (h *hub) allRooms() []*room {
	h.mu.Lock()
	defer h.mu.Unlock()
	rooms := make([]*room, 0, len(h.rooms))
	for _, rm := range h.rooms {
		rooms = append(rooms, rm)
	}
	return rooms
}

// member is a participant with connections on this node.
type member struct {
	id       uuid.UUID
	sessions []*session
}

func findMember(members []member, id uuid.UUID) (int, bool) {
	return slices.BinarySearchFunc(members, id, func(m member, id uuid.UUID) int {
		return bytes.Compare(m.id[:], id[:])
	})
}
