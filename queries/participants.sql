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

-- name: ParticipantLeave :execrows
UPDATE participants SET left_at = now()
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = @id AND left_at IS NULL;

-- name: ParticipantHold :exec
-- Makes what is written for one participant follow one another, and its removal wait.
SELECT id FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = @id FOR NO KEY UPDATE;

-- name: ParticipantsOfDevice :many
SELECT id, room_id FROM participants
WHERE tenant_id = @tenant_id AND device_id = @device_id AND left_at IS NULL
ORDER BY id;

-- name: ParticipantsLeave :many
-- Ends every membership of a device. Its rooms are locked (RoomsOfDeviceLock). One may have
-- begun after this transaction, which then waited for it.
UPDATE participants SET left_at = greatest(joined_at, statement_timestamp())
WHERE tenant_id = @tenant_id AND device_id = @device_id AND left_at IS NULL
RETURNING id, room_id;
