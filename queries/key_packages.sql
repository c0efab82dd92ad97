-- name: KeyPackagesExpire :many
-- Deletes what is expired, and says whose packages that were still to be handed out once
-- are among it. The devices are locked (DevicesLock), as for all that changes packages.
WITH gone AS (
    DELETE FROM key_packages
    WHERE tenant_id = @tenant_id AND device_id = ANY(@device_ids::uuid[]) AND expires_at <= statement_timestamp()
    RETURNING device_id, (content IS NOT NULL AND NOT last_resort) AS usable
)
SELECT DISTINCT device_id FROM gone WHERE usable;

-- name: KeyPackageAdd :execrows
-- No row where the package expires too early or too late.
INSERT INTO key_packages (tenant_id, device_id, ref, content, last_resort, expires_at)
SELECT @tenant_id::uuid, @device_id::uuid, @ref::bytea, @content::bytea, @last_resort::boolean, @expires_at::timestamptz
WHERE @expires_at > statement_timestamp()
  AND @expires_at <= statement_timestamp() + make_interval(secs => @life_seconds::double precision);

-- name: KeyPackageKnown :one
SELECT EXISTS (SELECT FROM key_packages WHERE tenant_id = @tenant_id AND device_id = @device_id AND ref = @ref);

-- name: KeyPackagesReplace :exec
-- The last resort of a device is spent: another takes its place.
UPDATE key_packages SET content = NULL
WHERE tenant_id = @tenant_id AND device_id = @device_id AND last_resort AND content IS NOT NULL;

-- name: KeyPackageStock :one
SELECT count(*) FILTER (WHERE NOT last_resort) AS available,
       coalesce(bool_or(last_resort), false)::boolean AS last_resort
FROM key_packages
WHERE tenant_id = @tenant_id AND device_id = @device_id AND content IS NOT NULL AND expires_at > statement_timestamp();

-- name: KeyPackagesForget :exec
-- Of the packages that are spent a device keeps so many, those that live longest.
DELETE FROM key_packages k
WHERE k.tenant_id = @tenant_id AND k.device_id = @device_id AND k.ref IN (
    SELECT o.ref FROM key_packages o
    WHERE o.tenant_id = @tenant_id AND o.device_id = @device_id AND o.content IS NULL
    ORDER BY o.expires_at DESC, o.ref OFFSET @keep::bigint);

-- name: DevicesOfParticipants :many
-- The devices of those of these participants that are in the room.
SELECT id, device_id FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = ANY(@ids::uuid[]) AND left_at IS NULL;

-- name: KeyPackagesChoose :many
-- For each device the package it is added with: of those to be handed out once the one
-- that expires first, else its last resort. "available" counts the former, with it.
SELECT d.device_id::uuid AS device_id, c.ref, c.content, c.last_resort, c.expires_at, c.available
FROM (SELECT unnest(@device_ids::uuid[]) AS device_id) d
CROSS JOIN LATERAL (
    SELECT k.ref, k.content, k.last_resort, k.expires_at,
           count(*) FILTER (WHERE NOT k.last_resort) OVER () AS available
    FROM key_packages k
    WHERE k.tenant_id = @tenant_id AND k.device_id = d.device_id
      AND k.content IS NOT NULL AND k.expires_at > statement_timestamp()
    ORDER BY k.last_resort, k.expires_at, k.ref LIMIT 1
) c;

-- name: KeyPackagesDelete :exec
DELETE FROM key_packages WHERE tenant_id = @tenant_id AND device_id = @device_id;

-- name: KeyPackagesSpend :execrows
-- Hands packages out, once.
UPDATE key_packages k SET content = NULL
FROM (SELECT unnest(@device_ids::uuid[]) AS device_id, unnest(@refs::bytea[]) AS ref) handed
WHERE k.tenant_id = @tenant_id AND k.device_id = handed.device_id AND k.ref = handed.ref
  AND NOT k.last_resort AND k.content IS NOT NULL;
