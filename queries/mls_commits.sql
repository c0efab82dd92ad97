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
-- No row: the participant has reported a commit since it joined the group, or this one is
-- of before. It comes after RoomLock, so that two reports follow one another.
INSERT INTO mls_commit_reports (tenant_id, room_id, epoch, participant_id)
SELECT p.tenant_id, p.room_id, @epoch, p.id
FROM participants p
WHERE p.tenant_id = @tenant_id AND p.room_id = @room_id AND p.id = @participant_id
  AND @epoch >= coalesce(p.mls_since, 0)
  AND NOT EXISTS (
      SELECT FROM mls_commit_reports r
      WHERE r.tenant_id = p.tenant_id AND r.room_id = p.room_id AND r.participant_id = p.id
        AND r.epoch >= coalesce(p.mls_since, 0));
