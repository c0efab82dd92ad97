-- Every statement that changes prekeys comes after DevicesLock of their device: what one
-- sees of them is what is there until the transaction ends.

-- name: SignedPrekeyPut :execrows
-- No row for an id below the stored one, or the same id with another key.
INSERT INTO signed_prekeys AS s (tenant_id, device_id, id, key, signature)
VALUES (@tenant_id, @device_id, @id, @key, @signature)
ON CONFLICT ON CONSTRAINT signed_prekeys_pk DO UPDATE
SET id = excluded.id, key = excluded.key, signature = excluded.signature
WHERE s.id < excluded.id OR s.id = excluded.id AND s.key = excluded.key;

-- name: PrekeysDiffer :one
-- Whether one of these is stored with another key.
SELECT EXISTS (
    SELECT FROM prekeys p
    JOIN (SELECT unnest(@ids::integer[]) AS id, unnest(@keys::bytea[]) AS key) given ON given.id = p.id
    WHERE p.tenant_id = @tenant_id AND p.device_id = @device_id AND p.key <> given.key);

-- name: PrekeysAdd :exec
-- Adds those that were not uploaded before.
INSERT INTO prekeys (tenant_id, device_id, id, key)
SELECT d.tenant_id, d.id, given.id, given.key
FROM devices d
CROSS JOIN (SELECT unnest(@ids::integer[]) AS id, unnest(@keys::bytea[]) AS key) given
WHERE d.tenant_id = @tenant_id AND d.id = @device_id AND given.id > d.last_prekey;

-- name: PrekeysUploaded :exec
-- Notes up to which id one-time prekeys were uploaded. It comes after PrekeysAdd.
UPDATE devices SET last_prekey = @last
WHERE tenant_id = @tenant_id AND id = @device_id AND last_prekey < @last;

-- name: PrekeyStock :one
SELECT coalesce(s.id, 0)::integer AS signed_id, d.last_prekey,
       (SELECT count(*) FROM prekeys p WHERE p.tenant_id = d.tenant_id AND p.device_id = d.id) AS one_time
FROM devices d
LEFT JOIN signed_prekeys s ON s.tenant_id = d.tenant_id AND s.device_id = d.id
WHERE d.tenant_id = @tenant_id AND d.id = @device_id;

-- name: PrekeyBundle :one
-- The signed prekey of a device that has keys, with its membership of a room in which
-- @by is, too, and something can be sent: a direct room where there is one.
SELECT s.id, s.key, s.signature, p.room_id, p.id AS participant_id
FROM signed_prekeys s
JOIN devices d ON d.tenant_id = s.tenant_id AND d.id = s.device_id AND d.identity_key IS NOT NULL
JOIN participants p ON p.tenant_id = s.tenant_id AND p.device_id = s.device_id AND p.left_at IS NULL
JOIN participants q ON q.tenant_id = p.tenant_id AND q.room_id = p.room_id AND q.left_at IS NULL
JOIN rooms r ON r.tenant_id = p.tenant_id AND r.id = p.room_id AND r.state <> 'ARCHIVED'
WHERE s.tenant_id = @tenant_id AND s.device_id = @device_id AND q.device_id = @by
ORDER BY r.kind <> 'direct', r.id LIMIT 1;

-- name: PrekeyTake :one
-- Takes away the one with the lowest id, and says how many are left; no row where there
-- is none.
WITH taken AS (
    DELETE FROM prekeys p
    WHERE p.tenant_id = @tenant_id AND p.device_id = @device_id AND p.id = (
        SELECT min(lowest.id) FROM prekeys lowest
        WHERE lowest.tenant_id = @tenant_id AND lowest.device_id = @device_id)
    RETURNING p.id, p.key
)
-- The count is of before the deletion.
SELECT taken.id, taken.key, (
    SELECT count(*) - 1 FROM prekeys p
    WHERE p.tenant_id = @tenant_id AND p.device_id = @device_id)::bigint AS remaining
FROM taken;

-- name: PrekeysDelete :exec
DELETE FROM prekeys WHERE tenant_id = @tenant_id AND device_id = @device_id;

-- name: SignedPrekeyDelete :exec
DELETE FROM signed_prekeys WHERE tenant_id = @tenant_id AND device_id = @device_id;
