package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) OpenRoom(context.Context, store.NewRoom, uuid.UUID) (store.Room, store.Participant, error) {
	return store.Room{}, store.Participant{}, errUnbuilt
}

func (s *Store) RoomPage(context.Context, uuid.UUID, uuid.UUID, uuid.UUID, int) ([]store.Room, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) ArchiveRoom(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.Room, error) {
	return store.Room{}, errUnbuilt
}

func (s *Store) ResetRoom(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.Room, error) {
	return store.Room{}, errUnbuilt
}
