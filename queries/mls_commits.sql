-- name: CommitInsert :exec
INSERT INTO mls_commits (tenant_id, room_id, epoch, sender_id, content)
VALUES (@tenant_id, @room_id, @epoch, @sender_id, @content);

-- name: CommitsPrune :exec
DELETE FROM mls_commits WHERE tenant_id = @tenant_id AND room_id = @room_id AND epoch <= @before;

-- name: CommitIs :one
-- Whether the commit that made this epoch is this one.
SELECT EXISTS (SELECT FROM mls_commits
               WHERE tenant_id = @tenant_id AND room_id = @room_id AND epoch = @epoch
                 AND sender_id = @sender_id AND content = @content);

-- name: CommitPage :many
-- Commits after an epoch, until there are @page of them or they add up to @bytes.
SELECT o.epoch, o.sender_id, o.content, o.created_at
FROM (
    SELECT e.epoch, e.sender_id, e.content, e.created_at,
           sum(octet_length(e.content)) OVER (ORDER BY e.epoch) - octet_length(e.content) AS bytes_before
    FROM (
        SELECT * FROM mls_commits n
        WHERE n.tenant_id = @tenant_id AND n.room_id = @room_id AND n.epoch > @after
        ORDER BY n.epoch LIMIT @page::bigint
    ) e
) o
WHERE o.bytes_before < @bytes::bigint
ORDER BY o.epoch;

-- name: CommitKept :one
SELECT EXISTS (SELECT FROM mls_commits WHERE tenant_id = @tenant_id AND room_id = @room_id AND epoch = @epoch);

-- name: CommitReport :execrows
-- No row: the participant reported it before.
INSERT INTO mls_commit_reports (tenant_id, room_id, epoch, participant_id)
VALUES (@tenant_id, @room_id, @epoch, @participant_id)
ON CONFLICT ON CONSTRAINT mls_commit_reports_pk DO NOTHING;
