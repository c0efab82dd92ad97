-- name: SettingsApply :exec
-- Says who acts, for the current transaction only. The role is looked at again here
-- since a pooler between us and the server may have given us another session; to set
-- one that is set already would cost more than all the rest. relay.device means
-- nothing to this role.
SELECT CASE WHEN current_user <> 'relay_service' THEN set_config('role', 'relay_service', true) END,
       set_config('relay.tenant', @tenant::text, true),
       set_config('relay.actor', @actor::text, true),
       set_config('relay.token', @token::text, true),
       set_config('relay.tenant_name', @tenant_name::text, true);

-- name: SettingsApplyInRoom :exec
-- SettingsApply of the service, and RoomsSerialize of one room, in one statement: for a
-- lone row.
SELECT CASE WHEN current_user <> 'relay_service' THEN set_config('role', 'relay_service', true) END,
       set_config('relay.tenant', @tenant::text, true),
       set_config('relay.actor', 'service', true),
       set_config('relay.token', '', true),
       set_config('relay.tenant_name', '', true),
       pg_catalog.pg_advisory_xact_lock(@room::bigint);

-- name: RoomsSerialize :exec
-- Holds rooms, by lock keys in rising order, until the transaction ends, against others
-- who store in them by a position. A position is drawn under this lock and the lock is
-- given back after the commit is visible (PostgreSQL, CommitTransaction), so positions of
-- one room become visible in their order, and readers need no lock to trust a cursor.
SELECT pg_catalog.pg_advisory_xact_lock(key) FROM unnest(@rooms::bigint[]) AS key;

-- name: SettingsAdoptTenant :exec
-- Lets the transaction act in the tenant of the one credential that relay.token shows.
SELECT set_config('relay.tenant', c.tenant_id::text, true),
       set_config('relay.actor', 'service', true)
FROM credentials c
WHERE c.token_hash = @token_hash;

-- name: SettingsAdoptInvitesTenant :exec
-- Lets the transaction act in the tenant of the one invite that relay.token shows.
SELECT set_config('relay.tenant', i.tenant_id::text, true),
       set_config('relay.actor', 'service', true)
FROM invites i
WHERE i.token_hash = @token_hash;

-- name: SettingsAdoptDevicesTenant :exec
-- Lets the transaction act in the tenant of the one access token that relay.token shows.
SELECT set_config('relay.tenant', t.tenant_id::text, true),
       set_config('relay.actor', 'service', true)
FROM device_tokens t
WHERE t.token_hash = @token_hash;

-- name: SettingsSignIn :exec
-- Shows the row of the device that somebody says to be, whatever its tenant.
SELECT set_config('relay.sign_in', @device::text, true);

-- name: SettingsAdoptTenantOfDevice :one
-- Lets the transaction act in the tenant of the device that relay.sign_in shows, or in
-- @otherwise where there is no such device, and shows it no longer. (The tenant is looked
-- up once, before anything is set.)
WITH found AS MATERIALIZED (
    SELECT coalesce((SELECT d.tenant_id FROM devices d WHERE d.id = @device), @otherwise::uuid)::uuid AS tenant_id
)
SELECT f.tenant_id,
       set_config('relay.tenant', f.tenant_id::text, true),
       set_config('relay.actor', 'service', true),
       set_config('relay.sign_in', '', true)
FROM found f;

-- name: SessionPosture :one
-- What the current role, or one it may become, could do beside what the policies
-- allow: all of these must be false. superuser, bypassrls: the policies would be
-- ignored. owner: it could drop them. unprotected: a table of this schema does not
-- force row-level security. And apart must be true: a transaction may become a
-- device's, and the service inherits nothing from that role.
SELECT coalesce(bool_or(r.rolsuper), true)::boolean AS superuser,
       coalesce(bool_or(r.rolbypassrls), true)::boolean AS bypassrls,
       EXISTS (
           SELECT FROM pg_catalog.pg_class c
           WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
             AND pg_catalog.pg_has_role(current_user, c.relowner, 'MEMBER')) AS owner,
       EXISTS (
           SELECT FROM pg_catalog.pg_class c
           WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
             AND c.relname <> 'goose_db_version'
             AND NOT (c.relrowsecurity AND c.relforcerowsecurity)) AS unprotected,
       coalesce(bool_or(r.rolname = 'relay_device'
                        AND NOT pg_catalog.pg_has_role(current_user, r.oid, 'USAGE')), false)::boolean AS apart
FROM pg_catalog.pg_roles r
WHERE pg_catalog.pg_has_role(current_user, r.oid, 'MEMBER');

-- name: SessionWritable :one
-- False on a standby or a server that was made read-only.
SELECT (NOT pg_catalog.pg_is_in_recovery()
    AND pg_catalog.current_setting('transaction_read_only') = 'off')::boolean AS writable;

-- name: TransactionLock :one
-- Takes one of the relay's own locks until the transaction ends; false when another holds it.
SELECT pg_catalog.pg_try_advisory_xact_lock(@key::bigint)::boolean AS locked;

-- name: SessionBegin :exec
-- What a connection is set to once. The tenant never is: that is the transaction's. The
-- keepalives end the session of a node that is gone within half a minute, whatever it
-- holds: no other time-out runs while the server waits for the rest of a pipeline.
SELECT set_config('role', 'relay_service', false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('statement_timeout', @timeout_ms::text, false),
       set_config('idle_in_transaction_session_timeout', @timeout_ms::text, false),
       set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false);
