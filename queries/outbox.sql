-- name: OutboxAdd :exec
-- One row for each place of the arrays, in their order. A nil participant stands for
-- whoever is in the room.
INSERT INTO outbox (tenant_id, room_id, kind, participant_id, payload)
SELECT @tenant_id, due.room_id, @kind,
       nullif(due.participant_id, '00000000-0000-0000-0000-000000000000'::uuid), due.payload
FROM (
    SELECT generate_subscripts(@payloads::bytea[], 1) AS n, unnest(@room_ids::uuid[]) AS room_id,
           unnest(@participant_ids::uuid[]) AS participant_id, unnest(@payloads::bytea[]) AS payload
) due
ORDER BY due.n;

-- name: OutboxTurn :exec
-- Makes nodes that claim rows follow one another, until the transaction ends.
SELECT pg_catalog.pg_advisory_xact_lock(@key::bigint);

-- name: OutboxClaim :many
-- Takes rows, the oldest first, that nobody has, and of whose room nobody has the oldest
-- one. (Rows of a room are taken from the oldest on, so that none is held for longer than
-- one before it.) It comes after OutboxTurn, so that it sees what the others took. A row
-- that was taken before, and so failed, is held for longer each time, up to eight times
-- the lease.
UPDATE outbox o SET
    claims = o.claims + 1,
    claimed_until = now() + make_interval(secs => (@lease_seconds::double precision) * power(2, least(o.claims, 3)))
WHERE o.position = ANY (ARRAY(
    SELECT h.position FROM outbox h
    WHERE h.claimed_until < now() AND now() > (
        SELECT oldest.claimed_until FROM outbox oldest
        WHERE oldest.tenant_id = h.tenant_id AND oldest.room_id = h.room_id
        ORDER BY oldest.position LIMIT 1)
    ORDER BY h.position LIMIT @page::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING o.tenant_id, o.room_id, o.position, o.kind, o.participant_id, o.payload;

-- name: OutboxSettle :execrows
DELETE FROM outbox o
USING (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@room_ids::uuid[]) AS room_id,
           unnest(@positions::bigint[]) AS position
) done
WHERE o.tenant_id = done.tenant_id AND o.room_id = done.room_id AND o.position = done.position;

-- name: OutboxProgress :exec
-- Rows that still wait in these rooms have not failed: their turn did not come while the
-- ones before them were written. It comes after OutboxTurn and OutboxSettle, so that no
-- claim passes over a row because it is locked here.
UPDATE outbox o SET claims = 0
FROM (SELECT DISTINCT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@room_ids::uuid[]) AS room_id) done
WHERE o.tenant_id = done.tenant_id AND o.room_id = done.room_id AND o.claims > 0;

-- name: OutboxCount :one
-- How many rows wait, counted up to @most.
SELECT count(*) FROM (SELECT FROM outbox LIMIT @most::bigint) waiting;
