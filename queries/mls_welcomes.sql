-- name: WelcomeInsert :exec
INSERT INTO mls_welcomes (tenant_id, room_id, epoch, content) VALUES (@tenant_id, @room_id, @epoch, @content);

-- name: WelcomesPrune :exec
-- Deletes the welcomes that no current participant may fetch any more.
DELETE FROM mls_welcomes w
WHERE w.tenant_id = @tenant_id AND w.room_id = @room_id AND NOT EXISTS (
    SELECT FROM participants p
    WHERE p.tenant_id = w.tenant_id AND p.room_id = w.room_id AND p.welcome_epoch = w.epoch AND p.left_at IS NULL);

-- name: WelcomeOf :one
SELECT w.epoch, w.content
FROM participants p
JOIN mls_welcomes w ON w.tenant_id = p.tenant_id AND w.room_id = p.room_id AND w.epoch = p.welcome_epoch
WHERE p.tenant_id = @tenant_id AND p.id = @participant_id AND p.left_at IS NULL;

-- name: WelcomesEnd :exec
DELETE FROM mls_welcomes WHERE tenant_id = @tenant_id AND room_id = ANY(@ids::uuid[]);
