-- name: DeviceKeysByID :many
-- Devices without keys have no row here.
SELECT id, identity_key, agreement_key, agreement_signature
FROM devices
WHERE tenant_id = @tenant_id AND id = ANY(@ids::uuid[]) AND fingerprint IS NOT NULL;

-- name: Membership :one
-- A participant of the room, a former one too.
SELECT id, device_id, role, joined_at, left_at
FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = @id;
