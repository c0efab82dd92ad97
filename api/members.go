package api

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
)

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
	after, err := op.api.cfg.Store.RemoveParticipant(op.ctx, op.tenant, room, participant, uuid.Nil)
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
