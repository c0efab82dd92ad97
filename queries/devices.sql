-- name: DeviceCreate :exec
INSERT INTO devices (tenant_id, id, label, kind, state)
VALUES (@tenant_id, @id, @label, @kind, @state);

-- name: DeviceLock :one
-- Keeps the device's state as it is until the transaction ends.
SELECT state FROM devices WHERE tenant_id = @tenant_id AND id = @id FOR SHARE;

-- name: DeviceMove :one
-- One step of the device's state machine; no row when the table has no such move.
UPDATE devices d SET state = t.to_state,
       revoked_at = CASE WHEN t.to_state = 'REVOKED' THEN now() END
FROM state_transition t
WHERE d.tenant_id = @tenant_id AND d.id = @id
  AND t.machine = 'device' AND t.from_state = d.state AND t.event = @event
RETURNING d.state;
