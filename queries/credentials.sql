-- name: CredentialIdentity :one
-- What a token proves now. Every reason not to be valid is the same: no row.
-- OFFSET 0 keeps conditions out of the subqueries, so that each has its primary key to go by:
-- in tables that were never analyzed, a plan takes any index that begins with the tenant for
-- as good, and every hello would read all participants and devices of the tenant.
SELECT c.tenant_id, c.room_id, c.participant_id, p.device_id, c.id, p.role, c.kind, c.expires_at, t.frozen
FROM credentials c
JOIN LATERAL (
    SELECT m.device_id, m.role, m.left_at FROM participants m
    WHERE m.tenant_id = c.tenant_id AND m.room_id = c.room_id AND m.id = c.participant_id
    OFFSET 0
) p ON p.left_at IS NULL
JOIN LATERAL (
    SELECT s.state FROM devices s WHERE s.tenant_id = c.tenant_id AND s.id = p.device_id OFFSET 0
) d ON d.state = 'ACTIVE'
JOIN tenants t ON t.id = c.tenant_id
WHERE c.token_hash = @token_hash
  AND c.revoked_at IS NULL AND c.expires_at > now();

-- name: CredentialsValid :many
SELECT c.id
FROM credentials c
JOIN participants p ON p.tenant_id = c.tenant_id AND p.room_id = c.room_id AND p.id = c.participant_id
JOIN devices d ON d.tenant_id = p.tenant_id AND d.id = p.device_id
WHERE c.tenant_id = @tenant_id AND c.id = ANY(@ids::uuid[])
  AND c.revoked_at IS NULL AND c.expires_at > now()
  AND p.left_at IS NULL AND d.state = 'ACTIVE';

-- name: CredentialMint :one
-- No row when the participant is not a current one of an ACTIVE device. The locks make
-- a removal or suspension that runs at the same time wait, and then see this row; the
-- device's comes first (DevicesLock).
WITH member AS (
    SELECT p.tenant_id, p.room_id, p.id
    FROM participants p
    JOIN devices d ON d.tenant_id = p.tenant_id AND d.id = p.device_id
    WHERE p.tenant_id = @tenant_id AND p.id = @participant_id
      AND p.left_at IS NULL AND d.state = 'ACTIVE'
    FOR SHARE OF d, p
)
INSERT INTO credentials (tenant_id, id, room_id, participant_id, kind, token_hash, expires_at)
SELECT member.tenant_id, @id, member.room_id, member.id, @kind, @token_hash,
       now() + make_interval(secs => @ttl_seconds::double precision)
FROM member
RETURNING room_id, expires_at;

-- name: CredentialRevoke :many
UPDATE credentials SET revoked_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND revoked_at IS NULL AND expires_at > now()
RETURNING id, tenant_id, room_id, participant_id, kind, expires_at;

-- name: CredentialDevice :one
-- Whose it is, or was.
SELECT p.device_id FROM credentials c
JOIN participants p ON p.tenant_id = c.tenant_id AND p.room_id = c.room_id AND p.id = c.participant_id
WHERE c.tenant_id = @tenant_id AND c.id = @id;

-- name: CredentialRevokeOfParticipant :many
UPDATE credentials SET revoked_at = now()
WHERE tenant_id = @tenant_id AND participant_id = @participant_id
  AND revoked_at IS NULL AND expires_at > now()
RETURNING id, tenant_id, room_id, participant_id, kind, expires_at;

-- name: CredentialsRevokeOfParticipants :many
UPDATE credentials SET revoked_at = now()
WHERE tenant_id = @tenant_id AND participant_id = ANY(@participant_ids::uuid[])
  AND revoked_at IS NULL AND expires_at > now()
RETURNING id;

-- name: CredentialsOfParticipants :many
SELECT id FROM credentials
WHERE tenant_id = @tenant_id AND participant_id = ANY(@participant_ids::uuid[])
  AND revoked_at IS NULL AND expires_at > now();

-- name: CredentialPrune :execrows
-- Deletes a tenant's credentials that ended longest ago, at most @batch of them.
DELETE FROM credentials d
WHERE d.tenant_id = @tenant_id AND d.id IN (
    SELECT o.id FROM credentials o
    WHERE o.tenant_id = @tenant_id
      AND least(o.expires_at, o.revoked_at) < now() - make_interval(secs => @keep_seconds::double precision)
    ORDER BY least(o.expires_at, o.revoked_at) LIMIT @batch);
