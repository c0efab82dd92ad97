-- name: NoticeAppend :one
-- Says what becomes of a notice, looking in the order of store.NoticeWriter, and stores
-- it where nothing speaks against it. The room is held (RoomHold): what is read here
-- stays true until the commit, and the statement's time lies after any wait. What is
-- not well formed is sent without its content.
WITH decided AS (
    SELECT CASE
        WHEN r.id IS NULL THEN 'no_room'
        WHEN r.state = 'ARCHIVED' THEN 'archived'
        WHEN p.id IS NULL THEN 'no_sender'
        WHEN p.role <> 'agent' THEN 'not_permitted'
        WHEN NOT (
            SELECT bool_and(coalesce(own.allowed, everybody.allowed, true))
            FROM unnest(@rights::text[]) needed (rule)
            LEFT JOIN room_rules own
                   ON own.tenant_id = @tenant_id AND own.room_id = @room_id
                  AND own.rule = needed.rule AND own.participant_id = @sender_id
            LEFT JOIN room_rules everybody
                   ON everybody.tenant_id = @tenant_id AND everybody.room_id = @room_id
                  AND everybody.rule = needed.rule
                  AND everybody.participant_id = '00000000-0000-0000-0000-000000000000'
        ) THEN 'not_permitted'
        WHEN NOT @well_formed::boolean THEN 'malformed'
        WHEN n.sender_id = @sender_id AND n.envelope = @envelope THEN 'duplicate'
        WHEN n.notice_id IS NOT NULL THEN 'id_conflict'
        WHEN @gen NOT BETWEEN greatest(p.first_gen, 1) AND p.last_gen THEN 'unknown_generation'
        WHEN @sent_at::timestamptz < statement_timestamp() - make_interval(secs => @skew_seconds::double precision)
          OR @sent_at::timestamptz > statement_timestamp() + make_interval(secs => @skew_seconds::double precision)
          OR @expires_at::timestamptz <= statement_timestamp() OR @expires_at::timestamptz <= @sent_at::timestamptz
          OR (@expires_at::timestamptz) - @sent_at::timestamptz > make_interval(secs => @lifetime_seconds::double precision)
        THEN 'stale'
        WHEN (
            SELECT count(*) FROM notices o
            WHERE o.tenant_id = @tenant_id AND o.room_id = @room_id AND o.sender_id = @sender_id
              AND o.expires_at > statement_timestamp()
        ) >= @cap::bigint THEN 'full'
        ELSE 'accepted' END AS verdict
    FROM (SELECT true) one
    LEFT JOIN rooms r ON r.tenant_id = @tenant_id AND r.id = @room_id
    LEFT JOIN participants p ON p.tenant_id = @tenant_id AND p.room_id = @room_id
                            AND p.id = @sender_id AND p.left_at IS NULL
    LEFT JOIN notices n ON n.tenant_id = @tenant_id AND n.room_id = @room_id
                       AND n.notice_id = @notice_id
), stored AS (
    INSERT INTO notices (tenant_id, room_id, notice_id, sender_id, gen, kid, ts, expires_at, envelope)
    SELECT @tenant_id::uuid, @room_id::uuid, @notice_id::text, @sender_id::uuid,
           @gen::bigint, sqlc.narg(kid)::bytea, @sent_at::timestamptz, @expires_at::timestamptz, @envelope::bytea
    FROM decided WHERE decided.verdict = 'accepted'
)
SELECT decided.verdict::text AS verdict FROM decided;

-- name: NoticesAfter :many
SELECT position, notice_id, sender_id, gen, envelope, accepted_at, expires_at
FROM notices
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position > @after AND accepted_at >= @since
ORDER BY position LIMIT @page;

-- name: NoticesBefore :many
SELECT position, notice_id, sender_id, gen, envelope, accepted_at, expires_at
FROM notices
WHERE tenant_id = @tenant_id AND room_id = @room_id AND position < @before AND accepted_at >= @since
ORDER BY position DESC LIMIT @page;

-- name: NoticePrune :execrows
-- Deletes a tenant's notices that expired longest ago, at most @batch of them.
DELETE FROM notices d
WHERE d.tenant_id = @tenant_id AND (d.room_id, d.notice_id) IN (
    SELECT o.room_id, o.notice_id FROM notices o
    WHERE o.tenant_id = @tenant_id
      AND o.expires_at < now() - make_interval(secs => @keep_seconds::double precision)
    ORDER BY o.expires_at LIMIT @batch);
