package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// challengeBatch bounds what one new challenge deletes of the expired ones of all devices;
// more than one, so that they become fewer.
const challengeBatch = 10

// challengeLock is the number of the lock they are deleted under ("relaychl"; it must only be ours).
const challengeLock = 0x72656c617963686c

// inTenantOf runs do as the service in the tenant of the device, or in otherwise where
// there is no such device, with the same statements.
func (s *Store) inTenantOf(
	ctx context.Context, step string, device, otherwise uuid.UUID, do func(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID) error,
) error {
	return s.transaction(ctx, step, acting{}, func(ctx context.Context, db sqlcgen.DBTX) error {
		if err := s.q.SettingsSignIn(ctx, db, device.String()); err != nil {
			return err
		}
		found, err := s.q.SettingsAdoptTenantOfDevice(ctx, db, device, otherwise)
		if err != nil {
			return err
		}
		return do(ctx, db, found.TenantID)
	})
}

// NewChallenge implements store.SignIns.
func (s *Store) NewChallenge(ctx context.Context, otherwise, device uuid.UUID, nonce store.TokenHash) error {
	return s.inTenantOf(ctx, "make challenge", device, otherwise, func(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID) error {
		// The device's own, since there may be no row to lock.
		if err := s.q.RoomsSerialize(ctx, db, []int64{lockKey(device)}); err != nil {
			return err
		}
		if err := s.pruneChallenges(ctx, db, tenant); err != nil {
			return err
		}
		if err := s.q.ChallengesKeep(ctx, db, tenant, device, store.MaxChallenges-1); err != nil {
			return err
		}
		return s.q.ChallengeMake(ctx, db, sqlcgen.ChallengeMakeParams{
			TenantID: tenant, DeviceID: device, NonceHash: nonce[:], TTLSeconds: store.ChallengeTTL.Seconds(),
		})
	})
}

// pruneChallenges deletes some expired challenges of all devices, unless another does so
// now: two that delete the same rows could wait for each other.
func (s *Store) pruneChallenges(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID) error {
	locked, err := s.q.TransactionLock(ctx, db, challengeLock)
	if err != nil || !locked {
		return err
	}
	return s.q.ChallengePrune(ctx, db, tenant, challengeBatch)
}

// SignIn implements store.SignIns.
func (s *Store) SignIn(ctx context.Context, otherwise, device uuid.UUID, nonce, token store.TokenHash, ttl time.Duration, verify func(identity [32]byte) bool) (time.Time, error) {
	if ttl <= 0 {
		return time.Time{}, fmt.Errorf("sign in: ttl %s: %w", ttl, store.ErrInvalid)
	}
	var expires time.Time
	var signedIn bool
	err := s.inTenantOf(ctx, "sign in", device, otherwise, func(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID) (err error) {
		// A refusal commits: the nonce is used up.
		signedIn, err = s.answersChallenge(ctx, db, tenant, device, nonce, verify)
		if err != nil || !signedIn {
			return err
		}
		if err := s.q.DeviceTokensKeep(ctx, db, tenant, device, store.MaxTokens-1); err != nil {
			return err
		}
		expires, err = s.q.DeviceTokenMake(ctx, db, sqlcgen.DeviceTokenMakeParams{
			TenantID: tenant, DeviceID: device, TokenHash: token[:], TTLSeconds: ttl.Seconds(),
		})
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if !signedIn {
		return time.Time{}, store.ErrUnauthenticated
	}
	return expires.UTC(), nil
}

// answersChallenge uses up the nonce, and keeps the device as it is until the transaction ends.
func (s *Store) answersChallenge(ctx context.Context, db sqlcgen.DBTX, tenant, device uuid.UUID, nonce store.TokenHash, verify func([32]byte) bool) (bool, error) {
	valid, err := s.q.ChallengeConsume(ctx, db, tenant, device, nonce[:])
	if isNoRows(err) || err == nil && !valid {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	row, err := s.q.DeviceKey(ctx, db, tenant, device)
	if isNoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	state := store.DeviceState(row.State)
	if row.IdentityKey == nil || state != store.DeviceApproved && state != store.DeviceActive {
		return false, nil
	}
	return verify([32]byte(row.IdentityKey)), nil
}

// AuthenticateDevice implements store.SignIns.
func (s *Store) AuthenticateDevice(ctx context.Context, token store.TokenHash) (store.Device, error) {
	var row sqlcgen.Device
	err := s.call(ctx, "authenticate device", asSignedIn(token), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.DeviceTokenIdentity(ctx, db, token[:])
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Device{}, store.ErrUnauthenticated
	}
	if err != nil {
		return store.Device{}, err
	}
	return deviceOf(row), nil
}
