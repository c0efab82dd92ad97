package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
	"github.com/peerrelay/peerrelay/wire"
)

// PublishPrekeys implements store.Prekeys.
func (s *Store) PublishPrekeys(ctx context.Context, tenant, device uuid.UUID, signed *store.SignedPrekey, oneTime []store.OneTimePrekey) (store.PrekeyStock, error) {
	if err := checkPrekeys(signed, oneTime); err != nil {
		return store.PrekeyStock{}, fmt.Errorf("publish prekeys: %w", err)
	}
	var stock store.PrekeyStock
	err := s.transaction(ctx, "publish prekeys", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		now, err := s.lockDevice(ctx, db, tenant, device, uuid.Nil)
		if err != nil {
			return err
		}
		if state := store.DeviceState(now.State); state != store.DeviceApproved && state != store.DeviceActive {
			return fmt.Errorf("the device is %s: %w", state, store.ErrConflict)
		}
		if err := s.putSignedPrekey(ctx, db, tenant, device, signed); err != nil {
			return err
		}
		if err := s.addPrekeys(ctx, db, tenant, device, oneTime); err != nil {
			return err
		}
		stock, err = s.prekeyStock(ctx, db, tenant, device)
		if err == nil && stock.OneTime > store.MaxPrekeys {
			err = fmt.Errorf("%d one-time prekeys: %w", stock.OneTime, store.ErrConflict)
		}
		return err
	})
	if err != nil {
		return store.PrekeyStock{}, err
	}
	return stock, nil
}

// checkPrekeys refuses ids that are none, and what is there twice.
func checkPrekeys(signed *store.SignedPrekey, oneTime []store.OneTimePrekey) error {
	if signed != nil && !prekeyID(signed.ID) {
		return fmt.Errorf("id %d of the signed prekey: %w", signed.ID, store.ErrInvalid)
	}
	if len(oneTime) > store.MaxPrekeys {
		return fmt.Errorf("%d one-time prekeys: %w", len(oneTime), store.ErrConflict)
	}
	ids, keys := make(map[uint32]bool, len(oneTime)), make(map[[32]byte]bool, len(oneTime))
	for _, p := range oneTime {
		if !prekeyID(p.ID) || ids[p.ID] || keys[p.Key] {
			return fmt.Errorf("one-time prekey %d: %w", p.ID, store.ErrInvalid)
		}
		ids[p.ID], keys[p.Key] = true, true
	}
	return nil
}

func prekeyID(id uint32) bool { return id >= 1 && id <= store.MaxPrekeyID }

func (s *Store) putSignedPrekey(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID, signed *store.SignedPrekey) error {
	if signed == nil {
		return nil
	}
	put, err := s.q.SignedPrekeyPut(ctx, db, sqlcgen.SignedPrekeyPutParams{
		TenantID: tenant, DeviceID: device, ID: int32(signed.ID),
		Key: signed.Key[:], Signature: signed.Signature[:],
	})
	if err == nil && put == 0 {
		err = fmt.Errorf("signed prekey %d came before: %w", signed.ID, store.ErrConflict)
	}
	return err
}

func (s *Store) addPrekeys(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID, oneTime []store.OneTimePrekey) error {
	if len(oneTime) == 0 {
		return nil
	}
	var (
		ids  = make([]int32, len(oneTime))
		keys = make([][]byte, len(oneTime))
		last int32
	)
	for i := range oneTime {
		ids[i] = int32(oneTime[i].ID)
		keys[i] = oneTime[i].Key[:]
		last = max(last, ids[i])
	}
	differ, err := s.q.PrekeysDiffer(ctx, db, sqlcgen.PrekeysDifferParams{TenantID: tenant, DeviceID: device, IDs: ids, Keys: keys})
	if err != nil {
		return err
	}
	if differ {
		return fmt.Errorf("a one-time prekey is stored with another key: %w", store.ErrConflict)
	}
	if err := s.q.PrekeysAdd(ctx, db, sqlcgen.PrekeysAddParams{TenantID: tenant, DeviceID: device, IDs: ids, Keys: keys}); err != nil {
		return err
	}
	return s.q.PrekeysUploaded(ctx, db, last, tenant, device)
}

// PrekeyStock implements store.Prekeys.
func (s *Store) PrekeyStock(ctx context.Context, tenant, device uuid.UUID) (stock store.PrekeyStock, err error) {
	err = s.call(ctx, "prekey stock", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		stock, err = s.prekeyStock(ctx, db, tenant, device)
		return err
	})
	return stock, err
}

func (s *Store) prekeyStock(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (store.PrekeyStock, error) {
	row, err := s.q.PrekeyStock(ctx, db, tenant, device)
	if err != nil {
		return store.PrekeyStock{}, err
	}
	return store.PrekeyStock{SignedID: uint32(row.SignedID), LastID: uint32(row.LastPrekey), OneTime: int(row.OneTime)}, nil
}

// TakePrekeyBundle implements store.Prekeys.
func (s *Store) TakePrekeyBundle(ctx context.Context, tenant, device, by uuid.UUID) (store.PrekeyBundle, error) {
	var bundle store.PrekeyBundle
	err := s.transaction(ctx, "take prekey bundle", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		bundle, err = s.takePrekeyBundle(ctx, db, tenant, device, by)
		return err
	})
	if err != nil {
		return store.PrekeyBundle{}, err
	}
	return bundle, nil
}

// takePrekeyBundle holds both devices, so that takers follow one another and neither device
// loses its state meanwhile.
func (s *Store) takePrekeyBundle(ctx context.Context, db sqlcgen.DBTX, tenant, device, by uuid.UUID) (bundle store.PrekeyBundle, err error) {
	if err := s.lockActive(ctx, db, tenant, device, by); err != nil {
		return bundle, err
	}
	found, err := s.q.PrekeyBundle(ctx, db, tenant, device, by)
	if err != nil {
		return bundle, err
	}
	row, err := s.q.DeviceByID(ctx, db, tenant, device)
	if err != nil {
		return bundle, err
	}
	bundle.Device = deviceOf(row)
	bundle.Signed = store.SignedPrekey{
		ID:  uint32(found.ID),
		Key: [32]byte(found.Key), Signature: [64]byte(found.Signature),
	}
	taken, err := s.q.PrekeyTake(ctx, db, tenant, device)
	if isNoRows(err) {
		return bundle, nil
	}
	if err != nil {
		return bundle, err
	}
	bundle.OneTime = &store.OneTimePrekey{ID: uint32(taken.ID), Key: [32]byte(taken.Key)}
	return bundle, s.warnOfPrekeys(ctx, db, tenant, found, taken.Remaining)
}

// lockActive locks two devices that have to be different ones and ACTIVE.
func (s *Store) lockActive(ctx context.Context, db sqlcgen.DBTX, tenant, device, by uuid.UUID) error {
	locked, err := s.q.DevicesLock(ctx, db, tenant, []uuid.UUID{device, by})
	if err != nil {
		return err
	}
	for _, row := range locked {
		if store.DeviceState(row.State) != store.DeviceActive {
			return fmt.Errorf("device %s is %s: %w", row.ID, row.State, store.ErrNotFound)
		}
	}
	if len(locked) != 2 {
		return fmt.Errorf("devices: %w", store.ErrNotFound)
	}
	return nil
}

// warnOfPrekeys tells the device that few are left, once when they become few and once
// when there are none. The room is locked, so that its rows are in the order of committing.
func (s *Store) warnOfPrekeys(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, member sqlcgen.PrekeyBundleRow, remaining int64) error {
	if remaining != store.LowPrekeys-1 && remaining != 0 {
		return nil
	}
	room, err := s.q.RoomLock(ctx, db, tenant, member.RoomID)
	if err != nil {
		return err
	}
	return s.tell(ctx, db, tenant, due{room: member.RoomID, to: member.ParticipantID, event: wire.RoomEvent{
		Event: wire.PrekeysLow, Version: room.Version, Remaining: &remaining,
	}})
}

// dropPrekeys deletes what others begin sessions, and add to groups, with. The device is
// locked.
func (s *Store) dropPrekeys(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) error {
	if err := s.q.PrekeysDelete(ctx, db, tenant, device); err != nil {
		return err
	}
	if err := s.q.SignedPrekeyDelete(ctx, db, tenant, device); err != nil {
		return err
	}
	return s.q.KeyPackagesDelete(ctx, db, tenant, device)
}
