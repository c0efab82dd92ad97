-- name: GenerationAllocate :one
-- No row: the room or the participant is not there. The room is held (RoomHold), so that
-- no other call takes the same gen and nobody joins or leaves. "rekeyed" is the room's
-- version where it waited for nobody else, or 0. Only the newest @kept of a participant stay.
WITH decided AS (
    SELECT CASE
        WHEN r.state = 'ARCHIVED' THEN 'archived'
        WHEN p.role = 'viewer' THEN 'viewer'
        WHEN k.gen IS NULL THEN 'new'
        WHEN k.session_key = @session_key::bytea THEN 'known'
        ELSE 'other_key' END AS verdict, k.gen, k.allocated_at
    FROM participants p
    JOIN rooms r ON r.tenant_id = p.tenant_id AND r.id = p.room_id
    LEFT JOIN sender_generations k
           ON k.tenant_id = p.tenant_id AND k.room_id = p.room_id
          AND k.participant_id = p.id AND k.kid = @kid::bytea
    WHERE p.tenant_id = @tenant_id AND p.room_id = @room_id
      AND p.id = @participant_id AND p.left_at IS NULL
), counted AS (
    UPDATE participants p SET last_gen = p.last_gen + 1
    FROM decided
    WHERE decided.verdict = 'new' AND p.tenant_id = @tenant_id AND p.id = @participant_id
    RETURNING p.last_gen
), stored AS (
    INSERT INTO sender_generations (tenant_id, room_id, participant_id, gen, kid, session_key)
    SELECT @tenant_id::uuid, @room_id::uuid, @participant_id::uuid, counted.last_gen, @kid::bytea, @session_key::bytea
    FROM counted
    RETURNING gen, allocated_at
), pruned AS (
    DELETE FROM sender_generations o USING counted
    WHERE o.tenant_id = @tenant_id AND o.room_id = @room_id AND o.participant_id = @participant_id
      AND o.gen <= counted.last_gen - @kept::bigint
), rekeyed AS (
    UPDATE rooms r SET version = r.version + 1, state = t.to_state
    FROM decided, state_transition t
    WHERE decided.verdict = 'new' AND r.tenant_id = @tenant_id AND r.id = @room_id AND r.scheme = 'sender_keys'
      AND t.machine = 'room' AND t.from_state = r.state AND t.event = 'rekey_complete'
      AND NOT EXISTS (
          SELECT FROM participants o
          WHERE o.tenant_id = @tenant_id AND o.room_id = @room_id AND o.left_at IS NULL
            AND o.id <> @participant_id AND o.last_gen > 0 AND o.first_gen > o.last_gen)
    RETURNING r.version
)
SELECT d.verdict::text AS verdict,
       coalesce(s.gen, d.gen, 0)::bigint AS gen,
       coalesce(s.allocated_at, d.allocated_at, now())::timestamptz AS allocated_at,
       coalesce(k.version, 0)::bigint AS rekeyed
FROM decided d LEFT JOIN stored s ON true LEFT JOIN rekeyed k ON true;

-- name: GenerationsCurrent :many
-- The newest of each current participant that has one.
SELECT p.id AS participant_id, g.gen, g.kid, g.session_key, g.allocated_at
FROM participants p
CROSS JOIN LATERAL (
    SELECT n.gen, n.kid, n.session_key, n.allocated_at
    FROM sender_generations n
    WHERE n.tenant_id = p.tenant_id AND n.room_id = p.room_id AND n.participant_id = p.id
    ORDER BY n.gen DESC LIMIT 1
) g
WHERE p.tenant_id = @tenant_id AND p.room_id = @room_id AND p.left_at IS NULL
ORDER BY p.joined_at, p.id;
