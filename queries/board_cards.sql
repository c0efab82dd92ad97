-- name: BoardCardByID :one
-- The author and the times of a card are those of its events. ("OFFSET 0", so that each
-- is looked up by key whatever the planner believes of the table's size.)
SELECT c.id, c.kind, c.revision, c.closed, c.position,
       first.author_id, first.created_at, latest.created_at AS updated_at, shown.content, shown.signature
FROM board_cards c
JOIN LATERAL (
    SELECT e.author_id, e.created_at FROM board_events e
    WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.position OFFSET 0
) first ON true
JOIN LATERAL (
    SELECT e.content, e.signature FROM board_events e
    WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.content_position OFFSET 0
) shown ON true
JOIN LATERAL (
    SELECT e.created_at FROM board_events e
    WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.last_position OFFSET 0
) latest ON true
WHERE c.tenant_id = @tenant_id AND c.room_id = @room_id AND c.id = @id;

-- name: BoardCardPage :many
-- Cards after a position, until there are @page of them or their content adds up to
-- @bytes; "matched" counts them without that bound.
SELECT o.id, o.kind, o.revision, o.closed, o.position, o.author_id, o.created_at, o.updated_at,
       o.content, o.signature, o.matched::bigint AS matched
FROM (
    SELECT c.id, c.kind, c.revision, c.closed, c.position,
           first.author_id, first.created_at, latest.created_at AS updated_at, shown.content, shown.signature,
           count(*) OVER () AS matched,
           sum(octet_length(shown.content)) OVER (ORDER BY c.position) - octet_length(shown.content) AS bytes_before
    FROM (
        SELECT * FROM board_cards n
        WHERE n.tenant_id = @tenant_id AND n.room_id = @room_id AND n.position > @after
        ORDER BY n.position LIMIT @page::bigint
    ) c
    JOIN LATERAL (
        SELECT e.author_id, e.created_at FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.position OFFSET 0
    ) first ON true
    JOIN LATERAL (
        SELECT e.content, e.signature FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.content_position OFFSET 0
    ) shown ON true
    JOIN LATERAL (
        SELECT e.created_at FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.last_position OFFSET 0
    ) latest ON true
) o
WHERE o.bytes_before < @bytes::bigint
ORDER BY o.position;

-- name: BoardCardPageNewest :many
-- BoardCardPage backwards, from before a position.
SELECT o.id, o.kind, o.revision, o.closed, o.position, o.author_id, o.created_at, o.updated_at,
       o.content, o.signature, o.matched::bigint AS matched
FROM (
    SELECT c.id, c.kind, c.revision, c.closed, c.position,
           first.author_id, first.created_at, latest.created_at AS updated_at, shown.content, shown.signature,
           count(*) OVER () AS matched,
           sum(octet_length(shown.content)) OVER (ORDER BY c.position DESC) - octet_length(shown.content) AS bytes_before
    FROM (
        SELECT * FROM board_cards n
        WHERE n.tenant_id = @tenant_id AND n.room_id = @room_id AND n.position < @before
        ORDER BY n.position DESC LIMIT @page::bigint
    ) c
    JOIN LATERAL (
        SELECT e.author_id, e.created_at FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.position OFFSET 0
    ) first ON true
    JOIN LATERAL (
        SELECT e.content, e.signature FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.content_position OFFSET 0
    ) shown ON true
    JOIN LATERAL (
        SELECT e.created_at FROM board_events e
        WHERE e.tenant_id = c.tenant_id AND e.room_id = c.room_id AND e.sequence = c.last_position OFFSET 0
    ) latest ON true
) o
WHERE o.bytes_before < @bytes::bigint
ORDER BY o.position DESC;
