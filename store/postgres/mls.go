package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// mlsMember is a member who acts in a room.
type mlsMember struct {
	id      uuid.UUID // participant
	role    store.Role
	inGroup bool
}

// mlsMember says what the device is in the room: ErrForbidden unless it is ACTIVE,
// ErrNotFound unless it is a member.
func (s *Store) mlsMember(ctx context.Context, db sqlcgen.DBTX, tenant, room, by uuid.UUID) (mlsMember, error) {
	row, err := s.q.RoomMember(ctx, db, room, tenant, by)
	switch {
	case isNoRows(err):
		return mlsMember{}, fmt.Errorf("the device is not %s: %w", store.DeviceActive, store.ErrForbidden)
	case err != nil:
		return mlsMember{}, err
	case !row.ParticipantID.Valid:
		return mlsMember{}, fmt.Errorf("room: %w", store.ErrNotFound)
	}
	return mlsMember{row.ParticipantID.UUID, store.Role(*row.Role), row.MlsSince != nil}, nil
}

// mlsRoom locks the devices, and the room, and says who acts in it: what it tells stays
// true until the transaction ends.
func (s *Store) mlsRoom(ctx context.Context, db sqlcgen.DBTX, tenant, room, by uuid.UUID) (store.Room, mlsMember, error) {
	if _, err := s.q.DevicesHold(ctx, db, tenant, []uuid.UUID{by}); err != nil {
		return store.Room{}, mlsMember{}, err
	}
	return s.mlsRoomOf(ctx, db, tenant, room, by)
}

// mlsRoomOf is mlsRoom where the device is locked.
func (s *Store) mlsRoomOf(ctx context.Context, db sqlcgen.DBTX, tenant, room, by uuid.UUID) (store.Room, mlsMember, error) {
	row, err := s.q.RoomLock(ctx, db, tenant, room)
	if err != nil && !isNoRows(err) {
		return store.Room{}, mlsMember{}, err
	}
	member, err := s.mlsMember(ctx, db, tenant, room, by) // also says what it means that there is no room
	return roomOf(sqlcgen.RoomByIDRow(row)), member, err
}

// AcceptCommit implements store.Groups.
func (s *Store) AcceptCommit(ctx context.Context, c store.NewCommit) (uint64, error) {
	if err := checkCommit(&c); err != nil {
		return 0, fmt.Errorf("accept commit: %w", err)
	}
	var epoch int64
	err := s.transaction(ctx, "accept commit", asService(c.Tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		epoch, err = s.acceptCommit(ctx, db, c)
		return err
	})
	if err != nil {
		return 0, err
	}
	return uint64(epoch), nil
}

// checkCommit refuses what no room takes.
func checkCommit(c *store.NewCommit) error {
	for _, part := range [...]struct {
		name         string
		size, lo, hi int
	}{
		{"commit", len(c.Commit), 1, store.MaxCommit},
		{"group info", len(c.GroupInfo), 1, store.MaxGroupInfo},
		{"group id", len(c.GroupID), 1, store.MaxGroupID},
		{"welcome", len(c.Welcome), min(1, len(c.Added)), min(store.MaxWelcome, store.MaxWelcome*len(c.Added))},
	} {
		if part.size < part.lo || part.size > part.hi {
			return fmt.Errorf("%s of %d bytes: %w", part.name, part.size, store.ErrInvalid)
		}
	}
	switch {
	case len(c.Added) > store.MaxCommitAdds, len(c.Removed) > store.MaxParticipants:
		return fmt.Errorf("%d added and %d removed: %w", len(c.Added), len(c.Removed), store.ErrInvalid)
	case repeats(c.Added), repeats(c.Removed):
		return fmt.Errorf("a participant is named twice: %w", store.ErrInvalid)
	}
	return nil
}

func repeats(ids []uuid.UUID) bool {
	seen := make(map[uuid.UUID]struct{}, len(ids))
	for _, id := range ids {
		seen[id] = struct{}{}
	}
	return len(seen) < len(ids)
}

// acceptCommit is one transaction that holds the room from before it looks.
func (s *Store) acceptCommit(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit) (epoch int64, err error) {
	room, sender, err := s.mlsRoom(ctx, db, c.Tenant, c.Room, c.By)
	if err != nil {
		return 0, err
	}
	if again, err := s.committed(ctx, db, c, sender.id); err != nil || again {
		return int64(c.Epoch) + 1, err
	}
	if err := mayCommit(room, sender); err != nil {
		return 0, err
	}
	group, err := s.q.GroupByRoom(ctx, db, c.Tenant, c.Room)
	if err != nil && !isNoRows(err) { // no row: epoch 0, without a group
		return 0, err
	}
	if err := fitsGroup(c, sender, group); err != nil {
		return 0, err
	}
	if err := s.checkNamed(ctx, db, c); err != nil {
		return 0, err
	}
	if group.GroupID == nil {
		if err := s.beginGroup(ctx, db, c); err != nil {
			return 0, err
		}
	}
	return group.Epoch + 1, s.storeCommit(ctx, db, c, sender.id)
}

// committed reports whether this is the commit that was accepted in its epoch.
func (s *Store) committed(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit, sender uuid.UUID) (bool, error) {
	if c.Epoch >= wire.MaxInteger {
		return false, nil
	}
	return s.q.CommitIs(ctx, db, sqlcgen.CommitIsParams{
		TenantID: c.Tenant, RoomID: c.Room, Epoch: int64(c.Epoch) + 1, SenderID: sender, Content: c.Commit,
	})
}

// mayCommit says whether the member may change a group of the room at all.
func mayCommit(room store.Room, member mlsMember) error {
	switch {
	case member.role == store.RoleViewer:
		return fmt.Errorf("a viewer changes no group: %w", store.ErrForbidden)
	case room.Scheme != store.SchemeMLS:
		return fmt.Errorf("the room's scheme is %s: %w", room.Scheme, store.ErrConflict)
	case room.State == store.RoomArchived:
		return errArchived
	}
	return nil
}

// fitsGroup compares the commit with the group that it is for. The epoch comes first: who
// lost the race for it is told so, whatever the winner did.
func fitsGroup(c store.NewCommit, sender mlsMember, group sqlcgen.GroupByRoomRow) error {
	switch begins := group.GroupID == nil; {
	case c.Epoch != uint64(group.Epoch):
		return &store.EpochError{Current: uint64(group.Epoch)}
	case !sender.inGroup && !c.External && !begins:
		return fmt.Errorf("the committer is not in the group: %w", store.ErrForbidden)
	case c.External && begins:
		return fmt.Errorf("there is no group to join: %w", store.ErrConflict)
	case !begins && !slices.Equal(c.GroupID, group.GroupID):
		return fmt.Errorf("the room has another group: %w", store.ErrConflict)
	case c.GroupEpoch != c.Epoch-uint64(group.Base):
		return fmt.Errorf("group epoch %d in the room's epoch %d: %w", c.GroupEpoch, c.Epoch, store.ErrConflict)
	case slices.Contains(c.Added, sender.id), slices.Contains(c.Removed, sender.id) && !c.External:
		return fmt.Errorf("a committer adds or removes itself: %w", store.ErrInvalid)
	}
	return nil
}

// checkNamed looks at those whom the commit adds and removes.
func (s *Store) checkNamed(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit) error {
	rows, err := s.q.ParticipantsNamed(ctx, db, c.Tenant, c.Room, slices.Concat(c.Added, c.Removed))
	if err != nil {
		return err
	}
	known := make(map[uuid.UUID]sqlcgen.ParticipantsNamedRow, len(rows))
	for _, row := range rows {
		known[row.ID] = row
	}
	for _, id := range c.Removed {
		if _, ok := known[id]; !ok {
			return fmt.Errorf("removed participant %s: %w", id, store.ErrNotFound)
		}
	}
	for _, id := range c.Added {
		switch row := known[id]; {
		case !row.Current:
			return fmt.Errorf("added participant %s: %w", id, store.ErrNotFound)
		case row.InGroup && !slices.Contains(c.Removed, id):
			return fmt.Errorf("added participant %s is in the group: %w", id, store.ErrConflict)
		}
	}
	return nil
}

func (s *Store) beginGroup(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit) error {
	began, err := s.q.GroupBegin(ctx, db, sqlcgen.GroupBeginParams{
		TenantID: c.Tenant, RoomID: c.Room, GroupID: c.GroupID, Began: int64(c.Epoch),
	})
	if err == nil && began == 0 {
		err = fmt.Errorf("the room had a group of this id: %w", store.ErrConflict)
	}
	if err != nil {
		return err
	}
	return s.q.GroupIDsPrune(ctx, db, c.Tenant, c.Room, store.KeptGroupIDs-1)
}

// storeCommit writes an accepted commit with all that goes with it.
func (s *Store) storeCommit(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit, sender uuid.UUID) error {
	epoch := int64(c.Epoch) + 1
	moved, err := s.q.GroupAdvance(ctx, db, sqlcgen.GroupAdvanceParams{
		TenantID: c.Tenant, RoomID: c.Room, Next: epoch, GroupID: c.GroupID, GroupInfo: c.GroupInfo,
	})
	if err == nil && moved != 1 {
		err = fmt.Errorf("the epoch moved while the room was locked: %w", store.ErrConflict)
	}
	if err != nil {
		return err
	}
	err = s.q.CommitInsert(ctx, db, sqlcgen.CommitInsertParams{
		TenantID: c.Tenant, RoomID: c.Room, Epoch: epoch, SenderID: sender, Content: c.Commit,
	})
	if err != nil {
		return err
	}
	if err := s.q.CommitsPrune(ctx, db, c.Tenant, c.Room, epoch-store.KeptCommits); err != nil {
		return err
	}
	if err := s.changeGroup(ctx, db, c, sender); err != nil {
		return err
	}
	version, err := s.q.RoomCommitted(ctx, db, c.Tenant, c.Room)
	if err != nil {
		return err
	}
	return s.tell(ctx, db, c.Tenant, commitEvents(c, sender, version)...)
}

// changeGroup says who is in the group now, and stores the welcome of those who join.
func (s *Store) changeGroup(ctx context.Context, db sqlcgen.DBTX, c store.NewCommit, sender uuid.UUID) error {
	epoch, joining := int64(c.Epoch)+1, c.Added
	if c.External || c.GroupEpoch == 0 { // it begins the group; nobody joins one of epoch 0
		joining = append(slices.Clone(c.Added), sender)
	}
	err := s.q.GroupMembersChange(ctx, db, sqlcgen.GroupMembersChangeParams{
		TenantID: c.Tenant, RoomID: c.Room, Epoch: epoch,
		Joining: orEmpty(joining), Welcomed: orEmpty(c.Added), Removed: orEmpty(c.Removed),
	})
	if err != nil {
		return err
	}
	if len(c.Added) > 0 {
		err := s.q.WelcomeInsert(ctx, db, sqlcgen.WelcomeInsertParams{
			TenantID: c.Tenant, RoomID: c.Room, Epoch: epoch, Content: c.Welcome,
		})
		if err != nil {
			return err
		}
	}
	return s.q.WelcomesPrune(ctx, db, c.Tenant, c.Room)
}

// orEmpty makes no ids an empty array: NULL would match nobody, nor anybody else.
func orEmpty(ids []uuid.UUID) []uuid.UUID {
	if ids == nil {
		return []uuid.UUID{}
	}
	return ids
}

func commitEvents(c store.NewCommit, sender uuid.UUID, version int64) []due {
	epoch := int64(c.Epoch) + 1
	events := []due{{room: c.Room, event: wire.RoomEvent{
		Event: wire.CommitAccepted, Version: version, Epoch: &epoch, ParticipantID: sender.String(),
	}}}
	for _, added := range c.Added {
		events = append(events, due{room: c.Room, to: added, event: wire.RoomEvent{
			Event: wire.WelcomeWaits, Version: version, Epoch: &epoch,
		}})
	}
	return events
}

// ReportCommit implements store.Groups.
func (s *Store) ReportCommit(ctx context.Context, tenant, room, by uuid.UUID, epoch uint64) error {
	return s.transaction(ctx, "report commit", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		at, member, err := s.mlsRoom(ctx, db, tenant, room, by)
		if err != nil {
			return err
		}
		if at.State == store.RoomArchived {
			return errArchived
		}
		return s.reportCommit(ctx, db, at, member.id, int64(min(epoch, wire.MaxInteger)))
	})
}

func (s *Store) reportCommit(ctx context.Context, db sqlcgen.DBTX, room store.Room, member uuid.UUID, epoch int64) error {
	kept, err := s.q.CommitKept(ctx, db, room.Tenant, room.ID, epoch)
	if err != nil {
		return err
	}
	if !kept {
		return fmt.Errorf("commit: %w", store.ErrNotFound)
	}
	noted, err := s.q.CommitReport(ctx, db, sqlcgen.CommitReportParams{
		TenantID: room.Tenant, RoomID: room.ID, Epoch: epoch, ParticipantID: member,
	})
	if err != nil || noted == 0 {
		return err
	}
	return s.tell(ctx, db, room.Tenant, due{room: room.ID, event: wire.RoomEvent{
		Event: wire.CommitReported, Version: room.Version, Epoch: &epoch, ParticipantID: member.String(),
	}})
}
