package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// DeviceKeys implements store.Devices.
func (s *Store) DeviceKeys(ctx context.Context, tenant uuid.UUID, devices []uuid.UUID) (map[uuid.UUID]store.DeviceKeys, error) {
	if len(devices) == 0 {
		return nil, nil
	}
	var rows []sqlcgen.DeviceKeysByIDRow
	err := s.call(ctx, "look up device keys", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		rows, err = s.q.DeviceKeysByID(ctx, db, tenant, devices)
		return err
	})
	if err != nil {
		return nil, err
	}
	keys := make(map[uuid.UUID]store.DeviceKeys, len(rows))
	for _, row := range rows { // with a fingerprint all keys are there (devices_keys_ck)
		keys[row.ID] = store.DeviceKeys{
			Identity: [32]byte(row.IdentityKey), Agreement: [32]byte(row.AgreementKey),
			AgreementSignature: [64]byte(row.AgreementSignature),
		}
	}
	return keys, nil
}

// Membership implements store.Rooms.
func (s *Store) Membership(ctx context.Context, tenant, room, participant uuid.UUID) (p store.Participant, left time.Time, err error) {
	var row sqlcgen.MembershipRow
	err = s.call(ctx, "find membership", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.Membership(ctx, db, tenant, room, participant)
		return err
	})
	if err != nil {
		return store.Participant{}, left, err
	}
	p = store.Participant{
		ID: row.ID, Tenant: tenant, Room: room, Device: row.DeviceID,
		Role: store.Role(row.Role), JoinedAt: row.JoinedAt.UTC(),
	}
	if row.LeftAt != nil {
		left = row.LeftAt.UTC()
	}
	return p, left, nil
}
