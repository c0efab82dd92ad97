package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// DefaultTenant implements store.Operator.
func (s *Store) DefaultTenant(ctx context.Context) (uuid.UUID, error) {
	found, err := s.TenantByName(ctx, store.DefaultTenantName)
	if errors.Is(err, store.ErrNotFound) {
		if found, err = s.CreateTenant(ctx, store.DefaultTenantName); errors.Is(err, store.ErrConflict) {
			found, err = s.TenantByName(ctx, store.DefaultTenantName) // another node was first
		}
	}
	return found.ID, err
}

// CreateTenant implements store.Tenants.
func (s *Store) CreateTenant(ctx context.Context, name string) (store.Tenant, error) {
	if !store.ValidTenantName(name) {
		return store.Tenant{}, fmt.Errorf("create tenant: name: %w", store.ErrInvalid)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Tenant{}, fmt.Errorf("make id: %w", err)
	}
	var made store.Tenant
	err = s.transaction(ctx, "create tenant", asFounder(name), func(ctx context.Context, db sqlcgen.DBTX) error {
		created, err := s.q.TenantCreate(ctx, db, id, name)
		if err != nil {
			return err
		}
		if created == 0 {
			return store.ErrConflict
		}
		row, err := s.q.TenantByName(ctx, db, name)
		made = tenantOf(sqlcgen.TenantsByNameRow(row))
		return err
	})
	return made, err
}

// TenantByName implements store.Tenants.
func (s *Store) TenantByName(ctx context.Context, name string) (store.Tenant, error) {
	if !store.ValidTenantName(name) { // the database could not even be asked for some
		return store.Tenant{}, fmt.Errorf("find tenant: %w", store.ErrNotFound)
	}
	var row sqlcgen.TenantByNameRow
	err := s.call(ctx, "find tenant", asFounder(name), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.TenantByName(ctx, db, name)
		return err
	})
	if err != nil {
		return store.Tenant{}, err
	}
	return tenantOf(sqlcgen.TenantsByNameRow(row)), nil
}

// TenantPage implements store.Tenants.
func (s *Store) TenantPage(ctx context.Context, after string, limit int) ([]store.Tenant, bool, error) {
	if err := (store.Page{Limit: limit}).Check(); err != nil {
		return nil, false, err
	}
	if after != "" && !store.ValidTenantName(after) {
		return nil, false, fmt.Errorf("list tenants: name: %w", store.ErrInvalid)
	}
	var rows []sqlcgen.TenantsByNameRow
	err := s.call(ctx, "list tenants", asMaintenance(), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.TenantsByName(ctx, db, after, int32(limit)+1)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	more := len(rows) > limit
	return convertAll(rows[:min(len(rows), limit)], tenantOf), more, nil
}

// CursorKey implements store.Tenants.
func (s *Store) CursorKey(ctx context.Context, tenant uuid.UUID) (key [16]byte, err error) {
	var raw []byte
	err = s.call(ctx, "read cursor key", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		raw, err = s.q.TenantCursorKey(ctx, db, tenant)
		return err
	})
	copy(key[:], raw)
	return key, err
}

func tenantOf(row sqlcgen.TenantsByNameRow) store.Tenant {
	return store.Tenant{ID: row.ID, Name: row.Name, Frozen: row.Frozen, CreatedAt: row.CreatedAt.UTC()}
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
