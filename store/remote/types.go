package remote

import (
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/wire"
)

// id is an id in JSON: the one text form, and no other.
type id uuid.UUID

var errNoID = errors.New("not an id")

func (i *id) UnmarshalText(text []byte) error {
	parsed, ok := wire.ParseUUID(text)
	if !ok {
		return errNoID
	}
	*i = parsed
	return nil
}

// The bodies of requests that look something up. Those that store are written by hand.
type (
	tokenCheck struct {
		TokenHash []byte `json:"token_hash"`
	}
	credentialsCheck struct {
		TenantID      uuid.UUID   `json:"tenant_id"`
		CredentialIDs []uuid.UUID `json:"credential_ids"`
	}
	roomsCheck struct {
		TenantID uuid.UUID   `json:"tenant_id"`
		RoomIDs  []uuid.UUID `json:"room_ids"`
	}
)

func encodeBody(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	return json.Marshal(body)
}

type validCredentials struct {
	Valid *[]id `json:"valid"`
}

func (v *validCredentials) complete() bool { return v.Valid != nil }

type roomVersions struct {
	Versions *map[id]int64 `json:"versions"`
}

func (v *roomVersions) complete() bool { return v.Versions != nil }

type pong struct {
	OK *bool `json:"ok"`
}

func (p *pong) complete() bool { return p.OK != nil }

var errNotAsked = errors.New("the API answers about an id that it was not asked about")

func asked(ids []uuid.UUID, about uuid.UUID) error {
	if !slices.Contains(ids, about) {
		return errNotAsked
	}
	return nil
}

type identity struct {
	Tenant      id        `json:"tenant_id"`
	Room        id        `json:"room_id"`
	Participant id        `json:"participant_id"`
	Device      id        `json:"device_id"`
	Credential  id        `json:"credential_id"`
	Role        string    `json:"role"`
	Kind        string    `json:"kind"`
	ExpiresAt   time.Time `json:"expires_at"`
	Frozen      *bool     `json:"frozen"`
}

func (i *identity) complete() bool {
	return i.Tenant != id{} && i.Room != id{} && i.Participant != id{} && i.Device != id{} && i.Credential != id{} &&
		!i.ExpiresAt.IsZero() && i.Frozen != nil
}

// identity refuses a role or kind it does not know: a missing row never means allowed.
func (i *identity) identity() (store.Identity, error) {
	role, kind := store.Role(i.Role), store.CredentialKind(i.Kind)
	if !role.Valid() || kind != store.CredentialSession && kind != store.CredentialDevelopment {
		return store.Identity{}, callAuthenticate.unexpected("a role or kind there is not")
	}
	return store.Identity{
		Tenant: uuid.UUID(i.Tenant), Room: uuid.UUID(i.Room), Participant: uuid.UUID(i.Participant),
		Device: uuid.UUID(i.Device), Credential: uuid.UUID(i.Credential),
		Role: role, Kind: kind, ExpiresAt: i.ExpiresAt.UTC(), Frozen: *i.Frozen,
	}, nil
}

type roster struct {
	Room struct {
		ID              id        `json:"room_id"`
		Kind            string    `json:"kind"`
		Scheme          string    `json:"scheme"`
		PrivateMessages string    `json:"private_messages"`
		State           string    `json:"state"`
		Version         int64     `json:"version"`
		Activated       bool      `json:"activated"`
		CreatedAt       time.Time `json:"created_at"`
	} `json:"room"`
	Participants *[]struct {
		ID       id        `json:"participant_id"`
		Device   id        `json:"device_id"`
		Role     string    `json:"role"`
		JoinedAt time.Time `json:"joined_at"`
	} `json:"participants"`
}

func (r *roster) complete() bool {
	return r.Participants != nil && r.Room.Kind != "" && r.Room.Scheme != "" && r.Room.State != "" && r.Room.Version > 0
}

// roster passes a missing policy on as missing: whoever asks for it refuses (RELAY,
// "missing policy never means allowed").
func (r *roster) roster(tenant, room uuid.UUID) (store.Roster, error) {
	if uuid.UUID(r.Room.ID) != room {
		return store.Roster{}, callRoster.unexpected("another room")
	}
	found := store.Roster{Room: store.Room{
		ID: room, Tenant: tenant, Kind: store.RoomKind(r.Room.Kind), Scheme: store.Scheme(r.Room.Scheme),
		PrivateMessages: store.PrivateMessages(r.Room.PrivateMessages), State: store.RoomState(r.Room.State),
		Version: r.Room.Version, Activated: r.Room.Activated, CreatedAt: r.Room.CreatedAt.UTC(),
	}}
	for _, p := range *r.Participants {
		if (p.ID == id{}) || !store.Role(p.Role).Valid() {
			return store.Roster{}, callRoster.unexpected("a participant without an id or a role")
		}
		found.Participants = append(found.Participants, store.Participant{
			ID: uuid.UUID(p.ID), Tenant: tenant, Room: room, Device: uuid.UUID(p.Device),
			Role: store.Role(p.Role), JoinedAt: p.JoinedAt.UTC(),
		})
	}
	return found, nil
}
