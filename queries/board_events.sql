-- name: BoardEventAppend :one
-- Commits an event, with all that goes with it, or says why not. It is a statement of
-- its own after BoardSequenceLock, so that it sees what the events before it left. No
-- row: no such room.
WITH asked AS (
    SELECT s.tenant_id, s.room_id, s.last + 1 AS sequence,
           coalesce(c.kind, @kind::text) AS kind, coalesce(c.revision, 0) AS revision,
           e.sequence AS known_sequence, e.revision AS known_revision, e.created_at AS known_at,
           CASE
               WHEN p.role IS NULL THEN 'no_author'
               WHEN p.role = 'viewer' THEN 'forbidden'
               WHEN @type::text = 'approval' AND p.role NOT IN ('owner', 'controller') THEN 'forbidden'
               WHEN e.author_id = @author_id::uuid AND e.card_id = @card_id::uuid AND e.type = @type
                    AND e.content = @content::bytea AND e.signature = @signature::bytea
                    AND (@type <> 'created' OR c.kind = @kind) THEN 'known'
               WHEN e.id IS NOT NULL THEN 'id_taken'
               WHEN r.state = 'ARCHIVED' THEN 'archived'
               WHEN @type = 'created' AND c.id IS NOT NULL THEN 'card_taken'
               WHEN @type = 'created' THEN 'commit'
               WHEN c.id IS NULL THEN 'no_card'
               WHEN @type = 'comment' THEN 'commit'
               WHEN c.closed THEN 'closed'
               WHEN c.revision <> @revision::bigint THEN 'stale'
               ELSE 'commit'
           END AS verdict
    FROM board_sequences s
    JOIN rooms r ON r.tenant_id = s.tenant_id AND r.id = s.room_id
    LEFT JOIN participants p ON p.tenant_id = s.tenant_id AND p.room_id = s.room_id
                            AND p.id = @author_id AND p.left_at IS NULL
    LEFT JOIN board_cards c ON c.tenant_id = s.tenant_id AND c.room_id = s.room_id AND c.id = @card_id
    LEFT JOIN board_events e ON e.tenant_id = s.tenant_id AND e.room_id = s.room_id AND e.id = @id::uuid
    WHERE s.tenant_id = @tenant_id AND s.room_id = @room_id
), counted AS (
    UPDATE board_sequences s SET last = a.sequence FROM asked a
    WHERE a.verdict = 'commit' AND s.tenant_id = a.tenant_id AND s.room_id = a.room_id
), made AS (
    INSERT INTO board_cards (tenant_id, room_id, id, kind, position, content_position, last_position)
    SELECT a.tenant_id, a.room_id, @card_id, a.kind, a.sequence, a.sequence, a.sequence
    FROM asked a WHERE a.verdict = 'commit' AND @type = 'created'
), moved AS (
    UPDATE board_cards c SET
        revision = c.revision + 1, closed = c.closed OR @type = 'closed', last_position = a.sequence,
        content_position = CASE WHEN @type = 'updated' THEN a.sequence ELSE c.content_position END
    FROM asked a
    WHERE a.verdict = 'commit' AND @type <> 'created'
      AND c.tenant_id = a.tenant_id AND c.room_id = a.room_id AND c.id = @card_id
), written AS (
    INSERT INTO board_events (tenant_id, room_id, sequence, id, card_id, type, revision, author_id, content, signature)
    SELECT a.tenant_id, a.room_id, a.sequence, @id, @card_id, @type, a.revision + 1, @author_id, @content, @signature
    FROM asked a WHERE a.verdict = 'commit'
    RETURNING sequence, revision, created_at
), hinted AS (
    -- RELAY, "After a non-Idea Board event or a follow-up comment on any card".
    INSERT INTO outbox (tenant_id, room_id, kind, payload)
    SELECT a.tenant_id, a.room_id, 'board.update',
           convert_to(format('{"event_id":"%s","card_id":"%s","revision":%s}', @id, @card_id, a.revision + 1), 'UTF8')
    FROM asked a WHERE a.verdict = 'commit' AND (a.kind <> 'idea' OR @type = 'comment')
)
SELECT a.verdict::text AS verdict, a.kind::text AS kind, a.revision::bigint AS card_revision,
       coalesce(w.sequence, a.known_sequence, 0)::bigint AS sequence,
       coalesce(w.revision, a.known_revision, 0)::bigint AS revision,
       coalesce(w.created_at, a.known_at, 'epoch')::timestamptz AS created_at
FROM asked a LEFT JOIN written w ON true;

-- name: BoardEventPage :many
-- Events after a sequence, until there are @page of them or their content adds up to
-- @bytes; "matched" counts them without that bound. One more is looked at than a page
-- holds, which says whether more follow.
SELECT o.sequence, o.id, o.card_id, o.kind, o.type, o.revision, o.author_id, o.content, o.signature, o.created_at,
       o.matched::bigint AS matched
FROM (
    SELECT e.sequence, e.id, e.card_id, c.kind, e.type, e.revision, e.author_id, e.content, e.signature, e.created_at,
           count(*) OVER () AS matched,
           sum(octet_length(e.content)) OVER (ORDER BY e.sequence) - octet_length(e.content) AS bytes_before
    FROM (
        SELECT * FROM board_events n
        WHERE n.tenant_id = @tenant_id AND n.room_id = @room_id AND n.sequence > @after
        ORDER BY n.sequence LIMIT @page::bigint
    ) e
    JOIN board_cards c ON c.tenant_id = @tenant_id AND c.room_id = @room_id AND c.id = e.card_id
) o
WHERE o.bytes_before < @bytes::bigint
ORDER BY o.sequence;
