package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// Device implements store.Devices.
func (s *Store) Device(ctx context.Context, tenant, device uuid.UUID) (store.Device, error) {
	var row sqlcgen.Device
	err := s.call(ctx, "find device", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.DeviceByID(ctx, db, tenant, device)
		return err
	})
	if err != nil {
		return store.Device{}, err
	}
	return deviceOf(row), nil
}

// DevicePage implements store.Devices.
func (s *Store) DevicePage(ctx context.Context, tenant uuid.UUID, state store.DeviceState, after uuid.UUID, limit int) ([]store.Device, bool, error) {
	if err := (store.Page{Limit: limit}).Check(); err != nil {
		return nil, false, err
	}
	if !knownState(state) {
		return nil, false, fmt.Errorf("list devices in state %q: %w", state, store.ErrInvalid)
	}
	var from time.Time
	if after != uuid.Nil {
		last, err := s.Device(ctx, tenant, after)
		if err != nil {
			return nil, false, err
		}
		from = last.CreatedAt
	}
	var rows []sqlcgen.Device
	err := s.call(ctx, "list devices", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.DevicePage(ctx, db, sqlcgen.DevicePageParams{
			TenantID: tenant, AfterTime: from, After: after, State: string(state), Page: int32(limit) + 1,
		})
		return err
	})
	if err != nil {
		return nil, false, err
	}
	devices := make([]store.Device, 0, len(rows))
	for _, row := range rows[:min(len(rows), limit)] {
		devices = append(devices, deviceOf(row))
	}
	return devices, len(rows) > limit, nil
}

func knownState(state store.DeviceState) bool {
	switch state {
	case "", store.DevicePending, store.DeviceApproved, store.DeviceActive, store.DeviceSuspended, store.DeviceRevoked:
		return true
	}
	return false
}

// ApproveDevice implements store.Devices.
func (s *Store) ApproveDevice(ctx context.Context, tenant, device, by uuid.UUID, fingerprint string) (store.Device, error) {
	var approved sqlcgen.Device
	err := s.transaction(ctx, "approve device", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		now, err := s.lockDevice(ctx, db, tenant, device, by)
		if err != nil {
			return err
		}
		if now.Fingerprint == nil || *now.Fingerprint != fingerprint {
			return fmt.Errorf("the fingerprint is not the device's: %w", store.ErrInvalid)
		}
		approved, err = s.moveDevice(ctx, db, tenant, now, store.DeviceApprove)
		return err
	})
	if err != nil {
		return store.Device{}, err
	}
	return deviceOf(approved), nil
}

// ActivateDevice implements store.Devices.
func (s *Store) ActivateDevice(ctx context.Context, tenant, device uuid.UUID) (store.Device, error) {
	var active sqlcgen.Device
	err := s.transaction(ctx, "activate device", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		now, err := s.lockDevice(ctx, db, tenant, device, uuid.Nil)
		if err != nil {
			return err
		}
		if store.DeviceState(now.State) == store.DeviceActive {
			active, err = s.q.DeviceByID(ctx, db, tenant, device)
			return err
		}
		active, err = s.moveDevice(ctx, db, tenant, now, store.DeviceActivate)
		return err
	})
	if err != nil {
		return store.Device{}, err
	}
	return deviceOf(active), nil
}

// SuspendDevice implements store.Devices.
func (s *Store) SuspendDevice(ctx context.Context, tenant, device, by uuid.UUID) (store.DeviceChange, error) {
	return s.changeDevice(ctx, "suspend device", tenant, device, by, store.DeviceSuspend, s.reach)
}

// ReinstateDevice implements store.Devices.
func (s *Store) ReinstateDevice(ctx context.Context, tenant, device, by uuid.UUID) (store.DeviceChange, error) {
	return s.changeDevice(ctx, "reinstate device", tenant, device, by, store.DeviceReinstate, takeNothing)
}

// RevokeDevice implements store.Devices.
func (s *Store) RevokeDevice(ctx context.Context, tenant, device, by uuid.UUID) (store.DeviceChange, error) {
	return s.changeDevice(ctx, "revoke device", tenant, device, by, store.DeviceRevoke, s.strip)
}

// taking is what a change of a device's state takes away, in the change's transaction.
type taking func(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (store.DeviceChange, error)

func takeNothing(context.Context, sqlcgen.DBTX, uuid.UUID, uuid.UUID) (store.DeviceChange, error) {
	return store.DeviceChange{}, nil
}

func (s *Store) changeDevice(ctx context.Context, step string, tenant, device, by uuid.UUID, event store.DeviceEvent, take taking) (store.DeviceChange, error) {
	var change store.DeviceChange
	err := s.transaction(ctx, step, asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		now, err := s.lockDevice(ctx, db, tenant, device, by)
		if err != nil {
			return err
		}
		row, err := s.moveDevice(ctx, db, tenant, now, event)
		if err != nil {
			return err
		}
		change, err = take(ctx, db, tenant, device)
		change.Device = deviceOf(row)
		return err
	})
	if err != nil {
		return store.DeviceChange{}, err
	}
	return change, nil
}

// lockDevice locks the device, and who changes it, and says what the device is now.
func (s *Store) lockDevice(ctx context.Context, db sqlcgen.DBTX, tenant, device, by uuid.UUID) (sqlcgen.DevicesLockRow, error) {
	locked, err := s.lockDevices(ctx, db, tenant, by, device)
	if err != nil {
		return sqlcgen.DevicesLockRow{}, err
	}
	i := slices.IndexFunc(locked, func(row sqlcgen.DevicesLockRow) bool { return row.ID == device })
	if i < 0 {
		return sqlcgen.DevicesLockRow{}, fmt.Errorf("device: %w", store.ErrNotFound)
	}
	return locked[i], nil
}

// lockDevices locks devices together with who acts on them, which must be the operator or
// an ACTIVE admin, and stays one until the transaction ends.
func (s *Store) lockDevices(ctx context.Context, db sqlcgen.DBTX, tenant, by uuid.UUID, devices ...uuid.UUID) ([]sqlcgen.DevicesLockRow, error) {
	if by != uuid.Nil {
		devices = append(devices, by)
	}
	if len(devices) == 0 {
		return nil, nil
	}
	locked, err := s.q.DevicesLock(ctx, db, tenant, devices)
	if err != nil || by == uuid.Nil {
		return locked, err
	}
	if !slices.ContainsFunc(locked, func(row sqlcgen.DevicesLockRow) bool {
		return row.ID == by && row.Admin && store.DeviceState(row.State) == store.DeviceActive
	}) {
		return nil, fmt.Errorf("the acting device is no %s admin: %w", store.DeviceActive, store.ErrForbidden)
	}
	return locked, nil
}

func (s *Store) moveDevice(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID, now sqlcgen.DevicesLockRow, event store.DeviceEvent) (sqlcgen.Device, error) {
	row, err := s.q.DeviceMove(ctx, db, tenant, now.ID, string(event))
	if isNoRows(err) {
		return sqlcgen.Device{}, store.DeviceState(now.State).Conflict(event)
	}
	return row, err
}

// reach is what a device has now.
func (s *Store) reach(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (change store.DeviceChange, err error) {
	members, err := s.q.ParticipantsOfDevice(ctx, db, tenant, device)
	if err != nil {
		return change, err
	}
	for _, member := range members {
		change.Participants = append(change.Participants, member.ID)
	}
	change.Credentials, err = s.q.CredentialsOfParticipants(ctx, db, tenant, change.Participants)
	return change, err
}

// strip ends everything a device has. The device is locked and does not join anything; its
// rooms are locked before what is in them, in the order that everybody else takes.
func (s *Store) strip(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID) (change store.DeviceChange, err error) {
	if err := s.q.RoomsOfDeviceLock(ctx, db, tenant, device); err != nil {
		return change, err
	}
	left, err := s.q.ParticipantsLeave(ctx, db, tenant, device)
	if err != nil {
		return change, err
	}
	for _, member := range left {
		change.Participants = append(change.Participants, member.ID)
	}
	if change.Rooms, err = s.loseMembers(ctx, db, tenant, left); err != nil {
		return change, err
	}
	if change.Credentials, err = s.q.CredentialsRevokeOfParticipants(ctx, db, tenant, change.Participants); err != nil {
		return change, err
	}
	if err := s.q.DeviceTokensRevoke(ctx, db, tenant, device); err != nil {
		return change, err
	}
	if err := s.dropPrekeys(ctx, db, tenant, device); err != nil {
		return change, err
	}
	return change, s.q.InvitesRevokeOfDevice(ctx, db, tenant, optionalID(device))
}

func deviceOf(row sqlcgen.Device) store.Device {
	d := store.Device{
		ID: row.ID, Tenant: row.TenantID, Kind: store.DeviceKind(row.Kind), Label: row.Label,
		State: store.DeviceState(row.State), Admin: row.Admin, CreatedAt: row.CreatedAt.UTC(),
		ApprovedAt: utc(row.ApprovedAt), RevokedAt: utc(row.RevokedAt),
	}
	if row.Fingerprint != nil { // then all keys are there (devices_keys_ck)
		d.Fingerprint = *row.Fingerprint
		d.Keys = &store.DeviceKeys{
			Identity: [32]byte(row.IdentityKey), Agreement: [32]byte(row.AgreementKey),
			AgreementSignature: [64]byte(row.AgreementSignature),
		}
	}
	return d
}

func utc(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	in := at.UTC()
	return &in
}
