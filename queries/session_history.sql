-- name: HistoryInsert :one
-- Stores the rows whose sender is a current member of an unarchived room, which fit the
-- room's scheme and, messages, its keys (the epoch of its MLS group, the sender's
-- generations that are not retired) and a direct room that is activated, and whose id is new
-- in the room. "stored" counts them; where that is fewer than were sent, rooms and ids
-- name them. The keys of one call are distinct, and their rooms are held (RoomsSerialize).
WITH stored AS (
    INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, kid, envelope)
    SELECT @tenant_id, m.room_id, m.message_id, m.sender_id, m.kind, m.gen, m.kid, m.envelope
    FROM (
        SELECT unnest(@room_ids::uuid[]) AS room_id, unnest(@message_ids::text[]) AS message_id,
               unnest(@sender_ids::uuid[]) AS sender_id, unnest(@kinds::text[]) AS kind,
               unnest(@gens::bigint[]) AS gen, unnest(@kids::bytea[]) AS kid,
               unnest(@encs::boolean[]) AS enc, unnest(@hdrs::boolean[]) AS hdr,
               unnest(@envelopes::bytea[]) AS envelope
    ) m
    -- Scalar subqueries, so that every row is looked up by key whatever the planner
    -- believes of the tables' sizes.
    WHERE (SELECT p.room_id = m.room_id AND p.left_at IS NULL
                  AND (p.first_gen = 0 OR m.kind <> 'message' OR m.gen BETWEEN p.first_gen AND p.last_gen)
           FROM participants p
           WHERE p.tenant_id = @tenant_id AND p.id = m.sender_id)
      AND (SELECT r.state <> 'ARCHIVED'
                  AND (r.kind <> 'direct' OR r.activated OR m.kind <> 'message')
                  AND scheme_takes(r.scheme, m.kind, m.kid IS NOT NULL, m.enc, m.hdr)
                  AND (r.scheme <> 'mls' OR (@mls::boolean AND (
                       m.kind <> 'message'
                       OR (r.state <> 'REKEYING' AND mls_epoch(@tenant_id, m.room_id) = m.gen))))
           FROM rooms r WHERE r.tenant_id = @tenant_id AND r.id = m.room_id)
    ON CONFLICT ON CONSTRAINT session_history_pk DO NOTHING
    RETURNING room_id, message_id
)
SELECT count(*)::bigint AS stored,
       (CASE WHEN count(*) < cardinality(@message_ids::text[]) THEN array_agg(s.room_id) END)::uuid[] AS rooms,
       (CASE WHEN count(*) < cardinality(@message_ids::text[]) THEN array_agg(s.message_id) END)::text[] AS ids
FROM stored s;

-- name: HistoryInsertOne :execrows
-- HistoryInsert of a lone row, with a plan that costs an idle server much less to set up.
INSERT INTO session_history (tenant_id, room_id, message_id, sender_id, kind, gen, kid, envelope)
SELECT @tenant_id::uuid, @room_id::uuid, @message_id::text, @sender_id::uuid,
       @kind::text, @gen::bigint, @kid::bytea, @envelope::bytea
FROM participants p
-- "IS TRUE" keeps the planner from an index that begins with the room.
WHERE p.tenant_id = @tenant_id AND p.id = @sender_id AND (p.room_id = @room_id) IS TRUE AND p.left_at IS NULL
  AND (p.first_gen = 0 OR @kind <> 'message' OR @gen BETWEEN p.first_gen AND p.last_gen)
  AND (SELECT r.state <> 'ARCHIVED'
              AND (r.kind <> 'direct' OR r.activated OR @kind <> 'message')
              AND scheme_takes(r.scheme, @kind, @kid IS NOT NULL, @enc::boolean, @hdr::boolean)
              AND (r.scheme <> 'mls' OR (@mls::boolean AND (
                   @kind <> 'message'
                   OR (r.state <> 'REKEYING' AND mls_epoch(@tenant_id, @room_id) = @gen))))
       FROM rooms r WHERE r.tenant_id = @tenant_id AND r.id = @room_id)
-- There is but one unique constraint; to name it would cost a check of who may read it.
ON CONFLICT DO NOTHING;

-- name: HistoryVerdicts :many
-- Why rows were not stored, in the order they are asked for.
SELECT (r.id IS NOT NULL)::boolean AS room_known,
       coalesce(r.state = 'ARCHIVED', false)::boolean AS archived,
       (p.id IS NOT NULL)::boolean AS member,
       (h.message_id IS NOT NULL)::boolean AS stored,
       coalesce(h.sender_id = m.sender_id AND h.envelope = m.envelope, false)::boolean AS same,
       coalesce(r.scheme = 'mls', false)::boolean AS mls,
       coalesce(scheme_takes(r.scheme, m.kind, m.kid IS NOT NULL, m.enc, m.hdr), false)::boolean AS fits,
       coalesce(r.state = 'REKEYING', false)::boolean AS rekeying,
       coalesce(g.epoch, 0)::bigint AS epoch,
       (g.group_id IS NOT NULL)::boolean AS grouped,
       coalesce(p.first_gen, 0)::bigint AS first_gen,
       coalesce(p.last_gen, 0)::bigint AS last_gen,
       coalesce(r.kind = 'direct' AND NOT r.activated, false)::boolean AS dormant,
       coalesce(p.role = 'agent', false)::boolean AS agent
FROM (
    SELECT generate_subscripts(@message_ids::text[], 1) AS n,
           unnest(@room_ids::uuid[]) AS room_id, unnest(@message_ids::text[]) AS message_id,
           unnest(@sender_ids::uuid[]) AS sender_id, unnest(@kinds::text[]) AS kind,
           unnest(@kids::bytea[]) AS kid, unnest(@encs::boolean[]) AS enc,
           unnest(@hdrs::boolean[]) AS hdr, unnest(@envelopes::bytea[]) AS envelope
) m
LEFT JOIN rooms r ON r.tenant_id = @tenant_id AND r.id = m.room_id
LEFT JOIN participants p ON p.tenant_id = @tenant_id AND p.room_id = m.room_id
                        AND p.id = m.sender_id AND p.left_at IS NULL
LEFT JOIN session_history h ON h.tenant_id = @tenant_id AND h.room_id = m.room_id
                           AND h.message_id = m.message_id
LEFT JOIN mls_groups g ON g.tenant_id = @tenant_id AND g.room_id = m.room_id
ORDER BY m.n;

-- name: HistoryAfter :many
-- Oldest first.
SELECT position, message_id, sender_id, kind, gen, kid, envelope, received_at
FROM session_history
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position > @after AND received_at >= @since
ORDER BY position LIMIT @page;

-- name: HistoryBefore :many
-- Newest first.
SELECT position, message_id, sender_id, kind, gen, kid, envelope, received_at
FROM session_history
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position < @before AND received_at >= @since
ORDER BY position DESC LIMIT @page;

-- name: HistoryByID :one
SELECT position, message_id, sender_id, kind, gen, kid, envelope, received_at
FROM session_history
WHERE tenant_id = @tenant_id AND room_id = @room_id AND message_id = @message_id;

-- name: HistoryOverfull :many
-- The rooms of one page that hold rows outside the window.
SELECT page.id, page.excess::boolean AS excess
FROM (
    SELECT r.id,
           (EXISTS (SELECT FROM session_history h WHERE h.tenant_id = @tenant_id AND h.room_id = r.id
                    ORDER BY h.position DESC OFFSET @keep::bigint)
            OR coalesce((SELECT h.received_at FROM session_history h
                         WHERE h.tenant_id = @tenant_id AND h.room_id = r.id
                         ORDER BY h.position LIMIT 1)
                        < now() - make_interval(secs => @max_age_seconds::double precision), false)) AS excess
    FROM rooms r
    WHERE r.tenant_id = @tenant_id AND r.id > @after
    ORDER BY r.id LIMIT @page
) page
ORDER BY page.id;

-- name: HistoryPrune :execrows
-- Deletes the oldest rows of a room that lie outside the window, at most @batch of them.
DELETE FROM session_history d
WHERE d.tenant_id = @tenant_id AND d.room_id = @room_id AND d.position IN (
    SELECT o.position
    FROM (
        SELECT h.position, h.received_at FROM session_history h
        WHERE h.tenant_id = @tenant_id AND h.room_id = @room_id
        ORDER BY h.position LIMIT @batch
    ) o
    WHERE o.received_at < now() - make_interval(secs => @max_age_seconds::double precision)
       OR o.position <= (
           SELECT h.position FROM session_history h
           WHERE h.tenant_id = @tenant_id AND h.room_id = @room_id
           ORDER BY h.position DESC OFFSET @keep::bigint LIMIT 1));
