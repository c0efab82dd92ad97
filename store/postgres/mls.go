package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
)

func (s *Store) AddKeyPackages(context.Context, uuid.UUID, uuid.UUID, []store.KeyPackage) (store.KeyPackageStock, error) {
	return store.KeyPackageStock{}, errUnbuilt
}

func (s *Store) KeyPackageStock(context.Context, uuid.UUID, uuid.UUID) (store.KeyPackageStock, error) {
	return store.KeyPackageStock{}, errUnbuilt
}

func (s *Store) ClaimKeyPackages(context.Context, uuid.UUID, uuid.UUID, uuid.UUID, []uuid.UUID) ([]store.ClaimedKeyPackage, error) {
	return nil, errUnbuilt
}

func (s *Store) AcceptCommit(context.Context, store.NewCommit) (uint64, error) { return 0, errUnbuilt }

func (s *Store) CommitPage(context.Context, uuid.UUID, uuid.UUID, uuid.UUID, uint64, int) ([]store.Commit, bool, error) {
	return nil, false, errUnbuilt
}

func (s *Store) Group(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.Group, error) {
	return store.Group{}, errUnbuilt
}

func (s *Store) Welcome(context.Context, uuid.UUID, uuid.UUID, uuid.UUID) (store.Welcome, error) {
	return store.Welcome{}, errUnbuilt
}

func (s *Store) ReportCommit(context.Context, uuid.UUID, uuid.UUID, uuid.UUID, uint64) error {
	return errUnbuilt
}
