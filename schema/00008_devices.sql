-- +goose Up

ALTER TABLE state_transition DROP CONSTRAINT state_transition_machine_ck;
ALTER TABLE state_transition ADD CONSTRAINT state_transition_machine_ck CHECK (machine IN ('device', 'room', 'invite'));
-- Forced policies bind its owner too, who may be the one that migrates.
ALTER TABLE state_transition NO FORCE ROW LEVEL SECURITY;
INSERT INTO state_transition (machine, from_state, event, to_state) VALUES
    ('invite', 'CREATED', 'consume', 'CONSUMED'),
    ('invite', 'CREATED', 'expire',  'EXPIRED'),
    ('invite', 'CREATED', 'revoke',  'REVOKED');
ALTER TABLE state_transition FORCE ROW LEVEL SECURITY;

-- What a device enrolled with. One that the operator made has no keys.
ALTER TABLE devices
    ADD COLUMN admin               boolean NOT NULL DEFAULT false,
    ADD COLUMN identity_key        bytea, -- Ed25519
    ADD COLUMN agreement_key       bytea, -- X25519
    ADD COLUMN agreement_signature bytea, -- by the first over the second
    -- What people compare before a device is approved.
    ADD COLUMN fingerprint         text COLLATE "C",
    ADD COLUMN approved_at         timestamptz,
    ADD COLUMN invite_id           uuid,
    ADD CONSTRAINT devices_identity_key_ck CHECK (octet_length(identity_key) = 32),
    ADD CONSTRAINT devices_agreement_key_ck CHECK (octet_length(agreement_key) = 32),
    ADD CONSTRAINT devices_agreement_signature_ck CHECK (octet_length(agreement_signature) = 64),
    ADD CONSTRAINT devices_fingerprint_ck CHECK (char_length(fingerprint) BETWEEN 1 AND 64),
    ADD CONSTRAINT devices_keys_ck CHECK (
        num_nulls(identity_key, agreement_key, agreement_signature, fingerprint, invite_id) IN (0, 5)),
    -- Of the tenant, so that nobody learns whether another tenant knows a key.
    ADD CONSTRAINT devices_identity_key_uq UNIQUE (tenant_id, identity_key),
    -- One invite never makes two devices, whatever else fails.
    ADD CONSTRAINT devices_invite_uq UNIQUE (tenant_id, invite_id);
CREATE INDEX devices_created_at_ix ON devices (tenant_id, created_at, id);

GRANT INSERT (admin, identity_key, agreement_key, agreement_signature, fingerprint, approved_at, invite_id),
    UPDATE (approved_at) ON devices TO relay_service;

CREATE TABLE invites (
    tenant_id     uuid        NOT NULL,
    id            uuid        NOT NULL,
    created_by    uuid, -- NULL: the operator
    kind          text        NOT NULL,
    admin         boolean     NOT NULL,
    token_hash    bytea       NOT NULL,
    state         text        NOT NULL DEFAULT 'CREATED',
    failed_proofs integer     NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    consumed_by   uuid,
    CONSTRAINT invites_pk PRIMARY KEY (tenant_id, id),
    CONSTRAINT invites_token_hash_uq UNIQUE (token_hash),
    CONSTRAINT invites_tenant_fk FOREIGN KEY (tenant_id) REFERENCES tenants (id),
    CONSTRAINT invites_created_by_fk FOREIGN KEY (tenant_id, created_by) REFERENCES devices (tenant_id, id),
    CONSTRAINT invites_consumed_by_fk FOREIGN KEY (tenant_id, consumed_by) REFERENCES devices (tenant_id, id),
    CONSTRAINT invites_kind_ck CHECK (kind IN ('human', 'agent')),
    -- BLAKE2b-256 of the token, which is stored nowhere.
    CONSTRAINT invites_token_hash_ck CHECK (octet_length(token_hash) = 32),
    CONSTRAINT invites_state_ck CHECK (state IN ('CREATED', 'CONSUMED', 'EXPIRED', 'REVOKED')),
    CONSTRAINT invites_failed_proofs_ck CHECK (failed_proofs BETWEEN 0 AND 10),
    CONSTRAINT invites_expires_at_ck CHECK (expires_at > created_at AND expires_at <= created_at + interval '10 minutes'),
    CONSTRAINT invites_consumed_by_ck CHECK ((state = 'CONSUMED') = (consumed_by IS NOT NULL))
);
CREATE INDEX invites_pending_ix ON invites (tenant_id, expires_at) WHERE state = 'CREATED';

ALTER TABLE devices ADD CONSTRAINT devices_invite_fk FOREIGN KEY (tenant_id, invite_id) REFERENCES invites (tenant_id, id);

CREATE TRIGGER invites_transition BEFORE UPDATE OF state ON invites
    FOR EACH ROW EXECUTE FUNCTION enforce_transition('invite');

ALTER TABLE invites ENABLE ROW LEVEL SECURITY;
ALTER TABLE invites FORCE ROW LEVEL SECURITY;
CREATE POLICY invites_service ON invites TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- Enrolling comes before the tenant is known, as hello does.
CREATE POLICY invites_bearer ON invites FOR SELECT TO relay_service
    USING (token_hash = relay_token());

GRANT SELECT, INSERT (tenant_id, id, created_by, kind, admin, token_hash, expires_at),
    UPDATE (state, failed_proofs, consumed_by) ON invites TO relay_service;

-- What a device must sign to sign in. Without a reference to devices: one that does not
-- exist gets a challenge too.
CREATE TABLE device_challenges (
    tenant_id  uuid        NOT NULL,
    device_id  uuid        NOT NULL,
    nonce_hash bytea       NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT device_challenges_pk PRIMARY KEY (tenant_id, device_id, nonce_hash),
    CONSTRAINT device_challenges_tenant_fk FOREIGN KEY (tenant_id) REFERENCES tenants (id),
    CONSTRAINT device_challenges_nonce_hash_ck CHECK (octet_length(nonce_hash) = 32)
);
CREATE INDEX device_challenges_expires_at_ix ON device_challenges (tenant_id, expires_at);

ALTER TABLE device_challenges ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_challenges FORCE ROW LEVEL SECURITY;
CREATE POLICY device_challenges_service ON device_challenges TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');

GRANT SELECT, INSERT, DELETE ON device_challenges TO relay_service;

CREATE TABLE device_tokens (
    tenant_id  uuid        NOT NULL,
    device_id  uuid        NOT NULL,
    token_hash bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT device_tokens_pk PRIMARY KEY (tenant_id, device_id, token_hash),
    CONSTRAINT device_tokens_token_hash_uq UNIQUE (token_hash),
    CONSTRAINT device_tokens_device_fk FOREIGN KEY (tenant_id, device_id) REFERENCES devices (tenant_id, id),
    CONSTRAINT device_tokens_token_hash_ck CHECK (octet_length(token_hash) = 32)
);

ALTER TABLE device_tokens ENABLE ROW LEVEL SECURITY;
ALTER TABLE device_tokens FORCE ROW LEVEL SECURITY;
CREATE POLICY device_tokens_service ON device_tokens TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY device_tokens_bearer ON device_tokens FOR SELECT TO relay_service
    USING (token_hash = relay_token());

GRANT SELECT, INSERT (tenant_id, device_id, token_hash, expires_at), UPDATE (revoked_at), DELETE
    ON device_tokens TO relay_service;

-- +goose Down
DROP TABLE device_tokens;
DROP TABLE device_challenges;
ALTER TABLE devices DROP CONSTRAINT devices_invite_fk;
DROP TABLE invites;
DROP INDEX devices_created_at_ix;
REVOKE INSERT (admin, identity_key, agreement_key, agreement_signature, fingerprint, approved_at, invite_id),
    UPDATE (approved_at) ON devices FROM relay_service;
ALTER TABLE devices
    DROP COLUMN invite_id, DROP COLUMN approved_at, DROP COLUMN fingerprint, DROP COLUMN agreement_signature,
    DROP COLUMN agreement_key, DROP COLUMN identity_key, DROP COLUMN admin;
ALTER TABLE state_transition NO FORCE ROW LEVEL SECURITY;
DELETE FROM state_transition WHERE machine = 'invite';
ALTER TABLE state_transition FORCE ROW LEVEL SECURITY;
ALTER TABLE state_transition DROP CONSTRAINT state_transition_machine_ck;
ALTER TABLE state_transition ADD CONSTRAINT state_transition_machine_ck CHECK (machine IN ('device', 'room'));
