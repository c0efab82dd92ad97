package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

func (s *Store) PublishPrekeys(context.Context, uuid.UUID, uuid.UUID, *store.SignedPrekey, []store.OneTimePrekey) (store.PrekeyStock, error) {
	return store.PrekeyStock{}, errUnbuilt
}

func (s *Store) PrekeyStock(context.Context, uuid.UUID, uuid.UUID) (store.PrekeyStock, error) {
	return store.PrekeyStock{}, errUnbuilt
}

func (s *Store) TakePrekeyBundle(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.PrekeyBundle, error) {
	return store.PrekeyBundle{}, errUnbuilt
}
