-- +goose Up

-- What sessions with a device are begun with while it is offline (X3DH): one signed
-- prekey, and one-time prekeys, each of which is gone once it was handed out.
CREATE TABLE signed_prekeys (
    tenant_id uuid    NOT NULL,
    device_id uuid    NOT NULL,
    id        integer NOT NULL,
    key       bytea   NOT NULL, -- X25519
    signature bytea   NOT NULL, -- by the device's identity key
    CONSTRAINT signed_prekeys_pk PRIMARY KEY (tenant_id, device_id),
    CONSTRAINT signed_prekeys_device_fk FOREIGN KEY (tenant_id, device_id) REFERENCES devices (tenant_id, id),
    CONSTRAINT signed_prekeys_id_ck CHECK (id > 0),
    CONSTRAINT signed_prekeys_key_ck CHECK (octet_length(key) = 32),
    CONSTRAINT signed_prekeys_signature_ck CHECK (octet_length(signature) = 64)
);

CREATE TABLE prekeys (
    tenant_id uuid    NOT NULL,
    device_id uuid    NOT NULL,
    id        integer NOT NULL,
    key       bytea   NOT NULL, -- X25519
    CONSTRAINT prekeys_pk PRIMARY KEY (tenant_id, device_id, id),
    -- Under two ids a key would be handed out twice.
    CONSTRAINT prekeys_key_uq UNIQUE (tenant_id, device_id, key),
    CONSTRAINT prekeys_device_fk FOREIGN KEY (tenant_id, device_id) REFERENCES devices (tenant_id, id),
    CONSTRAINT prekeys_id_ck CHECK (id > 0),
    CONSTRAINT prekeys_key_ck CHECK (octet_length(key) = 32)
);

-- The highest id of a one-time prekey that was ever uploaded. Whatever is not above it was
-- here before, and is not stored again when a device repeats itself.
ALTER TABLE devices
    ADD COLUMN last_prekey integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT devices_last_prekey_ck CHECK (last_prekey >= 0);
GRANT UPDATE (last_prekey) ON devices TO relay_service;

ALTER TABLE signed_prekeys ENABLE ROW LEVEL SECURITY;
ALTER TABLE signed_prekeys FORCE ROW LEVEL SECURITY;
CREATE POLICY signed_prekeys_service ON signed_prekeys TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

ALTER TABLE prekeys ENABLE ROW LEVEL SECURITY;
ALTER TABLE prekeys FORCE ROW LEVEL SECURITY;
CREATE POLICY prekeys_service ON prekeys TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

GRANT SELECT, INSERT, UPDATE (id, key, signature), DELETE ON signed_prekeys TO relay_service;
GRANT SELECT, INSERT, DELETE ON prekeys TO relay_service;

-- +goose Down
REVOKE UPDATE (last_prekey) ON devices FROM relay_service;
ALTER TABLE devices DROP COLUMN last_prekey;
DROP TABLE prekeys;
DROP TABLE signed_prekeys;
