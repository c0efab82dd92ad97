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

// spentKeyPackages is how many packages that are spent a device keeps, so that it is not
// handed out again what it uploads again.
const spentKeyPackages = 1000

// AddKeyPackages implements store.KeyPackages.
func (s *Store) AddKeyPackages(ctx context.Context, tenant, device uuid.UUID, packages []store.KeyPackage) (store.KeyPackageStock, error) {
	if err := checkKeyPackages(packages); err != nil {
		return store.KeyPackageStock{}, fmt.Errorf("add key packages: %w", err)
	}
	var stock store.KeyPackageStock
	err := s.transaction(ctx, "add key packages", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		if err := s.lockUploader(ctx, db, tenant, device); err != nil {
			return err
		}
		if _, err := s.q.KeyPackagesExpire(ctx, db, tenant, []uuid.UUID{device}); err != nil {
			return err
		}
		for i := range packages {
			if err := s.addKeyPackage(ctx, db, tenant, device, &packages[i]); err != nil {
				return err
			}
		}
		if stock, err = s.keyPackageStock(ctx, db, tenant, device); err != nil {
			return err
		}
		if stock.Available > store.MaxKeyPackages {
			return fmt.Errorf("the device would have %d key packages: %w", stock.Available, store.ErrConflict)
		}
		return s.q.KeyPackagesForget(ctx, db, tenant, device, spentKeyPackages)
	})
	if err != nil {
		return store.KeyPackageStock{}, err
	}
	return stock, nil
}

func checkKeyPackages(packages []store.KeyPackage) error {
	if len(packages) == 0 || len(packages) > store.MaxKeyPackagesAdded {
		return fmt.Errorf("%d key packages: %w", len(packages), store.ErrInvalid)
	}
	for i := range packages {
		if size := len(packages[i].Bytes); size == 0 || size > store.MaxKeyPackage {
			return fmt.Errorf("key package of %d bytes: %w", size, store.ErrInvalid)
		}
	}
	return nil
}

// lockUploader makes changes of the device's packages follow one another.
func (s *Store) lockUploader(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) error {
	locked, err := s.q.DevicesLock(ctx, db, tenant, []uuid.UUID{device})
	if err != nil {
		return err
	}
	if len(locked) == 0 {
		return fmt.Errorf("device: %w", store.ErrNotFound)
	}
	switch state := store.DeviceState(locked[0].State); state {
	case store.DeviceApproved, store.DeviceActive:
		return nil
	default:
		return fmt.Errorf("the device is %s: %w", state, store.ErrConflict)
	}
}

func (s *Store) addKeyPackage(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID, p *store.KeyPackage) error {
	known, err := s.q.KeyPackageKnown(ctx, db, tenant, device, p.Ref[:])
	if err != nil || known {
		return err
	}
	if p.LastResort {
		if err := s.q.KeyPackagesReplace(ctx, db, tenant, device); err != nil {
			return err
		}
	}
	lives, err := s.q.KeyPackageAdd(ctx, db, sqlcgen.KeyPackageAddParams{
		TenantID: tenant, DeviceID: device, Ref: p.Ref[:], Content: p.Bytes, LastResort: p.LastResort,
		ExpiresAt: p.ExpiresAt, LifeSeconds: store.MaxKeyPackageLife.Seconds(),
	})
	if err == nil && lives == 0 {
		err = fmt.Errorf("key package that expires at %s: %w", p.ExpiresAt.UTC(), store.ErrInvalid)
	}
	return err
}

// KeyPackageStock implements store.KeyPackages.
func (s *Store) KeyPackageStock(ctx context.Context, tenant, device uuid.UUID) (store.KeyPackageStock, error) {
	var stock store.KeyPackageStock
	err := s.transaction(ctx, "count key packages", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		if _, err := s.q.DeviceByID(ctx, db, tenant, device); err != nil {
			return err
		}
		stock, err = s.keyPackageStock(ctx, db, tenant, device)
		return err
	})
	if err != nil {
		return store.KeyPackageStock{}, err
	}
	return stock, nil
}

func (s *Store) keyPackageStock(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (store.KeyPackageStock, error) {
	row, err := s.q.KeyPackageStock(ctx, db, tenant, device)
	return store.KeyPackageStock{Available: int(row.Available), LastResort: row.LastResort}, err
}

// ClaimKeyPackages implements store.KeyPackages.
func (s *Store) ClaimKeyPackages(ctx context.Context, tenant, room, by uuid.UUID, participants []uuid.UUID) ([]store.ClaimedKeyPackage, error) {
	if len(participants) == 0 || len(participants) > store.MaxCommitAdds || repeats(participants) {
		return nil, fmt.Errorf("claim key packages of %d participants: %w", len(participants), store.ErrInvalid)
	}
	var claimed []store.ClaimedKeyPackage
	err := s.transaction(ctx, "claim key packages", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		c := claim{tenant: tenant, by: by, participants: participants}
		err := s.prepareClaim(ctx, db, &c, room)
		if err == nil {
			claimed, err = s.claim(ctx, db, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// claim is who claims packages of whom, in a room that is locked.
type claim struct {
	tenant, by   uuid.UUID
	room         store.Room
	participants []uuid.UUID
	devices      []uuid.UUID // of participants, in that order
}

// prepareClaim locks all that a claim relies on. Devices are locked before the room, and so
// are looked up before it is known who is in the room: a participant keeps its device.
func (s *Store) prepareClaim(ctx context.Context, db sqlcgen.DBTX, c *claim, room uuid.UUID) error {
	before, err := s.q.DevicesOfParticipants(ctx, db, c.tenant, room, c.participants)
	if err != nil {
		return err
	}
	lock := []uuid.UUID{c.by}
	for _, p := range before {
		lock = append(lock, p.DeviceID)
	}
	if _, err := s.q.DevicesLock(ctx, db, c.tenant, lock); err != nil {
		return err
	}
	var member mlsMember
	if c.room, member, err = s.mlsRoomOf(ctx, db, c.tenant, room, c.by); err != nil {
		return err
	}
	if err := mayCommit(c.room, member); err != nil {
		return err
	}
	if slices.Contains(c.participants, member.id) {
		return fmt.Errorf("a key package of its own: %w", store.ErrInvalid)
	}
	now, err := s.q.DevicesOfParticipants(ctx, db, c.tenant, room, c.participants)
	if err != nil {
		return err
	}
	return c.find(now, lock)
}

// find finds the device of each participant among those that are in the room and locked.
func (c *claim) find(now []sqlcgen.DevicesOfParticipantsRow, locked []uuid.UUID) error {
	devices := make(map[uuid.UUID]uuid.UUID, len(now))
	for _, p := range now {
		devices[p.ID] = p.DeviceID
	}
	for _, id := range c.participants {
		device, ok := devices[id]
		if !ok || !slices.Contains(locked, device) { // it joined since: as if it came later
			return fmt.Errorf("participant %s: %w", id, store.ErrNotFound)
		}
		c.devices = append(c.devices, device)
	}
	return nil
}

// claim takes a package for each participant, or none.
func (s *Store) claim(ctx context.Context, db sqlcgen.DBTX, c claim) ([]store.ClaimedKeyPackage, error) {
	shrunk, err := s.q.KeyPackagesExpire(ctx, db, c.tenant, c.devices)
	if err != nil {
		return nil, err
	}
	rows, err := s.q.KeyPackagesChoose(ctx, db, c.devices, c.tenant)
	if err != nil {
		return nil, err
	}
	chosen := make(map[uuid.UUID]sqlcgen.KeyPackagesChooseRow, len(rows))
	for _, row := range rows {
		chosen[row.DeviceID] = row
	}
	var (
		claimed []store.ClaimedKeyPackage
		low     []due
	)
	for i, participant := range c.participants {
		row, ok := chosen[c.devices[i]]
		if !ok {
			return nil, &store.ExhaustedError{Participant: participant}
		}
		claimed = append(claimed, store.ClaimedKeyPackage{
			Participant: participant, Device: row.DeviceID, KeyPackage: store.KeyPackage{
				Ref: [32]byte(row.Ref), Bytes: row.Content, LastResort: row.LastResort, ExpiresAt: row.ExpiresAt.UTC(),
			},
		})
		if event, isLow := c.runsLow(participant, row, slices.Contains(shrunk, row.DeviceID)); isLow {
			low = append(low, event)
		}
	}
	if err := s.spend(ctx, db, c.tenant, claimed); err != nil {
		return nil, err
	}
	return claimed, s.tell(ctx, db, c.tenant, low...)
}

// runsLow is what a participant is told whose packages become few by this claim, or became
// so by their age. Where only its last resort is handed out again, it was told before.
func (c *claim) runsLow(participant uuid.UUID, row sqlcgen.KeyPackagesChooseRow, shrunk bool) (due, bool) {
	remaining := row.Available
	if !row.LastResort {
		remaining--
		shrunk = true
	}
	return due{room: c.room.ID, to: participant, event: wire.RoomEvent{
		Event: wire.KeyPackagesLow, Version: c.room.Version, Remaining: &remaining,
	}}, shrunk && remaining < store.LowKeyPackages
}

// spend makes sure that what was taken is taken once.
func (s *Store) spend(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, claimed []store.ClaimedKeyPackage) error {
	var (
		devices []uuid.UUID
		refs    [][]byte
	)
	for i := range claimed {
		if p := &claimed[i].KeyPackage; !p.LastResort {
			devices, refs = append(devices, claimed[i].Device), append(refs, p.Ref[:])
		}
	}
	spent, err := s.q.KeyPackagesSpend(ctx, db, tenant, devices, refs)
	if err == nil && spent != int64(len(refs)) {
		err = fmt.Errorf("another claim took one of %d key packages: %w", len(refs), store.ErrConflict)
	}
	return err
}
