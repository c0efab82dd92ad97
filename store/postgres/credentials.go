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

// Authenticate implements store.Credentials.
func (s *Store) Authenticate(ctx context.Context, token store.TokenHash) (store.Identity, error) {
	var row sqlcgen.CredentialIdentityRow
	err := s.call(ctx, "authenticate", asBearer(token), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		row, err = s.q.CredentialIdentity(ctx, db, token[:])
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Identity{}, store.ErrUnauthenticated
	}
	if err != nil {
		return store.Identity{}, err
	}
	return store.Identity{
		Tenant: row.TenantID, Room: row.RoomID, Participant: row.ParticipantID, Device: row.DeviceID,
		Credential: row.ID, Role: store.Role(row.Role), Kind: store.CredentialKind(row.Kind),
		ExpiresAt: row.ExpiresAt.UTC(), Frozen: row.Frozen,
	}, nil
}

// ValidCredentials implements store.Credentials.
func (s *Store) ValidCredentials(ctx context.Context, tenant uuid.UUID, ids []uuid.UUID) ([]uuid.UUID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var valid []uuid.UUID
	err := s.call(ctx, "check credentials", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		valid, err = s.q.CredentialsValid(ctx, db, tenant, ids)
		return err
	})
	return valid, err
}

// MintCredential implements store.Operator.
func (s *Store) MintCredential(ctx context.Context, tenant, participant uuid.UUID, kind store.CredentialKind, token store.TokenHash, ttl time.Duration) (store.Credential, error) {
	if ttl <= 0 {
		return store.Credential{}, fmt.Errorf("mint credential: ttl %s: %w", ttl, store.ErrInvalid)
	}
	c := store.Credential{Tenant: tenant, Participant: participant, Kind: kind}
	id, err := uuid.NewV7()
	if err != nil {
		return store.Credential{}, fmt.Errorf("mint credential: make id: %w", err)
	}
	c.ID = id
	err = s.transaction(ctx, "mint credential", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		row, err := s.q.CredentialMint(ctx, db, sqlcgen.CredentialMintParams{
			ID: id, Kind: string(kind), TokenHash: token[:], TTLSeconds: ttl.Seconds(),
			TenantID: tenant, ParticipantID: participant,
		})
		if isNoRows(err) {
			return s.whyNotMinted(ctx, db, tenant, participant)
		}
		c.Room, c.ExpiresAt = row.RoomID, row.ExpiresAt.UTC()
		return err
	})
	if err != nil {
		return store.Credential{}, err
	}
	return c, nil
}

func (s *Store) whyNotMinted(ctx context.Context, db sqlcgen.DBTX, tenant, participant uuid.UUID) error {
	if _, err := s.q.ParticipantByID(ctx, db, tenant, participant); err != nil {
		return fmt.Errorf("participant: %w", mapError(err))
	}
	return &store.RefusalError{Reason: "the device is not ACTIVE", Err: store.ErrConflict}
}

// RevokeCredential implements store.Operator.
func (s *Store) RevokeCredential(ctx context.Context, tenant, credential, by uuid.UUID) ([]store.Credential, error) {
	var revoked []store.Credential
	err := s.transaction(ctx, "revoke credential", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) error {
		device, err := s.q.CredentialDevice(ctx, db, tenant, credential)
		if err == nil && by != uuid.Nil && by != device {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		rows, err := s.q.CredentialRevoke(ctx, db, tenant, credential)
		if err != nil {
			return err
		}
		revoked = make([]store.Credential, 0, len(rows))
		for _, row := range rows {
			revoked = append(revoked, credentialOf(sqlcgen.CredentialRevokeOfParticipantRow(row)))
		}
		return nil
	})
	return revoked, err
}

// RevokeParticipantCredentials implements store.Operator.
func (s *Store) RevokeParticipantCredentials(ctx context.Context, tenant, participant uuid.UUID) ([]store.Credential, error) {
	var revoked []store.Credential
	err := s.transaction(ctx, "revoke credentials", asService(tenant), func(ctx context.Context, db sqlcgen.DBTX) (err error) {
		revoked, err = s.revokeAll(ctx, db, tenant, participant)
		if err != nil || len(revoked) > 0 {
			return err
		}
		existed, err := s.q.ParticipantExisted(ctx, db, tenant, participant)
		return errors.Join(err, foundIf(existed))
	})
	return revoked, err
}

func (s *Store) revokeAll(ctx context.Context, db sqlcgen.DBTX, tenant, participant uuid.UUID) ([]store.Credential, error) {
	rows, err := s.q.CredentialRevokeOfParticipant(ctx, db, tenant, participant)
	if err != nil {
		return nil, err
	}
	revoked := make([]store.Credential, 0, len(rows))
	for _, row := range rows {
		revoked = append(revoked, credentialOf(row))
	}
	return revoked, nil
}

func credentialOf(row sqlcgen.CredentialRevokeOfParticipantRow) store.Credential {
	return store.Credential{
		ID: row.ID, Tenant: row.TenantID, Room: row.RoomID, Participant: row.ParticipantID,
		Kind: store.CredentialKind(row.Kind), ExpiresAt: row.ExpiresAt.UTC(),
	}
}

func foundIf(found bool) error {
	if found {
		return nil
	}
	return store.ErrNotFound
}
