-- name: RoomCreate :one
INSERT INTO rooms (tenant_id, id, kind, scheme, private_messages, made_by)
VALUES (@tenant_id, @id, @kind, @scheme, @private_messages, sqlc.narg(made_by))
RETURNING tenant_id, id, kind, scheme, private_messages, state, version, activated, created_at;

-- name: RoomsOpenOfMaker :one
-- How many rooms that the device made are not archived, as far as they count.
SELECT count(*) FROM (
    SELECT FROM rooms r
    WHERE r.tenant_id = @tenant_id AND r.made_by = @made_by::uuid AND r.state <> 'ARCHIVED'
    LIMIT @most) o;

-- name: RoomByID :one
SELECT tenant_id, id, kind, scheme, private_messages, state, version, activated, created_at
FROM rooms WHERE tenant_id = @tenant_id AND id = @id;

-- name: RoomLock :one
-- Makes changes of one room follow one another. Every change takes this lock first.
SELECT tenant_id, id, kind, scheme, private_messages, state, version, activated, created_at
FROM rooms WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: RoomMove :one
-- One step of the room's state machine, which is also a change of the room; no row
-- when the table has no such move.
UPDATE rooms r SET state = t.to_state, version = r.version + 1,
       archived_at = CASE WHEN t.to_state = 'ARCHIVED' THEN now() END
FROM state_transition t
WHERE r.tenant_id = @tenant_id AND r.id = @id
  AND t.machine = 'room' AND t.from_state = r.state AND t.event = @event
RETURNING r.state, r.version;

-- name: RoomVersions :many
SELECT id, version FROM rooms
WHERE tenant_id = @tenant_id AND id = ANY(@ids::uuid[]);

-- name: RoomRoster :many
-- The room, once per current participant, or once with no participant.
SELECT r.tenant_id, r.id, r.kind, r.scheme, r.private_messages, r.state, r.version, r.activated, r.created_at,
       p.id AS participant_id, p.device_id, p.role, p.joined_at
FROM rooms r
LEFT JOIN participants p
       ON p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NULL
WHERE r.tenant_id = @tenant_id AND r.id = @id
ORDER BY p.joined_at, p.id;

-- name: RoomHold :exec
-- Makes what is written in a room follow one another, and its changes wait: RoomLock
-- without making references to the room wait.
SELECT id FROM rooms WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: RoomsOfDeviceLock :exec
-- RoomLock of every room that the device is in, which joins no other while it is locked.
SELECT r.id FROM rooms r
WHERE r.tenant_id = @tenant_id AND r.id IN (
    SELECT p.room_id FROM participants p
    WHERE p.tenant_id = @tenant_id AND p.device_id = @device_id AND p.left_at IS NULL)
ORDER BY r.id FOR UPDATE;

-- name: RoomsLoseMember :many
-- A member of each of these rooms, which are locked, is gone. An encrypted one moves as the
-- state machine says, where it says something: those who stay have to change keys; where
-- nobody stays, or nobody who left is in the MLS group, there is nothing to change. Every
-- room has changed.
UPDATE rooms r SET version = r.version + 1,
       activated = r.activated AND r.scheme <> 'double_ratchet',
       state = coalesce((
           SELECT t.to_state FROM state_transition t
           WHERE t.machine = 'room' AND t.from_state = r.state AND r.scheme <> 'none'
             AND t.event = CASE WHEN EXISTS (
                     SELECT FROM participants p
                     WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NULL
                 ) AND (r.scheme <> 'mls' OR EXISTS (
                     SELECT FROM participants p
                     WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NOT NULL
                       AND p.mls_since IS NOT NULL)
                 ) THEN 'member_removed' ELSE 'rekey_complete' END), r.state)
WHERE r.tenant_id = @tenant_id AND r.id = ANY(@ids::uuid[])
RETURNING r.tenant_id, r.id, r.kind, r.scheme, r.private_messages, r.state, r.version, r.activated, r.created_at,
          EXISTS (SELECT FROM participants p
                  WHERE p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NULL) AS occupied;

-- name: RoomReset :one
-- All encryption state begins anew; no row where the room has none to begin with. The next
-- commit makes an MLS group for those who are in the room: nobody's removal is pending.
UPDATE rooms r SET version = r.version + 1, activated = false,
       state = coalesce((
           SELECT t.to_state FROM state_transition t
           WHERE t.machine = 'room' AND t.from_state = r.state AND t.event = 'rekey_complete'
             AND r.scheme = 'mls'), r.state)
WHERE r.tenant_id = @tenant_id AND r.id = @id
  AND r.state IN ('ACTIVE', 'REKEYING') AND r.scheme <> 'none'
RETURNING r.tenant_id, r.id, r.kind, r.scheme, r.private_messages, r.state, r.version, r.activated, r.created_at;

-- name: RoomActivate :exec
-- The owner of a direct room writes first. In one of the double ratchet that begins a new
-- session, whose keys nobody has who left.
UPDATE rooms r SET version = r.version + 1, activated = true,
       state = coalesce((
           SELECT t.to_state FROM state_transition t
           WHERE t.machine = 'room' AND t.from_state = r.state AND t.event = 'rekey_complete'
             AND r.scheme = 'double_ratchet'), r.state)
WHERE r.tenant_id = @tenant_id AND r.id = @id AND r.kind = 'direct' AND NOT r.activated;

-- name: RoomPage :many
SELECT tenant_id, id, kind, scheme, private_messages, state, version, activated, created_at
FROM rooms
WHERE tenant_id = @tenant_id AND id > @after
ORDER BY id LIMIT @page;

-- name: RoomPageOfDevice :many
-- The rooms that the device is in.
SELECT r.tenant_id, r.id, r.kind, r.scheme, r.private_messages, r.state, r.version, r.activated, r.created_at
FROM rooms r
JOIN participants p ON p.tenant_id = r.tenant_id AND p.room_id = r.id AND p.left_at IS NULL
WHERE r.tenant_id = @tenant_id AND p.device_id = @device_id AND r.id > @after
ORDER BY r.id LIMIT @page;
