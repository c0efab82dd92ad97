package api

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
)

// createRoom makes an empty room for the operator, and for a device one that it owns.
func (a *API) createRoom(r *http.Request) (int, any, error) {
	var body NewRoom
	if err := decodeGiven(r, &body); err != nil {
		return 0, nil, err
	}
	wanted, err := body.read()
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	wanted.Tenant = op.tenant
	who := callerOf(r.Context())
	if who.operator {
		made, err := a.cfg.Store.CreateRoom(op.ctx, wanted)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, roomAnswer(made), nil
	}
	made, owner, err := a.cfg.Store.OpenRoom(op.ctx, wanted, who.device.ID)
	if err != nil {
		return 0, nil, err
	}
	a.wakeOutbox() // no node knows the room yet: nobody has to hear of it first
	answer := roomAnswer(made)
	answer.ParticipantID = owner.ID.String()
	return http.StatusCreated, answer, nil
}

func (n *NewRoom) read() (store.NewRoom, error) {
	room := store.NewRoom{
		Kind:            store.RoomKind(orDefault(n.Kind, string(store.RoomGroup))),
		PrivateMessages: store.PrivateMessages(orDefault(n.PrivateMessages, string(store.PrivateAllowed))),
	}
	scheme := store.SchemeSenderKeys
	if room.Kind == store.RoomDirect {
		scheme = store.SchemeDoubleRatchet
	}
	room.Scheme = store.Scheme(orDefault(n.Scheme, string(scheme)))
	if room.Scheme == store.SchemeDoubleRatchet && room.Kind == store.RoomGroup {
		return room, malformed("scheme double_ratchet is for kind direct")
	}
	return room, nil
}

// listRooms lists the rooms that a device is in, or all of them for the operator.
func (a *API) listRooms(r *http.Request) (int, any, error) {
	query, err := readQuery(r, "limit", "cursor")
	if err != nil {
		return 0, nil, err
	}
	after, limit, err := readIDPage(query)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	rooms, more, err := a.cfg.Store.RoomPage(op.ctx, op.tenant, callerOf(r.Context()).device.ID, after, limit)
	if err != nil {
		return 0, nil, err
	}
	answer := Rooms{Rooms: make([]Room, 0, len(rooms))}
	for i := range rooms {
		answer.Rooms = append(answer.Rooms, roomAnswer(rooms[i]))
	}
	if more && len(rooms) > 0 {
		answer.NextCursor = idCursor(rooms[len(rooms)-1].ID)
	}
	return http.StatusOK, answer, nil
}

// showRoom shows a room to its members, to admins and to the operator. For others it does
// not exist.
func (a *API) showRoom(r *http.Request) (int, any, error) {
	id, err := pathID(r, "id")
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
	who := callerOf(r.Context())
	self, member := memberOf(roster, who.device.ID)
	if !member && !who.admin() {
		return 0, nil, store.ErrNotFound
	}
	answer := roomAnswer(roster.Room)
	if member {
		answer.ParticipantID = self.ID.String()
	}
	answer.Participants, err = op.roomMembers(roster.Participants)
	return http.StatusOK, answer, err
}

// memberOf finds the participant that a device is in a room.
func memberOf(roster store.Roster, device uuid.UUID) (store.Participant, bool) {
	at := slices.IndexFunc(roster.Participants, func(p store.Participant) bool { return p.Device == device })
	if at < 0 {
		return store.Participant{}, false
	}
	return roster.Participants[at], true
}

// roomMembers are the participants with their devices' public keys, so that members can
// verify one another and encrypt to each other.
func (op *operation) roomMembers(participants []store.Participant) ([]RoomMember, error) {
	devices := make([]uuid.UUID, 0, len(participants))
	for _, p := range participants {
		devices = append(devices, p.Device)
	}
	keys, err := op.api.cfg.Store.DeviceKeys(op.ctx, op.tenant, devices)
	if err != nil {
		return nil, err
	}
	members := make([]RoomMember, 0, len(participants))
	for _, p := range participants {
		member := RoomMember{
			ParticipantID: p.ID.String(), DeviceID: p.Device.String(), Role: string(p.Role), JoinedAt: p.JoinedAt.UTC(),
		}
		if k, has := keys[p.Device]; has {
			member.IdentityKey = base64.StdEncoding.EncodeToString(k.Identity[:])
			member.AgreementKey = base64.StdEncoding.EncodeToString(k.Agreement[:])
			member.AgreementSignature = base64.StdEncoding.EncodeToString(k.AgreementSignature[:])
		}
		members = append(members, member)
	}
	return members, nil
}

// archiveRoom may be repeated: the archiving of before is announced again.
func (a *API) archiveRoom(r *http.Request) (int, any, error) {
	return a.changeRoom(r, func(ctx context.Context, tenant, room, by uuid.UUID) (store.Room, error) {
		archived, err := a.cfg.Store.ArchiveRoom(ctx, tenant, room, by)
		if !errors.Is(err, store.ErrConflict) {
			return archived, err
		}
		now, lookUp := a.cfg.Store.FindRoom(ctx, tenant, room)
		if lookUp != nil || now.State != store.RoomArchived {
			return store.Room{}, errors.Join(lookUp, err)
		}
		return now, nil
	})
}

// resetRoom begins encryption anew each time that it is asked.
func (a *API) resetRoom(r *http.Request) (int, any, error) {
	return a.changeRoom(r, a.cfg.Store.ResetRoom)
}

// changeRoom changes a room as a whole, and answers when every node knows: what is cached of
// a room says whether it takes anything.
func (a *API) changeRoom(r *http.Request, change func(ctx context.Context, tenant, room, by uuid.UUID) (store.Room, error)) (int, any, error) {
	id, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	changed, err := change(op.ctx, op.tenant, id, callerOf(r.Context()).device.ID)
	if err != nil {
		return 0, nil, op.inDoubt(cluster.Change{Room: id}, err)
	}
	if err := op.announce(cluster.Change{Room: id, Version: changed.Version}); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, roomAnswer(changed), nil
}

func roomAnswer(room store.Room) Room {
	answer := Room{
		ID:              room.ID.String(),
		Kind:            string(room.Kind),
		Scheme:          string(room.Scheme),
		PrivateMessages: string(room.PrivateMessages),
		State:           string(room.State),
		Version:         room.Version,
		CreatedAt:       room.CreatedAt.UTC(),
	}
	if room.Kind == store.RoomDirect && room.Scheme != store.SchemeNone {
		answer.Activated = &room.Activated
	}
	return answer
}

// readIDPage reads limit and cursor of a list whose cursor is the id of the last row.
func readIDPage(query map[string]string) (after uuid.UUID, limit int, err error) {
	limit = defaultRows
	if text, given := query["limit"]; given {
		if limit, err = readLimit(text); err != nil {
			return after, limit, err
		}
	}
	if text, given := query["cursor"]; given {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(raw) != len(after) {
			return after, limit, malformed("cursor is not one that this list has handed out")
		}
		copy(after[:], raw)
	}
	return after, limit, nil
}

func idCursor(last uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(last[:]) }

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
