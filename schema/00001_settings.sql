-- +goose Up

-- Who acts is said per transaction, with set_config(name, value, true), and every
-- row-level policy reads it from here. Without any setting no policy lets a row through.
--
-- As the role relay_service:
--   relay.tenant       the tenant whose rows may be seen or written
--   relay.actor        'service': the relay acting for itself inside relay.tenant
--                      (admission, the history writer, operator commands);
--                      'maintenance': sees which tenants exist, and nothing else
--   relay.token        hex of a token's hash: sees the one credential that has it,
--                      before a tenant is known
--   relay.tenant_name  sees and may create the one tenant of that name
-- As the role relay_device, which only reads:
--   relay.tenant and
--   relay.device       a device acting for itself inside its tenant: sees itself, its
--                      memberships, and the rooms it is a current member of
--
-- Both roles own nothing, are no superusers and have no BYPASSRLS, and the policies
-- are forced, so that nothing but these settings opens a row. They are two since every
-- policy of a role is part of all of that role's plans, and one that is never asked
-- costs as much to set up as one that is. relay_service may become relay_device but
-- inherits nothing from it (NOINHERIT), which would join the policies again.

-- +goose StatementBegin
CREATE FUNCTION relay_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('relay.tenant', true), '')::uuid $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION relay_actor() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('relay.actor', true), '') $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION relay_device() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('relay.device', true), '')::uuid $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION relay_token() RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT decode(nullif(current_setting('relay.token', true), ''), 'hex') $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION relay_tenant_name() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('relay.tenant_name', true), '') $$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA public TO relay_service, relay_device;

-- A node that may not migrate reads the version to refuse a database it does not know.
GRANT SELECT ON goose_db_version TO relay_service;

-- The state machines (STATE). The same moves stand in package store, and a test
-- compares the two. Reference data: the one table that belongs to no tenant.
CREATE TABLE state_transition (
    machine    text NOT NULL,
    from_state text NOT NULL,
    event      text NOT NULL,
    to_state   text NOT NULL,
    CONSTRAINT state_transition_pk PRIMARY KEY (machine, from_state, event),
    CONSTRAINT state_transition_machine_ck CHECK (machine IN ('device', 'room'))
);

INSERT INTO state_transition (machine, from_state, event, to_state) VALUES
    ('device', 'PENDING',   'approve',           'APPROVED'),
    ('device', 'APPROVED',  'key_exchange_init', 'ACTIVE'),
    ('device', 'ACTIVE',    'suspend',           'SUSPENDED'),
    ('device', 'ACTIVE',    'revoke',            'REVOKED'),
    ('device', 'SUSPENDED', 'reinstate',         'ACTIVE'),
    ('room',   'CREATED',   'members_added',     'ACTIVE'),
    ('room',   'ACTIVE',    'members_added',     'ACTIVE'),
    ('room',   'ACTIVE',    'member_removed',    'REKEYING'),
    ('room',   'ACTIVE',    'archive',           'ARCHIVED'),
    ('room',   'REKEYING',  'members_added',     'REKEYING'),
    ('room',   'REKEYING',  'member_removed',    'REKEYING'),
    ('room',   'REKEYING',  'rekey_complete',    'ACTIVE');

ALTER TABLE state_transition ENABLE ROW LEVEL SECURITY;
ALTER TABLE state_transition FORCE ROW LEVEL SECURITY;
CREATE POLICY state_transition_reference ON state_transition FOR SELECT TO relay_service USING (true);
GRANT SELECT ON state_transition TO relay_service;

-- enforce_transition('<machine>') refuses an update of "state" that the table does not list.
-- +goose StatementBegin
CREATE FUNCTION enforce_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IS DISTINCT FROM OLD.state AND NOT EXISTS (
        SELECT FROM state_transition t
        WHERE t.machine = TG_ARGV[0] AND t.from_state = OLD.state AND t.to_state = NEW.state
    ) THEN
        RAISE EXCEPTION '% cannot move from % to %', TG_ARGV[0], OLD.state, NEW.state
            USING ERRCODE = 'PR001', CONSTRAINT = TG_ARGV[0] || '_transition', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION enforce_transition();
DROP TABLE state_transition;
REVOKE SELECT ON goose_db_version FROM relay_service;
REVOKE USAGE ON SCHEMA public FROM relay_service, relay_device;
DROP FUNCTION relay_tenant_name();
DROP FUNCTION relay_token();
DROP FUNCTION relay_device();
DROP FUNCTION relay_actor();
DROP FUNCTION relay_tenant();
