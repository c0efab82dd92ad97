package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Bounds of one pruning transaction, so that none holds its locks for long.
const (
	prunePage  = 200   // tenants or rooms looked at
	pruneBatch = 1_000 // rows deleted
)

// pruneLock keeps nodes from pruning at the same time ("relay prune" in no particular
// encoding; the number must only be ours).
const pruneLock = 0x72656c6179707275

// pruner keeps history, notices and credentials within their window. One node at a time does it.
// Traces have no window: they are an audit, and the service has no right to delete one.
type pruner struct {
	store  *Store
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startPruner(s *Store) *pruner {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pruner{store: s, cancel: cancel}
	if s.cfg.History.PruneEvery > 0 {
		p.done.Go(func() { p.run(ctx) })
	}
	return p
}

func (p *pruner) close() {
	p.cancel()
	p.done.Wait()
}

func (p *pruner) run(ctx context.Context) {
	tick := time.NewTicker(p.store.cfg.History.PruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.pass(ctx, "history", p.store.PruneHistory)
		p.pass(ctx, "notices", p.store.PruneNotices)
		p.pass(ctx, "credentials", p.store.PruneCredentials)
	}
}

func (p *pruner) pass(ctx context.Context, what string, prune func(context.Context) (int64, error)) {
	deleted, err := prune(ctx)
	if err != nil && ctx.Err() == nil {
		p.store.cfg.Logger.WarnContext(ctx, "prune", "what", what, "error", err)
	}
	if deleted > 0 {
		p.store.cfg.Logger.InfoContext(ctx, "pruned", "what", what, "rows", deleted)
	}
}

// PruneHistory makes one pass over all rooms of all tenants, deletes the rows outside
// their window and returns how many. It skips what another node is pruning. The store
// does this by itself every PruneEvery.
func (s *Store) PruneHistory(ctx context.Context) (deleted int64, err error) {
	err = s.eachTenant(ctx, func(tenant uuid.UUID) error {
		return s.eachOverfullRoom(ctx, tenant, func(room uuid.UUID) error {
			n, err := s.pruneRoom(ctx, tenant, room)
			deleted += n
			return err
		})
	})
	s.metrics.pruned(deleted)
	return deleted, err
}

// PruneCredentials deletes the credentials of all tenants that expired or were revoked longer
// ago than history is kept, and returns how many. The store does this by itself every
// PruneEvery.
func (s *Store) PruneCredentials(ctx context.Context) (deleted int64, err error) {
	return s.pruneTenants(ctx, "prune credentials", s.q.CredentialPrune)
}

// pruneQuery deletes a tenant's rows that were over so many seconds ago, at most batch of them.
type pruneQuery func(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, keepSeconds float64, batch int32) (int64, error)

// pruneTenants deletes batch after batch of each tenant, as pruneRoom does.
func (s *Store) pruneTenants(ctx context.Context, what string, prune pruneQuery) (total int64, err error) {
	err = s.eachTenant(ctx, func(tenant uuid.UUID) error {
		for {
			var deleted int64
			err := s.transaction(ctx, what, asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
				deleted = 0
				locked, err := s.q.TransactionLock(ctx, db, pruneLock)
				if err != nil || !locked {
					return err
				}
				deleted, err = prune(ctx, db, tenant, s.cfg.History.KeepFor.Seconds(), pruneBatch)
				return err
			})
			total += deleted
			if err != nil || deleted < pruneBatch {
				return err
			}
		}
	})
	return total, err
}

func (s *Store) eachTenant(ctx context.Context, do func(uuid.UUID) error) error {
	for after := uuid.Nil; ; {
		var page []uuid.UUID
		err := s.call(ctx, "list tenants", asMaintenance(), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
			page, err = s.q.TenantPage(ctx, db, after, prunePage)
			return err
		})
		if err != nil {
			return err
		}
		for _, tenant := range page {
			if err := do(tenant); err != nil {
				return err
			}
		}
		if len(page) < prunePage {
			return nil
		}
		after = page[len(page)-1]
	}
}

func (s *Store) eachOverfullRoom(ctx context.Context, tenant uuid.UUID, do func(uuid.UUID) error) error {
	for after := uuid.Nil; ; {
		var page []sqlcgen.HistoryOverfullRow
		err := s.call(ctx, "look for overfull history", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
			page, err = s.q.HistoryOverfull(ctx, db, sqlcgen.HistoryOverfullParams{
				TenantID: tenant, After: after, Page: prunePage,
				Keep: int64(s.cfg.History.KeepRows), MaxAgeSeconds: s.cfg.History.KeepFor.Seconds(),
			})
			return err
		})
		if err != nil {
			return err
		}
		for _, room := range page {
			if !room.Excess {
				continue
			}
			if err := do(room.ID); err != nil {
				return err
			}
		}
		if len(page) < prunePage {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// pruneRoom deletes batch after batch, each in its own transaction under the lock.
func (s *Store) pruneRoom(ctx context.Context, tenant, room uuid.UUID) (total int64, err error) {
	for {
		var deleted int64
		err := s.transaction(ctx, "prune history", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
			deleted = 0
			locked, err := s.q.TransactionLock(ctx, db, pruneLock)
			if err != nil || !locked {
				return err
			}
			deleted, err = s.q.HistoryPrune(ctx, db, sqlcgen.HistoryPruneParams{
				TenantID: tenant, RoomID: room, Batch: pruneBatch,
				Keep: int64(s.cfg.History.KeepRows), MaxAgeSeconds: s.cfg.History.KeepFor.Seconds(),
			})
			return err
		})
		total += deleted
		if err != nil || deleted < pruneBatch {
			return total, err
		}
	}
}
