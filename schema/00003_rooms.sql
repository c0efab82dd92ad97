-- +goose Up
CREATE TABLE rooms (
    tenant_id        uuid        NOT NULL,
    id               uuid        NOT NULL,
    kind             text        NOT NULL,
    scheme           text        NOT NULL,
    private_messages text        NOT NULL,
    state            text        NOT NULL DEFAULT 'CREATED',
    version          bigint      NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL DEFAULT now(),
    archived_at      timestamptz,
    CONSTRAINT rooms_pk PRIMARY KEY (tenant_id, id),
    -- An inbox subject names the room without its tenant.
    CONSTRAINT rooms_id_uq UNIQUE (id),
    CONSTRAINT rooms_tenant_fk FOREIGN KEY (tenant_id) REFERENCES tenants (id),
    CONSTRAINT rooms_kind_ck CHECK (kind IN ('group', 'direct')),
    CONSTRAINT rooms_scheme_ck CHECK (scheme IN ('sender_keys', 'mls', 'double_ratchet', 'none')),
    CONSTRAINT rooms_direct_scheme_ck CHECK (scheme <> 'double_ratchet' OR kind = 'direct'),
    CONSTRAINT rooms_private_messages_ck CHECK (private_messages IN ('allowed', 'refused')),
    CONSTRAINT rooms_state_ck CHECK (state IN ('CREATED', 'ACTIVE', 'REKEYING', 'ARCHIVED')),
    CONSTRAINT rooms_version_ck CHECK (version > 0),
    CONSTRAINT rooms_archived_at_ck CHECK ((state = 'ARCHIVED') = (archived_at IS NOT NULL))
);

CREATE TRIGGER rooms_transition BEFORE UPDATE OF state ON rooms
    FOR EACH ROW EXECUTE FUNCTION enforce_transition('room');

-- A membership. It is never deleted: left_at ends it, and its inbox id is never used again.
CREATE TABLE participants (
    tenant_id uuid        NOT NULL,
    id        uuid        NOT NULL,
    room_id   uuid        NOT NULL,
    device_id uuid        NOT NULL,
    role      text        NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT now(),
    left_at   timestamptz,
    CONSTRAINT participants_pk PRIMARY KEY (tenant_id, id),
    CONSTRAINT participants_room_uq UNIQUE (tenant_id, room_id, id),
    CONSTRAINT participants_room_fk FOREIGN KEY (tenant_id, room_id) REFERENCES rooms (tenant_id, id),
    CONSTRAINT participants_device_fk FOREIGN KEY (tenant_id, device_id) REFERENCES devices (tenant_id, id),
    CONSTRAINT participants_role_ck CHECK (role IN ('owner', 'controller', 'agent', 'viewer')),
    CONSTRAINT participants_left_at_ck CHECK (left_at >= joined_at)
);
CREATE UNIQUE INDEX participants_current_device_uq
    ON participants (tenant_id, room_id, device_id) WHERE left_at IS NULL;
CREATE INDEX participants_device_ix ON participants (tenant_id, device_id);

CREATE TABLE credentials (
    tenant_id      uuid        NOT NULL,
    id             uuid        NOT NULL,
    room_id        uuid        NOT NULL,
    participant_id uuid        NOT NULL,
    kind           text        NOT NULL,
    token_hash     bytea       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    expires_at     timestamptz NOT NULL,
    revoked_at     timestamptz,
    CONSTRAINT credentials_pk PRIMARY KEY (tenant_id, id),
    CONSTRAINT credentials_token_hash_uq UNIQUE (token_hash),
    CONSTRAINT credentials_participant_fk FOREIGN KEY (tenant_id, room_id, participant_id)
        REFERENCES participants (tenant_id, room_id, id),
    CONSTRAINT credentials_kind_ck CHECK (kind IN ('session', 'development')),
    -- BLAKE2b-256 of the token, which is stored nowhere.
    CONSTRAINT credentials_token_hash_ck CHECK (octet_length(token_hash) = 32)
);
CREATE INDEX credentials_participant_ix ON credentials (tenant_id, participant_id);

ALTER TABLE rooms ENABLE ROW LEVEL SECURITY;
ALTER TABLE rooms FORCE ROW LEVEL SECURITY;
CREATE POLICY rooms_service ON rooms TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
CREATE POLICY rooms_member ON rooms FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND EXISTS (
        SELECT FROM participants p
        WHERE p.tenant_id = rooms.tenant_id AND p.room_id = rooms.id
          AND p.device_id = relay_device() AND p.left_at IS NULL));

ALTER TABLE participants ENABLE ROW LEVEL SECURITY;
ALTER TABLE participants FORCE ROW LEVEL SECURITY;
CREATE POLICY participants_service ON participants TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- A device sees its own memberships. (A policy cannot ask its own table who else is
-- in the room; the relay answers that as the service, after it checked membership.)
CREATE POLICY participants_self ON participants FOR SELECT TO relay_device
    USING (tenant_id = relay_tenant() AND device_id = relay_device());

ALTER TABLE credentials ENABLE ROW LEVEL SECURITY;
ALTER TABLE credentials FORCE ROW LEVEL SECURITY;
CREATE POLICY credentials_service ON credentials TO relay_service
    USING (tenant_id = relay_tenant() AND relay_actor() = 'service');
-- hello comes before the tenant is known: whoever has the token's hash sees that one row.
CREATE POLICY credentials_bearer ON credentials FOR SELECT TO relay_service
    USING (token_hash = relay_token());

-- No DELETE anywhere; kind, scheme, policy, role and the rest cannot change once
-- written; a room begins as CREATED; times are the database's.
GRANT SELECT, INSERT (tenant_id, id, kind, scheme, private_messages),
    UPDATE (state, version, archived_at) ON rooms TO relay_service;
GRANT SELECT, INSERT (tenant_id, id, room_id, device_id, role),
    UPDATE (left_at) ON participants TO relay_service;
GRANT SELECT, INSERT (tenant_id, id, room_id, participant_id, kind, token_hash, expires_at),
    UPDATE (revoked_at) ON credentials TO relay_service;
GRANT SELECT ON rooms, participants TO relay_device;

-- +goose Down
DROP POLICY rooms_member ON rooms;
DROP TABLE credentials;
DROP TABLE participants;
DROP TABLE rooms;
