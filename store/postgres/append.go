package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// group is the rows of one tenant in one transaction. Their keys are distinct.
type group[R any] struct {
	tenant uuid.UUID
	rows   []*pending[R]
	stored storedRows
}

// storedRows is the database's answer: how many rows it stored and, where those are
// not all, which. Of a lone row it is the number only.
type storedRows struct {
	count int64
	rooms []uuid.UUID
	ids   []string
}

// write gives each row its verdict. Keys are distinct within a tenant. All go in one
// transaction; where the database blames a row for its failure, each tenant is tried
// alone, and then each row.
func (c *groupCommit[R]) write(ctx context.Context, rows []*pending[R]) {
	groups, start := c.groupByTenant(rows), time.Now()
	err := c.insert(ctx, groups)
	c.metrics.committed(len(rows), time.Since(start))
	switch {
	case err == nil:
		for i := range groups {
			c.settle(ctx, &groups[i])
		}
	case len(rows) == 1 || !blamesData(err):
		for _, p := range rows {
			p.done <- verdict{err: mapError(err)}
		}
	case len(groups) > 1:
		for _, g := range groups {
			c.write(ctx, g.rows)
		}
	default:
		for i := range rows {
			c.write(ctx, rows[i:i+1])
		}
	}
}

// groupByTenant may reorder rows; those of one tenant keep their order.
func (c *groupCommit[R]) groupByTenant(rows []*pending[R]) []group[R] {
	slices.SortStableFunc(rows, func(a, b *pending[R]) int {
		left, right := c.table.tenant(&a.row), c.table.tenant(&b.row)
		return bytes.Compare(left[:], right[:])
	})
	var groups []group[R]
	for start := 0; start < len(rows); {
		tenant, end := c.table.tenant(&rows[start].row), start+1
		for end < len(rows) && c.table.tenant(&rows[end].row) == tenant {
			end++
		}
		groups = append(groups, group[R]{tenant: tenant, rows: rows[start:end]})
		start = end
	}
	return groups
}

// insert stores what can be stored, one statement per group, in one transaction and
// one round trip.
func (c *groupCommit[R]) insert(ctx context.Context, groups []group[R]) error {
	return c.store.lend(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		first := c.queueSettings(batch, groups)
		for i := range groups {
			if i > 0 {
				asService(groups[i].tenant).queue(batch)
			}
			c.queue(batch, &groups[i])
		}
		results := conn.SendBatch(ctx, batch)
		for i := range groups {
			for range first {
				if _, err := results.Exec(); err != nil {
					return results.Close() // which has it
				}
			}
			if err := groups[i].read(results); err != nil {
				return errors.Join(err, results.Close())
			}
			first = 1 // the settings of the groups that follow
		}
		return results.Close()
	})
}

// queueSettings queues the first group's settings and the locks of all rooms, in the
// order that every writer keeps to. It returns how many statements these are.
func (c *groupCommit[R]) queueSettings(batch *pgx.Batch, groups []group[R]) int {
	if first := groups[0]; len(groups) == 1 && len(first.rows) == 1 {
		batch.Queue(sqlcgen.SettingsApplyInRoom, first.tenant.String(), lockKey(c.table.key(&first.rows[0].row).room))
		return 1
	}
	var keys []int64
	for _, g := range groups {
		for _, p := range g.rows {
			keys = append(keys, lockKey(c.table.key(&p.row).room))
		}
	}
	slices.Sort(keys)
	settings := asService(groups[0].tenant).queue(batch)
	batch.Queue(sqlcgen.RoomsSerialize, slices.Compact(keys))
	return settings + 1
}

func (c *groupCommit[R]) queue(batch *pgx.Batch, g *group[R]) {
	if len(g.rows) == 1 {
		c.table.queueOne(batch, &g.rows[0].row)
		return
	}
	c.table.queueMany(batch, g.rows)
}

// read takes the answer to what queue queued.
func (g *group[R]) read(results pgx.BatchResults) error {
	if len(g.rows) > 1 {
		return results.QueryRow().Scan(&g.stored.count, &g.stored.rooms, &g.stored.ids)
	}
	tag, err := results.Exec()
	g.stored = storedRows{count: tag.RowsAffected()}
	return err
}

// settle answers the rows of a committed group.
func (c *groupCommit[R]) settle(ctx context.Context, g *group[R]) {
	if g.stored.count == int64(len(g.rows)) {
		for _, p := range g.rows {
			p.done <- verdict{}
		}
		return
	}
	stored := make(map[rowKey]struct{}, len(g.stored.ids))
	for i, id := range g.stored.ids {
		stored[rowKey{g.stored.rooms[i], id}] = struct{}{}
	}
	var refused []*pending[R]
	for _, p := range g.rows {
		if _, ok := stored[c.table.key(&p.row)]; ok {
			p.done <- verdict{}
			continue
		}
		refused = append(refused, p)
	}
	c.explain(ctx, g.tenant, refused)
}

// explain answers the rows that were not stored.
func (c *groupCommit[R]) explain(ctx context.Context, tenant uuid.UUID, refused []*pending[R]) {
	verdicts, err := c.table.explain(ctx, tenant, refused)
	if err == nil && len(verdicts) != len(refused) {
		err = fmt.Errorf("ask why rows were not stored: %d answers to %d questions", len(verdicts), len(refused))
	}
	for i, p := range refused {
		if err != nil {
			p.done <- verdict{err: err}
			continue
		}
		p.done <- verdicts[i]
	}
}

// errNoReason: what kept the row out is gone again. The same call again may succeed.
var errNoReason = errors.New("the row was not stored, for no reason that still holds")
