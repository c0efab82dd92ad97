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

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// group is the messages of one tenant in one transaction. Their ids are distinct.
type group struct {
	tenant   uuid.UUID
	messages []*pending
	stored   sqlcgen.HistoryInsertRow // the database's answer; of a lone message, the number only
}

// storeMessages gives each message its verdict. Ids are distinct within a room. All
// go in one transaction; where the database blames a row for its failure, each tenant
// is tried alone, and then each row.
func (s *Store) storeMessages(ctx context.Context, messages []*pending) {
	groups, start := groupByTenant(messages), time.Now()
	err := s.insert(ctx, groups)
	s.metrics.committed(len(messages), time.Since(start))
	switch {
	case err == nil:
		for i := range groups {
			s.settle(ctx, &groups[i])
		}
	case len(messages) == 1 || !blamesData(err):
		for _, p := range messages {
			p.done <- verdict{err: mapError(err)}
		}
	case len(groups) > 1:
		for _, g := range groups {
			s.storeMessages(ctx, g.messages)
		}
	default:
		for i := range messages {
			s.storeMessages(ctx, messages[i:i+1])
		}
	}
}

// groupByTenant may reorder messages; those of one tenant keep their order.
func groupByTenant(messages []*pending) []group {
	slices.SortStableFunc(messages, func(a, b *pending) int {
		return bytes.Compare(a.message.Tenant[:], b.message.Tenant[:])
	})
	var groups []group
	for start := 0; start < len(messages); {
		tenant, end := messages[start].message.Tenant, start+1
		for end < len(messages) && messages[end].message.Tenant == tenant {
			end++
		}
		groups = append(groups, group{tenant: tenant, messages: messages[start:end]})
		start = end
	}
	return groups
}

// insert stores what can be stored, one statement per group, in one transaction and
// one round trip.
func (s *Store) insert(ctx context.Context, groups []group) error {
	return s.lend(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		for _, g := range groups {
			asService(g.tenant).queue(batch)
			g.queue(batch)
		}
		results := conn.SendBatch(ctx, batch)
		for i := range groups {
			if _, err := results.Exec(); err != nil {
				break // Close has it
			}
			if err := groups[i].read(results); err != nil {
				return errors.Join(err, results.Close())
			}
		}
		return results.Close()
	})
}

// queue queues the statement that stores the group; the order of its parameters is that
// of the generated method.
func (g *group) queue(batch *pgx.Batch) {
	m := g.messages
	if len(m) > 1 {
		batch.Queue(sqlcgen.HistoryInsert,
			messageIDs(m), g.tenant, roomIDs(m), senderIDs(m), kinds(m), gens(m), kids(m), envelopes(m))
		return
	}
	one := &m[0].message
	var kid []byte // NULL
	if one.KID != "" {
		kid = []byte(one.KID)
	}
	batch.Queue(sqlcgen.HistoryInsertOne,
		g.tenant, one.Room, one.ID, one.Sender, one.Kind.String(), int64(one.Gen), kid, one.Bytes)
}

// read takes the answer to what queue queued.
func (g *group) read(results pgx.BatchResults) error {
	if len(g.messages) > 1 {
		return results.QueryRow().Scan(&g.stored.Stored, &g.stored.Rooms, &g.stored.IDs)
	}
	tag, err := results.Exec()
	g.stored = sqlcgen.HistoryInsertRow{Stored: tag.RowsAffected()}
	return err
}

// settle answers the messages of a committed group.
func (s *Store) settle(ctx context.Context, g *group) {
	if g.stored.Stored == int64(len(g.messages)) {
		for _, p := range g.messages {
			p.done <- verdict{}
		}
		return
	}
	stored := make(map[messageKey]struct{}, len(g.stored.IDs))
	for i, id := range g.stored.IDs {
		stored[messageKey{g.stored.Rooms[i], id}] = struct{}{}
	}
	var refused []*pending
	for _, p := range g.messages {
		if _, ok := stored[messageKey{p.message.Room, p.message.ID}]; ok {
			p.done <- verdict{}
			continue
		}
		refused = append(refused, p)
	}
	s.explain(ctx, g.tenant, refused)
}

// explain answers the messages that were not stored, by what the database holds now.
func (s *Store) explain(ctx context.Context, tenant uuid.UUID, refused []*pending) {
	ask := sqlcgen.HistoryVerdictsParams{TenantID: tenant}
	for _, p := range refused {
		ask.MessageIDs = append(ask.MessageIDs, p.message.ID)
		ask.RoomIDs = append(ask.RoomIDs, p.message.Room)
		ask.SenderIDs = append(ask.SenderIDs, p.message.Sender)
		ask.Envelopes = append(ask.Envelopes, p.message.Bytes)
	}
	var rows []sqlcgen.HistoryVerdictsRow
	err := s.call(ctx, "compare with history", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.HistoryVerdicts(ctx, db, ask)
		return err
	})
	if err == nil && len(rows) != len(refused) {
		err = fmt.Errorf("compare with history: %d answers to %d questions", len(rows), len(refused))
	}
	for i, p := range refused {
		if err != nil {
			p.done <- verdict{err: err}
			continue
		}
		p.done <- verdictOf(rows[i])
	}
}

var errConflict = &wire.Error{Code: wire.HistoryConflict, Detail: "the id is stored with other content or another sender"}

func verdictOf(row sqlcgen.HistoryVerdictsRow) verdict {
	switch {
	case !row.RoomKnown:
		return verdict{err: fmt.Errorf("room: %w", store.ErrNotFound)}
	case row.Archived:
		return verdict{err: fmt.Errorf("room is archived: %w", store.ErrConflict)}
	case !row.Member:
		return verdict{err: fmt.Errorf("sender: %w", store.ErrNotFound)}
	case row.Same:
		return verdict{duplicate: true}
	case row.Stored:
		return verdict{err: errConflict}
	}
	return verdict{err: errors.New("the message was not stored, for no reason that still holds")}
}
