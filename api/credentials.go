package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/cluster"
	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

const (
	defaultTTL = 24 * time.Hour
	// MaxCredentialTTL is the longest time a credential may be valid.
	MaxCredentialTTL = 366 * 24 * time.Hour
)

// terms are what a credential is minted with.
type terms struct {
	kind store.CredentialKind
	ttl  time.Duration
}

func credentialTerms(kind string, ttlSeconds *int64) (terms, error) {
	t := terms{kind: store.CredentialKind(orDefault(kind, string(store.CredentialSession))), ttl: defaultTTL}
	if t.kind != store.CredentialSession && t.kind != store.CredentialDevelopment {
		return t, malformed("kind must be session or development")
	}
	if ttlSeconds != nil {
		if *ttlSeconds < 1 || *ttlSeconds > int64(MaxCredentialTTL/time.Second) {
			return t, malformed("ttl_seconds must be 1 to 31622400 (366 days)")
		}
		t.ttl = time.Duration(*ttlSeconds) * time.Second
	}
	return t, nil
}

// mint makes a token, stores its hash, and is the only place that shows the token.
func (op *operation) mint(participant uuid.UUID, t terms) (Credential, error) {
	token, hash := store.NewToken()
	made, err := op.api.cfg.Store.MintCredential(op.ctx, op.tenant, participant, t.kind, hash, t.ttl)
	if err != nil {
		return Credential{}, err
	}
	return Credential{
		Credential:    token,
		CredentialID:  made.ID.String(),
		ParticipantID: made.Participant.String(),
		RoomID:        made.Room.String(),
		Kind:          string(made.Kind),
		ExpiresAt:     made.ExpiresAt.UTC(),
	}, nil
}

func (a *API) mintInRoom(r *http.Request) (int, any, error) {
	room, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	var body NewCredential
	if err := decodeGiven(r, &body); err != nil {
		return 0, nil, err
	}
	if who := callerOf(r.Context()); !who.operator {
		return a.mintForSelf(r, room, who.device, body)
	}
	participant, err := bodyID(body.ParticipantID, "participant_id")
	if err != nil {
		return 0, nil, err
	}
	return a.mintCredential(r, room, participant, body)
}

// mintForSelf mints for the participant that the device is in the room. A room it is not
// in does not exist for it.
func (a *API) mintForSelf(r *http.Request, room uuid.UUID, device store.Device, body NewCredential) (int, any, error) {
	if body.Kind == string(store.CredentialDevelopment) {
		return 0, nil, &wire.Error{Code: wire.Forbidden, Detail: "only the operator mints development credentials"}
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	roster, err := a.cfg.Store.Roster(op.ctx, op.tenant, room)
	if err != nil {
		return 0, nil, err
	}
	self := slices.IndexFunc(roster.Participants, func(p store.Participant) bool { return p.Device == device.ID })
	if self < 0 || body.ParticipantID != "" && body.ParticipantID != roster.Participants[self].ID.String() {
		return 0, nil, store.ErrNotFound
	}
	return a.mintCredential(r, room, roster.Participants[self].ID, body)
}

func (a *API) mintForParticipant(r *http.Request) (int, any, error) {
	participant, err := pathID(r, "id")
	if err != nil {
		return 0, nil, err
	}
	var body NewCredential
	if err := decodeGiven(r, &body); err != nil {
		return 0, nil, err
	}
	if body.ParticipantID != "" {
		return 0, nil, malformed("participant_id is in the address")
	}
	return a.mintCredential(r, uuid.Nil, participant, body)
}

// mintCredential mints for a current participant, of the room where one is named.
func (a *API) mintCredential(r *http.Request, room, participant uuid.UUID, body NewCredential) (int, any, error) {
	t, err := credentialTerms(body.Kind, body.TTLSeconds)
	if err != nil {
		return 0, nil, err
	}
	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	if room != uuid.Nil {
		found, err := a.cfg.Store.FindParticipant(op.ctx, op.tenant, participant)
		if err != nil {
			return 0, nil, err
		}
		if found.Room != room {
			return 0, nil, store.ErrNotFound
		}
	}
	credential, err := op.mint(participant, t)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, credential, nil
}

// revokeOne may be repeated: what was revoked before is announced again. Of a device's
// request nothing is announced in doubt: whose credential it is is not known then either.
func (a *API) revokeOne(r *http.Request) (int, any, error) {
	id, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	who := callerOf(r.Context())
	revoked, err := a.cfg.Store.RevokeCredential(op.ctx, op.tenant, id, who.device.ID)
	if err != nil {
		if !who.operator {
			return 0, nil, err
		}
		return 0, nil, op.inDoubt(cluster.Change{Credentials: []uuid.UUID{id}}, err)
	}
	// The room of a credential that was revoked before is not known: all are told.
	change := cluster.Change{Credentials: []uuid.UUID{id}}
	if len(revoked) > 0 {
		change.Room = revoked[0].Room
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Revoked{Revoked: len(revoked)}, nil
}

// revokeAll may be repeated. The participant stays in the room; without a valid
// credential none of its connections may stay open.
func (a *API) revokeAll(r *http.Request) (int, any, error) {
	id, op, err := a.beginByID(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	// Which credentials an earlier request revoked is forgotten; a repetition closes all
	// that the participant has open.
	change := cluster.Change{Removed: []uuid.UUID{id}}
	if participant, err := a.cfg.Store.FindParticipant(op.ctx, op.tenant, id); err == nil {
		change.Room = participant.Room // else it was removed: all rooms are told
	}
	revoked, err := a.cfg.Store.RevokeParticipantCredentials(op.ctx, op.tenant, id)
	if err != nil {
		return 0, nil, op.inDoubt(change, err)
	}
	if len(revoked) > 0 {
		change = cluster.Change{Room: revoked[0].Room}
	}
	for _, credential := range revoked {
		change.Credentials = append(change.Credentials, credential.ID)
	}
	if err := op.announce(change); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, Revoked{Revoked: len(revoked)}, nil
}

// beginByID begins a request without a body whose path names one id.
func (a *API) beginByID(r *http.Request) (uuid.UUID, *operation, error) {
	id, err := pathID(r, "id")
	if err != nil {
		return uuid.Nil, nil, err
	}
	if err := noBody(r); err != nil {
		return uuid.Nil, nil, err
	}
	op, err := a.begin(r)
	return id, op, err
}
