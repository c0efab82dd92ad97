package api

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
)

// addMember makes a membership, and for the operator its first credential: devices mint
// their own. Nobody loses anything by it, so nodes that cannot be told in time are a
// warning: the credential, which is shown only once, must not be lost to that.
func (a *API) addMember(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	var body NewMember
	if err := decodeGiven(r, &body); err != nil {
		return 0, nil, err
	}
	who := callerOf(r.Context())
	member, err := body.read(who)
	if err != nil {
		return 0, nil, err
	}
	t, err := credentialTerms(body.Kind, body.TTLSeconds)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	member.Tenant, member.Room = op.tenant, room
	added, err := a.cfg.Store.AddParticipant(op.ctx, member)
	if err != nil {
		return 0, nil, op.inDoubt(cluster.Change{Room: room}, err)
	}
	answer := Member{
		ParticipantID: added.ID.String(), RoomID: added.Room.String(), DeviceID: added.Device.String(),
		Role: string(added.Role), JoinedAt: added.JoinedAt.UTC(),
	}
	if who.operator {
		if err := op.mintFirst(&answer, &added, t); err != nil {
			return 0, nil, err
		}
	}
	if err := op.spread(cluster.Change{Room: added.Room}); err != nil {
		a.log.WarnContext(op.ctx, "not every node knows the new participant yet", "room", added.Room, "error", err)
		answer.Warning = "added, but not every node knows it yet; it will within a minute"
	}
	return http.StatusCreated, answer, nil
}

// read reads what the caller may ask for.
func (n *NewMember) read(who caller) (member store.NewParticipant, err error) {
	member = store.NewParticipant{Role: store.Role(n.Role), By: who.device.ID}
	if !member.Role.Valid() {
		return member, malformed("role must be owner, controller, agent or viewer")
	}
	if !who.operator && (n.Kind != "" || n.TTLSeconds != nil) {
		return member, malformed("kind and ttl_seconds are for the operator: a device mints its credentials itself")
	}
	if n.DeviceID == "" && who.operator {
		return member, nil
	}
	member.Device, err = bodyID(n.DeviceID, "device_id")
	return member, err
}

// mintFirst adds the first credential to the answer.
func (op *operation) mintFirst(answer *Member, added *store.Participant, t terms) error {
	credential, err := op.mint(added.ID, t)
	if err != nil {
		op.api.log.WarnContext(op.ctx, "participant was added, but its credential was not minted", "participant", added.ID)
		return op.inDoubt(cluster.Change{Room: added.Room}, err)
	}
	answer.Credential, answer.CredentialID = credential.Credential, credential.CredentialID
	answer.Kind, answer.ExpiresAt = credential.Kind, credential.ExpiresAt
	return nil
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
	change, err := op.remove(callerOf(r.Context()), room, participant)
	if err != nil {
		return 0, nil, err
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Removed{ParticipantID: participant.String(), RoomID: room.String()}, nil
}

// remove returns what is to be announced.
func (op *operation) remove(who caller, room, participant uuid.UUID) (cluster.Change, error) {
	change := cluster.Change{Room: room, Removed: []uuid.UUID{participant}}
	after, err := op.api.cfg.Store.RemoveParticipant(op.ctx, op.tenant, room, participant, who.device.ID)
	if errors.Is(err, store.ErrNotFound) {
		after, err = op.removedBefore(who, room, participant)
	}
	if err == nil {
		change.Version = after.Version
		return change, nil
	}
	if !refused(err) {
		// The store did not say whether the caller may do this, so this has to: nobody's
		// connections are closed because a stranger asked for it.
		if _, _, forbidden := op.mayRemove(who, room, participant); forbidden != nil {
			change.Removed = nil
		}
	}
	return change, op.inDoubt(change, err)
}

// removedBefore tells somebody who was removed earlier from somebody who never was
// there, and from a member of another room.
func (op *operation) removedBefore(who caller, room, participant uuid.UUID) (store.Room, error) {
	now, left, err := op.mayRemove(who, room, participant)
	if err == nil && !left {
		err = store.ErrNotFound
	}
	return now, err
}

// mayRemove says whether the caller may remove, or have removed, somebody who is or was in
// the room, and whether that one has left: operator, admins and owners may, and everybody
// may leave (store.Rooms).
func (op *operation) mayRemove(who caller, room, participant uuid.UUID) (now store.Room, left bool, err error) {
	p, leftAt, err := op.api.cfg.Store.Membership(op.ctx, op.tenant, room, participant)
	if err != nil {
		return now, false, err
	}
	left = !leftAt.IsZero()
	roster, err := op.api.cfg.Store.Roster(op.ctx, op.tenant, room)
	if err != nil || who.admin() || p.Device == who.device.ID {
		return roster.Room, left, err
	}
	switch self, member := memberOf(roster, who.device.ID); {
	case !member:
		return roster.Room, left, store.ErrNotFound
	case self.Role != store.RoleOwner:
		return roster.Room, left, store.ErrNotManager
	}
	return roster.Room, left, nil
}
