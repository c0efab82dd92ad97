package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
)

const maxPage = 500

// addMember makes a membership and its first credential. Nobody loses anything by
// it, so nodes that cannot be told in time are a warning: the credential, which is
// shown only once, must not be lost to that.
func (a *API) addMember(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	var body NewMember
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	member := store.NewParticipant{Room: room, Role: store.Role(body.Role)}
	if !member.Role.Valid() {
		return 0, nil, malformed("role must be owner, controller, agent or viewer")
	}
	if body.DeviceID != "" {
		if member.Device, err = bodyID(body.DeviceID, "device_id"); err != nil {
			return 0, nil, err
		}
	}
	terms, err := credentialTerms(body.Kind, body.TTLSeconds)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	return op.addMember(member, terms)
}

func (op *operation) addMember(member store.NewParticipant, t terms) (int, any, error) {
	member.Tenant = op.tenant
	added, err := op.api.cfg.Store.AddParticipant(op.ctx, member)
	if err != nil {
		return 0, nil, op.inDoubt(cluster.Change{Room: member.Room}, err)
	}
	credential, err := op.mint(added.ID, t)
	if err != nil {
		op.api.log.WarnContext(op.ctx, "participant was added, but its credential was not minted", "participant", added.ID)
		return 0, nil, op.inDoubt(cluster.Change{Room: member.Room}, err)
	}
	answer := Member{
		ParticipantID: added.ID.String(),
		RoomID:        added.Room.String(),
		DeviceID:      added.Device.String(),
		Role:          string(added.Role),
		JoinedAt:      added.JoinedAt.UTC(),
		Credential:    credential.Credential,
		CredentialID:  credential.CredentialID,
		Kind:          credential.Kind,
		ExpiresAt:     credential.ExpiresAt,
	}
	if err := op.spread(cluster.Change{Room: added.Room}); err != nil {
		op.api.log.WarnContext(op.ctx, "not every node knows the new participant yet", "room", added.Room, "error", err)
		answer.Warning = "added, but not every node knows it yet; it will within a minute"
	}
	return http.StatusCreated, answer, nil
}

// removeMember may be repeated: somebody who has been removed is announced again.
func (a *API) removeMember(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	participant, err := pathID(r, "participant_id")
	if err != nil {
		return 0, nil, err
	}
	if err := noBody(r); err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	change, err := op.remove(room, participant)
	if err != nil {
		return 0, nil, err
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Removed{ParticipantID: participant.String(), RoomID: room.String()}, nil
}

// remove returns what is to be announced.
func (op *operation) remove(room, participant uuid.UUID) (cluster.Change, error) {
	change := cluster.Change{Room: room, Removed: []uuid.UUID{participant}}
	after, err := op.api.cfg.Store.RemoveParticipant(op.ctx, op.tenant, room, participant)
	if errors.Is(err, store.ErrNotFound) {
		after, err = op.removedBefore(room, participant)
	}
	if err != nil {
		return change, op.inDoubt(change, err)
	}
	change.Version = after.Version
	return change, nil
}

// removedBefore tells somebody who was removed earlier from somebody who never was
// there, and from a member of another room.
func (op *operation) removedBefore(room, participant uuid.UUID) (store.Room, error) {
	now, err := op.api.cfg.Store.FindRoom(op.ctx, op.tenant, room)
	if err != nil {
		return store.Room{}, err
	}
	switch _, err := op.api.cfg.Store.FindParticipant(op.ctx, op.tenant, participant); {
	case err == nil:
		return store.Room{}, store.ErrNotFound
	case !errors.Is(err, store.ErrNotFound):
		return store.Room{}, err
	}
	// The one look-up that knows former participants too; they have nothing to revoke.
	if _, err := op.api.cfg.Store.RevokeParticipantCredentials(op.ctx, op.tenant, participant); err != nil {
		return store.Room{}, err
	}
	return now, nil
}

func (a *API) listParticipants(r *http.Request) (int, any, error) {
	id, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	page, err := readPage(r)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	roster, err := a.cfg.Store.Roster(op.ctx, op.tenant, id)
	if err != nil {
		return 0, nil, err
	}
	answer := Participants{Participants: []Participant{}}
	for _, p := range roster.Participants {
		if !page.after.before(p) {
			continue
		}
		if len(answer.Participants) == page.limit {
			answer.NextCursor = page.last.encode()
			break
		}
		page.last = positionOf(p)
		answer.Participants = append(answer.Participants, Participant{
			ParticipantID: p.ID.String(), DeviceID: p.Device.String(), Role: string(p.Role), JoinedAt: p.JoinedAt.UTC(),
		})
	}
	return http.StatusOK, answer, nil
}

// page is one request of a list.
type page struct {
	limit int
	after position
	last  position
}

// position is a place in a roster, which is in order of joining, then of id; both
// are in the cursor whole, so that equal times lose nobody.
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

func readPage(r *http.Request) (page, error) {
	p := page{limit: maxPage, after: position{joined: time.Time{}.Unix()}}
	for name, values := range r.URL.Query() {
		if len(values) != 1 || name != "limit" && name != "cursor" {
			return page{}, malformed("the query takes one limit and one cursor")
		}
	}
	if text := r.URL.Query().Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPage {
			return page{}, malformed("limit must be 1 to 500")
		}
		p.limit = limit
	}
	if text := r.URL.Query().Get("cursor"); text != "" {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(raw) != 24 {
			return page{}, malformed("cursor is not one that was handed out")
		}
		p.after = position{joined: int64(binary.BigEndian.Uint64(raw)), id: uuid.UUID(raw[8:])}
	}
	return p, nil
}
