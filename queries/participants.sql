-- name: ParticipantCreate :one
INSERT INTO participants (tenant_id, id, room_id, device_id, role)
VALUES (@tenant_id, @id, @room_id, @device_id, @role)
RETURNING joined_at;

-- name: ParticipantByID :one
SELECT tenant_id, id, room_id, device_id, role, joined_at
FROM participants
WHERE tenant_id = @tenant_id AND id = @id AND left_at IS NULL;

-- name: ParticipantExisted :one
SELECT EXISTS (SELECT FROM participants WHERE tenant_id = @tenant_id AND id = @id);

-- name: ParticipantRoles :many
-- The roles of a room's current participants, one row each.
SELECT role FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND left_at IS NULL;

-- name: ParticipantOfDevice :one
-- What the device is in the room.
SELECT id, role FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND device_id = @device_id AND left_at IS NULL;

-- name: ParticipantLeave :one
-- Ends a membership. The room is locked (RoomLock).
UPDATE participants SET left_at = greatest(joined_at, statement_timestamp())
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = @id AND left_at IS NULL
RETURNING id, room_id, device_id;

-- name: ParticipantsOfDevice :many
SELECT id, room_id FROM participants
WHERE tenant_id = @tenant_id AND device_id = @device_id AND left_at IS NULL
ORDER BY id;

-- name: ParticipantsLeave :many
-- Ends every membership of a device. Its rooms are locked (RoomsOfDeviceLock). One may have
-- begun after this transaction, which then waited for it.
UPDATE participants SET left_at = greatest(joined_at, statement_timestamp())
WHERE tenant_id = @tenant_id AND device_id = @device_id AND left_at IS NULL
RETURNING id, room_id, device_id;

-- name: ParticipantsRetire :exec
-- Retires the generations of everybody who is in one of these rooms, which are locked, where
-- those are rooms of sender keys.
UPDATE participants p SET first_gen = p.last_gen + 1
FROM rooms r
WHERE r.tenant_id = @tenant_id AND r.id = ANY(@room_ids::uuid[]) AND r.scheme = 'sender_keys'
  AND p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NULL
  AND p.first_gen <> p.last_gen + 1;
