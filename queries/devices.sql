-- name: DeviceCreate :exec
INSERT INTO devices (tenant_id, id, label, kind, state)
VALUES (@tenant_id, @id, @label, @kind, @state);

-- name: DeviceEnroll :one
-- No row when the identity key is enrolled in the tenant.
INSERT INTO devices (tenant_id, id, label, kind, state, admin, identity_key, agreement_key,
                     agreement_signature, fingerprint, approved_at, invite_id)
VALUES (@tenant_id, @id, @label, @kind, @state, @admin, @identity_key, @agreement_key,
        @agreement_signature, @fingerprint, CASE WHEN @state = 'APPROVED' THEN now() END, @invite_id)
ON CONFLICT ON CONSTRAINT devices_identity_key_uq DO NOTHING
RETURNING tenant_id, id, label, kind, state, created_at, revoked_at, admin, identity_key,
          agreement_key, agreement_signature, fingerprint, approved_at, invite_id, last_prekey;

-- name: DeviceByID :one
SELECT tenant_id, id, label, kind, state, created_at, revoked_at, admin, identity_key,
       agreement_key, agreement_signature, fingerprint, approved_at, invite_id, last_prekey
FROM devices WHERE tenant_id = @tenant_id AND id = @id;

-- name: DevicePage :many
-- In the order of their making; no state is every state.
SELECT tenant_id, id, label, kind, state, created_at, revoked_at, admin, identity_key,
       agreement_key, agreement_signature, fingerprint, approved_at, invite_id, last_prekey
FROM devices
WHERE tenant_id = @tenant_id AND (created_at, id) > (@after_time::timestamptz, @after::uuid)
  AND (@state::text = '' OR state = @state)
ORDER BY created_at, id LIMIT @page;

-- name: DevicesHold :many
-- Keeps these devices as they are until the transaction ends.
SELECT id, state, kind, admin FROM devices
WHERE tenant_id = @tenant_id AND id = ANY(@ids::uuid[])
ORDER BY id FOR SHARE;

-- name: DevicesLock :many
-- Makes changes of these devices follow one another, and whoever relies on their state
-- (DevicesHold) wait. Locks are taken in the order devices, rooms, participants, credentials;
-- several of a kind in the order of their ids.
SELECT id, state, admin, fingerprint FROM devices
WHERE tenant_id = @tenant_id AND id = ANY(@ids::uuid[])
ORDER BY id FOR NO KEY UPDATE;

-- name: DeviceKey :one
-- The device's key and state, which stay as they are until the transaction ends.
SELECT state, identity_key FROM devices WHERE tenant_id = @tenant_id AND id = @id FOR SHARE;

-- name: DeviceMove :one
-- One step of the device's state machine; no row when the table has no such move.
UPDATE devices d SET state = t.to_state,
       approved_at = CASE WHEN t.event = 'approve' THEN now() ELSE d.approved_at END,
       revoked_at = CASE WHEN t.to_state = 'REVOKED' THEN now() END
FROM state_transition t
WHERE d.tenant_id = @tenant_id AND d.id = @id
  AND t.machine = 'device' AND t.from_state = d.state AND t.event = @event
RETURNING d.tenant_id, d.id, d.label, d.kind, d.state, d.created_at, d.revoked_at, d.admin, d.identity_key,
          d.agreement_key, d.agreement_signature, d.fingerprint, d.approved_at, d.invite_id, d.last_prekey;

-- name: DeviceAdminExists :one
SELECT EXISTS (SELECT FROM devices
               WHERE tenant_id = @tenant_id AND admin AND state IN ('APPROVED', 'ACTIVE', 'SUSPENDED'));
