package api

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
)

// listParticipants serves the roster, with what each has published.
func (a *API) listParticipants(r *http.Request) (int, any, error) {
	page, err := readRosterPage(r)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	rows, cursor, err := s.roster(page)
	if err != nil {
		return 0, nil, err
	}
	keys, err := s.publishedKeys()
	if err != nil {
		return 0, nil, err
	}
	answer := Participants{Participants: make([]Participant, 0, len(rows)), NextCursor: cursor}
	for _, p := range rows {
		answer.Participants = append(answer.Participants, Participant{
			ParticipantID: p.ID.String(), DeviceID: p.Device.String(), Role: string(p.Role), JoinedAt: p.JoinedAt.UTC(),
			Generation: keys[p.ID],
		})
	}
	return http.StatusOK, answer, nil
}

// showParticipant shows a participant, a former one too, to whoever may have messages of it.
func (a *API) showParticipant(r *http.Request) (int, any, error) {
	if _, err := readQuery(r); err != nil {
		return 0, nil, err
	}
	id, err := pathID(r, "participant_id")
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	found, left, err := a.cfg.Store.Membership(s.ctx, s.tenant, s.room, id)
	if err != nil {
		return 0, nil, err
	}
	since, err := s.since()
	if err != nil {
		return 0, nil, err
	}
	if !left.IsZero() && left.Before(since) { // nothing of it is shown to the caller (history)
		return 0, nil, store.ErrNotFound
	}
	members, err := s.roomMembers([]store.Participant{found})
	if err != nil {
		return 0, nil, err
	}
	members[0].LeftAt = left.UTC()
	return http.StatusOK, members[0], nil
}

func (s *sessionRequest) publishedKeys() (map[uuid.UUID]*PublishedKey, error) {
	generations, err := s.api.cfg.Store.CurrentGenerations(s.ctx, s.tenant, s.room)
	if err != nil {
		return nil, err
	}
	keys := make(map[uuid.UUID]*PublishedKey, len(generations))
	for _, g := range generations {
		keys[g.Participant] = &PublishedKey{Gen: g.Gen, KID: kidText(g.KID), SessionKey: g.SessionKey}
	}
	return keys, nil
}

// listPresence says who is connected. What cannot be looked up is unavailable, never
// "offline".
func (a *API) listPresence(r *http.Request) (int, any, error) {
	page, err := readRosterPage(r)
	if err != nil {
		return 0, nil, err
	}
	s, err := a.beginSession(r)
	if err != nil {
		return 0, nil, err
	}
	defer s.cancel()
	rows, cursor, err := s.roster(page)
	if err != nil {
		return 0, nil, err
	}
	answer := Presences{
		AsOf:         a.cfg.Now().UTC(),
		LeaseSeconds: int(cluster.PresenceTTL / time.Second),
		Presence:     make([]PresenceRow, 0, len(rows)),
		NextCursor:   cursor,
	}
	online, err := s.lookUpPresence(rows)
	if err != nil {
		return 0, nil, err
	}
	for _, p := range rows {
		answer.Presence = append(answer.Presence, presenceRow(p.ID, online[p.ID]))
	}
	return http.StatusOK, answer, nil
}

func (s *sessionRequest) lookUpPresence(rows []store.Participant) (map[uuid.UUID]*cluster.Presence, error) {
	if s.api.cfg.Presence == nil {
		return nil, unavailable("this process does not know who is connected")
	}
	ids := make([]uuid.UUID, 0, len(rows))
	for _, p := range rows {
		ids = append(ids, p.ID)
	}
	found, err := s.api.cfg.Presence.Lookup(s.ctx, ids)
	if err != nil {
		return nil, err
	}
	online := make(map[uuid.UUID]*cluster.Presence, len(found))
	for i := range found {
		online[found[i].Participant] = &found[i]
	}
	return online, nil
}

func presenceRow(participant uuid.UUID, p *cluster.Presence) PresenceRow {
	row := PresenceRow{ParticipantID: participant.String()}
	if p == nil {
		return row
	}
	row.Online, row.Node, row.Since = true, p.Node, &p.Since
	if rtt := p.RTT.Milliseconds(); rtt > 0 { // 0 until the first pong
		row.RTTMillis = &rtt
	}
	if !p.Seen.IsZero() {
		row.SeenAt = &p.Seen
	}
	return row
}

// roster returns one page of the room's current participants.
func (s *sessionRequest) roster(page rosterPage) (rows []store.Participant, cursor string, err error) {
	roster, err := s.api.cfg.Store.Roster(s.ctx, s.tenant, s.room)
	if err != nil {
		return nil, "", err
	}
	for _, p := range roster.Participants {
		if !page.after.before(p) {
			continue
		}
		if len(rows) == page.limit {
			return rows, positionOf(rows[len(rows)-1]).encode(), nil
		}
		rows = append(rows, p)
	}
	return rows, "", nil
}

// rosterPage is one request of a list of participants.
type rosterPage struct {
	limit int
	after position
}

// position is a place in a roster, which is in order of joining, then of id; both
// are in the cursor whole, so that equal times lose nobody (FAULTS D10).
type position struct {
	joined int64 // Unix nanoseconds
	id     uuid.UUID
}

func positionOf(p store.Participant) position {
	return position{joined: p.JoinedAt.UnixNano(), id: p.ID}
}

func (at position) before(p store.Participant) bool {
	joined := p.JoinedAt.UnixNano()
	return at.joined < joined || at.joined == joined && string(at.id[:]) < string(p.ID[:])
}

func (at position) encode() string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(at.joined))
	return base64.RawURLEncoding.EncodeToString(append(raw, at.id[:]...))
}

// readRosterPage reads limit, by default the most a room can have, and cursor.
func readRosterPage(r *http.Request) (rosterPage, error) {
	page := rosterPage{limit: store.MaxPage, after: position{joined: time.Time{}.Unix()}}
	query, err := readQuery(r, "limit", "cursor")
	if err != nil {
		return page, err
	}
	if text, given := query["limit"]; given {
		if page.limit, err = readLimit(text); err != nil {
			return page, err
		}
	}
	if text, given := query["cursor"]; given {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(raw) != 24 {
			return page, malformed("cursor is not one that was handed out")
		}
		page.after = position{joined: int64(binary.BigEndian.Uint64(raw)), id: uuid.UUID(raw[8:])}
	}
	return page, nil
}
