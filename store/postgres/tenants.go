package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

const defaultTenant = "default"

// DefaultTenant implements store.Operator.
func (s *Store) DefaultTenant(ctx context.Context) (uuid.UUID, error) {
	var id uuid.UUID
	err := s.transaction(ctx, "find default tenant", asFounder(defaultTenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		id, err = s.q.TenantByName(ctx, db, defaultTenant)
		if !isNoRows(err) {
			return err
		}
		made, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make id: %w", err)
		}
		if _, err := s.q.TenantCreate(ctx, db, made, defaultTenant); err != nil {
			return err
		}
		id, err = s.q.TenantByName(ctx, db, defaultTenant) // another node may have been first
		return err
	})
	return id, err
}

// SetFrozen implements store.Operator.
func (s *Store) SetFrozen(ctx context.Context, tenant uuid.UUID, frozen bool) error {
	return s.call(ctx, "freeze", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		changed, err := s.q.TenantSetFrozen(ctx, db, frozen, tenant)
		if err == nil && changed == 0 {
			err = store.ErrNotFound
		}
		return err
	})
}

// Frozen implements store.Operator.
func (s *Store) Frozen(ctx context.Context, tenant uuid.UUID) (bool, error) {
	var frozen bool
	err := s.call(ctx, "look up freeze", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		frozen, err = s.q.TenantFrozen(ctx, db, tenant)
		return err
	})
	return frozen, err
}
