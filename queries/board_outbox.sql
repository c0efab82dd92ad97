-- name: BoardHintTurn :exec
-- Makes nodes that claim hints follow one another, until the transaction ends.
SELECT pg_catalog.pg_advisory_xact_lock(@key::bigint);

-- name: BoardHintClaim :many
-- Takes hints, the oldest first, that nobody has, and of whose room nobody has an
-- earlier one. It comes after BoardHintTurn, so that it sees what the others took. A
-- hint that was taken before, and so failed, is held for longer each time, up to eight
-- times the lease.
UPDATE board_outbox o SET
    claims = o.claims + 1,
    claimed_until = now() + make_interval(secs => (@lease_seconds::double precision) * power(2, least(o.claims, 3)))
FROM (
    SELECT h.position FROM board_outbox h
    WHERE h.claimed_until < now() AND NOT EXISTS (
        SELECT FROM board_outbox earlier
        WHERE earlier.tenant_id = h.tenant_id AND earlier.room_id = h.room_id
          AND earlier.sequence < h.sequence AND earlier.claimed_until >= now())
    ORDER BY h.position LIMIT @page::bigint
    FOR UPDATE SKIP LOCKED
) free
WHERE o.position = free.position
RETURNING o.tenant_id, o.room_id, o.sequence, o.event_id, o.card_id, o.revision;

-- name: BoardHintSettle :execrows
DELETE FROM board_outbox o
USING (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@room_ids::uuid[]) AS room_id,
           unnest(@sequences::bigint[]) AS sequence
) done
WHERE o.tenant_id = done.tenant_id AND o.room_id = done.room_id AND o.sequence = done.sequence;

-- name: BoardHintCount :one
-- How many hints wait, counted up to @most.
SELECT count(*) FROM (SELECT FROM board_outbox LIMIT @most::bigint) waiting;
