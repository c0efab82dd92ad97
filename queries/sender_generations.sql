-- name: GenerationAllocate :one
-- No row: the room or the participant is not there. The participant is held
-- (ParticipantHold), so that no other call takes the same gen.
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
), stored AS (
    INSERT INTO sender_generations (tenant_id, room_id, participant_id, gen, kid, session_key)
    SELECT @tenant_id::uuid, @room_id::uuid, @participant_id::uuid,
           1 + coalesce((SELECT max(g.gen) FROM sender_generations g
                         WHERE g.tenant_id = @tenant_id AND g.room_id = @room_id
                           AND g.participant_id = @participant_id), 0),
           @kid::bytea, @session_key::bytea
    FROM decided WHERE decided.verdict = 'new'
    RETURNING gen, allocated_at
)
SELECT d.verdict::text AS verdict,
       coalesce(s.gen, d.gen, 0)::bigint AS gen,
       coalesce(s.allocated_at, d.allocated_at, now())::timestamptz AS allocated_at
FROM decided d LEFT JOIN stored s ON true;

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
