-- name: DeviceTokenMake :one
INSERT INTO device_tokens (tenant_id, device_id, token_hash, expires_at)
VALUES (@tenant_id, @device_id, @token_hash, now() + make_interval(secs => @ttl_seconds::double precision))
RETURNING expires_at;

-- name: DeviceTokensKeep :exec
-- Deletes a device's tokens that ended and, of the others, the oldest beyond @keep.
DELETE FROM device_tokens c
WHERE c.tenant_id = @tenant_id AND c.device_id = @device_id AND c.token_hash NOT IN (
    SELECT o.token_hash FROM device_tokens o
    WHERE o.tenant_id = @tenant_id AND o.device_id = @device_id
      AND o.revoked_at IS NULL AND o.expires_at > now()
    ORDER BY o.created_at DESC, o.token_hash LIMIT @keep);

-- name: DeviceTokensRevoke :exec
UPDATE device_tokens SET revoked_at = now()
WHERE tenant_id = @tenant_id AND device_id = @device_id AND revoked_at IS NULL;

-- name: DeviceTokenIdentity :one
-- Whose a token is now. Every reason not to be valid is the same: no row.
SELECT d.tenant_id, d.id, d.label, d.kind, d.state, d.created_at, d.revoked_at, d.admin, d.identity_key,
       d.agreement_key, d.agreement_signature, d.fingerprint, d.approved_at, d.invite_id, d.last_prekey
FROM device_tokens t
JOIN devices d ON d.tenant_id = t.tenant_id AND d.id = t.device_id
WHERE t.token_hash = @token_hash AND t.revoked_at IS NULL AND t.expires_at > now()
  AND d.state IN ('APPROVED', 'ACTIVE');
