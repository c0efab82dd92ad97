-- name: RuleSet :one
-- No row: no such room. Not present: the participant is not a current one, and nothing
-- was set. The room is held (RoomHold), so that no notice that was decided by the old
-- setting is stored after this committed.
WITH subject AS (
    SELECT (@participant_id::uuid = '00000000-0000-0000-0000-000000000000' OR EXISTS (
               SELECT FROM participants p
               WHERE p.tenant_id = @tenant_id AND p.room_id = @room_id
                 AND p.id = @participant_id AND p.left_at IS NULL)) AS present
    FROM rooms r
    WHERE r.tenant_id = @tenant_id AND r.id = @room_id
), written AS (
    INSERT INTO room_rules (tenant_id, room_id, rule, participant_id, allowed)
    SELECT @tenant_id::uuid, @room_id::uuid, @rule::text, @participant_id::uuid, @allowed::boolean
    FROM subject WHERE subject.present
    ON CONFLICT ON CONSTRAINT room_rules_pk DO UPDATE SET allowed = EXCLUDED.allowed, updated_at = now()
)
SELECT subject.present::boolean AS present FROM subject;

-- name: RuleList :many
-- What is set for a room and for its current participants.
SELECT x.rule, x.participant_id, x.allowed
FROM room_rules x
WHERE x.tenant_id = @tenant_id AND x.room_id = @room_id
  AND (x.participant_id = '00000000-0000-0000-0000-000000000000' OR EXISTS (
          SELECT FROM participants p
          WHERE p.tenant_id = x.tenant_id AND p.room_id = x.room_id
            AND p.id = x.participant_id AND p.left_at IS NULL))
ORDER BY x.rule, x.participant_id;
