package senderkey

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/peerrelay/peerrelay/wire"
)

// MaxMembers bounds a roster.
const MaxMembers = 4096

// Roster is who else is in the room: participant ids, without one's own, and the room's
// version when that was so.
type Roster struct {
	Version uint64
	Members []string
}

func (r *Roster) check() error {
	if r.Version > wire.MaxInteger || len(r.Members) > MaxMembers {
		return fmt.Errorf("roster: %w", ErrArgument)
	}
	seen := make(map[string]struct{}, len(r.Members))
	for _, id := range r.Members {
		if _, twice := seen[id]; twice || !validParticipant(id) {
			return fmt.Errorf("roster: %w", ErrArgument)
		}
		seen[id] = struct{}{}
	}
	return nil
}

// Membership is what one generation knows of the room: who is in it, since which iteration,
// and who was ever given the key, by distribution or by repair. Once one of those has left,
// the generation is over, even if they come back (STATE, "Mandatory Rekey").
type Membership struct {
	born    uint64 // the room's version when the generation began
	version uint64 // the newest seen
	members map[string]member
	over    bool
}

type member struct {
	since uint32 // the first iteration it may read
	given bool
}

// NewMembership begins with the members of the roster, none of which has the key, and all of
// which may read everything. ErrArgument for a roster that names somebody twice, or has too
// many or invalid ids.
func NewMembership(roster Roster) (*Membership, error) {
	m := &Membership{born: roster.Version, version: roster.Version, members: make(map[string]member, len(roster.Members))}
	if err := m.Update(roster, 0); err != nil {
		return nil, err
	}
	return m, nil
}

// Update takes a newer roster, or one of the same version: a roster that was looked up before
// the newest one is ignored. Who is new may read from iteration next on. ErrArgument as
// NewMembership.
func (m *Membership) Update(roster Roster, next uint32) error {
	if err := roster.check(); err != nil {
		return err
	}
	if roster.Version < m.version {
		return nil
	}
	m.version = roster.Version
	members := make(map[string]member, len(roster.Members))
	for _, id := range roster.Members {
		known, ok := m.members[id]
		if !ok {
			known = member{since: next}
		}
		members[id] = known
	}
	for id, former := range m.members {
		if _, stays := members[id]; !stays && former.given {
			m.over = true
		}
	}
	m.members = members
	return nil
}

// Left takes the news that a participant left, with the room's version after that. It may
// come late and more than once: what the generation began with is no news to it, and who
// came back in the meantime stays a member, but had been outside with the key.
func (m *Membership) Left(version uint64, participant string) {
	if version <= m.born {
		return
	}
	former, ok := m.members[participant]
	if !ok {
		return
	}
	m.over = m.over || former.given
	if version > m.version {
		m.version = version
		delete(m.members, participant)
	}
}

// Retire takes the news that keys of before that version of the room are over (RELAY and STATE: removal,
// revocation, room reset). Those of a generation that began later are not.
func (m *Membership) Retire(version uint64) {
	if version > m.born {
		m.over = true
	}
}

// NeedsRotation reports whether nothing may be sent in this generation any more.
func (m *Membership) NeedsRotation() bool { return m.over }

// Give marks a member as one that has the key, before it is sent, and returns the first
// iteration it may read. ErrNotMember for others.
func (m *Membership) Give(participant string) (since uint32, err error) {
	known, ok := m.members[participant]
	if !ok {
		return 0, ErrNotMember
	}
	known.given = true
	m.members[participant] = known
	return known.since, nil
}

// Missing lists the members that were not given the key, sorted.
func (m *Membership) Missing() []string {
	var missing []string
	for id, known := range m.members {
		if !known.given {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	return missing
}

// Has reports whether the participant is a member.
func (m *Membership) Has(participant string) bool {
	_, ok := m.members[participant]
	return ok
}

// MarshalBinary returns the state to save.
func (m *Membership) MarshalBinary() ([]byte, error) {
	return m.appendTo(header(stateMembership)), nil
}

// UnmarshalBinary loads what MarshalBinary returned. ErrState for anything else; the state is
// then as before.
func (m *Membership) UnmarshalBinary(data []byte) error {
	r := reader{data: data}
	r.header(stateMembership)
	loaded := readMembership(&r)
	if err := r.end(); err != nil {
		return err
	}
	*m = *loaded
	return nil
}

func (m *Membership) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.born)
	b = binary.BigEndian.AppendUint64(b, m.version)
	b = appendFlag(b, m.over)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.members)))
	for _, id := range slices.Sorted(maps.Keys(m.members)) {
		b = appendName(b, id)
		b = binary.BigEndian.AppendUint32(b, m.members[id].since)
		b = appendFlag(b, m.members[id].given)
	}
	return b
}

func readMembership(r *reader) *Membership {
	m := &Membership{born: r.integer(), version: r.integer(), over: r.flag()}
	r.must(m.born <= m.version)
	n := r.count(MaxMembers)
	m.members = make(map[string]member, min(n, len(r.data)/7)) // 7 bytes at least
	id := ""
	for range n {
		if id = r.name(id); r.failed {
			break
		}
		m.members[id] = member{since: r.uint32(MaxIterations), given: r.flag()}
	}
	return m
}
