package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/peerrelay/peerrelay/store"
	"github.com/peerrelay/peerrelay/store/postgres/internal/sqlcgen"
)

// CreateInvite implements store.Enrollments.
func (s *Store) CreateInvite(ctx context.Context, invite store.NewInvite) (store.Invite, error) {
	if invite.TTL <= 0 || invite.TTL > store.MaxInviteTTL {
		return store.Invite{}, fmt.Errorf("create invite: ttl %s: %w", invite.TTL, store.ErrInvalid)
	}
	made := store.Invite{Tenant: invite.Tenant, Kind: invite.Kind, Admin: invite.Admin, State: store.InviteCreated}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Invite{}, fmt.Errorf("create invite: make id: %w", err)
	}
	made.ID = id
	err = s.transaction(ctx, "create invite", asService(invite.Tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		if err := s.mayInvite(ctx, db, invite); err != nil {
			return err
		}
		expires, err := s.q.InviteCreate(ctx, db, sqlcgen.InviteCreateParams{
			TenantID: invite.Tenant, ID: id, CreatedBy: optionalID(invite.CreatedBy), Kind: string(invite.Kind),
			Admin: invite.Admin, TokenHash: invite.Token[:], TTLSeconds: invite.TTL.Seconds(),
		})
		made.ExpiresAt = expires.UTC()
		return err
	})
	if err != nil {
		return store.Invite{}, err
	}
	return made, nil
}

// mayInvite holds who invites and the tenant, so that what it finds stays true.
func (s *Store) mayInvite(ctx context.Context, db sqlcgen.DBTX, invite store.NewInvite) error {
	if _, err := s.lockDevices(ctx, db, invite.Tenant, invite.CreatedBy); err != nil {
		return err
	}
	if err := s.expireInvites(ctx, db, invite.Tenant); err != nil {
		return err
	}
	usable, err := s.q.InvitesUsable(ctx, db, invite.Tenant)
	if err == nil && usable >= store.MaxPendingInvite {
		err = conflict("%d invites can be used: revoke one, or wait until one expires", usable)
	}
	return err
}

// expireInvites holds the tenant and moves what is overdue.
func (s *Store) expireInvites(ctx context.Context, db sqlcgen.DBTX, tenant uuid.UUID) error {
	if _, err := s.q.TenantHold(ctx, db, tenant); err != nil {
		return fmt.Errorf("tenant: %w", mapError(err))
	}
	return s.q.InvitesExpire(ctx, db, tenant)
}

// RevokeInvite implements store.Enrollments.
func (s *Store) RevokeInvite(ctx context.Context, tenant, invite uuid.UUID) error {
	return s.transaction(ctx, "revoke invite", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		if err := s.expireInvites(ctx, db, tenant); err != nil {
			return err
		}
		revoked, err := s.q.InviteRevoke(ctx, db, tenant, invite)
		if err != nil || revoked > 0 {
			return err
		}
		state, err := s.q.InviteState(ctx, db, tenant, invite)
		if err != nil {
			return fmt.Errorf("invite: %w", mapError(err))
		}
		if store.InviteState(state) == store.InviteConsumed {
			return conflict("a device has enrolled with it: suspend or revoke the device")
		}
		return nil
	})
}

// Enroll implements store.Enrollments.
func (s *Store) Enroll(ctx context.Context, e store.Enrollment) (store.Device, error) {
	if e.Fingerprint == "" {
		return store.Device{}, fmt.Errorf("enroll: no fingerprint: %w", store.ErrInvalid)
	}
	if e.Label != "" && !validLabel(e.Label, store.MaxDeviceLabel) {
		return store.Device{}, store.ErrUnauthenticated
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Device{}, fmt.Errorf("enroll: make id: %w", err)
	}
	var device sqlcgen.Device
	err = s.transaction(ctx, "enroll", asInvited(e.Token), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		device, err = s.enroll(ctx, db, id, e)
		return err
	})
	if err != nil {
		return store.Device{}, unauthenticated(err)
	}
	return deviceOf(device), nil
}

// enroll refuses everything by the same words, and what it did before is rolled back.
func (s *Store) enroll(ctx context.Context, db sqlcgen.DBTX, id uuid.UUID, e store.Enrollment) (sqlcgen.Device, error) {
	invite, err := s.q.InviteLock(ctx, db, e.Token[:])
	if isNoRows(err) {
		return sqlcgen.Device{}, store.ErrUnauthenticated
	}
	if err != nil {
		return sqlcgen.Device{}, err
	}
	if store.InviteState(invite.State) != store.InviteCreated || invite.Kind != string(e.Kind) {
		return sqlcgen.Device{}, store.ErrUnauthenticated
	}
	state := store.DevicePending
	if invite.Admin {
		state = store.DeviceApproved
	}
	device, err := s.q.DeviceEnroll(ctx, db, sqlcgen.DeviceEnrollParams{
		TenantID: invite.TenantID, ID: id, Label: e.Label, Kind: invite.Kind, State: string(state), Admin: invite.Admin,
		IdentityKey: e.Keys.Identity[:], AgreementKey: e.Keys.Agreement[:], AgreementSignature: e.Keys.AgreementSignature[:],
		Fingerprint: &e.Fingerprint, InviteID: optionalID(invite.ID),
	})
	if isNoRows(err) {
		return sqlcgen.Device{}, store.ErrUnauthenticated
	}
	if err != nil {
		return sqlcgen.Device{}, err
	}
	consumed, err := s.q.InviteConsume(ctx, db, optionalID(id), invite.TenantID, invite.ID)
	if err == nil && consumed == 0 {
		err = store.ErrUnauthenticated
	}
	return device, err
}

// ProofFailed implements store.Enrollments.
func (s *Store) ProofFailed(ctx context.Context, token store.TokenHash) error {
	return s.call(ctx, "count failed proof", asInvited(token), func(ctx context.Context, db sqlcgen.DBTX) error {
		return s.q.InviteProofFailed(ctx, db, store.MaxFailedProofs, token[:])
	})
}

// HasAdmin implements store.Enrollments.
func (s *Store) HasAdmin(ctx context.Context, tenant uuid.UUID) (bool, error) {
	var has bool
	err := s.call(ctx, "look for admin", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		has, err = s.q.DeviceAdminExists(ctx, db, tenant)
		return err
	})
	return has, err
}

func optionalID(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// unauthenticated takes from a refusal everything that could tell its cause.
func unauthenticated(err error) error {
	if errors.Is(err, store.ErrUnauthenticated) {
		return store.ErrUnauthenticated
	}
	return err
}
