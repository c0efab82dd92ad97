-- +goose Up
CREATE TABLE tenants (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    frozen     boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tenants_pk PRIMARY KEY (id),
    CONSTRAINT tenants_name_uq UNIQUE (name),
    CONSTRAINT tenants_name_ck CHECK (char_length(name) BETWEEN 1 AND 64)
);

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants_own ON tenants FOR SELECT TO relay_service, relay_device
    USING (id = relay_tenant());
CREATE POLICY tenants_freeze ON tenants FOR UPDATE TO relay_service
    USING (id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY tenants_named ON tenants FOR SELECT TO relay_service
    USING (name = relay_tenant_name());
CREATE POLICY tenants_named_create ON tenants FOR INSERT TO relay_service
    WITH CHECK (name = relay_tenant_name());
CREATE POLICY tenants_maintenance ON tenants FOR SELECT TO relay_service
    USING (relay_actor() = 'maintenance');

GRANT SELECT, INSERT (id, name), UPDATE (frozen) ON tenants TO relay_service;
GRANT SELECT ON tenants TO relay_device;

CREATE TABLE devices (
    tenant_id  uuid        NOT NULL,
    id         uuid        NOT NULL,
    label      text        NOT NULL DEFAULT '',
    kind       text        NOT NULL,
    state      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    CONSTRAINT devices_pk PRIMARY KEY (tenant_id, id),
    CONSTRAINT devices_tenant_fk FOREIGN KEY (tenant_id) REFERENCES tenants (id),
    CONSTRAINT devices_label_ck CHECK (char_length(label) <= 128),
    CONSTRAINT devices_kind_ck CHECK (kind IN ('human', 'agent')),
    CONSTRAINT devices_state_ck CHECK (state IN ('PENDING', 'APPROVED', 'ACTIVE', 'SUSPENDED', 'REVOKED')),
    CONSTRAINT devices_revoked_at_ck CHECK ((state = 'REVOKED') = (revoked_at IS NOT NULL))
);

CREATE TRIGGER devices_transition BEFORE UPDATE OF state ON devices
    FOR EACH ROW EXECUTE FUNCTION enforce_transition('device');

ALTER TABLE devices ENABLE ROW LEVEL SECURITY;
ALTER TABLE devices FORCE ROW LEVEL SECURITY;
CREATE POLICY devices_service ON devices TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY devices_self ON devices FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND id = relay_device());

GRANT SELECT, INSERT (tenant_id, id, label, kind, state), UPDATE (label, state, revoked_at) ON devices TO relay_service;
GRANT SELECT ON devices TO relay_device;

-- +goose Down
DROP TABLE devices;
DROP TABLE tenants;
