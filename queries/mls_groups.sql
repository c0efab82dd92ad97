-- name: RoomMember :one
-- What a device is in a room: no row unless it is ACTIVE. Without a participant it is no
-- member.
SELECT p.id AS participant_id, p.role, p.mls_since
FROM devices d
LEFT JOIN participants p ON p.tenant_id = d.tenant_id AND p.room_id = @room_id
                        AND p.device_id = d.id AND p.left_at IS NULL
WHERE d.tenant_id = @tenant_id AND d.id = @device_id AND d.state = 'ACTIVE';

-- name: GroupByRoom :one
SELECT epoch, base, group_id FROM mls_groups
WHERE tenant_id = @tenant_id AND room_id = @room_id;

-- name: GroupWithMembers :one
-- A room's group with who is in it, also who left the room and was not removed from the
-- group yet.
SELECT coalesce(g.epoch, 0)::bigint AS epoch, coalesce(g.base, 0)::bigint AS base, g.group_id, g.group_info,
       ARRAY(SELECT p.id FROM participants p
             WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.mls_since IS NOT NULL ORDER BY p.id)::uuid[] AS members,
       ARRAY(SELECT p.id FROM participants p
             WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.mls_since IS NOT NULL AND p.left_at IS NOT NULL
             ORDER BY p.id)::uuid[] AS pending
FROM rooms r LEFT JOIN mls_groups g ON g.tenant_id = r.tenant_id AND g.room_id = r.id
WHERE r.tenant_id = @tenant_id AND r.id = @room_id;

-- name: GroupBegin :execrows
-- No row: the room had a group of this id.
INSERT INTO mls_group_ids (tenant_id, room_id, group_id, began) VALUES (@tenant_id, @room_id, @group_id, @began)
ON CONFLICT ON CONSTRAINT mls_group_ids_pk DO NOTHING;

-- name: GroupIDsPrune :exec
-- Only the newest id of a room stays, with @others.
DELETE FROM mls_group_ids o
WHERE o.tenant_id = @tenant_id AND o.room_id = @room_id AND o.began < (
    SELECT k.began FROM mls_group_ids k
    WHERE k.tenant_id = @tenant_id AND k.room_id = @room_id
    ORDER BY k.began DESC LIMIT 1 OFFSET @others::bigint);

-- name: GroupAdvance :execrows
-- The next epoch; no row when the room is not in the one before it. A room without a row
-- is in epoch 0.
INSERT INTO mls_groups (tenant_id, room_id, epoch, group_id, group_info)
VALUES (@tenant_id, @room_id, @next, @group_id, @group_info)
ON CONFLICT ON CONSTRAINT mls_groups_pk DO UPDATE
SET epoch = excluded.epoch, group_id = excluded.group_id, group_info = excluded.group_info, updated_at = now()
WHERE mls_groups.epoch = excluded.epoch - 1;

-- name: GroupsEnd :exec
-- Ends the groups of these rooms and takes an epoch for that. The rooms are locked
-- (RoomLock).
UPDATE mls_groups SET epoch = epoch + 1, base = epoch + 1, group_id = NULL, group_info = NULL, updated_at = now()
WHERE tenant_id = @tenant_id AND room_id = ANY(@ids::uuid[]) AND group_id IS NOT NULL;

-- name: GroupsMembersEnd :exec
UPDATE participants SET mls_since = NULL, welcome_epoch = NULL
WHERE tenant_id = @tenant_id AND room_id = ANY(@ids::uuid[]) AND (mls_since IS NOT NULL OR welcome_epoch IS NOT NULL);

-- name: GroupMembersChange :exec
-- Who joins by a commit and who is removed by it. The room is locked (RoomLock).
UPDATE participants SET
    mls_since = CASE WHEN id = ANY(@joining::uuid[]) THEN @epoch::bigint END,
    welcome_epoch = CASE WHEN id = ANY(@welcomed::uuid[]) THEN @epoch END
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = ANY(@joining || @removed::uuid[]);

-- name: ParticipantsNamed :many
-- Those of these participants that the room has or had.
SELECT id, (left_at IS NULL)::boolean AS current, (mls_since IS NOT NULL)::boolean AS in_group FROM participants
WHERE tenant_id = @tenant_id AND room_id = @room_id AND id = ANY(@ids::uuid[]);

-- name: RoomCommitted :one
-- A commit changed the room, which is locked. One that is REKEYING is ACTIVE again where
-- nobody is left whose removal is pending.
UPDATE rooms r SET version = r.version + 1,
       state = coalesce((
           SELECT t.to_state FROM state_transition t
           WHERE t.machine = 'room' AND t.from_state = r.state AND t.event = 'rekey_complete' AND NOT EXISTS (
               SELECT FROM participants p
               WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NOT NULL AND p.mls_since IS NOT NULL)
           ), r.state)
WHERE r.tenant_id = @tenant_id AND r.id = @id
RETURNING r.version;
