-- name: BoardHintTurn :exec
-- Makes nodes that claim hints follow one another, until the transaction ends.
SELECT pg_catalog.pg_advisory_xact_lock(@key::bigint);

-- name: BoardHintClaim :many
-- Takes hints, the oldest first, that nobody has, and of whose room nobody has the
-- oldest one. (Hints of a room are taken from the oldest on, so that none is held for
-- longer than one before it.) It comes after BoardHintTurn, so that it sees what the
-- others took. A hint that was taken before, and so failed, is held for longer each
-- time, up to eight times the lease.
UPDATE board_outbox o SET
    claims = o.claims + 1,
    claimed_until = now() + make_interval(secs => (@lease_seconds::double precision) * power(2, least(o.claims, 3)))
WHERE o.position = ANY (ARRAY(
    SELECT h.position FROM board_outbox h
    WHERE h.claimed_until < now() AND now() > (
        SELECT oldest.claimed_until FROM board_outbox oldest
        WHERE oldest.tenant_id = h.tenant_id AND oldest.room_id = h.room_id
        ORDER BY oldest.sequence LIMIT 1)
    ORDER BY h.position LIMIT @page::bigint
    FOR UPDATE SKIP LOCKED
))
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
