package api

import (
	"net/http"

	"github.com/peerrelay/peerrelay/store"
)

func (a *API) createRoom(r *http.Request) (int, any, error) {
	var body NewRoom
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	room := store.NewRoom{
		Kind:            store.RoomKind(orDefault(body.Kind, string(store.RoomGroup))),
		PrivateMessages: store.PrivateMessages(orDefault(body.PrivateMessages, string(store.PrivateAllowed))),
	}
	scheme := store.SchemeSenderKeys
	if room.Kind == store.RoomDirect {
		scheme = store.SchemeDoubleRatchet
	}
	room.Scheme = store.Scheme(orDefault(body.Scheme, string(scheme)))

	op, err := a.begin(r)
	if err != nil {
		return 0, nil, err
	}
	defer op.cancel()
	room.Tenant = op.tenant
	made, err := a.cfg.Store.CreateRoom(op.ctx, room)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, roomAnswer(made), nil
}

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
	room, err := a.cfg.Store.FindRoom(op.ctx, op.tenant, id)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, roomAnswer(room), nil
}

func roomAnswer(room store.Room) Room {
	return Room{
		ID:              room.ID.String(),
		Kind:            string(room.Kind),
		Scheme:          string(room.Scheme),
		PrivateMessages: string(room.PrivateMessages),
		State:           string(room.State),
		Version:         room.Version,
		CreatedAt:       room.CreatedAt.UTC(),
	}
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
