-- name: TraceInsert :one
-- Stores the traces whose sender and recipient are current members of an unarchived
-- room that allows private messages, and whose id is neither traced nor in history.
-- Otherwise as HistoryInsert.
WITH stored AS (
    INSERT INTO message_traces (tenant_id, room_id, message_id, sender_id, recipient_id, ts, declared, files, digest)
    SELECT @tenant_id, m.room_id, m.message_id, m.sender_id, m.recipient_id, m.ts, m.declared, m.files::jsonb, m.digest
    FROM (
        SELECT unnest(@room_ids::uuid[]) AS room_id, unnest(@message_ids::text[]) AS message_id,
               unnest(@sender_ids::uuid[]) AS sender_id, unnest(@recipient_ids::uuid[]) AS recipient_id,
               unnest(@ts::bigint[]) AS ts, unnest(@declared::boolean[]) AS declared,
               unnest(@files::text[]) AS files, unnest(@digests::bytea[]) AS digest
    ) m
    WHERE (SELECT p.room_id = m.room_id AND p.left_at IS NULL FROM participants p
           WHERE p.tenant_id = @tenant_id AND p.id = m.sender_id)
      AND (SELECT p.room_id = m.room_id AND p.left_at IS NULL FROM participants p
           WHERE p.tenant_id = @tenant_id AND p.id = m.recipient_id)
      AND (SELECT r.state <> 'ARCHIVED' AND r.private_messages = 'allowed'
           FROM rooms r WHERE r.tenant_id = @tenant_id AND r.id = m.room_id)
      AND (SELECT count(*) = 0 FROM session_history h
           WHERE h.tenant_id = @tenant_id AND h.room_id = m.room_id AND h.message_id = m.message_id)
    ON CONFLICT ON CONSTRAINT message_traces_pk DO NOTHING
    RETURNING room_id, message_id
)
SELECT count(*)::bigint AS stored,
       (CASE WHEN count(*) < cardinality(@message_ids::text[]) THEN array_agg(s.room_id) END)::uuid[] AS rooms,
       (CASE WHEN count(*) < cardinality(@message_ids::text[]) THEN array_agg(s.message_id) END)::text[] AS ids
FROM stored s;

-- name: TraceInsertOne :execrows
-- TraceInsert of a lone row; see HistoryInsertOne.
INSERT INTO message_traces (tenant_id, room_id, message_id, sender_id, recipient_id, ts, declared, files, digest)
SELECT @tenant_id::uuid, @room_id::uuid, @message_id::text, @sender_id::uuid, @recipient_id::uuid,
       @ts::bigint, @declared::boolean, sqlc.narg(files)::text::jsonb, @digest::bytea
FROM participants p
WHERE p.tenant_id = @tenant_id AND p.id = @sender_id AND (p.room_id = @room_id) IS TRUE AND p.left_at IS NULL
  AND (SELECT o.room_id = @room_id AND o.left_at IS NULL FROM participants o
       WHERE o.tenant_id = @tenant_id AND o.id = @recipient_id)
  AND (SELECT r.state <> 'ARCHIVED' AND r.private_messages = 'allowed'
       FROM rooms r WHERE r.tenant_id = @tenant_id AND r.id = @room_id)
  AND (SELECT count(*) = 0 FROM session_history h
       WHERE h.tenant_id = @tenant_id AND h.room_id = @room_id AND h.message_id = @message_id)
ON CONFLICT DO NOTHING;

-- name: TraceVerdicts :many
-- Why traces were not stored, in the order they are asked for.
SELECT (r.id IS NOT NULL)::boolean AS room_known,
       coalesce(r.state = 'ARCHIVED', false)::boolean AS archived,
       (s.id IS NOT NULL AND o.id IS NOT NULL)::boolean AS members,
       coalesce(r.private_messages = 'allowed', false)::boolean AS allowed,
       (t.message_id IS NOT NULL)::boolean AS stored,
       coalesce(t.sender_id = m.sender_id AND t.recipient_id = m.recipient_id
                AND t.digest = m.digest, false)::boolean AS same,
       (h.message_id IS NOT NULL)::boolean AS in_history
FROM (
    SELECT generate_subscripts(@message_ids::text[], 1) AS n,
           unnest(@room_ids::uuid[]) AS room_id, unnest(@message_ids::text[]) AS message_id,
           unnest(@sender_ids::uuid[]) AS sender_id, unnest(@recipient_ids::uuid[]) AS recipient_id,
           unnest(@digests::bytea[]) AS digest
) m
LEFT JOIN rooms r ON r.tenant_id = @tenant_id AND r.id = m.room_id
LEFT JOIN participants s ON s.tenant_id = @tenant_id AND s.room_id = m.room_id
                        AND s.id = m.sender_id AND s.left_at IS NULL
LEFT JOIN participants o ON o.tenant_id = @tenant_id AND o.room_id = m.room_id
                        AND o.id = m.recipient_id AND o.left_at IS NULL
LEFT JOIN message_traces t ON t.tenant_id = @tenant_id AND t.room_id = m.room_id
                          AND t.message_id = m.message_id
LEFT JOIN session_history h ON h.tenant_id = @tenant_id AND h.room_id = m.room_id
                           AND h.message_id = m.message_id
ORDER BY m.n;

-- name: TracesAfter :many
-- Oldest first.
SELECT position, message_id, sender_id, recipient_id, ts, declared, files, committed_at
FROM message_traces
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position > @after AND committed_at >= @since
ORDER BY position LIMIT @page;

-- name: TracesBefore :many
-- Newest first.
SELECT position, message_id, sender_id, recipient_id, ts, declared, files, committed_at
FROM message_traces
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position < @before AND committed_at >= @since
ORDER BY position DESC LIMIT @page;
