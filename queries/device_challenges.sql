-- name: ChallengeMake :exec
INSERT INTO device_challenges (tenant_id, device_id, nonce_hash, expires_at)
VALUES (@tenant_id, @device_id, @nonce_hash, statement_timestamp() + make_interval(secs => @ttl_seconds::double precision));

-- name: ChallengesKeep :exec
-- Leaves a device its newest challenges, so that it never has more than one more than @keep.
DELETE FROM device_challenges c
WHERE c.tenant_id = @tenant_id AND c.device_id = @device_id AND c.nonce_hash NOT IN (
    SELECT o.nonce_hash FROM device_challenges o
    WHERE o.tenant_id = @tenant_id AND o.device_id = @device_id
    ORDER BY o.expires_at DESC, o.nonce_hash LIMIT @keep);

-- name: ChallengePrune :exec
-- Deletes some of the tenant's expired challenges, whosever they are.
DELETE FROM device_challenges c
WHERE c.tenant_id = @tenant_id AND (c.device_id, c.nonce_hash) IN (
    SELECT o.device_id, o.nonce_hash FROM device_challenges o
    WHERE o.tenant_id = @tenant_id AND o.expires_at <= statement_timestamp()
    ORDER BY o.expires_at LIMIT @batch);

-- name: ChallengeConsume :one
-- No row: there is no such challenge, or no longer.
DELETE FROM device_challenges
WHERE tenant_id = @tenant_id AND device_id = @device_id AND nonce_hash = @nonce_hash
RETURNING (expires_at > clock_timestamp())::boolean AS valid;
