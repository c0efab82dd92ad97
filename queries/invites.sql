-- name: InviteCreate :one
INSERT INTO invites (tenant_id, id, created_by, kind, admin, token_hash, expires_at)
VALUES (@tenant_id, @id, @created_by, @kind, @admin, @token_hash,
        now() + make_interval(secs => @ttl_seconds::double precision))
RETURNING expires_at;

-- name: InvitesExpire :exec
-- Moves the tenant's overdue invites to where their time brought them long before: no
-- statement takes them for usable.
UPDATE invites i SET state = t.to_state
FROM state_transition t
WHERE i.tenant_id = @tenant_id AND i.state = 'CREATED' AND i.expires_at <= statement_timestamp()
  AND t.machine = 'invite' AND t.from_state = i.state AND t.event = 'expire';

-- name: InvitesUsable :one
SELECT count(*) FROM invites
WHERE tenant_id = @tenant_id AND state = 'CREATED' AND expires_at > statement_timestamp();

-- name: InviteLock :one
-- Makes the submissions of one invite, and its revocation, follow one another.
SELECT tenant_id, id, kind, admin, state FROM invites
WHERE token_hash = @token_hash FOR NO KEY UPDATE;

-- name: InviteConsume :execrows
-- No row where the invite is not usable at this statement's time, by this clock, or who
-- made it may not invite any more. (Not locked: a suspension that commits after this
-- statement began comes after the enrollment; a revocation waits for the invite.)
UPDATE invites i SET state = t.to_state, consumed_by = @device_id
FROM state_transition t
WHERE i.tenant_id = @tenant_id AND i.id = @id AND i.expires_at > statement_timestamp()
  AND (i.created_by IS NULL OR EXISTS (
          SELECT FROM devices d
          WHERE d.tenant_id = i.tenant_id AND d.id = i.created_by AND d.admin AND d.state = 'ACTIVE'))
  AND t.machine = 'invite' AND t.from_state = i.state AND t.event = 'consume';

-- name: InviteRevoke :execrows
UPDATE invites i SET state = t.to_state
FROM state_transition t
WHERE i.tenant_id = @tenant_id AND i.id = @id
  AND t.machine = 'invite' AND t.from_state = i.state AND t.event = 'revoke';

-- name: InvitesRevokeOfDevice :exec
-- Ends the usable invites that a device made.
UPDATE invites i SET state = t.to_state
FROM state_transition t
WHERE i.tenant_id = @tenant_id AND i.created_by = @device_id AND i.state = 'CREATED' AND i.expires_at > statement_timestamp()
  AND t.machine = 'invite' AND t.from_state = i.state AND t.event = 'revoke';

-- name: InviteState :one
SELECT state FROM invites WHERE tenant_id = @tenant_id AND id = @id;

-- name: InviteProofFailed :exec
-- Counts a bad proof against a usable invite; the last one it is allowed revokes it.
UPDATE invites i SET failed_proofs = i.failed_proofs + 1,
       state = CASE WHEN i.failed_proofs + 1 >= @allowed::int THEN t.to_state ELSE i.state END
FROM state_transition t
WHERE i.token_hash = @token_hash AND i.expires_at > statement_timestamp()
  AND t.machine = 'invite' AND t.from_state = i.state AND t.event = 'revoke';
