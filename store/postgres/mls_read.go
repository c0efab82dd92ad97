package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// commitPageBytes of commits end a page, whatever its limit; it holds one at least.
const commitPageBytes = 4 << 20

// asMember reads in a room as one of its members.
func (s *Store) asMember(
	ctx context.Context, step string, tenant, room, by uuid.UUID, read func(context.Context, sqlcgen.DBTX, mlsMember) error,
) error {
	return s.transaction(ctx, step, asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		member, err := s.mlsMember(ctx, db, tenant, room, by)
		if err != nil {
			return err
		}
		return read(ctx, db, member)
	})
}

// Group implements store.Groups.
func (s *Store) Group(ctx context.Context, tenant, room, by uuid.UUID) (store.Group, error) {
	var row sqlcgen.GroupWithMembersRow
	err := s.asMember(ctx, "look up group", tenant, room, by, func(ctx context.Context, db sqlcgen.DBTX, _ mlsMember) (err error) {
		row, err = s.q.GroupWithMembers(ctx, db, tenant, room)
		return err
	})
	if err != nil {
		return store.Group{}, err
	}
	return store.Group{
		Room: room, Epoch: uint64(row.Epoch), Base: uint64(row.Base), ID: row.GroupID, Info: row.GroupInfo,
		Members: row.Members, Pending: row.Pending,
	}, nil
}

// CommitPage implements store.Groups.
func (s *Store) CommitPage(ctx context.Context, tenant, room, by uuid.UUID, after uint64, limit int) ([]store.Commit, bool, error) {
	if err := (store.Page{Limit: limit}).Check(); err != nil {
		return nil, false, fmt.Errorf("list commits: %w", err)
	}
	var (
		base, now int64
		rows      []sqlcgen.CommitPageRow
	)
	err := s.asMember(ctx, "list commits", tenant, room, by, func(ctx context.Context, db sqlcgen.DBTX, _ mlsMember) error {
		// The epoch first: the rows are then at least as new.
		group, err := s.q.GroupByRoom(ctx, db, tenant, room)
		if err != nil && !isNoRows(err) { // no row: epoch 0
			return err
		}
		base, now = group.Base, group.Epoch
		rows, err = s.q.CommitPage(ctx, db, sqlcgen.CommitPageParams{
			TenantID: tenant, RoomID: room, After: int64(min(after, wire.MaxInteger)), Page: int64(limit), Bytes: commitPageBytes,
		})
		return err
	})
	if err != nil {
		return nil, false, err
	}
	commits, last := commitsAfter(after, rows)
	// Of an earlier group, of epochs that are pruned, or of a room that has forgotten some.
	if after < uint64(base) || after > uint64(now) || len(commits) == 0 && after < uint64(now) {
		return nil, false, fmt.Errorf("list commits: %w", &store.EpochError{Current: uint64(now)})
	}
	return commits, last < uint64(now), nil
}

// commitsAfter is those of the rows that follow one another without a gap, and the epoch of
// the last one. A gap is where commits were pruned, or a group ended.
func commitsAfter(last uint64, rows []sqlcgen.CommitPageRow) ([]store.Commit, uint64) {
	commits := make([]store.Commit, 0, len(rows))
	for _, row := range rows {
		if uint64(row.Epoch) != last+1 {
			break
		}
		last++
		commits = append(commits, store.Commit{Epoch: last, Sender: row.SenderID, Bytes: row.Content, At: row.CreatedAt.UTC()})
	}
	return commits, last
}

// Welcome implements store.Groups.
func (s *Store) Welcome(ctx context.Context, tenant, room, by uuid.UUID) (store.Welcome, error) {
	var row sqlcgen.WelcomeOfRow
	err := s.asMember(ctx, "look up welcome", tenant, room, by, func(ctx context.Context, db sqlcgen.DBTX, member mlsMember) (err error) {
		row, err = s.q.WelcomeOf(ctx, db, tenant, member.id)
		return err
	})
	if err != nil {
		return store.Welcome{}, err
	}
	return store.Welcome{Epoch: uint64(row.Epoch), Bytes: row.Content}, nil
}
